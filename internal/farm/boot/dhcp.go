package boot

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/farm/lab"
)

// Ports of DHCP: RFC 2131 section 4.1, and that of boot servers, PXE 2.1 section 2.3.
const (
	dhcpPort   = 67
	clientPort = 68
	pxePort    = 4011
)

// maxFile is the room for a file name in the header of a packet, less its end.
const maxFile = 127

// DHCP decides what DHCP packets are answered.
type DHCP struct {
	Mode   lab.Mode
	Server netip.Addr // of the interface: whom loaders are fetched from
	Script string     // URL of the first script
	Loader string     // URL of the loader for HTTP boot
	TFTP   bool       // whether loaders can be fetched by TFTP
	// Boots says whether a machine is to boot anything of this server at all.
	Boots func(Client) bool

	// With mode Full:
	Leases *Leases
	Mask   net.IPMask
	Lease  time.Duration
	Router netip.Addr
	DNS    []netip.Addr
}

// Answer is a packet to send, and where to.
type Answer struct {
	Packet *dhcpv4.DHCPv4
	To     *net.UDPAddr // nil: to where the request came from
}

// Answer decides what a packet that came to a port is answered; nil is nothing.
func (d *DHCP) Answer(now time.Time, m *dhcpv4.DHCPv4, port int) *Answer {
	c := ReadClient(m)
	if m.OpCode != dhcpv4.OpcodeBootRequest || c.MAC == "" || (!m.GatewayIPAddr.IsUnspecified() && d.Mode == lab.Full) {
		return nil // relays come from other nets than that of the leases
	}
	// Another server was chosen. At its own port, a boot server is asked by some
	// firmware in the name of the server that gave the address.
	if id := m.ServerIdentifier(); port == dhcpPort && id != nil && !id.IsUnspecified() && !id.Equal(d.Server.AsSlice()) {
		if d.Leases != nil && m.MessageType() == dhcpv4.MessageTypeRequest {
			d.Leases.Forget(c.MAC)
		}
		return nil
	}
	boots := c.Kind != None && c.Kind != Unserved && d.Boots(c) && (d.TFTP || c.Kind == IPXE || c.Kind == EFIHTTP)
	switch {
	case port == pxePort:
		return d.bootServer(m, c, boots)
	case d.Mode == lab.Full:
		return d.lease(now, m, c, boots)
	case d.Mode == lab.Proxy && boots && m.MessageType() == dhcpv4.MessageTypeDiscover:
		return d.proxy(m, c)
	}
	return nil
}

// proxy is the offer that firmware adds to that of the lab's DHCP server.
func (d *DHCP) proxy(m *dhcpv4.DHCPv4, c Client) *Answer {
	r := d.reply(m, dhcpv4.MessageTypeOffer)
	d.netboot(r, c)
	vendorClass(r, c)
	if c.Kind == BIOS || c.Kind == IPXE {
		r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionVendorSpecificInformation, fromHeader))
	}
	return &Answer{r, destination(m, r)}
}

// fromHeader is option 43 of PXE: boot server discovery control, 6, with bit 3,
// "fetch the file that the header names and look for no other boot server" (PXE
// 2.1 section 2.2.2), and the end. UEFI does not get it: EDK II then asks again at
// port 4011, which works with more firmware than an offer that must do alone.
var fromHeader = []byte{6, 1, 8, 255}

// bootServer answers at port 4011 those who have an address.
func (d *DHCP) bootServer(m *dhcpv4.DHCPv4, c Client, boots bool) *Answer {
	if t := m.MessageType(); !boots || (t != dhcpv4.MessageTypeRequest && t != dhcpv4.MessageTypeInform) {
		return nil
	}
	r := d.reply(m, dhcpv4.MessageTypeAck)
	r.ClientIPAddr = m.ClientIPAddr
	d.netboot(r, c)
	vendorClass(r, c)
	return &Answer{Packet: r}
}

// lease answers as the only DHCP server of a net.
func (d *DHCP) lease(now time.Time, m *dhcpv4.DHCPv4, c Client, boots bool) *Answer {
	wanted, _ := netip.AddrFromSlice(m.RequestedIPAddress().To4())
	if wanted == (netip.Addr{}) || wanted.IsUnspecified() {
		wanted, _ = netip.AddrFromSlice(m.ClientIPAddr.To4())
	}
	kind := dhcpv4.MessageTypeAck
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
		var ok bool
		if wanted, ok = d.Leases.Offer(now, c.MAC, wanted); !ok {
			return nil
		}
	case dhcpv4.MessageTypeRequest:
		if !d.Leases.Take(now, c.MAC, wanted, d.Lease) {
			r := d.reply(m, dhcpv4.MessageTypeNak)
			return &Answer{r, &net.UDPAddr{IP: net.IPv4bcast, Port: clientPort}}
		}
	case dhcpv4.MessageTypeInform:
		wanted = netip.IPv4Unspecified() // it has an address
	case dhcpv4.MessageTypeDecline:
		d.Leases.Decline(now, c.MAC, wanted)
		return nil
	case dhcpv4.MessageTypeRelease:
		d.Leases.Forget(c.MAC)
		return nil
	default:
		return nil
	}
	r := d.reply(m, kind)
	r.YourIPAddr = wanted.AsSlice()
	r.UpdateOption(dhcpv4.OptSubnetMask(d.Mask))
	if m.MessageType() != dhcpv4.MessageTypeInform {
		r.UpdateOption(dhcpv4.OptIPAddressLeaseTime(d.Lease))
	}
	if d.Router.IsValid() {
		r.UpdateOption(dhcpv4.OptRouter(d.Router.AsSlice()))
	}
	if len(d.DNS) > 0 {
		var dns []net.IP
		for _, a := range d.DNS {
			dns = append(dns, a.AsSlice())
		}
		r.UpdateOption(dhcpv4.OptDNS(dns...))
	}
	if boots {
		d.netboot(r, c)
		if c.Kind == EFIHTTP {
			vendorClass(r, c) // without it, firmware does not take the offer as one for HTTP boot
		}
	}
	return &Answer{r, destination(m, r)}
}

// reply is an answer without what it is about.
func (d *DHCP) reply(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	r := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: m.HWType, ClientHWAddr: m.ClientHWAddr, TransactionID: m.TransactionID,
		Flags: m.Flags, GatewayIPAddr: m.GatewayIPAddr, Options: dhcpv4.Options{},
	}
	r.UpdateOption(dhcpv4.OptMessageType(kind))
	r.UpdateOption(dhcpv4.OptServerIdentifier(d.Server.AsSlice()))
	if id := m.Options.Get(dhcpv4.OptionClientMachineIdentifier); len(id) == 17 {
		r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionClientMachineIdentifier, bytes.Clone(id)))
	}
	return r
}

// netboot adds what to boot: iPXE the first script, all others iPXE.
func (d *DHCP) netboot(r *dhcpv4.DHCPv4, c Client) {
	file := map[Kind]string{BIOS: pxe.BIOS, EFI: pxe.EFI, EFIHTTP: d.Loader, IPXE: d.Script}[c.Kind]
	r.ServerIPAddr = d.Server.AsSlice()
	if c.Kind == BIOS || c.Kind == EFI {
		r.ServerHostName = d.Server.String()
	}
	// Some ROMs read the header only; in UEFI HTTP boot the option comes first.
	if len(file) <= maxFile {
		r.BootFileName = file
	}
	if c.Kind == EFIHTTP || len(file) > maxFile {
		r.UpdateOption(dhcpv4.OptBootFileName(file))
	}
}

// vendorClass says for which class of client an answer is.
func vendorClass(r *dhcpv4.DHCPv4, c Client) {
	class := pxeClass
	if c.Kind == EFIHTTP {
		class = httpClass
	}
	r.UpdateOption(dhcpv4.OptClassIdentifier(class))
}

// destination is where an answer goes: RFC 2131 section 4.1. A client without an
// address is answered by broadcast, since it answers no ARP yet.
func destination(m, r *dhcpv4.DHCPv4) *net.UDPAddr {
	switch {
	case !m.GatewayIPAddr.IsUnspecified():
		return &net.UDPAddr{IP: slices.Clone(m.GatewayIPAddr), Port: dhcpPort}
	case !m.ClientIPAddr.IsUnspecified() && r.MessageType() == dhcpv4.MessageTypeAck:
		return &net.UDPAddr{IP: slices.Clone(m.ClientIPAddr), Port: clientPort}
	}
	return &net.UDPAddr{IP: net.IPv4bcast, Port: clientPort}
}
