package remedy

import (
	"fmt"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Word is the value of an ACS Control register (PCIe 6.0 §7.7.11.3), all 16
// bits of it: those above the access controls belong to ACS Enhanced Capability
// and are kept.
type Word uint16

// controls are the access controls of a register: SV to DT.
const controls = 0x7f

// Bits returns the access controls that are on.
func (w Word) Bits() pcicfg.ACSBits { return pcicfg.ACSBits(w & controls) }

// String returns "0x001d (SV RR CR UF)".
func (w Word) String() string { return fmt.Sprintf("%#04x (%s)", uint16(w), w.Bits()) }

// MarshalText writes the register's value: 0x001d.
func (w Word) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#04x", uint16(w)), nil }

// UnmarshalText reads what MarshalText writes.
func (w *Word) UnmarshalText(text []byte) error {
	var h pcicfg.Hex
	if err := h.UnmarshalText(text); err != nil {
		return err
	}
	if h > 0xffff {
		return fmt.Errorf("%s is no register of 16 bits", h)
	}
	*w = Word(h)
	return nil
}
