package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/kmod/catalog"
)

// AllGPUs in Options.GPUs stands for all that the driver knows.
const AllGPUs = "all"

// Families are the GPU families, oldest first.
func Families() []string {
	var list []string
	for _, f := range catalog.Load().Families {
		list = append(list, f.Name)
	}
	return list
}

// gpus are what an image is to serve.
type gpus struct {
	names    []string // families and models, sorted; only AllGPUs if it is all
	firmware []string // words that name their firmware, sorted; nil if it is all
	families []string // to be known to the driver, sorted
}

// findGPUs looks up what was asked for.
func findGPUs(asked []string) (gpus, error) {
	var g gpus
	if slices.Contains(asked, AllGPUs) {
		return gpus{names: []string{AllGPUs}}, nil
	}
	if len(asked) == 0 {
		return g, refuse("no GPU is named: want %s, families (%s) or models", AllGPUs, strings.Join(Families(), ", "))
	}
	c := catalog.Load()
	for _, name := range asked {
		found, err := c.Select(name)
		if err != nil {
			return g, &RequestError{fmt.Sprintf("GPUs: want %s, a family (%s) or a model", AllGPUs, strings.Join(Families(), ", ")), err}
		}
		family := c.Family(strings.ToLower(strings.TrimSpace(name)))
		if family != nil {
			g.names = append(g.names, family.Name)
		}
		for _, gpu := range found {
			if family == nil {
				g.names = append(g.names, gpu.Name)
			}
			g.firmware = append(g.firmware, gpu.Firmware())
			g.families = append(g.families, gpu.Family)
		}
	}
	for _, list := range []*[]string{&g.names, &g.firmware, &g.families} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return g, nil
}

// check refuses GPUs that a driver does not know.
func (g *gpus) check(driver string) error {
	c := catalog.Load()
	r := &catalog.Release{Version: driver}
	for _, name := range g.families {
		if f := c.Family(name); r.Branch() < f.First {
			return refuse("driver %s does not know the GPU family %s: choose %d or later", driver, name, f.First)
		}
	}
	return nil
}
