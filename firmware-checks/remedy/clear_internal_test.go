package remedy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
)

// bench is a machine with four GPUs behind a switch that redirects.
type bench struct {
	t     *testing.T
	root  string
	state string
	plan  Plan
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, root: t.TempDir(), state: filepath.Join(t.TempDir(), "run", "acs.json")}
	gpu := fixture.GeForce(0x2684, 32*fixture.GiB, 32*fixture.GiB)
	m := fixture.Machine{Hosts: []fixture.Host{{Functions: []fixture.Function{
		fixture.RootPort("01.1", nil, fixture.Switch(fixture.ACS(fixture.KernelACS), gpu, gpu, gpu, gpu)),
	}}}}
	require.NoError(t, m.Write(b.root))
	f, err := facts.Gather(b.root, facts.Options{KernelLog: strings.NewReader("")})
	require.NoError(t, err)
	b.plan, err = NewPlan(f, Options{})
	require.NoError(t, err)
	require.Len(t, b.plan.Changes(), 4)
	return b
}

func (b *bench) config(address string) string {
	return filepath.Join(b.root, "sys/bus/pci/devices", address, "config")
}

// words are the registers of all ports, in hexadecimal.
func (b *bench) words() string {
	b.t.Helper()
	var out []string
	for _, p := range b.plan.Ports {
		raw, err := os.ReadFile(b.config(p.Address))
		require.NoError(b.t, err)
		out = append(out, fmt.Sprintf("%02x", binary.LittleEndian.Uint16(raw[p.Register:])))
	}
	return strings.Join(out, " ")
}

// poke writes two bytes of a port's configuration space.
func (b *bench) poke(address string, offset int, word uint16) {
	b.t.Helper()
	raw, err := os.ReadFile(b.config(address))
	require.NoError(b.t, err)
	binary.LittleEndian.PutUint16(raw[offset:], word)
	require.NoError(b.t, os.WriteFile(b.config(address), raw, 0o644))
}

const (
	redirecting = "1d 1d 1d 1d"
	cleared     = "11 11 11 11"
)

func TestClearAndRestore(t *testing.T) {
	b := newBench(t)
	before, err := os.ReadFile(b.config("0000:02:00.0"))
	require.NoError(t, err)

	done, err := Clear(b.root, b.state, b.plan.Changes())
	require.NoError(t, err)
	assert.Equal(t, cleared, b.words())
	require.Len(t, done, 4)
	assert.Equal(t, "0000:02:00.0: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)", done[0].String())

	saved, err := Load(b.state)
	require.NoError(t, err)
	assert.Equal(t, b.plan.Changes(), saved)

	done, err = Restore(b.root, b.state, false)
	require.NoError(t, err)
	assert.Equal(t, redirecting, b.words())
	require.Len(t, done, 4)
	assert.Equal(t, "0000:02:0c.0: 0x0011 (SV UF) -> 0x001d (SV RR CR UF)", done[3].String())
	after, err := os.ReadFile(b.config("0000:02:00.0"))
	require.NoError(t, err)
	assert.Equal(t, before, after, "no other byte was touched")

	assert.NoFileExists(t, b.state)
	_, err = Restore(b.root, b.state, false)
	assert.ErrorIs(t, err, ErrNoState, "there is nothing left to restore")
}

func TestClearWithoutState(t *testing.T) {
	b := newBench(t)
	_, err := Clear(b.root, "", b.plan.Changes())
	require.NoError(t, err)
	assert.Equal(t, cleared, b.words())
}

func TestNothingToClear(t *testing.T) {
	b := newBench(t)
	done, err := Clear(b.root, b.state, nil)
	require.NoError(t, err)
	assert.Empty(t, done)
	assert.NoFileExists(t, b.state)
}

// TestClearTwice has two ports lose what was cleared, as after their reset, and
// cleared again: the state still is that from before the first time.
func TestClearTwice(t *testing.T) {
	b := newBench(t)
	_, err := Clear(b.root, b.state, b.plan.Changes()[:3])
	require.NoError(t, err)
	second := b.plan.Changes()[2:]
	second[0].Before = 0x000d
	b.poke(second[0].Address, second[0].Register, 0x000d)
	second[0].After = 0x0001
	_, err = Clear(b.root, b.state, second)
	require.NoError(t, err)
	assert.Equal(t, "11 11 01 11", b.words())
	_, err = Restore(b.root, b.state, false)
	require.NoError(t, err)
	assert.Equal(t, redirecting, b.words())
}

func TestNoClearOfAnotherMachine(t *testing.T) {
	tests := map[string]struct {
		change func(b *bench, p Port)
		want   string
	}{
		"other bits":   {func(b *bench, p Port) { b.poke(p.Address, p.Register, 0x5d) }, "port 0000:02:08.0 has changed: its ACS control was 0x001d (SV RR CR UF) and is 0x005d (SV RR CR UF DT)"},
		"other device": {func(b *bench, p Port) { b.poke(p.Address, 2, 0xc030) }, "port 0000:02:08.0 has changed: it was 1000:c010 and is 1000:c030"},
		"no ACS":       {func(b *bench, p Port) { b.poke(p.Address, p.Register-control, 0x0019) }, fmt.Sprintf("port 0000:02:08.0 has changed: its ACS control is no longer at %#x", newBench(t).plan.Ports[2].Register)},
		"off the bus": {func(b *bench, p Port) {
			require.NoError(b.t, os.WriteFile(b.config(p.Address), []byte(strings.Repeat("\xff", 4096)), 0o644))
		}, "port 0000:02:08.0 has changed: it no longer answers"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			tt.change(b, b.plan.Ports[2])
			before := b.words()
			_, err := Clear(b.root, b.state, b.plan.Changes())
			assert.EqualError(t, err, tt.want)
			assert.ErrorAs(t, err, new(*ChangedError))
			assert.Equal(t, before, b.words(), "nothing was written")
			assert.NoFileExists(t, b.state)
		})
	}
}

func TestRestoreOfWhatHasChanged(t *testing.T) {
	b := newBench(t)
	_, err := Clear(b.root, b.state, b.plan.Changes())
	require.NoError(t, err)
	p := b.plan.Ports
	b.poke(p[0].Address, p[0].Register, 0x1d) // reset: as it was
	b.poke(p[1].Address, p[1].Register, 0x05) // somebody else
	require.NoError(t, os.Remove(b.config(p[2].Address)))

	_, err = Restore(b.root, b.state, false)
	assert.EqualError(t, err, "port 0000:02:04.0 has changed: its ACS control was left as 0x0011 (SV UF) and is 0x0005 (SV RR)")
	assert.FileExists(t, b.state)

	done, err := Restore(b.root, b.state, true)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.config(p[2].Address), make([]byte, 4096), 0o644))
	assert.Equal(t, "1d 1d 00 1d", b.words())
	assert.Equal(t, []Change{{p[1].Address, 0x05, 0x1d}, {p[3].Address, 0x11, 0x1d}}, done)
	assert.NoFileExists(t, b.state)
}

func TestRestoreRefusesPortsThatAreGone(t *testing.T) {
	b := newBench(t)
	_, err := Clear(b.root, b.state, b.plan.Changes())
	require.NoError(t, err)
	require.NoError(t, os.Remove(b.config("0000:02:0c.0")))
	_, err = Restore(b.root, b.state, false)
	assert.EqualError(t, err, "port 0000:02:0c.0 has changed: it is gone from the bus")
}

// faulty opens a bench's ports so that the write of one fails in some way.
type faulty struct {
	open opener
	port string
	// write stands in for the write of port, by how often it was asked before.
	write func(n int, w io.WriterAt, p []byte, off int64) (int, error)
}

func (f *faulty) at(address string) (space, error) {
	s, err := f.open(address)
	if err != nil || address != f.port {
		return s, err
	}
	return &faultySpace{space: s, write: f.write}, nil
}

type faultySpace struct {
	space
	n     int
	write func(n int, w io.WriterAt, p []byte, off int64) (int, error)
}

func (s *faultySpace) WriteAt(p []byte, off int64) (int, error) {
	s.n++
	return s.write(s.n-1, s.space, p, off)
}

func TestFailureInTheMiddleIsUndone(t *testing.T) {
	refused := &fs.PathError{Op: "pwrite", Path: "config", Err: syscall.EPERM}
	tests := map[string]struct {
		write     func(n int, w io.WriterAt, p []byte, off int64) (int, error)
		want      string
		words     string
		forbidden bool
		keeps     bool // the state
	}{
		"refused": {
			write: func(int, io.WriterAt, []byte, int64) (int, error) { return 0, refused },
			want:  "the kernel is locked down", words: redirecting, forbidden: true,
		},
		"ignored": {
			write: func(_ int, _ io.WriterAt, p []byte, _ int64) (int, error) { return len(p), nil },
			want:  "was written as 0x0011 (SV UF) and reads 0x001d (SV RR CR UF): the port does not take it", words: redirecting,
		},
		"failed after the write": {
			write: func(n int, w io.WriterAt, p []byte, off int64) (int, error) {
				m, err := w.WriteAt(p, off)
				if n == 0 {
					return m, errors.Join(err, syscall.EIO)
				}
				return m, err
			},
			want: "input/output error", words: redirecting,
		},
		"cannot be undone": {
			write: func(n int, w io.WriterAt, p []byte, off int64) (int, error) {
				if n == 0 {
					_, err := w.WriteAt(p, off)
					return 0, errors.Join(err, syscall.EIO)
				}
				return 0, syscall.ENODEV
			},
			want: "port 0000:02:08.0 keeps its new value: ", words: "1d 1d 11 1d", keeps: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			root, err := os.OpenRoot(b.root)
			require.NoError(t, err)
			defer root.Close()
			f := &faulty{open: sysfs(root), port: "0000:02:08.0", write: tt.write}
			_, err = clearPorts(f.at, b.state, b.plan.Changes())
			assert.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.forbidden, is[*ForbiddenError](err))
			assert.Equal(t, tt.words, b.words())
			if tt.keeps {
				assert.FileExists(t, b.state, "to try again")
			} else {
				assert.NoFileExists(t, b.state)
			}
		})
	}
}

func TestNoWriteWithoutSavedState(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Dir(b.state), nil, 0o644)) // no directory
	_, err := Clear(b.root, b.state, b.plan.Changes())
	assert.ErrorContains(t, err, "nothing was changed: ")
	assert.Equal(t, redirecting, b.words())
}

func TestForbidden(t *testing.T) {
	b := newBench(t)
	open := func(string) (space, error) {
		return nil, &ForbiddenError{&fs.PathError{Op: "openat", Path: "config", Err: syscall.EACCES}}
	}
	_, err := clearPorts(open, b.state, b.plan.Changes())
	assert.EqualError(t, err, "open configuration space of 0000:02:00.0: openat config: permission denied: run as root")
}

func TestBadState(t *testing.T) {
	for text, want := range map[string]string{
		"":              "unexpected end of JSON input",
		`{"version":2}`: "version 2, this program reads 1",
		`{"version":1,"ports":[{"address":"../../etc"}]}`:                       `port 0: "../../etc" is no address`,
		`{"version":1,"ports":[{"address":"0000:02:00.0","before":"29"}]}`:      `hexadecimal number "29" lacks its 0x prefix`,
		`{"version":1,"ports":[{"address":"0000:02:00.0","before":"0x10000"}]}`: "0x10000 is no register of 16 bits",
	} {
		b := newBench(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(b.state), 0o755))
		require.NoError(t, os.WriteFile(b.state, []byte(text), 0o644))
		_, err := Restore(b.root, b.state, true)
		assert.ErrorContains(t, err, want)
		assert.ErrorAs(t, err, new(*StateError))
		_, err = Clear(b.root, b.state, b.plan.Changes())
		assert.ErrorContains(t, err, want)
		assert.Equal(t, redirecting, b.words())
	}
}
