// Package vfiouser is the server side of the vfio-user protocol, version 0.1:
// it lets another process, such as QEMU with its vfio-user-pci device, use a
// PCI device that is a Go value.
//
// It is written from the protocol's specification, docs/interop/vfio-user.rst
// in the QEMU source; the numbers that specification takes from Linux stand in
// include/uapi/linux/vfio.h. A client is not trusted: sizes, indices and
// offsets are checked, and a message that breaks the protocol ends the
// connection with an error that names it.
package vfiouser

import "os"

// The regions of a PCI device, enum VFIO_PCI_*_REGION_INDEX of linux/vfio.h.
// Regions 0 to 5 are the base address registers.
const (
	ROMRegion    = 6 // expansion ROM
	ConfigRegion = 7 // configuration space
	VGARegion    = 8 // legacy VGA ranges
	NumRegions   = 9
)

// The interrupts of a PCI device, enum VFIO_PCI_*_IRQ_INDEX of linux/vfio.h.
const (
	INTxIRQ = iota
	MSIIRQ
	MSIXIRQ
	ErrorIRQ
	RequestIRQ
	NumIRQs
)

// A Region is a part of a device's address space.
type Region struct {
	// Size is the length in bytes; 0 means that the device has no such region.
	Size uint64
	// ReadOnly regions refuse writes.
	ReadOnly bool
	// File, when not nil, holds the region's content from offset 0 on, at
	// least Size bytes of it: the client may map it instead of sending
	// messages.
	File *os.File
}

// A Device is a PCI device as a vfio-user client sees it. Its methods are
// called by one goroutine at a time.
type Device interface {
	// Region describes region i, 0 <= i < NumRegions. What it says must not
	// change while a client is connected.
	Region(i int) Region
	// IRQs is the number of interrupt vectors of kind i, 0 <= i < NumIRQs.
	IRQs(i int) uint32
	// ReadRegion fills p with the content of region i from offset on; the
	// caller has made sure that the range lies within the region.
	ReadRegion(i int, p []byte, offset uint64) error
	// WriteRegion is ReadRegion's counterpart.
	WriteRegion(i int, p []byte, offset uint64) error
	// Reset puts the device into the state after power-on.
	Reset()
}
