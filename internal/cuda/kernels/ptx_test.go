package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
)

// entry matches the head of a kernel: its name and its parameters.
var entry = regexp.MustCompile(`(?s)\.visible \.entry (\w+)\(\n(.*?)\n\)`)

// entries returns the parameters of the PTX's kernels, by name.
func entries(ptx string) map[string][]string {
	m := map[string][]string{}
	for _, e := range entry.FindAllStringSubmatch(ptx, -1) {
		m[e[1]] = strings.Split(e[2], ",\n")
	}
	return m
}

// A recorder is a context and a stream that note the kernels launched.
type recorder struct {
	cuda.Context
	cuda.Stream
	launched map[string]int // number of parameters
}

type named string

func (n named) Name() string { return string(n) }

func (r *recorder) LoadModule(string) (cuda.Module, error)      { return r, nil }
func (r *recorder) Function(name string) (cuda.Function, error) { return named(name), nil }
func (r *recorder) Unload() error                               { return nil }
func (r *recorder) Close() error                                { return nil }
func (r *recorder) Fill(cuda.Ptr, uint32, int64) error          { return nil }
func (r *recorder) Copy(cuda.Ptr, cuda.Ptr, int64) error        { return nil }
func (r *recorder) Record(cuda.Event) error                     { return nil }
func (r *recorder) Launch(f cuda.Function, _, _ int, params ...uint64) error {
	r.launched[f.Name()] = len(params)
	return nil
}

// TestParameters launches every kernel and compares the number of parameters with
// the PTX, where each must be of 64 bits, as package cuda passes them.
func TestParameters(t *testing.T) {
	r := &recorder{launched: map[string]int{}}
	k, err := Load(r, 4)
	require.NoError(t, err)
	slot, gate := new(Slot), new(Gate)
	for _, size := range []int64{quad, strideFrom} {
		require.NoError(t, k.Copy(r, 0, 0, size, 1))
	}
	require.NoError(t, k.Fill(r, 0, Pattern{}, 0, quad))
	require.NoError(t, k.Read(r, slot, 0, quad))
	require.NoError(t, k.Verify(r, slot, 0, quad, Expectation{}))
	for _, sys := range []bool{false, true} {
		require.NoError(t, k.Chase(r, slot, 0, 1, 0, sys))
	}
	require.NoError(t, k.PingPong(r, slot, 0, 0, 1, true, time.Second))
	require.NoError(t, k.Produce(r, slot, Channel{}, time.Second))
	require.NoError(t, k.Consume(r, slot, Channel{}, time.Second))
	require.NoError(t, k.Atomics(r, slot, 0, 1, 1))
	require.NoError(t, k.Hold(r, gate, time.Second))

	want := entries(PTX)
	assert.Len(t, r.launched, len(want))
	assert.Len(t, names, len(want))
	for name, params := range want {
		assert.Equal(t, len(params), r.launched[name], name)
		for _, p := range params {
			assert.Regexp(t, `^\t\.param \.u64 p_\w+$`, p, name)
			loaded := regexp.MustCompile(`\[` + strings.Fields(p)[2] + `\]`)
			assert.Regexp(t, loaded, PTX[strings.Index(PTX, ".entry "+name+"("):], "%s never loads it", name)
		}
	}
}

// TestConstants finds the numbers that PTX and Go share in the PTX.
func TestConstants(t *testing.T) {
	for _, c := range []string{"0x9e3779b97f4a7c15", "0xf1de83e19937733d", "0x3c6ef372fe94f82a"} {
		assert.Contains(t, PTX, c)
	}
	assert.EqualValues(t, uint64(0x9e3779b97f4a7c15), uint64(golden))
	assert.EqualValues(t, uint64(0xf1de83e19937733d), uint64(inverse))
	one, g := uint64(inverse), uint64(golden)
	assert.EqualValues(t, 1, one*g)
	assert.EqualValues(t, uint64(0x3c6ef372fe94f82a), 2*g, "a quad is two words")
}

// TestAssemble lets NVIDIA's assembler judge the PTX, for the oldest GPU that it
// is for and for those after it.
func TestAssemble(t *testing.T) {
	ptxas := os.Getenv("MKP2PIMG_PTXAS")
	if ptxas == "" {
		var err error
		if ptxas, err = exec.LookPath("ptxas"); err != nil {
			t.Skip("no ptxas of NVIDIA's CUDA toolkit: neither in PATH nor named by MKP2PIMG_PTXAS")
		}
	}
	help, err := exec.CommandContext(t.Context(), ptxas, "--help").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	source := filepath.Join(dir, "kernels.ptx")
	require.NoError(t, os.WriteFile(source, []byte(PTX), 0o644))
	assembled := 0
	for _, sm := range []string{"75", "80", "86", "87", "89", "90", "100", "120"} {
		if !strings.Contains(string(help), "'sm_"+sm+"'") {
			continue
		}
		out, err := exec.CommandContext(t.Context(), ptxas, "-v", "-arch=sm_"+sm, "-o", filepath.Join(dir, "out"), source).CombinedOutput()
		require.NoError(t, err, "sm_%s: %s", sm, out)
		assert.NotRegexp(t, ` [1-9][0-9]* bytes spill`, string(out), "sm_%s: registers are kept in memory", sm)
		assembled++
	}
	assert.NotZero(t, assembled)
}
