package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/fake"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
)

// scenarioEnv names the scenario that this program, started as a child by the
// code under test, plays instead of running tests.
const scenarioEnv = "P2PBW_TEST_SCENARIO"

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioEnv); name != "" {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, func(string) (cuda.Driver, string, error) {
			return scenarios[name]()
		}))
	}
	os.Exit(m.Run())
}

const (
	bdf0 = "0000:41:00.0"
	bdf1 = "0000:42:00.0"
	bdf2 = "0000:c1:00.0"
)

// system returns n GPUs.
func system(n int) *fake.System {
	s := &fake.System{CUDA: 12020, Default: fake.Link{GBps: 0.004, StagedGBps: 0.002, Latency: time.Microsecond}, Links: map[fake.Route]fake.Link{}}
	for _, bdf := range []string{bdf0, bdf1, bdf2}[:n] {
		s.GPUs = append(s.GPUs, fake.GPU{
			Info:     cuda.DeviceInfo{BDF: bdf, Name: "Simulated GPU", UUID: "00000000-0000-0000-0000-" + strings.ReplaceAll(bdf, ":", ""), Memory: 24 << 30, SMs: 4},
			HostGBps: 0.005, Copy: 0.008, Latency: 300 * time.Nanosecond,
		})
	}
	return s
}

const library = "libcuda.so.simulated"

// with returns a scenario of n GPUs with something wrong.
func with(n int, damage func(*fake.System)) func() (cuda.Driver, string, error) {
	return func() (cuda.Driver, string, error) {
		s := system(n)
		damage(s)
		return s, library, nil
	}
}

// link returns a change of the link between two GPUs.
func link(a, b int, l fake.Link) func(*fake.System) {
	return func(s *fake.System) { s.Links[fake.Route{Initiator: a, Peer: b}] = l }
}

var scenarios = map[string]func() (cuda.Driver, string, error){
	"three": with(3, func(s *fake.System) {
		link(0, 1, fake.Link{GBps: 0.004, StagedGBps: 0.002, Mirror: true})(s)
		link(1, 2, fake.Link{GBps: 0.001, StagedGBps: 0.002, Latency: time.Microsecond})(s)
		link(2, 1, fake.Link{NoAccess: true, StagedGBps: 0.002})(s)
	}),
	"two":        with(2, func(*fake.System) {}),
	"mirror":     with(2, link(0, 1, fake.Link{GBps: 0.004, StagedGBps: 0.002, Mirror: true})),
	"slow":       with(2, link(1, 0, fake.Link{GBps: 0.0015, StagedGBps: 0.002})),
	"hang":       with(2, link(0, 1, fake.Link{GBps: 0.004, StagedGBps: 0.002, Write: fake.Fault{Kind: fake.Hang}})),
	"good three": with(3, func(*fake.System) {}),
	"one":        with(1, func(*fake.System) {}),
	"no memory":  with(1, func(s *fake.System) { s.GPUs[0].Info.Memory = 1 << 15 }),
	"exclusive": with(2, func(s *fake.System) {
		s.GPUs[0].Retain = &cuda.Error{Call: "cuDevicePrimaryCtxRetain", Code: cuda.DeviceUnavailable, Name: "CUDA_ERROR_DEVICE_UNAVAILABLE", Text: "CUDA-capable device(s) is/are busy or unavailable"}
	}),
	"no compiler": with(1, func(s *fake.System) {
		s.GPUs[0].Load = &cuda.Error{Call: "cuModuleLoadDataEx", Code: cuda.NoJITCompiler, Name: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", Text: "PTX JIT compiler library not found"}
	}),
	"none": with(0, func(*fake.System) {}),
	"no driver": func() (cuda.Driver, string, error) {
		return nil, "", &cuda.Error{Call: "cuInit", Code: cuda.OperatingSystem, Name: "CUDA_ERROR_OPERATING_SYSTEM", Text: "OS call failed or operation not supported on this OS"}
	},
	"wrong version": func() (cuda.Driver, string, error) {
		return nil, "", &cuda.Error{Call: "cuInit", Code: cuda.VersionMismatch, Name: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Text: "system has unsupported display driver / cuda driver combination"}
	},
	"no library": func() (cuda.Driver, string, error) {
		return nil, "", &cuda.LibraryError{Tried: []cuda.Attempt{{Name: "libcuda.so.1", Err: os.ErrNotExist}}}
	},
	"launches do not block": func() (cuda.Driver, string, error) {
		if v := os.Getenv("CUDA_LAUNCH_BLOCKING"); v != "0" {
			return nil, "", errors.New("CUDA_LAUNCH_BLOCKING is " + v)
		}
		return system(1), library, nil
	},
	"crash": func() (cuda.Driver, string, error) { panic("simulated crash") },
	"stuck": func() (cuda.Driver, string, error) {
		time.Sleep(time.Hour)
		return nil, "", nil
	},
}

// measureIn runs the whole program in a scenario, with children, and returns
// its exit code, its result and what it wrote for a person.
func measureIn(t *testing.T, scenario string, args ...string) (int, measure.Result, string) {
	t.Helper()
	t.Setenv(scenarioEnv, scenario)
	var stdout, stderr bytes.Buffer
	args = append([]string{"--json", "--size=64KiB", "--seed=1", "--window=512KiB", "--opposed=false", "--latency=false"}, args...)
	code := run(t.Context(), args, nil, &stdout, &stderr, func(string) (cuda.Driver, string, error) {
		t.Error("the parent opened the driver")
		return nil, "", nil
	})
	s, err := jsonschema.NewCompiler().Compile(filepath.FromSlash("../../internal/measure/schema.json"))
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(stdout.Bytes()))
	require.NoError(t, err)
	require.NoError(t, s.Validate(v))
	var r measure.Result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &r))
	return code, r, stderr.String()
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		scenario string
		args     []string
		code     int
		verdict  measure.Verdict
		reason   string
	}{
		{"two", nil, 0, measure.OK, "2 ordered pairs of 2 GPUs"},
		{"two", []string{"--min=0.006"}, 1, measure.Slow, "below the floor"},
		{"one", nil, 0, measure.OK, "one GPU"},
		{"slow", nil, 1, measure.Slow, "slower than through host memory"},
		{"mirror", nil, 2, measure.WrongData, bdf0 + " to " + bdf1},
		{"wrong version", nil, 6, measure.Inconclusive, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
		{"crash", nil, 3, measure.Inconclusive, "simulated crash"},
		{"two", []string{"--pair=0000:41:00.0,0000:99:00.0"}, 3, measure.Inconclusive, "no GPU at 0000:99:00.0"},
		{"none", nil, 4, measure.Inconclusive, "the driver shows no GPU"},
		{"no driver", nil, 4, measure.Inconclusive, "CUDA_ERROR_OPERATING_SYSTEM"},
		{"exclusive", nil, 7, measure.Inconclusive, "another process uses the GPU in exclusive mode"},
		{"no memory", nil, 8, measure.Inconclusive, "CUDA_ERROR_OUT_OF_MEMORY"},
		{"no compiler", nil, 3, measure.Inconclusive, "install it beside libcuda.so.1"},
		{"no library", nil, 5, measure.Inconclusive, "no usable libcuda"},
	} {
		t.Run(tc.scenario+strings.Join(tc.args, " "), func(t *testing.T) {
			code, r, _ := measureIn(t, tc.scenario, tc.args...)
			assert.Equal(t, tc.code, code)
			assert.Equal(t, tc.verdict, r.Verdict)
			assert.Contains(t, r.Reason, tc.reason)
		})
	}
}

func TestTableWithoutJSON(t *testing.T) {
	t.Setenv(scenarioEnv, "no driver")
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 4, run(t.Context(), nil, nil, &stdout, &stderr, nil))
	assert.Contains(t, stderr.String(), "verdict: inconclusive: cuInit")
	assert.Empty(t, stdout.String())
}

func TestHangCostsOnlyItsPair(t *testing.T) {
	// Long enough for a busy host, on which the good pair must not seem to hang.
	code, r, _ := measureIn(t, "hang", "--timeout=5s")
	assert.Equal(t, 2, code)
	assert.Equal(t, measure.Hang, r.Verdict)
	assert.Contains(t, r.Reason, "write by ce: verify one copy: no answer from the GPU within 5s")
	require.Len(t, r.Pairs, 2)
	assert.Equal(t, measure.Hang, r.Pairs[0].Verdict)
	assert.Equal(t, "write by ce: verify one copy", r.Pairs[0].Step)
	assert.Len(t, r.Pairs[0].Measurements, 2, "what was measured before the hang is kept")
	assert.Equal(t, measure.OK, r.Pairs[1].Verdict)
}

// Children measure the same whatever the environment and the end of the flags.
func TestChildrenAreStartedInTheirOwnWay(t *testing.T) {
	t.Setenv("CUDA_LAUNCH_BLOCKING", "1")
	code, r, _ := measureIn(t, "launches do not block", "--")
	assert.Zero(t, code)
	assert.Equal(t, measure.OK, r.Verdict, r.Reason)
}

func TestPairsChosen(t *testing.T) {
	_, r, _ := measureIn(t, "three", "--pair=41:00.0,C1:00.0")
	assert.Equal(t, measure.OK, r.Verdict, r.Reason)
	require.Len(t, r.Devices, 2)
	require.Len(t, r.Pairs, 2)
	assert.Equal(t, [2]string{bdf0, bdf2}, [2]string{r.Pairs[0].Initiator, r.Pairs[0].Peer})
	assert.Equal(t, [2]string{bdf2, bdf0}, [2]string{r.Pairs[1].Initiator, r.Pairs[1].Peer})
}

// What a path can carry comes from the caller.
func TestCeilings(t *testing.T) {
	name := filepath.Join(t.TempDir(), "ceilings.json")
	require.NoError(t, os.WriteFile(name, []byte(`[{"initiator":"41:00.0","peer":"42:00.0","write_gbps":0.004,"read_gbps":0.008,"basis":"Gen9"}]`), 0o644))
	code, r, _ := measureIn(t, "two", "--ceilings="+name)
	assert.Equal(t, 1, code)
	assert.Contains(t, r.Reason, "is 50 % of the 0.01 GB/s that the path can carry (Gen9)")
	require.Len(t, r.Pairs, 2)
	assert.Equal(t, &measure.Ceiling{Initiator: bdf0, Peer: bdf1, WriteGBps: 0.004, ReadGBps: 0.008, Basis: "Gen9"}, r.Pairs[0].Ceiling)
	assert.Nil(t, r.Pairs[1].Ceiling)

	for text, want := range map[string]string{
		`{}`:                   "want an array of ceilings",
		`[{"peer":"41:00.0"}]`: "entry 0: \"\" is no PCI address",
		`[{"initiator":"41:00.0","peer":"42:00.0","write_gbps":-1}]`: "entry 0: less than nothing",
		`[{"from":1}]`: "unknown field",
	} {
		_, err := parse([]string{"--ceilings=-"}, strings.NewReader(text), io.Discard)
		require.ErrorContains(t, err, want, text)
	}
}

func TestProfiles(t *testing.T) {
	quick, err := parse(nil, nil, io.Discard)
	require.NoError(t, err)
	full, err := parse([]string{"--size=1MiB", "--profile=full", "--pair=41:00.0,42:00.0"}, nil, io.Discard)
	require.NoError(t, err)
	assert.Empty(t, quick.settings.Sweep)
	assert.Equal(t, []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30}, full.settings.Sweep)
	assert.Equal(t, int64(1<<20), full.settings.Size, "a flag outweighs its profile, wherever it stands")
	assert.Len(t, full.pairs, 1)
	none, err := parse([]string{"--profile=full", "--sweep=none"}, nil, io.Discard)
	require.NoError(t, err)
	assert.Empty(t, none.settings.Sweep)
}

func TestTable(t *testing.T) {
	for _, scenario := range []string{"three", "good three", "one", "no driver"} {
		t.Run(scenario, func(t *testing.T) {
			_, r, text := measureIn(t, scenario, "--latency", "--opposed")
			if scenario == "three" {
				assert.Contains(t, text, "ring write by ce: not tried, as "+bdf0+" to "+bdf1+": wrong-data")
			}
			if r.Inventory != nil {
				r.Inventory.DriverVersion = "535.261.03"
			}
			r.Seconds = 12
			for i := range r.Pairs {
				r.Pairs[i].VerifySeconds = 0.5
			}
			var b bytes.Buffer
			require.NoError(t, writeTable(&b, r))
			golden.Equal(t, "testdata/"+strings.ReplaceAll(scenario, " ", "-")+".txt", b.String())
		})
	}
}

func TestStuckChildIsKilled(t *testing.T) {
	t.Setenv(scenarioEnv, "stuck")
	for _, tc := range []struct {
		name    string
		timeout time.Duration
		cancel  bool
		kind    measure.ProblemKind
	}{
		{"by time", 100 * time.Millisecond, false, measure.Timeout},
		{"by the user", time.Hour, true, measure.Interrupted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p := startProcess(ctx, []string{"--child=" + partEnumerate}, nil)
			if tc.cancel {
				cancel()
			}
			out := p.wait(ctx, tc.timeout)
			require.NotNil(t, out.problem())
			assert.Equal(t, tc.kind, out.problem().Kind)
			assert.NotContains(t, out.problem().Text, "stuck in the kernel")
			assert.NotNil(t, p.cmd.ProcessState, "the child was not waited for")
		})
	}
}

func TestInterruptedRunIsInconclusive(t *testing.T) {
	t.Setenv(scenarioEnv, "two")
	ctx, cancel := context.WithCancel(t.Context())
	o, err := parse([]string{"--size=64KiB", "--window=512KiB"}, nil, os.Stderr)
	require.NoError(t, err)
	// The first line of progress is that of the first GPU.
	r := parent{options: o, log: writerFunc(func(b []byte) (int, error) {
		cancel()
		return len(b), nil
	})}.run(ctx)
	require.Len(t, r.Devices, 2)
	assert.Equal(t, measure.OK, r.Devices[0].Verdict)
	assert.Equal(t, measure.Inconclusive, r.Devices[1].Verdict)
	assert.Equal(t, measure.Interrupted, r.Pairs[1].Problem.Kind)
	assert.Equal(t, measure.Inconclusive, r.Verdict)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--size", "flag needs an argument"},
		{"--size=", "want a number"},
		{"--size=1MB", "want a number"},
		{"--size=-4096", "want a number"},
		{"--size=99999999999GiB", "want a number"},
		{"--size=65537", "want a multiple of 4096"},
		{"--size=4KiB", "at least 65536"},
		{"--samples=9", "want 10 to"},
		{"--samples=x", "invalid value"},
		{"--min=-1", "want GB/s"},
		{"--min=NaN", "want GB/s"},
		{"--slow=1.5", "want 0 to 1"},
		{"--slow=NaN", "want 0 to 1"},
		{"--profile=fast", "want quick or full"},
		{"--window=5", "want a multiple of 4096"},
		{"--sweep=4KiB,1", "want multiples of 4096"},
		{"--sweep=4KiB,x", "want a number"},
		{"--ceilings=/nonexistent", "no such file"},
		{"--timeout=0s", "want more than zero"},
		{"--pair=41:00.0", "want two addresses"},
		{"--pair=41:00.0,41:00.0", "want two GPUs"},
		{"--pair=41:00.0,42:20.0", "no PCI address"},
		{"--pair=41:00.0,42:00", "no PCI address"},
		{"--nonsense", "flag provided but not defined"},
		{"extra", "unexpected argument"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), []string{tc.args}, nil, &stdout, &stderr, nil)
			assert.Equal(t, exitUsage, code)
			assert.Contains(t, stderr.String(), tc.want)
			assert.Contains(t, stderr.String(), "--help")
			assert.Empty(t, stdout.String())
		})
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Zero(t, run(t.Context(), []string{"--help"}, nil, &stdout, &stderr, nil))
	assert.Contains(t, stderr.String(), "Exit codes:")
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"65536": 65536, "64KiB": 65536, "512MiB": 512 << 20, "2GiB": 2 << 30} {
		o, err := parse([]string{"--size", text}, nil, os.Stderr)
		require.NoError(t, err)
		assert.Equal(t, want, o.settings.Size, text)
	}
}

func FuzzParseBDF(f *testing.F) {
	for _, s := range []string{"0000:41:00.0", "41:00.0", "10000:e1:1f.7", "", ":.", "::.", "0:0:0.0.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		bdf, err := parseBDF(s)
		if err != nil {
			return
		}
		again, err := parseBDF(bdf)
		require.NoError(t, err)
		assert.Equal(t, bdf, again)
		assert.Regexp(t, `^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`, bdf)
	})
}

func TestVisible(t *testing.T) {
	assert.Empty(t, visible(nil))
	assert.Equal(t, []string{"CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"}, visible([]cuda.DeviceInfo{{UUID: "1"}, {UUID: "2"}}))
	assert.Empty(t, visible([]cuda.DeviceInfo{{UUID: "1", Name: "NVIDIA H200 MIG 1g.18gb"}}))
}
