// Package predict foretells which way NVIDIA's driver lets one GPU reach
// another: C2C, NVLink, PCIe BAR1, the PCIe mailbox or none. It asks the gates
// that the driver itself asks, in the same order (p2pGetCapsStatus in p2p_caps.c
// of the open kernel modules), and answers them from [facts.Facts], without a
// driver: for any release from 535 on, as published or with the P2P edits, and
// for any registry keys.
//
// Where the facts do not tell, an answer is unknown; the likelier one is
// followed, and the prediction says under which condition it holds. [Compare]
// holds predictions against what a driver granted.
package predict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/loadopt"
)

// KeyForceStaticBAR1 is the registry key that decides about static BAR1, since
// release 565 (NV_REG_STR_RM_FORCE_STATIC_BAR1 in nvrm_registry.h).
const KeyForceStaticBAR1 = "RMForceStaticBar1"

// UnknownPath is the path when the release is none that the gates hold for.
const UnknownPath rm.Path = "unknown"

// Driver is the driver to predict for.
type Driver struct {
	// Release is such as "580.142".
	Release string
	// Edited says that the source has the P2P edits (package kmod/patch): the
	// functions for BAR1 on every GPU, page table entries that know BAR1 peers,
	// and guards. The defaults stay as published: ask for BAR1 with Keys.
	Edited bool
	// Keys are the registry keys that it is loaded with.
	Keys rm.Keys
	// Resize is the module parameter NVreg_EnableResizableBar.
	Resize bool
}

// Loaded returns the driver of a release as loaded with options.
func Loaded(release string, edited bool, options []loadopt.Option) (Driver, error) {
	d := Driver{Release: release, Edited: edited, Keys: rm.Keys{}}
	for _, o := range options {
		switch {
		case o.Key:
			n, err := strconv.ParseUint(o.Value, 0, 32)
			if err != nil {
				return Driver{}, fmt.Errorf("registry key %s: %w", o.Name, err)
			}
			d.Keys[o.Name] = uint32(n)
		case o.Name == "NVreg_EnableResizableBar":
			d.Resize = o.Value != "0"
		}
	}
	return d, nil
}

// major returns the first number of the release, 0 if it has none.
func (d Driver) major() int {
	first, _, _ := strings.Cut(d.Release, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return n
}

// Prediction is what the driver will grant to an ordered pair of GPUs.
type Prediction struct {
	A string `json:"a"` // address of the GPU that reads and writes
	B string `json:"b"` // address of the GPU whose memory it is
	// Path holds under all of If; without If it is certain as far as the rules
	// go. Possible are all paths that the unknown answers allow, Path first.
	Path     rm.Path   `json:"path"`
	If       []string  `json:"if,omitempty"`
	Possible []rm.Path `json:"possible"`
	// Read and Write are the statuses that the driver will report. They are
	// as conditional as Path; and where a gate before Gate is unknown, it may
	// refuse first with a status of its own.
	Read  rm.P2PStatus `json:"read"`
	Write rm.P2PStatus `json:"write"`
	// Gate is the first that refuses peer-to-peer or, on the mailbox path, BAR1;
	// nil when none does. Its Opens says what would change that.
	Gate *Gate `json:"gate,omitempty"`
	// Gates are the answers in the order of the questions.
	Gates []Answer `json:"gates"`
	// Works says whether data will arrive over the path that is granted, as far
	// as the driver's source tells: it may grant what it can't do. No answer
	// to Checks refused it. It is empty without a path.
	Works  Verdict  `json:"works,omitempty"`
	Checks []Answer `json:"checks,omitempty"`
	// Notes say what else to know about the release.
	Notes []string `json:"notes,omitempty"`
}

// String returns "bar1 if no console lies in BAR1".
func (p Prediction) String() string {
	if len(p.If) == 0 {
		return string(p.Path)
	}
	return string(p.Path) + " if " + strings.Join(p.If, " and ")
}

// Pairs predicts for every ordered pair of the functions that the checks judge,
// in address order.
func Pairs(f *facts.Facts, d Driver) []Prediction {
	var all []Prediction
	m := newMachine(f, d)
	for i, a := range m.gpus {
		for j, b := range m.gpus {
			switch {
			case i < j:
				all = append(all, m.predict(a, b))
			case i > j: // the driver answers alike for both directions
				back := all[j*(len(m.gpus)-1)+i-1]
				back.A, back.B = back.B, back.A
				all = append(all, back)
			}
		}
	}
	return all
}

// predict walks the gates for one pair, a with the lesser address.
func (m *machine) predict(a, b *gpu) Prediction {
	out := Prediction{A: a.Address, B: b.Address}
	if m.major < first {
		out.Path, out.Possible = UnknownPath, []rm.Path{UnknownPath}
		out.If = []string{fmt.Sprintf("the rules of release %q were known, they are from %d on", m.Release, first)}
		return out
	}
	p := &pair{m, a, b, map[*Gate]Answer{}}
	p.walk(&out)
	out.Possible = append(out.Possible, out.Path)
	for _, path := range p.possible(0) {
		if !slices.Contains(out.Possible, path) {
			out.Possible = append(out.Possible, path)
		}
	}
	p.works(&out)
	p.notes(&out)
	return out
}

// walk follows the likelier answers from gate to gate until one grants or
// refuses a path.
func (p *pair) walk(out *Prediction) {
	for i := 0; out.Path == ""; {
		g := &gates[i]
		if !g.holds(p.major) {
			i++
			continue
		}
		a := p.answer(g)
		if a.Verdict == Unknown && len(p.possible(i)) == 1 {
			// Whatever the answer, a later gate leads to the same path. That one
			// tells why for sure.
			a.Likely = Yes
		}
		out.Gates = append(out.Gates, a)
		out.Read, out.Write = worse(out.Read, a.read), worse(out.Write, a.write)
		step := g.step(a.Likely)
		if a.Likely == No && g.Refuses && out.Gate == nil {
			out.Gate = g
		}
		if step.Grant == rm.NoPath && g.Status != rm.P2POK {
			out.Read, out.Write = g.Status, g.Status
		}
		out.Path = step.Grant
		i = next(i, step)
	}
	for _, a := range out.Gates {
		if a.Verdict == Unknown && p.matters(a, out.Path) {
			out.If = append(out.If, a.condition())
		}
	}
}

// matters reports whether the opposite of an unknown answer may lead to another
// path.
func (p *pair) matters(a Answer, path rm.Path) bool {
	opposite := Yes
	if a.Likely == Yes {
		opposite = No
	}
	i := slices.IndexFunc(gates, func(g Gate) bool { return g.ID == a.ID })
	return slices.ContainsFunc(p.after(i, opposite), func(other rm.Path) bool { return other != path })
}

// worse keeps a status that refuses.
func worse(a, b rm.P2PStatus) rm.P2PStatus {
	if a != rm.P2POK {
		return a
	}
	return b
}

// possible returns the paths that the gates from the i-th on may grant, each
// once.
func (p *pair) possible(i int) []rm.Path {
	for !gates[i].holds(p.major) { // the last holds always
		i++
	}
	switch v := p.answer(&gates[i]).Verdict; v {
	case Unknown:
		paths := p.after(i, Yes)
		for _, path := range p.after(i, No) {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
		return paths
	default:
		return p.after(i, v)
	}
}

// after returns the paths that are possible after an answer to the i-th gate.
func (p *pair) after(i int, v Verdict) []rm.Path {
	step := gates[i].step(v)
	if step.Grant != "" {
		return []rm.Path{step.Grant}
	}
	return p.possible(next(i, step))
}

// works asks the questions about the path that is granted.
func (p *pair) works(out *Prediction) {
	if out.Path == rm.NoPath {
		return
	}
	out.Works = Yes
	for i := range workings {
		g := &workings[i]
		if g.Path != out.Path || !g.holds(p.major) {
			continue
		}
		a := p.answer(g)
		out.Checks = append(out.Checks, a)
		switch {
		case a.Verdict == No:
			out.Works = No
		case a.Verdict == Unknown && out.Works == Yes:
			out.Works = Unknown
		}
	}
}

// notes adds what the release lacks without harm to the decision.
func (p *pair) notes(out *Prediction) {
	if p.major > newest {
		out.Notes = append(out.Notes, fmt.Sprintf("release %s is newer than the rules, which were read up to %d", p.Release, newest))
	}
	// UVM_GPU_LINK_PCIE_BAR1 in kernel-open/nvidia-uvm/uvm_gpu.h.
	if out.Path == rm.BAR1 && p.major < 590 {
		note := "managed memory (cudaMallocManaged) does not know BAR1 peers in this release and must not be used between them"
		if p.Edited {
			note = "managed memory (cudaMallocManaged) goes through host memory between BAR1 peers in this release"
		}
		out.Notes = append(out.Notes, note)
	}
}
