// P2pbw measures what GPUs can do with each other's memory, and verifies that
// the data arrives.
//
// Usage:
//
//	p2pbw [flags]
//
// It prints a table on standard error and, with --json, a result on standard
// output whose form is in internal/measure/schema.json. Enumeration, each GPU
// and each ordered pair are measured in a process of their own, which is killed
// when it makes no progress: a GPU that hangs costs its pairs, not the run.
//
// Exit codes:
//
//	0   each pair delivers right data; or there is one GPU, and it is sound
//	1   right data, but a pair is slower than it should be
//	2   a pair delivers wrong data, hangs, or has no usable peer access
//	3   could not tell
//	4   no NVIDIA GPU, or no driver loaded for it
//	5   no usable libcuda
//	64  wrong usage
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mkp2pimg/internal/measure"
)

const exitUsage = 64

func init() {
	// The children ask for a signal when their parent thread dies, so the main
	// goroutine, which starts them, stays on the thread that lives longest.
	runtime.LockOSThread()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, openDriver)
	stop()
	os.Exit(code)
}

// run is main with its surroundings given.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open opener) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "p2pbw: %v\nTry 'p2pbw --help'.\n", err)
		return exitUsage
	case o.child != "":
		return child(ctx, o, stdout, stderr, open)
	}
	r := parent{options: o, log: stderr}.run(ctx)
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			fmt.Fprintf(stderr, "p2pbw: writing the result: %v\n", err)
			return exitCode(measure.Result{Verdict: measure.Inconclusive})
		}
	}
	if err := writeTable(stderr, r); err != nil {
		return exitCode(measure.Result{Verdict: measure.Inconclusive})
	}
	return exitCode(r)
}

// exitCode returns the exit code that tells the verdict of r.
func exitCode(r measure.Result) int {
	if r.Problem != nil {
		switch r.Problem.Kind {
		case measure.NoGPU:
			return 4
		case measure.NoLibrary:
			return 5
		}
	}
	switch r.Verdict {
	case measure.OK:
		return 0
	case measure.Slow:
		return 1
	case measure.WrongData, measure.Hang, measure.Unusable:
		return 2
	default:
		return 3
	}
}

// Limits of the flags.
const (
	minSize    = 64 << 10
	minSamples = 10
	maxSamples = 100000
	sizeAlign  = 4096
)

type options struct {
	settings measure.Settings
	json     bool
	pairs    pairs // empty: all
	libcuda  string
	timeout  time.Duration
	child    string // what to do as a child; empty in the parent
}

// parse returns the options of the command line.
func parse(args []string, stderr io.Writer) (options, error) {
	o := options{settings: measure.Settings{Size: 512 << 20, Samples: minSamples}}
	fs := flag.NewFlagSet("p2pbw", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		fmt.Fprint(stderr, "Usage: p2pbw [flags]\n\nMeasures peer-to-peer copies between GPUs and verifies the data.\n\n")
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
		fmt.Fprint(stderr, "\nExit codes: 0 ok, 1 slow, 2 wrong data or unusable, 3 could not tell, 4 no GPU,\n5 no libcuda, 64 usage.\n")
	}
	fs.BoolVar(&o.json, "json", false, "print the result as JSON on standard output")
	fs.Var((*bytesValue)(&o.settings.Size), "size", "`bytes` per copy, a multiple of 4KiB; KiB, MiB and GiB are understood")
	fs.IntVar(&o.settings.Samples, "samples", o.settings.Samples, "timed samples per measurement, at least 10")
	fs.Float64Var(&o.settings.MinGBps, "min", 0, "bandwidth in `GB/s` below which a pair is slow")
	fs.BoolVar(&o.settings.Full, "full", false, "verify all of the buffer instead of windows of it")
	fs.BoolVar(&o.settings.Staged, "staged", true, "also measure the copy through host memory, with peer access off")
	fs.Uint64Var(&o.settings.Seed, "seed", rand.Uint64(), "`seed` of the data; the default is random")
	fs.Var(&o.pairs, "pair", "measure only the pair `BDF,BDF`, both ways; may be repeated")
	fs.StringVar(&o.libcuda, "libcuda", "", "load only this `file` instead of looking for libcuda.so.1")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "`time` without progress after which a GPU hangs")
	fs.StringVar(&o.child, "child", "", "for internal use: measure one `part` in this process")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	switch s := o.settings; {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case s.Size < minSize || s.Size%sizeAlign != 0:
		return o, fmt.Errorf("--size %d: want a multiple of %d, at least %d", s.Size, sizeAlign, minSize)
	case s.Samples < minSamples || s.Samples > maxSamples:
		return o, fmt.Errorf("--samples %d: want %d to %d", s.Samples, minSamples, maxSamples)
	case !(s.MinGBps >= 0 && s.MinGBps < 1e6):
		return o, fmt.Errorf("--min %v: want GB/s, zero or more", s.MinGBps)
	case o.timeout <= 0:
		return o, fmt.Errorf("--timeout %v: want more than zero", o.timeout)
	}
	return o, nil
}

// bytesValue is a flag in bytes.
type bytesValue int64

func (v *bytesValue) String() string { return strconv.FormatInt(int64(*v), 10) }

func (v *bytesValue) Set(s string) error {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 63-shift)
	if err != nil {
		return errors.New("want a number, with KiB, MiB or GiB behind it or nothing")
	}
	*v = bytesValue(n << shift)
	return nil
}

// pairs is a flag of pairs of BDFs.
type pairs [][2]string

func (v *pairs) String() string { return fmt.Sprint([][2]string(*v)) }

func (v *pairs) Set(s string) error {
	a, b, ok := strings.Cut(s, ",")
	if !ok {
		return errors.New("want two addresses with a comma between them, as in 0000:01:00.0,0000:02:00.0")
	}
	var p [2]string
	for i, text := range []string{a, b} {
		bdf, err := parseBDF(text)
		if err != nil {
			return err
		}
		p[i] = bdf
	}
	if p[0] == p[1] {
		return fmt.Errorf("%s twice: want two GPUs", p[0])
	}
	*v = append(*v, p)
	return nil
}

// parseBDF returns the full form of a PCI address whose domain may be left out.
func parseBDF(s string) (string, error) {
	if strings.Count(s, ":") == 1 {
		s = "0:" + s
	}
	bad := fmt.Errorf("%q is no PCI address such as 0000:01:00.0", s)
	at, function, ok := strings.Cut(s, ".")
	parts := strings.Split(at, ":")
	if !ok || len(parts) != 3 {
		return "", bad
	}
	var n [4]uint64
	for i, f := range []struct {
		text string
		bits int
	}{{parts[0], 32}, {parts[1], 8}, {parts[2], 5}, {function, 3}} {
		v, err := strconv.ParseUint(f.text, 16, f.bits)
		if err != nil {
			return "", bad
		}
		n[i] = v
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3]), nil
}
