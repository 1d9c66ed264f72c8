// Package params reads the kernel parameters that steer the image: p2p.plan,
// p2p.report and so on. [Doc] lists them all.
package params

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"mkp2pimg/internal/arms"
)

// Plan says how much of the run takes place.
type Plan string

// The plans.
const (
	Full  Plan = "full"  // everything
	Check Plan = "check" // facts and checks, no driver and no measurement
	Shell Plan = "shell" // hardware modules only, then a shell
)

// Driver says which build of the NVIDIA driver is loaded.
type Driver string

// The drivers.
const (
	P2P   Driver = "p2p"   // with the peer-to-peer edits
	Stock Driver = "stock" // as NVIDIA published it
	AB    Driver = "ab"    // one after the other, to compare them
	// Loaded is the driver that the kernel already has: for the image's user space
	// in a root directory of an installed system.
	Loaded Driver = "loaded"
	None   Driver = "none"
)

// ACS says what happens to access controls that redirect traffic between GPUs.
type ACS string

// What can happen to them.
const (
	Keep  ACS = "keep"
	Show  ACS = "show"  // the report says what clear would change
	Clear ACS = "clear" // they are switched off until the next start
	ABACS ACS = "ab"    // the GPUs are measured without them, then with them
)

// After says what the machine does when the report is delivered.
type After string

// What can come after.
const (
	PowerOff   After = "poweroff"
	Reboot     After = "reboot"
	Hold       After = "hold"  // leave the result on the screen
	StartShell After = "shell" // a shell on the console
)

// Signals says which lines for a test engine are on the consoles.
type Signals string

// The lines.
const (
	NoSignals Signals = "none"
	LAVA      Signals = "lava" // see report.LAVA
)

// Params are the parameters of a run.
type Params struct {
	Plan   Plan
	Driver Driver
	ACS    ACS
	Arms   []arms.Arm // to compare, in place of those that follow from Driver and ACS
	Report *url.URL   // where the whole report is put in the end; nil: it is not
	// Collect is where the report is delivered to while the run goes on; nil: it is
	// not. Token is what the node shows there, see [Hide].
	Collect *url.URL
	Token   string
	Pins    []Pin  // the servers that may take the report; empty: whom authorities vouch for
	Node    string // empty: the machine has no id of its own
	After   After
	Stream  []Serial // further report streams
	Signals Signals
	// Deadlines replace the default deadlines of stages.
	Deadlines map[string]time.Duration
	// GPU is "vvvv:dddd": devices of this id stand in for GPUs.
	GPU string
}

// Serial is a serial port for the report.
type Serial struct {
	Device string // ttyS1, without /dev/
	Baud   int    // bits per second; 0 leaves the port's speed as it is
}

// Pin is the SHA-256 of the public key of a server: of the SubjectPublicKeyInfo of
// its certificate (RFC 7469, section 2.4).
type Pin [sha256.Size]byte

// String returns the pin as p2p.pin has it.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// Stages are the names that p2p.deadline.<stage> knows, in the order in which
// they run.
var Stages = []string{"mount", "modules", "facts", "acs", "checks", "driver", "paths", "bandwidth", "unload", "compare", "report", "after"}

// Parameter documents one kernel parameter.
type Parameter struct {
	Name    string // p2p.plan; "<stage>" stands for the name of a stage
	Values  string // the syntax of its value
	Default string
	Text    string // one or two sentences
}

// parameter is one row of the table that parsing and documentation share.
type parameter struct {
	Parameter
	set func(p *Params, stage, value string) error
}

var table = []parameter{
	{Parameter{"p2p.plan", "full|check|shell", "full",
		"How much to do: everything; facts and checks without driver and measurement; or only load the hardware's modules and start a shell."},
		func(p *Params, _, v string) error { return oneOf(&p.Plan, v, Full, Check, Shell) }},
	{Parameter{"p2p.driver", "p2p|stock|ab|loaded|none", "p2p",
		"Which build of the NVIDIA driver to load: with the peer-to-peer edits; as published; ab, one after the other in the same boot, the mailbox too where the GPUs may have it, to compare them; loaded, the one that the kernel already has, for the image's user space on an installed system; or none (no measurement)."},
		func(p *Params, _, v string) error { return oneOf(&p.Driver, v, P2P, Stock, AB, Loaded, None) }},
	{Parameter{"p2p.acs", "keep|show|clear|ab", "keep",
		"What to do with ACS redirect on the ports between GPUs: nothing; show in the report what clear would change; clear, switch it off before the checks until the next start, to see what that does before it is made to last; or ab, measure without it and, after it is on again, with it. The bits before and after are in the report."},
		func(p *Params, _, v string) error { return oneOf(&p.ACS, v, Keep, Show, Clear, ABACS) }},
	{Parameter{"p2p.arms", "arm,arm,…", "none",
		"What to measure and compare, in this order, in place of what p2p.driver and p2p.acs ask for: p2p or stock, with -mailbox behind it to choose the PCIe mailbox over BAR1, with -noacs to measure without ACS redirect, as in stock,p2p-mailbox,p2p-noacs,p2p. The verdict is about the last."},
		setArms},
	{Parameter{"p2p.report", "http(s) URL", "none",
		"Where to PUT the report (JSON lines) when the run is over. The network is set up by DHCP on every wired port with a link."},
		func(p *Params, _, v string) (err error) {
			p.Report, err = server(v, "http://lab:8080/reports/node7", p.Report)
			return err
		}},
	{Parameter{"p2p.collect", "http(s) URL", "none",
		"The run of a farm's server (mkp2pimg serve, which sets this itself) that the report is delivered to in pieces while the run goes on: what a node that hangs has found so far is there. The network is set up as for p2p.report, as soon as the modules of the hardware are loaded; nothing waits for it but, a few seconds, the stages in which a machine may hang. p2p.report may be given as well."},
		func(p *Params, _, v string) (err error) {
			p.Collect, err = server(v, "http://lab:8080/v1/runs/1", p.Collect)
			return err
		}},
	{Parameter{"p2p.token", "32 to 128 of A-Z a-z 0-9 - _", "none",
		"What entitles this machine to deliver to p2p.collect. It is not in the report, which has … in its place; the kernel itself prints its command line on the consoles, though, unless quiet is on it."},
		setToken},
	{Parameter{"p2p.pin", "base64 of 32 bytes", "none",
		"The SHA-256 of the public key (SubjectPublicKeyInfo) of the server of an https URL. Then that key decides alone, for p2p.collect and p2p.report: neither an authority nor the machine's clock matters. May be repeated: any of them will do."},
		setPin},
	{Parameter{"p2p.node", "name", "none",
		"The machine's id in the report; letters, digits and . _ : - only."},
		setNode},
	{Parameter{"p2p.after", "poweroff|reboot|hold|shell", "poweroff with p2p.report or p2p.collect, else shell",
		"What to do when the run is over. With p2p.report or p2p.collect, poweroff and reboot wait until the report has been sent, or the server of p2p.collect has refused it for good. hold leaves the result on the screen until the machine is switched off."},
		func(p *Params, _, v string) error { return oneOf(&p.After, v, PowerOff, Reboot, Hold, StartShell) }},
	{Parameter{"p2p.stream", "ttyS<n>[,baud]", "none",
		"A serial port that the report is streamed to while the run goes on, besides the virtio port org.mkp2pimg.report if there is one. May be repeated."},
		setStream},
	{Parameter{"p2p.signals", "none|lava", "none",
		"Lines for a test engine on the consoles, after the result: lava, the verdict, findings and figures in the syntax of LAVA's signals, for the monitors of a job (docs/engines.md). loglevel=1 keeps the kernel from writing into the middle of them."},
		func(p *Params, _, v string) error { return oneOf(&p.Signals, v, NoSignals, LAVA) }},
	{Parameter{"p2p.deadline.<stage>", "duration (90s, 5m)", "see the stage",
		"How long a stage may take; one that takes longer is reported and left behind. Stages: " + strings.Join(Stages, ", ") + "."},
		setDeadline},
	{Parameter{"p2p.gpu", "vvvv:dddd", "none",
		"Treat PCI devices of this vendor and device id as if they were GPUs, to try the checks on a machine without any; the report says so."},
		setGPU},
}

// Doc returns the documentation of all parameters, in the order in which a
// manual lists them.
func Doc() []Parameter {
	doc := make([]Parameter, 0, len(table))
	for _, p := range table {
		doc = append(doc, p.Parameter)
	}
	return doc
}

// Parse reads the p2p.* parameters of a kernel command line. A parameter that is
// unknown or has a bad value changes nothing and gives a warning, since a typing
// error in a boot menu must not cost the run. The last of several counts.
func Parse(cmdline string) (Params, []string) {
	p := Params{Plan: Full, Driver: P2P, ACS: Keep, Signals: NoSignals, Deadlines: map[string]time.Duration{}}
	var warnings []string
	for _, arg := range Split(cmdline) {
		name, value, _ := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "p2p.") && !strings.HasPrefix(name, "p2p_") {
			continue
		}
		row, stage := lookup(name)
		if row == nil {
			warnings = append(warnings, unknown(name))
			continue
		}
		if err := row.set(&p, stage, value); err != nil {
			if name == tokenName {
				value = hidden // it may be a token all the same
			}
			warnings = append(warnings, fmt.Sprintf("kernel parameter %s=%s ignored: %v", name, value, err))
		}
	}
	if p.After == "" {
		p.After = StartShell
		if p.Report != nil || p.Collect != nil {
			p.After = PowerOff
		}
	}
	return p, append(warnings, p.together()...)
}

// together are the warnings about parameters that say nothing without another.
func (p Params) together() []string {
	https := func(u *url.URL) bool { return u != nil && u.Scheme == "https" }
	var warnings []string
	if p.Collect != nil && p.Token == "" {
		warnings = append(warnings, "p2p.collect without p2p.token: a farm's server takes nothing without it")
	}
	if p.Collect == nil && p.Token != "" {
		warnings = append(warnings, "p2p.token without p2p.collect says nothing")
	}
	if p.Pins != nil && !https(p.Collect) && !https(p.Report) {
		warnings = append(warnings, "p2p.pin says nothing: neither p2p.collect nor p2p.report is an https URL")
	}
	return warnings
}

// Next is what the machine does after the run.
func (p Params) Next() After {
	if p.Plan == Shell {
		return StartShell
	}
	return p.After
}

// Wish is what the run is to compare.
func (p Params) Wish() arms.Wish {
	w := arms.Wish{Arms: p.Arms, Set: string(p.Driver), Drivers: p.Driver == AB, ACS: p.ACS == ABACS}
	if p.Driver == AB || p.Driver == Loaded || p.Driver == None {
		w.Set = arms.P2P
	}
	if p.Arms != nil {
		w.Set = p.Arms[len(p.Arms)-1].Set
	}
	return w
}

// lookup finds the row of a parameter, and the stage in its name if it has one.
func lookup(name string) (*parameter, string) {
	for i := range table {
		prefix, found := strings.CutSuffix(table[i].Name, "<stage>")
		switch {
		case !found && name == table[i].Name:
			return &table[i], ""
		case found && strings.HasPrefix(name, prefix):
			return &table[i], strings.TrimPrefix(name, prefix)
		}
	}
	return nil, ""
}

func unknown(name string) string {
	known := make([]string, 0, len(table))
	for _, p := range table {
		known = append(known, p.Name)
	}
	return fmt.Sprintf("unknown kernel parameter %s ignored%s", name, meant(name, known))
}

// meant is a hint at the known name nearest to a mistyped one, or nothing when
// none is near.
func meant(name string, known []string) string {
	best := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
	if distance(name, best) > 3 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance is the Levenshtein distance: the insertions, deletions and
// replacements of bytes that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Split divides a kernel command line into its arguments the way the kernel does
// (lib/cmdline.c, next_arg): at white space outside double quotes; quotes around
// an argument or around a value are removed.
func Split(cmdline string) []string {
	var args []string
	for rest := cmdline; rest != ""; {
		if isSpace(rest[0]) {
			rest = rest[1:]
			continue
		}
		quoted, end := false, len(rest)
		for i := range len(rest) {
			if rest[i] == '"' {
				quoted = !quoted
			} else if !quoted && isSpace(rest[i]) {
				end = i
				break
			}
		}
		args = append(args, unquote(rest[:end]))
		rest = rest[end:]
	}
	return args
}

// isSpace is the kernel's isspace() (lib/ctype.c), which works on bytes.
func isSpace(c byte) bool { return strings.IndexByte(" \t\n\v\f\r\xa0", c) >= 0 }

func unquote(arg string) string {
	if inner, ok := strings.CutPrefix(arg, `"`); ok {
		return strings.TrimSuffix(inner, `"`)
	}
	name, value, ok := strings.Cut(arg, "=")
	if inner, quoted := strings.CutPrefix(value, `"`); ok && quoted {
		return name + "=" + strings.TrimSuffix(inner, `"`)
	}
	return arg
}

func oneOf[T ~string](dst *T, value string, allowed ...T) error {
	if !slices.Contains(allowed, T(value)) {
		return fmt.Errorf("want one of %v", allowed)
	}
	*dst = T(value)
	return nil
}

// server parses the URL of a server. On an error it returns what was said before.
func server(v, like string, before *url.URL) (*url.URL, error) {
	u, err := url.Parse(v)
	if err != nil {
		return before, err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return before, fmt.Errorf("want a URL such as %s", like)
	}
	return u, nil
}

var (
	nodeName   = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)
	serialPort = regexp.MustCompile(`^(tty(?:S|AMA|USB)\d{1,3}|hvc\d)(?:,(\d{3,7}))?$`)
	pciID      = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)
)

func setArms(p *Params, _, v string) error {
	var all []arms.Arm
	for name := range strings.SplitSeq(v, ",") {
		a, err := arms.Parse(name)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	p.Arms = all
	return nil
}

func setToken(p *Params, _, v string) error {
	if !token.MatchString(v) {
		return fmt.Errorf("want 32 to 128 letters, digits and - _")
	}
	p.Token = v
	return nil
}

// setPin takes base64 of either alphabet, with or without padding.
func setPin(p *Params, _, v string) error {
	v = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(v), "=")
	hash, err := base64.RawURLEncoding.DecodeString(v)
	if err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("want base64 of the 32 bytes of a SHA-256")
	}
	p.Pins = append(p.Pins, Pin(hash))
	return nil
}

func setNode(p *Params, _, v string) error {
	if !nodeName.MatchString(v) {
		return fmt.Errorf("want up to 128 letters, digits and . _ : -")
	}
	p.Node = v
	return nil
}

func setStream(p *Params, _, v string) error {
	m := serialPort.FindStringSubmatch(v)
	if m == nil {
		return fmt.Errorf("want a serial port such as ttyS1 or ttyS1,115200")
	}
	s := Serial{Device: m[1]}
	if m[2] != "" {
		if _, err := fmt.Sscan(m[2], &s.Baud); err != nil {
			return err
		}
	}
	p.Stream = append(p.Stream, s)
	return nil
}

func setDeadline(p *Params, stage, v string) error {
	if !slices.Contains(Stages, stage) {
		return fmt.Errorf("no stage %q%s", stage, meant(stage, Stages))
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("want a time such as 90s or 5m")
	}
	p.Deadlines[stage] = d
	return nil
}

func setGPU(p *Params, _, v string) error {
	if !pciID.MatchString(v) {
		return fmt.Errorf("want vendor and device id such as 1b36:0005")
	}
	p.GPU = strings.ToLower(v)
	return nil
}
