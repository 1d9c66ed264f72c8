package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/loadopt"
	"mkp2pimg/kmod/patch"
)

func newOptions() *cobra.Command {
	var q optionsQuery
	var asJSON bool
	c := &cobra.Command{
		Use:   "options",
		Short: "print module options for a driver that is installed",
		Long: `Print the lines for a file in /etc/modprobe.d that make an installed driver do
peer-to-peer over BAR1, each option explained, and say whether options are enough
or the driver must be patched too (see "mkp2pimg patch").

Without --gpu the options hold for any GPU. RMForceStaticBar1=1 is printed only if
--bar1 shows that every GPU's BAR1 holds its memory: a GPU where it doesn't would
not start. GPUs whose BAR1 can't hold their memory get no options: nothing makes them
do it. See the sizes with "nvidia-smi -q -d MEMORY" or "lspci -vv".`,
		Example: `  mkp2pimg options --driver 595 --gpu 5090 --gpu 5090
  mkp2pimg options --driver 580.142 --gpu 3090 --bar1 32G > /etc/modprobe.d/nvidia-p2p.conf`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := q.answer(catalog.Load())
			if err != nil {
				return usageError{err}
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), a)
			}
			return a.print(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&q.driver, "driver", "", "driver release, or a branch for its newest release (default that of \"mkp2pimg build\")")
	f.StringArrayVar(&q.gpus, "gpu", nil, "a GPU of the machine, once for each: words of its name or its PCI id")
	f.StringArrayVar(&q.bar1, "bar1", nil, "size of BAR1 now (256M, 32G), once for all GPUs or once for each")
	f.BoolVar(&q.headless, "headless", false, "no display is attached to the GPUs, so that no console lies in BAR1")
	f.StringVar(&q.edits, "edits", string(patch.Auto), "the driver's P2P edits: none if it is as NVIDIA published it, else those\n"+
		"of \"mkp2pimg patch\" (auto, minimal, all)")
	f.BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

// optionsQuery is what "mkp2pimg options" is asked.
type optionsQuery struct {
	driver     string
	gpus, bar1 []string
	headless   bool
	edits      string
}

// optionsAnswer is what it answers.
type optionsAnswer struct {
	Driver     string        `json:"driver"`
	Generation string        `json:"generation"`
	GPUs       []optionsGPU  `json:"gpus"`
	Need       *catalog.Need `json:"need"`   // what the GPUs need together; null without GPUs that can do it
	Edited     bool          `json:"edited"` // the options are for a driver with the P2P edits
	loadopt.Choice
	Modprobe string `json:"modprobe"` // the line for modprobe.d

	mode patch.Mode
}

type optionsGPU struct {
	Names  []string     `json:"names"` // all that were matched
	Family string       `json:"family"`
	Need   catalog.Need `json:"need"`
	Memory uint64       `json:"memory_mib,omitempty"` // the most that such cards have; absent if not known
	BAR1   uint64       `json:"bar1_mib,omitempty"`   // as given
	Unable string       `json:"unable,omitempty"`     // why no driver does BAR1 peer-to-peer on it
	Traps  []string     `json:"traps,omitempty"`
}

func (q *optionsQuery) answer(c *catalog.Catalog) (*optionsAnswer, error) {
	modes := []patch.Mode{patch.Auto, patch.Minimal, patch.None, patch.All}
	if !slices.Contains(modes, patch.Mode(q.edits)) {
		return nil, fmt.Errorf("--edits %q: choose auto, minimal, none or all", q.edits)
	}
	r, err := c.Lookup(q.driver)
	if err != nil {
		return nil, err
	}
	generation, err := c.Generation(r)
	if err != nil {
		return nil, err
	}
	offer, err := c.Offer(r)
	if err != nil {
		return nil, err
	}
	sizes, err := q.sizes()
	if err != nil {
		return nil, err
	}
	a := &optionsAnswer{mode: patch.Mode(q.edits), Driver: r.Version, Generation: generation.Name, GPUs: []optionsGPU{}}
	need := catalog.Options
	var gpus []loadopt.GPU
	for i, asked := range q.gpus {
		g, err := findGPU(c, r, asked, sizes[i]>>20)
		if err != nil {
			return nil, err
		}
		a.GPUs = append(a.GPUs, *g)
		gpus = append(gpus, loadopt.GPU{
			Address: g.Names[0], BAR1: sizes[i], Memory: g.Memory << 20, Patch: g.Need == catalog.Edits, Headless: q.headless,
		})
		if g.Unable != "" {
			continue
		}
		a.Need = &need
		if g.Need == catalog.Edits {
			need = catalog.Edits
		}
	}
	if gpus != nil && a.Need == nil {
		a.Options = []loadopt.Option{}
		return a, nil
	}
	a.Edited = patch.Mode(q.edits) != patch.None && (gpus == nil || need == catalog.Edits)
	a.Choice = loadopt.Choose(offer, a.Edited, gpus)
	a.Modprobe = strings.TrimSuffix(loadopt.Modprobe(a.Options), "\n")
	return a, nil
}

// findGPU finds what is asked for and what it needs with a release. Names that match several models
// are good if those are of one family; the most memory then counts. bar1 is the size of BAR1 in MiB, 0
// if it is not known.
func findGPU(c *catalog.Catalog, r *catalog.Release, asked string, bar1 uint64) (*optionsGPU, error) {
	found, err := c.LookupGPU(asked)
	if err != nil {
		return nil, err
	}
	g := &optionsGPU{Family: found[0].Family, Memory: found[0].MostMemory(), BAR1: bar1}
	var all []string
	for _, f := range found {
		all = append(all, f.String())
		if !slices.Contains(g.Names, f.Name) {
			g.Names = append(g.Names, f.Name)
		}
		if g.Memory == 0 || f.MostMemory() == 0 {
			g.Memory = 0
		} else {
			g.Memory = max(g.Memory, f.MostMemory())
		}
		for _, trap := range f.Traps {
			if text := c.Traps[trap]; !slices.Contains(g.Traps, text) {
				g.Traps = append(g.Traps, text)
			}
		}
	}
	if !slices.ContainsFunc(found, func(f catalog.GPU) bool { return f.CanHold(bar1) }) {
		g.Unable = fmt.Sprintf("its BAR1 has %d MiB at most as sold, and must hold all its memory", max(bar1, found[0].LargestBAR1))
	}
	if slices.ContainsFunc(found, func(f catalog.GPU) bool { return f.Family != g.Family }) {
		return nil, fmt.Errorf("GPU %q may be any of %s: name it by its PCI id", asked, strings.Join(all, ", "))
	}
	need, ok := c.Need(r, g.Family)
	if !ok {
		return nil, fmt.Errorf("driver %s does not know the GPU family %s of %s: choose %d or later",
			r.Version, g.Family, g.Names[0], c.Family(g.Family).First)
	}
	g.Need = need
	return g, nil
}

// sizes returns the bytes of BAR1 of each GPU, 0 where none is given.
func (q *optionsQuery) sizes() ([]uint64, error) {
	list := make([]uint64, len(q.gpus))
	if n := len(q.bar1); n > 1 && n != len(list) || n > 0 && len(list) == 0 {
		return nil, fmt.Errorf("%d sizes of BAR1 are given for %d GPUs: give one for all or one for each", n, len(list))
	}
	for i := range list {
		if len(q.bar1) == 0 {
			break
		}
		size, err := parseSize(q.bar1[min(i, len(q.bar1)-1)])
		if err != nil {
			return nil, fmt.Errorf("--bar1: %w", err)
		}
		list[i] = size
	}
	return list, nil
}

// sizePattern matches sizes as nvidia-smi ("32768 MiB") and lspci ("32G") print them.
var sizePattern = regexp.MustCompile(`(?i)^(\d{1,9}) ?([MGT])(?:i?B)?$`)

// parseSize reads a size in bytes. Units are powers of 1024.
func parseSize(s string) (uint64, error) {
	m := sizePattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, fmt.Errorf("%q is no size such as 256M or 32G", s)
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errors.New("a BAR of size 0 has no address: nothing can be decided from it")
	}
	return n << map[string]uint{"M": 20, "G": 30, "T": 40}[strings.ToUpper(m[2])], nil
}

// print writes the answer as a file for /etc/modprobe.d.
func (a *optionsAnswer) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# NVIDIA driver %s, for %s.\n#\n", a.Driver, a.subject())
	for _, line := range slices.Concat(a.unable(), a.advice(), a.traps()) {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	if len(a.Options) > 0 {
		b.WriteString("#\n")
	}
	for _, line := range a.Lines() {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// subject names the GPUs.
func (a *optionsAnswer) subject() string {
	var names []string
	for _, g := range a.GPUs {
		name := strings.Join(g.Names, " or ")
		if g.Memory > 0 {
			name += fmt.Sprintf(" (at most %d GiB)", g.Memory>>10)
		}
		names = append(names, name)
	}
	if names == nil {
		return "any GPU"
	}
	return strings.Join(names, ", ")
}

// unable names the GPUs on which no driver does peer-to-peer over BAR1.
func (a *optionsAnswer) unable() []string {
	return a.remarks(func(g optionsGPU) []string {
		if g.Unable == "" {
			return nil
		}
		return []string{"no peer-to-peer over BAR1, since " + g.Unable + "; if yours is larger, say so with --bar1"}
	})
}

// traps are what to know about the GPUs.
func (a *optionsAnswer) traps() []string {
	return a.remarks(func(g optionsGPU) []string { return g.Traps })
}

// remarks are what is to say about the GPUs, each with the GPU's name and once for GPUs of one name.
func (a *optionsAnswer) remarks(about func(optionsGPU) []string) []string {
	var lines []string
	for _, g := range a.GPUs {
		for _, text := range about(g) {
			if line := strings.Join(g.Names, " or ") + ": " + text + "."; !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// caveats are what an unmodified driver does not guard against on GPUs that need no edits.
func (a *optionsAnswer) caveats() []string {
	var lines []string
	mapped := func(o loadopt.Option) bool { return o.Name == "RMForceStaticBar1" && o.Value == "1" }
	if !slices.ContainsFunc(a.Options, mapped) {
		lines = append(lines, "But a GPU whose BAR1 can't hold all its memory, and a console, is then given a mailbox that",
			"nobody set up, and writes to it vanish: measure with verified data, or use mkp2pimg patch,",
			"whose guards refuse such a pair.")
	}
	if a.Generation == managedUnaware {
		lines = append(lines, "Managed memory (cudaMallocManaged) does not know BAR1 peers in this release: the guards of",
			"mkp2pimg patch keep it away from them.")
	}
	return lines
}

// managedUnaware is the generation that does BAR1 peer-to-peer natively on some GPUs, but not for
// managed memory: see its description in the catalog.
const managedUnaware = "C"

// advice says whether options are enough, and how they come into force.
func (a *optionsAnswer) advice() []string {
	if len(a.GPUs) > 0 && a.Need == nil {
		return []string{"No edit and no option changes that, so that none is printed. Between such GPUs programs copy",
			"by way of the host's memory, or over NVLink where there is a bridge."}
	}
	lines := []string{
		"Some GPUs need the driver's source edited as well: mkp2pimg drivers --gpu NAME says which.",
	}
	switch {
	case a.Need == nil && a.Edited:
		lines = append(lines, "With unmodified modules the keys in NVreg_RegistryDwords make writes between such GPUs vanish.")
	case a.Need == nil:
	case *a.Need == catalog.Options:
		lines = append([]string{"Options are enough: these GPUs need no edits of the driver's source."}, a.caveats()...)
	case a.Edited:
		lines = []string{
			"Options alone are NOT enough: edit the driver's source with mkp2pimg patch, build and",
			"install the modules, and use these options with them. With unmodified modules the keys",
			"in NVreg_RegistryDwords make writes between GPUs vanish.",
		}
		switch a.mode {
		case patch.Minimal:
			lines = append(lines, "The minimal edits leave out the guards: a pair that BAR1 can't serve is then given a mailbox",
				"that nobody set up. Measure with verified data, or use the edits of auto.")
		case patch.All:
			lines = append(lines, "The edits of all set most of this already; what they do not set is set here.")
		}
	default:
		lines = []string{
			"Options are NOT enough for peer-to-peer over BAR1: an unmodified driver of this release",
			"can't do it on these GPUs (see mkp2pimg patch).",
		}
	}
	return append(lines, "If the initramfs holds nvidia.ko, write it anew (update-initramfs -u, dracut -f), then reboot.")
}
