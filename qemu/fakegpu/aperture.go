package fakegpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"mkp2pimg/qemu/vfiouser"
)

// ApertureFunction is the function number of [GPU.Aperture] in its slot.
const ApertureFunction = 7

// aperture is the memory of a framebuffer BAR that has been resized.
//
// QEMU fixes the size of a BAR when the machine starts, so after the guest has
// enlarged one, only its beginning is there. The rest is this function's BAR 0,
// as large as the framebuffer BAR can be, which is moved to the same address.
// Its vendor id reads as absent, so neither firmware nor kernel finds it.
type aperture struct {
	*function
	mark uint32
}

// apertureMark is the offset of a word by which an aperture is found.
const apertureMark = configSize - 4

// marks makes every aperture's word another one.
var marks atomic.Uint32

func newAperture(fb BAR, vram *VRAM) *aperture {
	fb.Index, fb.Size = 0, fb.largest()
	f := newFunction(header{device: 0xffff, class: 0xff0000}, []BAR{fb})
	f.memory = map[int]memory{0: vram}
	f.regions[0].File = vram.file
	a := &aperture{f, 0x50524541 + marks.Add(1)}
	f.powerOn.set32(apertureMark, a.mark, 0)
	f.Reset()
	return a
}

// ReadRegion implements [vfiouser.Device]. Requests of the guest, unlike the
// read of a client that sets the device up, see no vendor.
func (a *aperture) ReadRegion(i int, p []byte, offset uint64) error {
	err := a.function.ReadRegion(i, p, offset)
	if i == vfiouser.ConfigRegion && len(p) <= configRequest && offset < 4 {
		for j := range p {
			p[j] = 0xff
		}
	}
	return err
}

// Aperture returns a function that is the memory behind the framebuffer BAR
// once the guest has enlarged it to its largest size. It belongs into function
// [ApertureFunction] of the slot and needs [Follow].
func (g *GPU) Aperture() vfiouser.Device { return g.aperture }

// place is where the framebuffer BAR is; the zero place is nowhere.
type place struct {
	address uint64
	size    Size
}

// place returns where a memory BAR is, nowhere while memory decoding is off.
func (f *function) place(index int) place {
	size := f.size(index)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now.u16(commandRegister)&commandMemory == 0 {
		return place{}
	}
	off := firstBAR + 4*index
	return place{uint64(f.now.u32(off+4))<<32 | uint64(f.now.u32(off)&^0xf), size}
}

// Follow moves the apertures of boards in one machine to where its guest puts
// their framebuffer BARs, until ctx ends (its error) or QEMU turns out to have ended (nil). It
// uses QEMU's qtest protocol on the UNIX socket at path (option -qtest), which
// takes one client. A move comes after the guest's request was answered, within
// milliseconds.
func Follow(ctx context.Context, path string, boards ...*GPU) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("follow framebuffer BARs: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer c.Close()
	q := &qtest{w: c, r: bufio.NewReader(c)}
	for _, g := range boards {
		group.Go(func() error { return g.follow(ctx, q) })
	}
	err = group.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// follow moves the aperture of one board.
func (g *GPU) follow(ctx context.Context, q *qtest) error {
	var at uint64
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.display.moved:
		}
		to := g.beyond()
		if to == at {
			continue
		}
		if err := q.move(g.aperture.mark, to); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("follow the framebuffer BAR to %#x: %w", to, err)
		}
		at = to
	}
}

// beyond returns where the aperture has to be: at the framebuffer BAR when that
// has its largest size and QEMU has it smaller, else nowhere, 0.
func (g *GPU) beyond() uint64 {
	to := g.display.place(g.fb.Index)
	if to.size != g.fb.largest() || to.size == g.fb.Size {
		return 0
	}
	return to.address
}

// A qtest speaks QEMU's qtest protocol, the comment at the top of
// system/qtest.c: lines of words.
type qtest struct {
	mu sync.Mutex // held for a whole move
	w  io.Writer
	r  *bufio.Reader
}

// do sends a command and returns the words after OK.
func (q *qtest) do(format string, args ...any) ([]string, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(q.w, line); err != nil {
		return nil, fmt.Errorf("qtest: %w", err)
	}
	for {
		answer, err := q.r.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("qtest: %q: %w", line, err)
		}
		switch words := strings.Fields(answer); {
		case len(words) > 0 && words[0] == "IRQ":
			continue
		case len(words) > 0 && words[0] == "OK":
			return words[1:], nil
		}
		return nil, fmt.Errorf("qtest: %q: answer %q", line, answer)
	}
}

func (q *qtest) load(address uint64) (uint32, error) {
	words, err := q.do("readl %#x", address)
	if err != nil {
		return 0, err
	}
	if len(words) != 1 {
		return 0, fmt.Errorf("qtest: readl %#x: answer of %d words", address, len(words))
	}
	v, err := strconv.ParseUint(words[0], 0, 64)
	if err != nil || v > 0xffff_ffff {
		return 0, fmt.Errorf("qtest: readl %#x: answer %q", address, words[0])
	}
	return uint32(v), nil
}

func (q *qtest) store(address uint64, v uint32) error {
	_, err := q.do("writel %#x %#x", address, v)
	return err
}

// Memory-mapped configuration space: where SeaBIOS and OVMF put it on a q35
// machine, and what is at its beginning there, the host bridge.
const (
	ecamSeaBIOS = 0xb000_0000
	ecamOVMF    = 0xe000_0000
	q35Bridge   = 0x29c0_8086
	busShift    = 20
	busCount    = 256
)

var errNoConfigSpace = errors.New("no memory-mapped configuration space at the places where SeaBIOS and OVMF put it")

// find returns the address of the configuration space of the aperture with a
// mark. The guest numbers buses as it likes, so all are asked.
func (q *qtest) find(mark uint32) (uint64, error) {
	for _, base := range []uint64{ecamSeaBIOS, ecamOVMF} {
		bridge, err := q.load(base)
		if err != nil {
			return 0, err
		}
		if bridge != q35Bridge {
			continue
		}
		for bus := range uint64(busCount) {
			at := base + bus<<busShift + ApertureFunction<<12
			v, err := q.load(at + apertureMark)
			if err != nil {
				return 0, err
			}
			if v == mark {
				return at, nil
			}
		}
		return 0, fmt.Errorf("no aperture answers on any bus; it belongs into function %d of the board's slot", ApertureFunction)
	}
	return 0, errNoConfigSpace
}

// move puts the aperture with a mark at an address; 0 takes it away.
func (q *qtest) move(mark uint32, address uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, err := q.find(mark)
	if err != nil {
		return err
	}
	type write struct {
		off uint64
		v   uint32
	}
	writes := []write{{commandRegister, 0}}
	if address != 0 {
		writes = append(writes, write{firstBAR, uint32(address)}, write{firstBAR + 4, uint32(address >> 32)},
			write{commandRegister, commandMemory})
	}
	for _, w := range writes {
		if err := q.store(at+w.off, w.v); err != nil {
			return err
		}
	}
	return nil
}
