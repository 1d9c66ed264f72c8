package boot

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/lab"
)

var (
	machine = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	noon    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// packet makes a request and takes it through its bytes.
func packet(t testing.TB, kind dhcpv4.MessageType, options ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	m, err := dhcpv4.New(append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(machine)}, options...)...)
	require.NoError(t, err)
	again, err := dhcpv4.FromBytes(m.ToBytes())
	require.NoError(t, err)
	return again
}

func option(code uint8, value string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(value)))
}

func arch(a iana.Arch) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptClientArch(a)) }

func server(t testing.TB, mode lab.Mode) *DHCP {
	t.Helper()
	leases, err := OpenLeases("", netip.MustParseAddr("10.0.0.100"), netip.MustParseAddr("10.0.0.103"), netip.MustParseAddr("10.0.0.1"))
	require.NoError(t, err)
	return &DHCP{
		Mode: mode, Server: netip.MustParseAddr("10.0.0.1"), TFTP: true, Boots: func(Client) bool { return true },
		Script: "http://10.0.0.1:8080/boot.ipxe", Loader: "http://10.0.0.1:8080/loaders/snponly.efi",
		Leases: leases, Mask: net.CIDRMask(24, 32), Lease: time.Hour,
		Router: netip.MustParseAddr("10.0.0.254"), DNS: []netip.Addr{netip.MustParseAddr("10.0.0.53")},
	}
}

// clients are those that start from the network, by what they send.
var clients = map[string]struct {
	options []dhcpv4.Modifier
	kind    Kind
	file    string
}{
	"BIOS":               {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), arch(0)}, BIOS, "undionly.kpxe"},
	"BIOS by class only": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001")}, BIOS, "undionly.kpxe"},
	"UEFI, 7":            {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003000"), arch(7)}, EFI, "snponly.efi"},
	"UEFI, 9":            {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00009:UNDI:003000"), arch(9)}, EFI, "snponly.efi"},
	"UEFI by class only": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007:UNDI:003000")}, EFI, "snponly.efi"},
	"UEFI HTTP":          {[]dhcpv4.Modifier{option(60, "HTTPClient:Arch:00016:UNDI:003001"), arch(16)}, EFIHTTP, "http://10.0.0.1:8080/loaders/snponly.efi"},
	"iPXE by BIOS": {
		[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), arch(0), option(77, "iPXE"), option(175, "\xb1\x05\x01\x1a\xf4\x10\x00\x13\x01\x01")},
		IPXE, "http://10.0.0.1:8080/boot.ipxe",
	},
	"iPXE by user class only": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007"), arch(7), option(77, "iPXE")}, IPXE, "http://10.0.0.1:8080/boot.ipxe"},
	"iPXE, RFC 3004":          {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00007"), arch(7), option(77, "\x04iPXE")}, IPXE, "http://10.0.0.1:8080/boot.ipxe"},
	"iPXE without HTTP": {
		[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000:UNDI:002001"), arch(0), option(77, "iPXE"), option(175, "\xb1\x05\x01\x1a\xf4\x10\x00\x18\x01\x01")},
		BIOS, "undionly.kpxe",
	},
	"UEFI of 32 bits":      {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00006:UNDI:003000"), arch(6)}, Unserved, ""},
	"UEFI of ARM":          {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00011:UNDI:003000"), arch(11)}, Unserved, ""},
	"UEFI HTTP of ARM":     {[]dhcpv4.Modifier{option(60, "HTTPClient:Arch:00019:UNDI:003001"), arch(19)}, Unserved, ""},
	"an operating system":  {nil, None, ""},
	"of another class":     {[]dhcpv4.Modifier{option(60, "MSFT 5.0")}, None, ""},
	"damaged option 175":   {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:00000"), option(175, "\xb1\xff\x01")}, BIOS, "undionly.kpxe"},
	"damaged architecture": {[]dhcpv4.Modifier{option(60, "PXEClient:Arch:x"), option(93, "\x07")}, BIOS, "undionly.kpxe"},
}

func TestFull(t *testing.T) {
	for name, tt := range clients {
		t.Run(name, func(t *testing.T) {
			d := server(t, lab.Full)
			assert.Equal(t, tt.kind, ReadClient(packet(t, dhcpv4.MessageTypeDiscover, tt.options...)).Kind)
			offer := d.Answer(noon, packet(t, dhcpv4.MessageTypeDiscover, tt.options...), dhcpPort)
			require.NotNil(t, offer)
			request := append([]dhcpv4.Modifier{
				dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 1))),
				dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.Packet.YourIPAddr)),
			}, tt.options...)
			ack := d.Answer(noon, packet(t, dhcpv4.MessageTypeRequest, request...), dhcpPort)
			require.NotNil(t, ack)
			for kind, a := range map[dhcpv4.MessageType]*Answer{dhcpv4.MessageTypeOffer: offer, dhcpv4.MessageTypeAck: ack} {
				p, err := dhcpv4.FromBytes(a.Packet.ToBytes())
				require.NoError(t, err)
				assert.Equal(t, kind, p.MessageType())
				assert.Equal(t, "255.255.255.255:68", a.To.String())
				assert.Equal(t, offer.Packet.YourIPAddr.String(), p.YourIPAddr.String())
				assert.Equal(t, "10.0.0.1", p.ServerIdentifier().String())
				assert.Equal(t, time.Hour, p.IPAddressLeaseTime(0))
				assert.Equal(t, "ffffff00", p.SubnetMask().String())
				assert.Equal(t, "10.0.0.254", p.Router()[0].String())
				assert.Equal(t, "10.0.0.53", p.DNS()[0].String())
				assert.Equal(t, tt.file, p.BootFileName)
				class := ""
				if tt.kind == EFIHTTP {
					class = "HTTPClient"
					assert.Equal(t, tt.file, p.BootFileNameOption())
				}
				assert.Equal(t, class, p.ClassIdentifier(), "firmware takes PXEClient for a hint at port 4011")
			}
		})
	}
}

func TestProxy(t *testing.T) {
	for name, tt := range clients {
		t.Run(name, func(t *testing.T) {
			d := server(t, lab.Proxy)
			id := option(97, "\x00\x44\x45\x4c\x4c\x34\x00\x10\x4d\x80\x51\xb4\xc0\x4f\x33\x32\x32")
			discover := packet(t, dhcpv4.MessageTypeDiscover, append([]dhcpv4.Modifier{id}, tt.options...)...)
			assert.Nil(t, d.Answer(noon, packet(t, dhcpv4.MessageTypeRequest, tt.options...), dhcpPort), "to another server")
			offer := d.Answer(noon, discover, dhcpPort)
			ack := d.Answer(noon, packet(t, dhcpv4.MessageTypeRequest, append([]dhcpv4.Modifier{dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 7))}, tt.options...)...), pxePort)
			if tt.file == "" {
				assert.Nil(t, offer)
				assert.Nil(t, ack)
				return
			}
			require.NotNil(t, offer)
			require.NotNil(t, ack)
			assert.Nil(t, ack.To, "back to where it came from")
			assert.Equal(t, dhcpv4.MessageTypeAck, ack.Packet.MessageType())
			p, err := dhcpv4.FromBytes(offer.Packet.ToBytes())
			require.NoError(t, err)
			assert.Equal(t, dhcpv4.MessageTypeOffer, p.MessageType())
			assert.True(t, p.YourIPAddr.IsUnspecified(), "the address is for the other server to give")
			assert.Equal(t, "10.0.0.1", p.ServerIPAddr.String())
			assert.Equal(t, tt.file, p.BootFileName)
			assert.Equal(t, tt.file, ack.Packet.BootFileName)
			assert.Len(t, p.Options.Get(dhcpv4.OptionClientMachineIdentifier), 17)
			class, fromHeader := "PXEClient", "\x06\x01\x08\xff"
			if tt.kind == EFIHTTP {
				class = "HTTPClient"
			}
			if tt.kind == EFI || tt.kind == EFIHTTP {
				fromHeader = ""
			}
			assert.Equal(t, class, p.ClassIdentifier())
			assert.Equal(t, fromHeader, string(p.Options.Get(dhcpv4.OptionVendorSpecificInformation)))
		})
	}
}

func TestNotAnswered(t *testing.T) {
	pxe := clients["BIOS"].options
	for name, tt := range map[string]struct {
		mode   lab.Mode
		port   int
		change func(*DHCP)
		m      *dhcpv4.DHCPv4
	}{
		"a machine that boots nothing of ours": {lab.Proxy, dhcpPort, func(d *DHCP) { d.Boots = func(Client) bool { return false } }, packet(t, dhcpv4.MessageTypeDiscover, pxe...)},
		"loaders that can't be fetched":        {lab.Proxy, dhcpPort, func(d *DHCP) { d.TFTP = false }, packet(t, dhcpv4.MessageTypeDiscover, pxe...)},
		"an answer":                            {lab.Full, dhcpPort, nil, packet(t, dhcpv4.MessageTypeDiscover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply })},
		"no Ethernet":                          {lab.Full, dhcpPort, nil, packet(t, dhcpv4.MessageTypeDiscover, func(m *dhcpv4.DHCPv4) { m.HWType = iana.HWTypeInfiniband })},
		"a relay, with leases":                 {lab.Full, dhcpPort, nil, packet(t, dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IPv4(10, 1, 0, 1)))},
		"no type":                              {lab.Full, dhcpPort, nil, packet(t, dhcpv4.MessageTypeNone)},
		"a discovery at the boot server":       {lab.Proxy, pxePort, nil, packet(t, dhcpv4.MessageTypeDiscover, pxe...)},
		"the choice of another server": {lab.Full, dhcpPort, nil,
			packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 0, 0, 2))))},
	} {
		t.Run(name, func(t *testing.T) {
			d := server(t, tt.mode)
			if tt.change != nil {
				tt.change(d)
			}
			assert.Nil(t, d.Answer(noon, tt.m, tt.port))
		})
	}
}

func TestRelay(t *testing.T) {
	m := packet(t, dhcpv4.MessageTypeDiscover, append([]dhcpv4.Modifier{dhcpv4.WithGatewayIP(net.IPv4(10, 1, 0, 1))}, clients["UEFI, 7"].options...)...)
	a := server(t, lab.Proxy).Answer(noon, m, dhcpPort)
	require.NotNil(t, a)
	assert.Equal(t, "10.1.0.1:67", a.To.String())
	assert.Equal(t, "10.1.0.1", a.Packet.GatewayIPAddr.String())
}

func TestRefusedAddress(t *testing.T) {
	d := server(t, lab.Full)
	for name, wanted := range map[string]net.IP{"of another net": {192, 168, 1, 5}, "none": {0, 0, 0, 0}} {
		a := d.Answer(noon, packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(wanted))), dhcpPort)
		require.NotNil(t, a, name)
		assert.Equal(t, dhcpv4.MessageTypeNak, a.Packet.MessageType(), name)
	}
	inform := d.Answer(noon, packet(t, dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(net.IPv4(10, 0, 0, 9))), dhcpPort)
	require.NotNil(t, inform)
	assert.Equal(t, "10.0.0.9:68", inform.To.String())
	assert.True(t, inform.Packet.YourIPAddr.IsUnspecified())
	assert.Zero(t, inform.Packet.IPAddressLeaseTime(0))
}

func TestUUIDs(t *testing.T) {
	c := ReadClient(packet(t, dhcpv4.MessageTypeDiscover, option(97, "\x00\x44\x45\x4c\x4c\x34\x00\x10\x4d\x80\x51\xb4\xc0\x4f\x33\x32\x32")))
	assert.Equal(t, []string{"4c4c4544-0034-4d10-8051-b4c04f333232", "44454c4c-3400-104d-8051-b4c04f333232"}, c.UUIDs)
	assert.Equal(t, "52:54:00:12:34:56", c.MAC)
	assert.Empty(t, ReadClient(packet(t, dhcpv4.MessageTypeDiscover, option(97, "\x00short"))).UUIDs)
}

// FuzzAnswer looks for packets that make a server panic, answer what is no request,
// or answer more than it was asked with (it must not be of use to flood others).
func FuzzAnswer(f *testing.F) {
	for _, c := range clients {
		f.Add(packet(f, dhcpv4.MessageTypeDiscover, c.options...).ToBytes(), false, dhcpPort)
		f.Add(packet(f, dhcpv4.MessageTypeRequest, c.options...).ToBytes(), true, pxePort)
	}
	for _, data := range firmwarePackets(f) {
		f.Add(data, true, dhcpPort)
		f.Add(data, false, pxePort)
	}
	f.Fuzz(func(t *testing.T, data []byte, full bool, port int) {
		m, err := dhcpv4.FromBytes(data)
		if err != nil {
			return
		}
		mode := lab.Proxy
		if full {
			mode = lab.Full
		}
		a := server(t, mode).Answer(noon, m, port)
		if a == nil {
			return
		}
		out := a.Packet.ToBytes()
		p, err := dhcpv4.FromBytes(out)
		require.NoError(t, err)
		assert.Equal(t, dhcpv4.OpcodeBootRequest, m.OpCode)
		assert.Equal(t, dhcpv4.OpcodeBootReply, p.OpCode)
		assert.Equal(t, m.TransactionID, p.TransactionID)
		assert.Less(t, len(out), 500)
	})
}
