// Package fakegpu emulates NVIDIA GPUs as firmware, kernel and a driver's probe
// see them: PCIe endpoints with the identity, base address registers,
// capabilities and few registers of a real board. They compute nothing. A
// vfio-user client such as QEMU gives them a place in a machine.
package fakegpu

// A Model is a board, from models.yaml.
type Model struct {
	// Name identifies the model, e.g. rtx-4090; Board is the product's name.
	Name  string `yaml:"name"`
	Board string `yaml:"board"`
	// Device, SubsystemVendor and Subsystem are PCI ids; the vendor is NVIDIA.
	Device          uint16 `yaml:"device"`
	SubsystemVendor uint16 `yaml:"subsystem_vendor"`
	Subsystem       uint16 `yaml:"subsystem"`
	// Class is the class code: base class, subclass and programming interface.
	Class uint32 `yaml:"class"`
	// Revision is the revision id.
	Revision uint8 `yaml:"revision"`
	// VRAM is the size of the board's memory in bytes.
	VRAM Size `yaml:"vram"`
	// BARs are the base address registers.
	BARs []BAR `yaml:"bars"`
	// Speed is the fastest link in GT/s x 10 steps of the specification: the
	// generation, 1 to 6; Width is the number of lanes.
	Speed int `yaml:"speed"`
	Width int `yaml:"width"`
	// Boot0 and Boot42 are the chip's identity registers NV_PMC_BOOT_0 and
	// NV_PMC_BOOT_42 in BAR 0.
	Boot0  uint32 `yaml:"boot0"`
	Boot42 uint32 `yaml:"boot42"`
	// Audio is the device id of function 1, an HD audio controller; 0 means
	// that the board has one function.
	Audio uint16 `yaml:"audio,omitempty"`
}

// A BAR is a base address register.
type BAR struct {
	// Index is the register's number, 0 to 5.
	Index int `yaml:"index"`
	// Size is its length in bytes; for a resizable BAR the one at power-on.
	Size Size `yaml:"size"`
	// IO is set for I/O ports, Bits64 and Prefetchable for memory.
	IO           bool `yaml:"io,omitempty"`
	Bits64       bool `yaml:"64,omitempty"`
	Prefetchable bool `yaml:"prefetchable,omitempty"`
	// Sizes, for the resizable BAR over the board's memory, lists the sizes it
	// can have.
	Sizes []Size `yaml:"sizes,omitempty"`
}

// Size is a number of bytes, written like 256M or 32G.
type Size uint64
