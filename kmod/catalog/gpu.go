package catalog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

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

// UnknownGPUError reports a GPU that the catalog does not have.
type UnknownGPUError struct {
	// Asked is what was looked up.
	Asked string
	// Near are the names that come closest.
	Near []string
}

func (e *UnknownGPUError) Error() string {
	return fmt.Sprintf("GPU %q is not known; near it are %s (a PCI id such as 10de:2684 does as well)",
		e.Asked, strings.Join(e.Near, ", "))
}

// deviceID matches a PCI device id, with or without the vendor.
var deviceID = regexp.MustCompile(`^(10de:|0x)?([0-9a-f]{4})$`)

// LookupGPU finds GPUs by PCI device id ("10de:2684", "2684") or by words of the name ("4090",
// "rtx pro 6000", "a6000"). Of those whose names hold all words it returns those whose names end
// with them, if there are any: "4090" is not the GeForce RTX 4090 D. The error is an
// [*UnknownGPUError].
func (c *Catalog) LookupGPU(asked string) ([]GPU, error) {
	low := strings.ToLower(strings.TrimSpace(asked))
	if m := deviceID.FindStringSubmatch(low); m != nil {
		found := slices.DeleteFunc(slices.Clone(c.GPUs), func(g GPU) bool { return !slices.Contains(g.IDs, m[2]) })
		if len(found) > 0 {
			return found, nil
		}
	}
	words := strings.Fields(strings.TrimPrefix(low, "nvidia "))
	var holding, ending []GPU
	for _, g := range c.GPUs {
		name := strings.ToLower(g.Name)
		if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(name, w) }) {
			continue
		}
		holding = append(holding, g)
		if last := strings.Join(words, " "); strings.HasSuffix(" "+name, " "+last) {
			ending = append(ending, g)
		}
	}
	switch {
	case ending != nil:
		return ending, nil
	case holding != nil:
		return holding, nil
	}
	return nil, &UnknownGPUError{Asked: asked, Near: c.nearGPUs(low)}
}

// nearGPUs returns the names that have most in common with one that is not known.
func (c *Catalog) nearGPUs(low string) []string {
	type rated struct {
		name   string
		common float64
	}
	var all []rated
	asked := pairs(low)
	for _, g := range c.GPUs {
		name := pairs(strings.ToLower(g.Name))
		common := 0
		for p := range name {
			if asked[p] {
				common++
			}
		}
		// Dice's coefficient: twice what they share by what they have.
		all = append(all, rated{g.Name, 2 * float64(common) / float64(len(name)+len(asked))})
	}
	slices.SortStableFunc(all, func(a, b rated) int { return cmp.Compare(b.common, a.common) })
	var names []string
	for _, r := range all {
		if len(names) < nearby && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// pairs returns the pairs of bytes that follow each other in s.
func pairs(s string) map[string]bool {
	set := map[string]bool{}
	for i := range len(s) - 1 {
		set[s[i:i+2]] = true
	}
	return set
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
