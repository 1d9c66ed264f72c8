package pcicfg

import "strings"

// ACSBits are the bits of the ACS Capability and ACS Control registers, which
// share one layout (PCIe 6.0 §7.7.11.2 and §7.7.11.3).
type ACSBits uint16

// The access controls. Their effects are in PCIe 6.0 §6.12.1.1; [ACSBits.Effects]
// words them.
const (
	SourceValidation    ACSBits = 0x01 // SV
	TranslationBlocking ACSBits = 0x02 // TB
	RequestRedirect     ACSBits = 0x04 // RR, peer requests go up to the root complex
	CompletionRedirect  ACSBits = 0x08 // CR, so do their completions
	UpstreamForwarding  ACSBits = 0x10 // UF
	EgressControl       ACSBits = 0x20 // EC, peer requests are let through by a vector of ports
	DirectTranslated    ACSBits = 0x40 // DT, translated requests are exempt from RR and EC

	// Redirecting are the controls that take peer traffic off the direct path
	// through a switch.
	Redirecting = RequestRedirect | CompletionRedirect | EgressControl

	acsMask = 0x7f
)

// Layout of the ACS Extended Capability (PCIe 6.0 §7.7.11).
const (
	acsCap    = 0x04
	acsCtl    = 0x06
	acsVector = 0x08 // Egress Control Vector, a bit for each port number
	acsSize   = 0x08 // without the vector

	acsEnhanced       = 1 << 7 // Capability: the fields of ACSEnhanced exist
	acsVectorShift    = 8      // Capability 15:8: bits of the vector
	acsVectorMax      = 256    // what a size of 0 stands for
	acsIOBlocking     = 1 << 7 // Control
	acsDownstreamBit  = 8      // Control 9:8
	acsUpstreamBit    = 10     // Control 11:10
	acsTargetMask     = 0x3
	acsUnclaimed      = 1 << 12 // Control
	acsVectorWordBits = 32
)

var acsNames = []struct {
	bit  ACSBits
	name string
}{
	{SourceValidation, "SV"},
	{TranslationBlocking, "TB"},
	{RequestRedirect, "RR"},
	{CompletionRedirect, "CR"},
	{UpstreamForwarding, "UF"},
	{EgressControl, "EC"},
	{DirectTranslated, "DT"},
}

// String returns the short names of the set bits, for example "SV RR CR UF",
// and "none" for no bit.
func (b ACSBits) String() string {
	var set []string
	for _, n := range acsNames {
		if b&n.bit != 0 {
			set = append(set, n.name)
		}
	}
	if set == nil {
		return "none"
	}
	return strings.Join(set, " ")
}

// MarshalText writes b as the register's hexadecimal value.
func (b ACSBits) MarshalText() ([]byte, error) { return Hex(b).MarshalText() }

// UnmarshalText reads what MarshalText writes.
func (b *ACSBits) UnmarshalText(text []byte) error {
	var h Hex
	if err := h.UnmarshalText(text); err != nil {
		return err
	}
	*b = ACSBits(h)
	return nil
}

// ACS is the decoded Access Control Services capability of a port or function.
type ACS struct {
	Offset int `json:"offset"`
	// Capable are the controls implemented, Control those switched on.
	Capable ACSBits `json:"capable"`
	Control ACSBits `json:"control"`
	// Egress are the port numbers (of [Link]) whose bit in the Egress Control
	// Vector is set: EC blocks requests to them, or redirects them with RR.
	// Without EC in Capable there is no vector.
	Egress []int `json:"egress,omitempty"`
	// EgressBits is the length of the vector, 0 without one.
	EgressBits int `json:"egress_bits,omitempty"`
	// Enhanced is nil when ACS Enhanced Capability is not implemented.
	Enhanced *ACSEnhanced `json:"enhanced,omitempty"`
}

// ACSEnhanced are the controls of the ACS Enhanced Capability (PCIe 6.0
// §6.12.4). They govern requests to the memory of ports themselves, and
// requests that no port claims, not those between the functions below.
type ACSEnhanced struct {
	// IOBlocking makes an upstream I/O request an error.
	IOBlocking bool `json:"io_blocking"`
	// DownstreamTargets and UpstreamTargets say what becomes of requests to a
	// BAR of a downstream port and of the switch's upstream port.
	DownstreamTargets TargetAccess `json:"downstream_targets"`
	UpstreamTargets   TargetAccess `json:"upstream_targets"`
	// UnclaimedRedirect sends requests that fall between the windows of the
	// downstream ports upstream instead of failing them.
	UnclaimedRedirect bool `json:"unclaimed_redirect"`
}

// TargetAccess is a Memory Target Access Control field (PCIe 6.0 §7.7.11.3).
type TargetAccess int

// Values of a Memory Target Access Control field; 3 is reserved.
const (
	TargetDirect     TargetAccess = 0
	TargetBlocked    TargetAccess = 1
	TargetRedirected TargetAccess = 2
)

func (d *decoder) acs(off int) {
	if d.cfg.ACS != nil || !d.capture("ACS", off, acsSize) {
		return
	}
	capable, control := d.u16(off+acsCap), d.u16(off+acsCtl)
	a := &ACS{
		Offset:  off,
		Capable: ACSBits(capable & acsMask),
		Control: ACSBits(control & acsMask),
	}
	d.cfg.ACS = a
	if extra := a.Control &^ a.Capable; extra != 0 {
		d.unknown("ACS capability at %#x has %s switched on, which it does not implement", off, extra)
	}
	if capable&acsEnhanced != 0 {
		a.Enhanced = &ACSEnhanced{
			IOBlocking:        control&acsIOBlocking != 0,
			DownstreamTargets: TargetAccess(control >> acsDownstreamBit & acsTargetMask),
			UpstreamTargets:   TargetAccess(control >> acsUpstreamBit & acsTargetMask),
			UnclaimedRedirect: control&acsUnclaimed != 0,
		}
	}
	if a.Capable&EgressControl != 0 {
		d.egress(a, int(capable>>acsVectorShift))
	}
}

// egress reads the vector of n bits that follows the registers of a.
func (d *decoder) egress(a *ACS, n int) {
	if n == 0 {
		n = acsVectorMax
	}
	start, words := a.Offset+acsVector, (n+acsVectorWordBits-1)/acsVectorWordBits
	if !d.capture("ACS egress control vector", a.Offset, acsVector+4*words) {
		return
	}
	a.EgressBits = n
	for port := range n {
		if d.u32(start+port/acsVectorWordBits*4)>>(port%acsVectorWordBits)&1 != 0 {
			a.Egress = append(a.Egress, port)
		}
	}
}
