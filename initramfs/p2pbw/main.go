// P2pbw measures what GPUs can do with each other's memory, and verifies that
// the data arrives.
//
// Usage:
//
//	p2pbw [flags]
//
// It prints tables on standard error or, with --json, a result on standard
// output, whose form is in internal/measure/schema.json. Enumeration, each GPU,
// each ordered pair and each set of pairs are measured in a process of their own,
// which is killed when it makes no progress: a GPU that hangs costs its pairs, not
// the run. What is measured, and how, is in docs/measuring.md.
//
// Exit codes:
//
//	0   each pair delivers right data; or there is one GPU, and it is sound
//	1   right data, but a pair is slower than it should be
//	2   a pair delivers wrong data, hangs, or has no usable peer access
//	3   could not tell
//	4   no NVIDIA GPU, or no driver loaded for it
//	5   no usable libcuda
//	6   libcuda and the kernel module are of different releases
//	7   could not tell: another process has a GPU for itself
//	8   could not tell: too little free memory of a GPU or of the host
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mkp2pimg/internal/kmsg"
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
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, openDriver)
	stop()
	os.Exit(code)
}

// run is main with its surroundings given.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, open opener) int {
	o, err := parse(args, stdin, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "p2pbw: %v\nTry 'p2pbw --help'.\n", err)
		return exitUsage
	case o.child != "":
		return child(ctx, o, stdout, stderr, open)
	}
	r := parent{options: o, log: stderr, sys: sysPCI, kernelLog: kmsg.Device}.run(ctx)
	if o.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			fmt.Fprintf(stderr, "p2pbw: writing the result: %v\n", err)
			return exitCode(measure.Result{Verdict: measure.Inconclusive})
		}
		return exitCode(r)
	}
	if err := writeTable(stderr, r); err != nil {
		return exitCode(measure.Result{Verdict: measure.Inconclusive})
	}
	return exitCode(r)
}

// exitCodes are those of problems that a user can solve, if nothing is known to be
// worse.
var exitCodes = map[measure.ProblemKind]int{
	measure.NoGPU: 4, measure.NoLibrary: 5, measure.Mismatched: 6, measure.Busy: 7, measure.NoMemory: 8,
}

// exitCode returns the exit code that tells the verdict of r.
func exitCode(r measure.Result) int {
	switch r.Verdict {
	case measure.OK:
		return 0
	case measure.Slow:
		return 1
	case measure.WrongData, measure.Hang, measure.Unusable:
		return 2
	}
	for _, p := range r.Problems() {
		if code, ok := exitCodes[p.Kind]; ok {
			return code
		}
	}
	return 3
}

// Limits of the flags.
const (
	minSize    = 64 << 10
	minSamples = 10
	maxSamples = 100000
	sizeAlign  = 4096
)

type options struct {
	args     []string // the command line
	settings measure.Settings
	fabric   measure.Fabric
	json     bool
	pairs    pairs // empty: all
	traffic  bool
	libcuda  string
	timeout  time.Duration
	child    string // what to do as a child; empty in the parent
}

// parse returns the options of the command line.
func parse(args []string, stdin io.Reader, stderr io.Writer) (options, error) {
	o, ceilings, err := flags(args, measure.Quick, stderr)
	if err == nil && o.settings.Profile != measure.Quick {
		// Once more: the profile decides what the other flags are by default.
		o, ceilings, err = flags(args, o.settings.Profile, io.Discard)
	}
	o.args = args
	if err == nil && ceilings != "" && o.child == "" {
		o.fabric.Ceilings, err = readCeilings(ceilings, stdin)
	}
	return o, err
}

// flags parses the command line with the defaults of a profile. It returns the
// options and where the ceilings are.
func flags(args []string, profile measure.Profile, stderr io.Writer) (o options, ceilings string, err error) {
	o.settings = measure.Preset(profile)
	fs := flag.NewFlagSet("p2pbw", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {} // also called on mistakes, of which the error is enough
	usage := func() {
		fmt.Fprint(stderr, "Usage: p2pbw [flags]\n\nMeasures what GPUs can do with each other's memory and verifies the data.\n\n")
		fs.SetOutput(stderr)
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
		fmt.Fprint(stderr, "\nExit codes: 0 ok, 1 slow, 2 wrong data or unusable, 3 could not tell, 4 no GPU,\n"+
			"5 no libcuda, 6 libcuda of another release than the kernel module, 7 GPU in use by\n"+
			"another process alone, 8 too little memory, 64 usage.\n")
	}
	set := &o.settings
	fs.StringVar((*string)(&set.Profile), "profile", string(profile), "`quick` or full: the defaults of the flags below")
	fs.BoolVar(&o.json, "json", false, "print the result as JSON on standard output")
	fs.Var((*bytesValue)(&set.Size), "size", "`bytes` per copy, a multiple of 4KiB; KiB, MiB and GiB are understood")
	fs.IntVar(&set.Samples, "samples", set.Samples, "timed samples per measurement, at least 10")
	fs.Var((*sizes)(&set.Sweep), "sweep", "`sizes` of the size sweep with commas between them; none: no sweep")
	fs.BoolVar(&set.Opposed, "opposed", set.Opposed, "also measure each way while the peer copies as much the other way")
	fs.BoolVar(&set.Latency, "latency", set.Latency, "also measure latencies and the copy engine's issue rate")
	fs.BoolVar(&set.Staged, "staged", set.Staged, "also measure the copy through host memory, with peer access off")
	fs.BoolVar(&o.traffic, "traffic", true, "also measure what several pairs do at the same time")
	fs.StringVar(&ceilings, "ceilings", "", "`file` with what each path can carry, as JSON; - is standard input")
	fs.Float64Var(&set.SlowFraction, "slow", set.SlowFraction, "`part` of its ceiling below which a pair is slow")
	fs.Float64Var(&set.MinGBps, "min", 0, "bandwidth in `GB/s` below which a pair is slow")
	fs.Var((*bytesValue)(&set.Window), "window", "`bytes` of a peer's memory in which to look how far it can be reached; 0: all that is free")
	fs.BoolVar(&set.Full, "full", false, "verify all of that instead of windows of it")
	fs.Uint64Var(&set.Seed, "seed", rand.Uint64(), "`seed` of the data; the default is random")
	fs.Var(&o.pairs, "pair", "measure only the pair `BDF,BDF`, both ways; may be repeated")
	fs.StringVar(&o.libcuda, "libcuda", "", "load only this `file` instead of looking for libcuda.so.1")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "`time` without progress after which a GPU hangs")
	fs.StringVar(&o.child, "child", "", "for internal use: measure one `part` in this process")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			usage()
		}
		return o, "", err
	}
	if fs.NArg() > 0 {
		return o, "", fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, ceilings, o.check()
}

// check returns what is wrong with the options, or nil.
func (o options) check() error {
	switch s := o.settings; {
	case s.Profile != measure.Quick && s.Profile != measure.Complete:
		return fmt.Errorf("--profile %s: want %s or %s", s.Profile, measure.Quick, measure.Complete)
	case s.Size < minSize || s.Size%sizeAlign != 0:
		return fmt.Errorf("--size %d: want a multiple of %d, at least %d", s.Size, sizeAlign, minSize)
	case s.Samples < minSamples || s.Samples > maxSamples:
		return fmt.Errorf("--samples %d: want %d to %d", s.Samples, minSamples, maxSamples)
	case !(s.MinGBps >= 0 && s.MinGBps < 1e6):
		return fmt.Errorf("--min %v: want GB/s, zero or more", s.MinGBps)
	case !(s.SlowFraction >= 0 && s.SlowFraction <= 1):
		return fmt.Errorf("--slow %v: want 0 to 1", s.SlowFraction)
	case s.Window%sizeAlign != 0:
		return fmt.Errorf("--window %d: want a multiple of %d", s.Window, sizeAlign)
	case slices.ContainsFunc(s.Sweep, func(n int64) bool { return n < sizeAlign || n%sizeAlign != 0 }):
		return fmt.Errorf("--sweep %s: want multiples of %d", (*sizes)(&s.Sweep), sizeAlign)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %v: want more than zero", o.timeout)
	}
	return nil
}

// readCeilings reads an array of [measure.Ceiling] from the file called name.
func readCeilings(name string, stdin io.Reader) ([]measure.Ceiling, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--ceilings: %w", err)
		}
		defer f.Close() // only read
		stdin = f
	}
	dec := json.NewDecoder(stdin)
	dec.DisallowUnknownFields()
	var all []measure.Ceiling
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("--ceilings %s: want an array of ceilings: %w", name, err)
	}
	for i := range all {
		c := &all[i]
		for _, bdf := range []*string{&c.Initiator, &c.Peer} {
			full, err := parseBDF(*bdf)
			if err != nil {
				return nil, fmt.Errorf("--ceilings %s, entry %d: %w", name, i, err)
			}
			*bdf = full
		}
		if c.WriteGBps < 0 || c.ReadGBps < 0 {
			return nil, fmt.Errorf("--ceilings %s, entry %d: less than nothing", name, i)
		}
	}
	return all, nil
}

// bytesValue is a flag in bytes.
type bytesValue int64

func (v *bytesValue) String() string { return strconv.FormatInt(int64(*v), 10) }

func (v *bytesValue) Set(s string) error {
	n, err := parseBytes(s)
	*v = bytesValue(n)
	return err
}

// parseBytes reads a number of bytes, as "512MiB".
func parseBytes(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(number, 10, 63-shift)
	if err != nil {
		return 0, errors.New("want a number, with KiB, MiB or GiB behind it or nothing")
	}
	return int64(n << shift), nil
}

// sizes is a flag of numbers of bytes.
type sizes []int64

func (v *sizes) String() string {
	var texts []string
	for _, n := range *v {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return strings.Join(texts, ",")
}

func (v *sizes) Set(s string) error {
	*v = nil
	if s == "" || s == "none" {
		return nil
	}
	for text := range strings.SplitSeq(s, ",") {
		n, err := parseBytes(text)
		if err != nil {
			return err
		}
		*v = append(*v, n)
	}
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
