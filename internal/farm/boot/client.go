// Package boot answers machines that start from the network: DHCP tells firmware
// which loader to fetch, TFTP and HTTP hand it out, the loader, iPXE, fetches a
// script over HTTP, and the script boots the image or the machine's disk.
//
// What is answered is decided apart from sockets: [DHCP] for packets, [Choose] for
// machines, and the templates of scripts. [Service] serves them.
package boot

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

// Kind is a program that asks DHCP for something to boot.
type Kind int

// The kinds.
const (
	None     Kind = iota // it asks for an address only, or this server has nothing for it
	BIOS                 // the ROM of a network card, by legacy BIOS
	EFI                  // PXE of UEFI, x86-64
	EFIHTTP              // HTTP boot of UEFI, x86-64
	IPXE                 // iPXE that knows HTTP
	Unserved             // a processor or firmware that the image does not run on
)

// Vendor classes, option 60: of PXE 2.1 section 2.2.1, and of UEFI 2.10 section
// 24.7.1, each with the architecture behind it.
const (
	pxeClass  = "PXEClient"
	httpClass = "HTTPClient"
)

// ipxeOptions is the option in which iPXE tells what it can do, and httpFeature
// the number in it of HTTP (iPXE, src/include/ipxe/features.h).
const (
	ipxeOptions = dhcpv4.GenericOptionCode(175)
	httpFeature = 0x13
)

// Client is what a DHCP packet says about the machine that sent it.
type Client struct {
	MAC  string // lower case with colons; empty: no Ethernet
	Kind Kind
	Arch iana.Arch
	// UUIDs are the SMBIOS UUID, option 97 of RFC 4578, in both orders of bytes:
	// firmware differs in which it sends.
	UUIDs []string
}

// ReadClient reads a packet.
func ReadClient(m *dhcpv4.DHCPv4) Client {
	c := Client{}
	if m.HWType == iana.HWTypeEthernet && len(m.ClientHWAddr) == 6 {
		c.MAC = m.ClientHWAddr.String()
	}
	if id := m.Options.Get(dhcpv4.OptionClientMachineIdentifier); len(id) == 17 && id[0] == 0 {
		c.UUIDs = bothOrders([16]byte(id[1:]))
	}
	class := m.ClassIdentifier()
	var known bool
	c.Arch, known = architecture(m, class)
	switch {
	case isIPXE(m):
		c.Kind = IPXE
	case strings.HasPrefix(class, pxeClass):
		c.Kind = Unserved
		switch {
		case !known || c.Arch == iana.INTEL_X86PC:
			c.Kind = BIOS
		case c.Arch == iana.EFI_X86_64 || c.Arch == iana.EFI_BC: // both are in use for x86-64: RFC 4578 errata 182
			c.Kind = EFI
		}
	case strings.HasPrefix(class, httpClass):
		c.Kind = Unserved
		if known && c.Arch == iana.EFI_X86_64_HTTP {
			c.Kind = EFIHTTP
		}
	}
	return c
}

// architecture is option 93, or what the vendor class says: PXEClient:Arch:00007.
func architecture(m *dhcpv4.DHCPv4, class string) (iana.Arch, bool) {
	if arch := m.Options.Get(dhcpv4.OptionClientSystemArchitectureType); len(arch) >= 2 {
		return iana.Arch(binary.BigEndian.Uint16(arch)), true
	}
	_, rest, _ := strings.Cut(class, ":Arch:")
	digits, _, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	return iana.Arch(n), err == nil
}

// isIPXE says whether iPXE asks, with HTTP in it. One without, as in the ROM of
// some cards, gets the loader as if it were firmware.
func isIPXE(m *dhcpv4.DHCPv4) bool {
	if features := m.Options.Get(ipxeOptions); len(features) > 0 {
		return hasFeature(features, httpFeature)
	}
	return slices.Contains(m.UserClass(), "iPXE")
}

// hasFeature looks for a number in encapsulated options.
func hasFeature(options []byte, code byte) bool {
	for len(options) >= 2 {
		if options[0] == code {
			return true
		}
		options = options[min(len(options), 2+int(options[1])):]
	}
	return false
}

// bothOrders are the texts of a UUID whose first three fields are big-endian, as
// RFC 4122 has them, and little-endian, as SMBIOS has them since 2.6.
func bothOrders(raw [16]byte) []string {
	swapped := raw
	slices.Reverse(swapped[0:4])
	slices.Reverse(swapped[4:6])
	slices.Reverse(swapped[6:8])
	return []string{uuid.UUID(swapped).String(), uuid.UUID(raw).String()}
}
