package pcicfg

import "strings"

// ACSBits are the bits of the ACS Capability and ACS Control registers, which
// share one layout (PCI Express Base Specification, "ACS Extended
// Capability").
type ACSBits uint16

// The access controls.
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

const (
	acsCap  = 0x04
	acsCtl  = 0x06
	acsSize = 0x08
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
}

func (d *decoder) acs(off int) {
	if d.cfg.ACS != nil || !d.capture("ACS", off, acsSize) {
		return
	}
	d.cfg.ACS = &ACS{
		Offset:  off,
		Capable: ACSBits(d.u16(off+acsCap) & acsMask),
		Control: ACSBits(d.u16(off+acsCtl) & acsMask),
	}
}
