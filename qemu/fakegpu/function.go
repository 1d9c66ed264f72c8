package fakegpu

import (
	"io"
	"sync"

	"mkp2pimg/qemu/vfiouser"
)

// memory is what is behind a BAR.
type memory interface {
	io.ReaderAt
	io.WriterAt
}

// A function is one PCI function: it implements [vfiouser.Device].
type function struct {
	regions [vfiouser.NumRegions]vfiouser.Region
	irqs    [vfiouser.NumIRQs]uint32
	memory  map[int]memory // by BAR; zeros where there is none
	bars    map[int]BAR
	at      offsets
	powerOn space

	// moved has an element when the place of a BAR may have changed.
	moved chan struct{}

	mu  sync.Mutex
	now space
}

// header is what tells functions apart in the first 64 bytes of configuration
// space.
type header struct {
	device   uint16
	class    uint32
	revision uint8
	pin      uint8 // interrupt pin, 1 is INTA
}

// Vendor is NVIDIA's PCI vendor id. SubsystemVendor and Subsystem are what QEMU
// gives its own devices; no NVIDIA board has them: that is how software in the
// guest can tell an emulated GPU.
const (
	Vendor          = 0x10de
	SubsystemVendor = 0x1af4
	Subsystem       = 0x1100
)

// newFunction makes a function without capabilities.
func newFunction(h header, bars []BAR) *function {
	f := &function{bars: map[int]BAR{}, moved: make(chan struct{}, 1)}
	s := &f.powerOn
	s.set16(0x00, Vendor, 0)
	s.set16(0x02, h.device, 0)
	s.set16(commandRegister, 0, 0x0547) // I/O, memory, bus master, parity, SERR#, INTx disable
	s.clear16(0x06, 0xf900)             // errors in Status
	s.set32(0x08, h.class<<8|uint32(h.revision), 0)
	s.write[0x0c] = 0xff // cache line size
	s.set16(0x2c, SubsystemVendor, 0)
	s.set16(0x2e, Subsystem, 0)
	s.write[0x3c] = 0xff // interrupt line
	s.value[0x3d] = h.pin
	for _, b := range bars {
		f.bars[b.Index] = b
		f.regions[b.Index].Size = uint64(b.Size)
		s.bar(b)
	}
	f.regions[vfiouser.ConfigRegion].Size = configSize
	return f
}

// Registers in the first 64 bytes, PCIe 6.0, 7.5.1.
const (
	commandRegister = 0x04
	commandMemory   = 1 << 1
	firstBAR        = 0x10
)

// bar gives a base address register its type and, by its writable bits, its
// size; the address becomes 0.
func (s *space) bar(b BAR) {
	var kind uint32
	if b.IO {
		kind |= 1
	}
	if b.Bits64 {
		kind |= 4
	}
	if b.Prefetchable {
		kind |= 8
	}
	mask := ^(uint64(b.Size) - 1)
	off := firstBAR + 4*b.Index
	s.set32(off, kind, uint32(mask))
	if b.Bits64 {
		s.set32(off+4, 0, uint32(mask>>32))
	}
}

// Region implements [vfiouser.Device]. The size of a BAR is the one at
// power-on: the protocol has no message for a change.
func (f *function) Region(i int) vfiouser.Region { return f.regions[i] }

// IRQs implements [vfiouser.Device].
func (f *function) IRQs(i int) uint32 { return f.irqs[i] }

// Reset implements [vfiouser.Device]. Memory keeps its content.
func (f *function) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.powerOn
	f.tell()
}

// tell says that the place of a BAR may have changed.
func (f *function) tell() {
	select {
	case f.moved <- struct{}{}:
	default: // who follows has not looked yet
	}
}

// ReadRegion implements [vfiouser.Device].
func (f *function) ReadRegion(i int, p []byte, offset uint64) error {
	if i == vfiouser.ConfigRegion {
		f.readConfig(p, int(offset))
		return nil
	}
	m, ok := f.memory[i]
	if !ok {
		clear(p)
		return nil
	}
	_, err := m.ReadAt(p, int64(offset))
	return err
}

// WriteRegion implements [vfiouser.Device].
func (f *function) WriteRegion(i int, p []byte, offset uint64) error {
	if i == vfiouser.ConfigRegion {
		f.writeConfig(p, int(offset))
		return nil
	}
	m, ok := f.memory[i]
	if !ok {
		return nil
	}
	_, err := m.WriteAt(p, int64(offset))
	return err
}

// configRequest is the most that one configuration request of software reads.
const configRequest = 4

// readConfig reads configuration space.
//
// A client that sets the device up for its guest reads more at once than a
// configuration request can: QEMU the whole space. It then takes over the
// capabilities whose ids it knows, and of Resizable BAR it leaves the guest
// only the present size (vfio_setup_rebar_ecap in hw/vfio/pci.c). So that the
// guest gets the capability of the board, such a read is shown a vendor-specific
// one in its place. Requests of the guest, which reach here for every byte that
// QEMU did not take over, see it as it is.
func (f *function) readConfig(p []byte, off int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(p, f.now.value[off:])
	if id := f.at.rebar - off; len(p) > configRequest && f.at.rebar != 0 && id >= 0 && id < len(p) {
		p[id] = extVendor // the id's other byte is 0 in both
	}
}

// writeConfig writes configuration space and does what the write asks for.
func (f *function) writeConfig(p []byte, off int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.now
	f.now.store(off, p)
	f.resize(&before)
	// Initiate Function Level Reset reads as 0, so it is not in store's bits.
	const flr = expDevCtl + 1
	if i := f.at.express + flr - off; i >= 0 && i < len(p) && p[i]&(devCtlFLR>>8) != 0 && f.hasFLR() {
		f.now = f.powerOn
		f.tell()
	}
	if off < firstBAR+24 {
		f.tell()
	}
}

// hasFLR tells whether Device Capabilities has the FLR bit.
func (f *function) hasFLR() bool { return f.now.u32(f.at.express+4)&(1<<28) != 0 }

// resize gives the BARs whose size in the Resizable BAR control registers
// differs from the one before their new size. A size that the capability does
// not offer leaves the register as it was: PCIe 6.0, 7.8.6.3, leaves it
// undefined.
func (f *function) resize(before *space) {
	if f.at.rebar == 0 {
		return
	}
	n := int(f.now.value[f.at.rebar+rebarControl] >> rebarCount)
	for i := range n {
		at := f.at.rebar + rebarControl + i*rebarEntry
		control := f.now.u32(at)
		if control == before.u32(at) {
			continue
		}
		code := control & rebarSizeMask >> rebarSizeShift
		if offered := f.now.u32(at-4) >> 4; offered>>code&1 == 0 {
			f.now.set32(at, before.u32(at), rebarSizeMask)
			continue
		}
		b := f.bars[int(control&7)]
		b.Size = MiB << code
		f.now.bar(b)
	}
}

// size is the present size of a BAR by its writable bits.
func (f *function) size(index int) Size {
	f.mu.Lock()
	defer f.mu.Unlock()
	off := firstBAR + 4*index
	mask := uint64(f.now.writable32(off))
	if f.bars[index].Bits64 {
		mask |= uint64(f.now.writable32(off+4)) << 32
	} else {
		mask |= 0xffff_ffff << 32
	}
	return Size(-mask)
}
