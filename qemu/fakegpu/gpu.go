package fakegpu

import (
	"errors"

	"mkp2pimg/qemu/vfiouser"
)

// Config says what one board in one slot is like.
type Config struct {
	Model Model
	// BAR is the size of the framebuffer BAR at power-on, as firmware would
	// have set it; 0 means the model's.
	BAR Size
	// MaxBAR, when not 0, removes the larger sizes from those the Resizable
	// BAR capability offers: a capped VBIOS.
	MaxBAR Size
	// NoReBAR removes the Resizable BAR capability: an old VBIOS.
	NoReBAR bool
	// Speed (generation) and Width (lanes) are the link's present state; 0
	// means the model's fastest and widest.
	Speed, Width int
	// NoATS removes the Address Translation Services capability.
	NoATS bool
	// VRAM is the memory behind the framebuffer BAR; nil means new memory of
	// the model's size. Two boards with the same VRAM show the same bytes.
	VRAM *VRAM
}

// A GPU is an emulated board. Its functions are served separately.
type GPU struct {
	functions []vfiouser.Device
	vram      *VRAM
}

// New makes the board that c describes. An error names the field at fault.
func New(c Config) (*GPU, error) { return nil, errors.ErrUnsupported }

// Functions returns the board's PCI functions: the display controller and, if
// the model has one, its audio controller. Function i belongs into function i
// of the slot.
func (g *GPU) Functions() []vfiouser.Device { return g.functions }

// VRAM returns the board's memory.
func (g *GPU) VRAM() *VRAM { return g.vram }

// Close releases the board's memory unless the Config brought it.
func (g *GPU) Close() error { return nil }

// Models returns the built-in models, in the order of models.yaml.
func Models() ([]Model, error) { return nil, errors.ErrUnsupported }

// ModelByName returns the built-in model of that name; the error lists those
// there are.
func ModelByName(name string) (Model, error) { return Model{}, errors.ErrUnsupported }
