package pcicfg

import (
	"fmt"
	"strconv"
	"strings"
)

// Hex is a register or an address. It is written in JSON as a string such as
// "0x001d": readable, and exact for the 64-bit addresses a JSON number would
// round.
type Hex uint64

// String returns h in hexadecimal with a 0x prefix.
func (h Hex) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// MarshalText implements encoding.TextMarshaler.
func (h Hex) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hex) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), "0x")
	if !ok {
		return fmt.Errorf("hexadecimal number %q lacks its 0x prefix", text)
	}
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return fmt.Errorf("hexadecimal number %q: %w", text, err)
	}
	*h = Hex(v)
	return nil
}
