// Package fakegpu emulates NVIDIA GPUs as firmware, kernel and a driver's probe
// see them: PCIe endpoints with the identity, base address registers,
// capabilities and few registers of a real board. They compute nothing. A
// vfio-user client such as QEMU gives them a place in a machine.
package fakegpu

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"gopkg.in/yaml.v3"
)

// A Model is a board, from models.yaml.
type Model struct {
	// Name identifies the model, e.g. rtx-4090; Board is the product's name.
	Name  string `yaml:"name"`
	Board string `yaml:"board"`
	// Device is the PCI device id; the vendor is NVIDIA.
	Device uint16 `yaml:"device"`
	// Class is the class code: base class, subclass and programming interface.
	Class uint32 `yaml:"class"`
	// Revision is the revision id; its hexadecimal digits are the chip's major
	// and minor revision.
	Revision uint8 `yaml:"revision"`
	// Chip is the chip id: architecture and implementation, such as 0x192 for
	// AD102.
	Chip uint16 `yaml:"chip"`
	// VRAM is the size of the board's memory.
	VRAM Size `yaml:"vram"`
	// Layout says where the capabilities are in configuration space.
	Layout Layout `yaml:"layout"`
	// Speed is the fastest link's generation, 1 to 6; Width its lanes.
	Speed int `yaml:"speed"`
	Width int `yaml:"width"`
	// Audio is the device id of function 1, an HD audio controller; 0 means
	// that the board has one function.
	Audio uint16 `yaml:"audio,omitempty"`
	// BARs are the base address registers in the order of their numbers.
	BARs []BAR `yaml:"bars"`
}

// A BAR is a base address register.
type BAR struct {
	// Index is the register's number, 0 to 5.
	Index int `yaml:"index"`
	// Size is the length; for a resizable BAR the one at power-on.
	Size Size `yaml:"size"`
	// IO is set for I/O ports, Bits64 and Prefetchable for kinds of memory.
	IO           bool `yaml:"io,omitempty"`
	Bits64       bool `yaml:"bits64,omitempty"`
	Prefetchable bool `yaml:"prefetchable,omitempty"`
	// Sizes are those the resizable BAR can have, ascending. Only the BAR over
	// the board's memory is resizable.
	Sizes Sizes `yaml:"sizes,omitempty"`
}

// Resizable tells whether b is the BAR over the board's memory.
func (b BAR) Resizable() bool { return len(b.Sizes) > 0 }

// Sizes are sizes of a BAR, written as a range of powers of two: 64MiB-32GiB.
type Sizes []Size

// UnmarshalText reads a range of powers of two.
func (s *Sizes) UnmarshalText(text []byte) error {
	first, last, ok := strings.Cut(string(text), "-")
	if !ok {
		return fmt.Errorf("sizes %q, want a range such as 64MiB-32GiB", text)
	}
	var from, to Size
	if err := from.UnmarshalText([]byte(first)); err != nil {
		return err
	}
	if err := to.UnmarshalText([]byte(last)); err != nil {
		return err
	}
	if !from.powerOfTwo() || !to.powerOfTwo() || from > to || from < MiB || to > maxBAR {
		return fmt.Errorf("sizes %q are not powers of two, ascending, from 1MiB to %v", text, maxBAR)
	}
	*s = nil
	for size := from; size <= to; size *= 2 {
		*s = append(*s, size)
	}
	return nil
}

// Layout names a placement of capabilities in configuration space.
type Layout string

// The layouts seen on real boards: Ampere and Ada boards, and Hopper and later.
const (
	GA102 Layout = "ga102"
	GH100 Layout = "gh100"
)

// Size is a number of bytes, written like 256MiB or 32GiB.
type Size uint64

// Binary multiples of a byte.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
)

// String returns the size in the largest unit that fits, such as 32 GiB.
func (s Size) String() string { return humanize.IBytes(uint64(s)) }

// UnmarshalText reads a size such as 256MiB.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil {
		return fmt.Errorf("size %q: %w", text, err)
	}
	*s = Size(n)
	return nil
}

// powerOfTwo tells whether s can be the size of a BAR.
func (s Size) powerOfTwo() bool { return s != 0 && s&(s-1) == 0 }

//go:embed models.yaml
var modelsYAML []byte

// Models returns the built-in models in the order of models.yaml.
var Models = sync.OnceValues(func() ([]Model, error) {
	models, err := ParseModels(modelsYAML)
	if err != nil {
		return nil, fmt.Errorf("models.yaml: %w", err)
	}
	return models, nil
})

// ModelByName returns the built-in model of that name; the error lists those
// there are.
func ModelByName(name string) (Model, error) {
	models, err := Models()
	if err != nil {
		return Model{}, err
	}
	var names []string
	for _, m := range models {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Model{}, fmt.Errorf("no GPU model %q; there are %s", name, strings.Join(names, ", "))
}

// ParseModels reads a file of models such as models.yaml and validates it.
func ParseModels(text []byte) ([]Model, error) {
	var file struct {
		Models []Model `yaml:"models"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, m := range file.Models {
		if err := m.validate(); err != nil {
			return nil, fmt.Errorf("model %q: %w", m.Name, err)
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("model %q is there twice", m.Name)
		}
		seen[m.Name] = true
	}
	return file.Models, nil
}

// validate refuses what no board could be.
func (m Model) validate() error {
	switch {
	case m.Name == "":
		return fmt.Errorf("no name")
	case m.Device == 0:
		return fmt.Errorf("no device id")
	case m.Class>>16 != 0x03 || m.Class > 0xffffff:
		return fmt.Errorf("class %#x is not a display controller's", m.Class)
	case m.Chip == 0 || m.Chip > 0x3ff:
		return fmt.Errorf("chip id %#x does not fit 10 bits", m.Chip)
	case m.VRAM == 0 || m.VRAM%MiB != 0:
		return fmt.Errorf("memory of %v is not a multiple of 1 MiB", m.VRAM)
	case m.Layout != GA102 && m.Layout != GH100:
		return fmt.Errorf("layout %q, want %s or %s", m.Layout, GA102, GH100)
	}
	if err := checkLink(m.Speed, m.Width); err != nil {
		return err
	}
	next, resizable := 0, 0
	for _, b := range m.BARs {
		if err := b.validate(); err != nil {
			return fmt.Errorf("BAR %d: %w", b.Index, err)
		}
		if b.Index < next {
			return fmt.Errorf("BAR %d overlaps the one before it", b.Index)
		}
		next = b.Index + 1
		if b.Bits64 {
			next++
		}
		if b.Resizable() {
			resizable++
		}
	}
	if next > 6 {
		return fmt.Errorf("BARs need %d registers, there are 6", next)
	}
	if resizable != 1 {
		return fmt.Errorf("%d resizable BARs, want 1", resizable)
	}
	if b := m.BARs[0]; b.Index != 0 || b.IO || b.Size < 16*MiB {
		return fmt.Errorf("BAR 0 must be at least 16 MiB of memory: it has the registers")
	}
	return nil
}

// leastBAR is the smallest memory BAR, PCIe 6.0, 7.5.1.2.1, and I/O BAR of a
// GPU.
const leastBAR = Size(128)

// validate refuses what the specification does not allow.
func (b BAR) validate() error {
	switch {
	case b.Index < 0 || b.Index > 5:
		return fmt.Errorf("index is not 0 to 5")
	case !b.Size.powerOfTwo() || b.Size < leastBAR:
		return fmt.Errorf("size %v is not a power of two of at least %v", b.Size, leastBAR)
	case b.IO && (b.Bits64 || b.Prefetchable || b.Resizable()):
		return fmt.Errorf("I/O ports are neither 64-bit nor prefetchable nor resizable")
	case !b.Bits64 && b.Size >= 4*GiB:
		return fmt.Errorf("%v needs a 64-bit BAR", b.Size)
	case !b.Resizable():
		return nil
	case !b.Bits64 || !b.Prefetchable:
		return fmt.Errorf("the framebuffer needs a 64-bit prefetchable BAR")
	case !slices.Contains(b.Sizes, b.Size):
		return fmt.Errorf("size %v is not one of %v", b.Size, b.Sizes)
	}
	return nil
}

// checkLink refuses links that PCI Express does not have.
func checkLink(speed, width int) error {
	if speed < 1 || speed > 6 {
		return fmt.Errorf("link generation %d, want 1 to 6", speed)
	}
	switch width {
	case 1, 2, 4, 8, 16:
		return nil
	}
	return fmt.Errorf("link width x%d, want x1, x2, x4, x8 or x16", width)
}
