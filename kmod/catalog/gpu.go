package catalog

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"

	"mkp2pimg/kmod/loadopt"
)

// GPU is a model, or cards of one name with the same memory.
type GPU struct {
	// IDs are PCI device ids in four lower case hexadecimal digits; the vendor is 10de. Cards of
	// different names may share an id.
	IDs []string `yaml:"ids" json:"ids"`
	// Name is NVIDIA's, without "NVIDIA".
	Name   string `yaml:"name" json:"name"`
	Family string `yaml:"family" json:"family"`
	// Chip is such as "AD102".
	Chip string `yaml:"chip" json:"chip"`
	// Memory lists the sizes of memory in GiB that such cards are known to have, those as sold
	// first, then those of modified cards. It is empty if that is not known for sure.
	Memory []uint64 `yaml:"memory" json:"memory_gib,omitempty"`
	// BAR1 and LargestBAR1 are the sizes of BAR1 in MiB with the settings it is sold with and with
	// the best ones; 0 if not known.
	BAR1        uint64 `yaml:"bar1" json:"bar1_mib,omitempty"`
	LargestBAR1 uint64 `yaml:"largest_bar1" json:"largest_bar1_mib,omitempty"`
	// Stock is what the unmodified driver does over PCIe; empty if not known.
	Stock Stock `yaml:"stock" json:"stock,omitempty"`
	// Traps name entries of [Catalog.Traps].
	Traps []string `yaml:"traps" json:"-"`
}

// Stock is what the unmodified driver does between GPUs over PCIe.
type Stock string

// What the unmodified driver does.
const (
	Refused Stock = "refused" // it reports that there is no peer-to-peer
	Mailbox Stock = "mailbox" // peer-to-peer through a window, if it knows the chipset
	Full    Stock = "full"    // peer-to-peer if the topology allows it
)

// MostMemory returns the most memory in MiB that such cards are known to have, or 0.
func (g *GPU) MostMemory() uint64 {
	if len(g.Memory) == 0 {
		return 0
	}
	return slices.Max(g.Memory) << 10
}

// String returns the name with the memory and the ids: cards of one name may differ in both.
func (g *GPU) String() string {
	var sizes []string
	for _, m := range g.Memory {
		sizes = append(sizes, fmt.Sprintf("%d", m))
	}
	s := g.Name
	if sizes != nil {
		s += " " + strings.Join(sizes, " or ") + " GiB"
	}
	return s + " (10de:" + strings.Join(g.IDs, ", 10de:") + ")"
}

// Firmware returns the word by which the files of the GPU System Processor that such a GPU runs are
// named: gsp_<word>.bin and, from 610 on, ucodes_<word>.bin. It is the same in all known releases
// (nv_firmware_for_chip_family in kernel-open/common/inc/nv-firmware.h): "tu10x" for Turing and the
// GA100, "ga10x" for all later chips.
func (g *GPU) Firmware() string {
	if g.Family == "turing" || g.Chip == "GA100" {
		return "tu10x"
	}
	return "ga10x"
}

// CanHold reports whether BAR1 can be made to hold the memory of such a card, the one with the least
// where there are several: BAR1 peer-to-peer needs that. bar1 is its size in MiB as it is, or 0 if that
// is not known. A GPU of which too little is known is taken for able.
func (g *GPU) CanHold(bar1 uint64) bool {
	if len(g.Memory) == 0 || g.LargestBAR1 == 0 {
		return true
	}
	return max(bar1, g.LargestBAR1) >= slices.Min(g.Memory)<<10
}

// UnknownGPUError reports a GPU that the catalog does not have.
type UnknownGPUError struct {
	// Asked is what was looked up.
	Asked string
	// Near are the names that come closest. A PCI id has none: ids say nothing about names.
	Near []string
}

func (e *UnknownGPUError) Error() string {
	if e.Near == nil {
		return fmt.Sprintf("GPU %q is not known: name one of the same kind by words of its name, such as 4090", e.Asked)
	}
	return fmt.Sprintf("GPU %q is not known; near it are %s (a PCI id such as 10de:2684 does as well)",
		e.Asked, strings.Join(e.Near, ", "))
}

// deviceID matches a PCI device id, with or without the vendor.
var deviceID = regexp.MustCompile(`^(10de:|0x)?([0-9a-f]{4})$`)

// LookupGPU finds GPUs by PCI device id ("10de:2684", "2684") or by words of the name ("4090",
// "rtx pro 6000", "a6000"), spaces or not ("3090ti"). Of those whose names hold all words it returns
// those whose names end with them, if there are any: "4090" is not the GeForce RTX 4090 D. The error
// is an [*UnknownGPUError].
func (c *Catalog) LookupGPU(asked string) ([]GPU, error) {
	low := strings.ToLower(strings.TrimSpace(asked))
	if m := deviceID.FindStringSubmatch(low); m != nil {
		found := slices.DeleteFunc(slices.Clone(c.GPUs), func(g GPU) bool { return !slices.Contains(g.IDs, m[2]) })
		if len(found) > 0 {
			return found, nil
		}
	}
	if strings.HasPrefix(low, "10de:") || strings.HasPrefix(low, "0x") {
		return nil, &UnknownGPUError{Asked: asked}
	}
	words := strings.Fields(strings.TrimPrefix(low, "nvidia "))
	joined := strings.Join(words, "")
	var holding, ending []GPU
	for _, g := range c.GPUs {
		name := strings.ToLower(g.Name)
		lacks := func(w string) bool { return !strings.Contains(name, w) }
		if joined == "" || slices.ContainsFunc(words, lacks) && !slices.Contains(runs(name), joined) {
			continue
		}
		holding = append(holding, g)
		if slices.Contains(tails(strings.Fields(name)), joined) {
			ending = append(ending, g)
		}
	}
	switch {
	case ending != nil:
		return ending, nil
	case holding != nil:
		return holding, nil
	}
	return nil, &UnknownGPUError{Asked: asked, Near: c.nearGPUs(joined)}
}

// Select finds the GPUs of a family ("ada"), or those that [Catalog.LookupGPU] finds.
func (c *Catalog) Select(asked string) ([]GPU, error) {
	if f := c.Family(strings.ToLower(strings.TrimSpace(asked))); f != nil {
		return slices.DeleteFunc(slices.Clone(c.GPUs), func(g GPU) bool { return g.Family != f.Name }), nil
	}
	return c.LookupGPU(asked)
}

// tails returns the last words of a name written together: "rtx4090d", "4090d" and "d".
func tails(words []string) []string {
	var all []string
	for i := range words {
		all = append(all, strings.Join(words[i:], ""))
	}
	return all
}

// runs returns all words of a name that follow each other, written together.
func runs(name string) []string {
	words := strings.Fields(name)
	var all []string
	for end := range words {
		all = append(all, tails(words[:end+1])...)
	}
	return all
}

// nearGPUs returns the names closest to one that is not known: those that hold words written almost
// like it, the shortest first.
func (c *Catalog) nearGPUs(joined string) []string {
	distance := map[string]int{}
	var names []string
	for _, g := range c.GPUs {
		if slices.Contains(names, g.Name) {
			continue
		}
		names = append(names, g.Name)
		distance[g.Name] = math.MaxInt
		for _, run := range runs(strings.ToLower(g.Name)) {
			distance[g.Name] = min(distance[g.Name], edlib.OSADamerauLevenshteinDistance(run, joined))
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(distance[a], distance[b]), cmp.Compare(len(a), len(b)))
	})
	return names[:min(len(names), nearby)]
}

// Family returns a family by its name, or nil.
func (c *Catalog) Family(name string) *Family {
	i := slices.IndexFunc(c.Families, func(f Family) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Families[i]
}

// Models returns what is known of every GPU with a driver release, by device id. The release may be
// one that the catalog does not have: if its branch is not known either, every GPU needs the edits.
func (c *Catalog) Models(driver string) map[string]loadopt.Model {
	release := &Release{Version: driver}
	models := map[string]loadopt.Model{}
	for _, g := range c.GPUs {
		for _, id := range g.IDs {
			need, _ := c.Need(release, g.Family)
			m := loadopt.Model{Name: g.Name, Memory: g.MostMemory(), Patch: need != Options}
			if other, shared := models[id]; shared {
				m.Name = other.Name + " or " + m.Name
				if m.Memory > 0 && other.Memory > 0 {
					m.Memory = max(m.Memory, other.Memory)
				} else {
					m.Memory = 0
				}
			}
			models[id] = m
		}
	}
	return models
}
