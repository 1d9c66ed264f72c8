package fakegpu

import (
	"encoding/binary"
	"fmt"
	"slices"

	"mkp2pimg/qemu/vfiouser"
)

// Config says what one board in one slot is like.
type Config struct {
	Model Model
	// BAR is the size of the framebuffer BAR at power-on, as firmware would
	// have set it; 0 means the model's.
	BAR Size
	// MaxBAR, when not 0, removes the larger sizes from those the Resizable
	// BAR capability offers: a VBIOS that caps them.
	MaxBAR Size
	// NoReBAR removes the Resizable BAR capability: an old VBIOS.
	NoReBAR bool
	// Speed (generation) and Width (lanes) are the link's present state; 0
	// means the model's fastest and widest.
	Speed, Width int
	// ATS adds the Address Translation Services capability. No board here is
	// known to show one.
	ATS bool
	// VRAM is the memory behind the framebuffer BAR; nil means new memory. It
	// must be as long as the largest size of that BAR. Two boards with the
	// same VRAM show the same bytes.
	VRAM *VRAM
}

// A GPU is an emulated board. Its functions are served separately, each by
// [vfiouser.Serve].
type GPU struct {
	display  *function
	audio    *function // nil when the board has none
	aperture *aperture
	fb       BAR
	vram     *VRAM
	owned    bool
}

// New makes the board that c describes. An error names the field at fault.
func New(c Config) (*GPU, error) {
	c, fb, err := c.resolve()
	if err != nil {
		return nil, fmt.Errorf("emulated GPU %s: %w", c.Model.Name, err)
	}
	g := &GPU{fb: fb, vram: c.VRAM}
	if g.vram == nil {
		if g.vram, err = NewVRAM(max(fb.largest(), c.Model.VRAM)); err != nil {
			return nil, err
		}
		g.owned = true
	} else if g.vram.Size() < fb.largest() {
		return nil, fmt.Errorf("emulated GPU %s: VRAM of %v is smaller than BAR %d can be, %v",
			c.Model.Name, g.vram.Size(), fb.Index, fb.largest())
	}
	g.display = newDisplay(c, fb, g.vram)
	g.aperture = newAperture(fb, g.vram)
	if c.Model.Audio != 0 {
		g.audio = newAudio(c)
	}
	return g, nil
}

// resolve fills in defaults, applies c to the model's framebuffer BAR and
// returns both.
func (c Config) resolve() (Config, BAR, error) {
	if err := c.Model.validate(); err != nil {
		return c, BAR{}, err
	}
	if c.Speed == 0 {
		c.Speed = c.Model.Speed
	}
	if c.Width == 0 {
		c.Width = c.Model.Width
	}
	if err := checkLink(c.Speed, c.Width); err != nil {
		return c, BAR{}, err
	}
	if c.Speed > c.Model.Speed || c.Width > c.Model.Width {
		return c, BAR{}, fmt.Errorf("link Gen%d x%d is beyond the board's Gen%d x%d",
			c.Speed, c.Width, c.Model.Speed, c.Model.Width)
	}
	bars := slices.Clone(c.Model.BARs)
	c.Model.BARs = bars
	i := c.Model.framebuffer()
	if c.MaxBAR != 0 {
		var kept Sizes
		for _, size := range bars[i].Sizes {
			if size <= c.MaxBAR {
				kept = append(kept, size)
			}
		}
		if kept == nil {
			return c, BAR{}, fmt.Errorf("BAR %d is %v at least, more than the cap of %v",
				bars[i].Index, bars[i].Sizes[0], c.MaxBAR)
		}
		bars[i].Sizes = kept
		bars[i].Size = min(bars[i].Size, bars[i].largest())
	}
	if c.BAR != 0 {
		bars[i].Size = c.BAR
	}
	if err := bars[i].validate(); err != nil {
		return c, BAR{}, fmt.Errorf("BAR %d: %w", bars[i].Index, err)
	}
	return c, bars[i], nil
}

// framebuffer is the position of the BAR over the board's memory in BARs.
func (m Model) framebuffer() int {
	for i, b := range m.BARs {
		if b.Resizable() {
			return i
		}
	}
	return -1
}

// largest is the largest size of a resizable BAR.
func (b BAR) largest() Size { return b.Sizes[len(b.Sizes)-1] }

// Functions returns the board's PCI functions: the display controller and, if
// the model has one, its audio controller. Function i belongs into function i
// of the slot.
func (g *GPU) Functions() []vfiouser.Device {
	if g.audio == nil {
		return []vfiouser.Device{g.display}
	}
	return []vfiouser.Device{g.display, g.audio}
}

// VRAM returns the board's memory.
func (g *GPU) VRAM() *VRAM { return g.vram }

// BAR returns the size of the framebuffer BAR that software has set last.
func (g *GPU) BAR() Size { return g.display.size(g.fb.Index) }

// Close releases the board's memory unless the Config brought it.
func (g *GPU) Close() error {
	if !g.owned {
		return nil
	}
	return g.vram.Close()
}

// classAudio is the class code of HD audio controllers.
const classAudio = 0x040300

// Registers in BAR 0, src/common/inc/swref/published/nv_ref.h. NV_PMC_BOOT_1
// is 0 on a GPU that is not virtual, as is all that is not here.
const (
	pmcBoot0  = 0x000
	pmcBoot42 = 0xa00
)

// registers are the contents of BAR 0 that are not zero: what the driver reads
// in rm_is_supported_device and RmInitPrivateState to find out which chip it
// has.
func (m Model) registers() map[uint64]uint32 {
	chip, revision := uint32(m.Chip), uint32(m.Revision)
	return map[uint64]uint32{
		pmcBoot0:  chip<<20 | revision,
		pmcBoot42: chip<<20 | revision<<12,
	}
}

func newDisplay(c Config, fb BAR, vram *VRAM) *function {
	m := c.Model
	f := newFunction(header{
		device: m.Device, class: m.Class, revision: m.Revision, pin: 1,
	}, m.BARs)
	f.at = c.layOut(&f.powerOn)
	f.irqs = [vfiouser.NumIRQs]uint32{vfiouser.INTxIRQ: 1, vfiouser.MSIIRQ: 1}
	if m.Layout == GH100 {
		f.irqs[vfiouser.MSIIRQ], f.irqs[vfiouser.MSIXIRQ] = 16, 9
	}
	f.memory = map[int]memory{0: words(m.registers()), fb.Index: vram}
	f.regions[fb.Index].File = vram.file
	f.Reset()
	return f
}

// newAudio makes function 1 as lspci prints it for an RTX A6000.
func newAudio(c Config) *function {
	bars := []BAR{{Index: 0, Size: 16 * KiB}}
	f := newFunction(header{
		device: c.Model.Audio, class: classAudio, revision: c.Model.Revision, pin: 2,
	}, bars)
	s := &f.powerOn
	f.at.express = 0x78
	s.powerManagement(0x60, 0x0003)
	s.msi(0x68, 0x0080)
	s.express(f.at.express, express{
		devCap:  0x012c_8de1, // as the display's, 75 W, no FLR
		devCap2: 0x0007_0013,
		linkCap: 0x0045_3c00,
		link:    link{c.Model.Speed, c.Model.Width, c.Speed, c.Width},
	})
	s.aer(0x100, 0x0010_0000, 0x0007_6030, 0)
	s.dataLink(0x160)
	f.irqs = [vfiouser.NumIRQs]uint32{vfiouser.INTxIRQ: 1, vfiouser.MSIIRQ: 1}
	f.Reset()
	return f
}

// words is memory that holds a few 32-bit words, at multiples of 4, and zeros;
// writes are lost.
type words map[uint64]uint32

func (w words) ReadAt(p []byte, off int64) (int, error) {
	var word [4]byte
	for i := range p {
		at := uint64(off) + uint64(i)
		binary.LittleEndian.PutUint32(word[:], w[at&^3])
		p[i] = word[at&3]
	}
	return len(p), nil
}

func (w words) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
