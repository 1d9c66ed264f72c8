package fakegpu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/qemu/vfiouser"
)

func TestApertureIsHidden(t *testing.T) {
	g := board(t, "rtx-4090", nil)
	a := g.Aperture()
	assert.EqualValues(t, 0xffff_ffff, load(t, a, 0), "a guest finds nothing")
	whole := make([]byte, configSize)
	require.NoError(t, a.ReadRegion(vfiouser.ConfigRegion, whole, 0))
	assert.EqualValues(t, Vendor, binary.LittleEndian.Uint16(whole), "QEMU finds a device")
	assert.EqualValues(t, 32*GiB, a.Region(0).Size)

	const at = 0x7_0000_0000
	require.NoError(t, a.WriteRegion(0, []byte("far"), at))
	got := make([]byte, 3)
	_, err := g.VRAM().ReadAt(got, at)
	require.NoError(t, err)
	assert.Equal(t, "far", string(got))
	assert.NotEqual(t, load(t, a, apertureMark), load(t, board(t, "rtx-4090", nil).Aperture(), apertureMark))
}

// machine is QEMU as far as qtest shows it: configuration space at base, with
// apertures in function 7 of some buses.
type machine struct {
	t         *testing.T
	base      uint64
	apertures map[uint64]vfiouser.Device // by bus
	moves     chan string                // tells what was written to each Command register
}

// answer carries out one line of qtest.
func (m *machine) answer(line string) string {
	var op string
	var address, v uint64
	n, err := fmt.Sscanf(line, "%s 0x%x 0x%x", &op, &address, &v)
	if n < 2 {
		return fmt.Sprintf("FAIL %v", err)
	}
	at := address - m.base
	d := m.apertures[at>>busShift]
	switch {
	case address < m.base:
		return "OK 0xffffffff"
	case op == "readl" && at == 0:
		return fmt.Sprintf("OK %#016x", q35Bridge)
	case op == "readl" && (d == nil || at>>12&0xff != ApertureFunction):
		return "OK 0x00000000ffffffff"
	case op == "readl":
		return fmt.Sprintf("OK %#016x", load(m.t, d, at&0xfff))
	}
	store(m.t, d, at&0xfff, uint32(v))
	if at&0xfff == commandRegister {
		m.moves <- fmt.Sprintf("bus %d command %d at %#x%08x", at>>busShift, v, load(m.t, d, 0x14), load(m.t, d, 0x10)&^0xf)
	}
	return "IRQ raise 1\nOK"
}

// listen serves qtest and returns the path of its socket.
func (m *machine) listen() string {
	path := filepath.Join(m.t.TempDir(), "qtest")
	l, err := new(net.ListenConfig).Listen(m.t.Context(), "unix", path)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for s := bufio.NewScanner(c); s.Scan(); {
			fmt.Fprintln(c, m.answer(s.Text()))
		}
	}()
	return path
}

// enlarge does what a kernel does to move BAR 1 of a 4090 to an address after
// it gave it a size.
func enlarge(t *testing.T, d vfiouser.Device, code uint32, address uint64) {
	store(t, d, commandRegister, 0)
	store(t, d, 0xbb0+rebarControl+rebarEntry, 1|code<<8)
	store(t, d, 0x14, uint32(address))
	store(t, d, 0x18, uint32(address>>32))
	store(t, d, commandRegister, commandMemory)
}

func TestFollow(t *testing.T) {
	a, b := board(t, "rtx-4090", nil), board(t, "rtx-4090", nil)
	m := &machine{t, ecamOVMF, map[uint64]vfiouser.Device{3: a.Aperture(), 0x41: b.Aperture()}, make(chan string, 8)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	path := m.listen()
	go func() { done <- Follow(ctx, path, a, b) }()

	enlarge(t, b.Functions()[0], 15, 0x80_0000_0000)
	assert.Equal(t, "bus 65 command 0 at 0x000000000", <-m.moves)
	assert.Equal(t, "bus 65 command 2 at 0x8000000000", <-m.moves)
	enlarge(t, a.Functions()[0], 15, 0x90_0000_0000)
	assert.Equal(t, "bus 3 command 0 at 0x000000000", <-m.moves)
	assert.Equal(t, "bus 3 command 2 at 0x9000000000", <-m.moves)
	a.Functions()[0].Reset() // back to 256 MiB, which QEMU has
	assert.Equal(t, "bus 3 command 0 at 0x9000000000", <-m.moves)

	store(t, b.Functions()[0], 0x78+expDevCtl, devCtlFLR)
	assert.Equal(t, "bus 65 command 0 at 0x8000000000", <-m.moves, "function level reset")

	cancel()
	assert.ErrorIs(t, <-done, context.Canceled)
}

func TestFollowErrors(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		base       uint64
	}{
		{"no aperture", "follow the framebuffer BAR to 0x8000000000: no aperture answers on any bus; it belongs into function 7 of the board's slot", ecamSeaBIOS},
		{"no q35", "follow the framebuffer BAR to 0x8000000000: " + errNoConfigSpace.Error(), 1 << 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := board(t, "rtx-4090", nil)
			path := (&machine{t: t, base: tc.base}).listen()
			enlarge(t, g.Functions()[0], 15, 0x80_0000_0000)
			assert.EqualError(t, Follow(context.Background(), path, g), tc.want)
		})
	}
	err := Follow(context.Background(), filepath.Join(t.TempDir(), "absent"))
	assert.ErrorContains(t, err, "follow framebuffer BARs: dial unix ")
}

// TestPlace: the aperture is needed only for the largest size, and only when
// that is not the size QEMU knows.
func TestPlace(t *testing.T) {
	const at = 0x80_0000_0000
	for _, tc := range []struct {
		name   string
		change func(*Config)
		code   uint32
		want   uint64
	}{
		{"as at power-on", nil, 8, 0},
		{"half the largest", nil, 14, 0},
		{"largest", nil, 15, at},
		{"large from the start", func(c *Config) { c.BAR = 32 * GiB }, 15, 0},
	} {
		g := board(t, "rtx-4090", tc.change)
		enlarge(t, g.Functions()[0], tc.code, at)
		assert.Equal(t, tc.want, g.beyond(), tc.name)
		store(t, g.Functions()[0], commandRegister, 0)
		assert.Zero(t, g.beyond(), "memory decoding off")
	}
}

func FuzzQTest(f *testing.F) {
	f.Add("OK 0x0000000029c08086\n")
	f.Add("IRQ lower 3\nOK 1\n")
	f.Add("FAIL Unknown command\n")
	f.Fuzz(func(t *testing.T, answers string) {
		var sent bytes.Buffer
		q := &qtest{w: &sent, r: bufio.NewReader(strings.NewReader(answers))}
		v, err := q.load(0xb000_0000)
		if err == nil && !strings.Contains(answers, "OK") {
			t.Errorf("%#x from %q", v, answers)
		}
		assert.Equal(t, "readl 0xb0000000\n", sent.String())
		_, _ = io.Copy(io.Discard, q.r)
	})
}
