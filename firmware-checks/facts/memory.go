package facts

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/pcicfg"
)

// memoryMap reads /proc/iomem.
func (g *gatherer) memoryMap() {
	const what, name = "memory map", "proc/iomem"
	s, err := g.readRaw(name)
	var all []Range
	if err == nil {
		all, err = parseMemoryMap(string(s))
	}
	if err != nil {
		g.unknown(what, name, err)
		return
	}
	if !slices.ContainsFunc(all, func(r Range) bool { return r.End != 0 }) {
		g.unknown(what, name, errors.New("the kernel shows addresses to root only"))
		return
	}
	gpus := map[string]bool{}
	for _, gpu := range g.facts.GPUs() {
		gpus[gpu.Address] = true
	}
	g.facts.MemoryMap = relevantRanges(all, gpus)
}

// parseMemoryMap reads lines such as "  e0000000-efffffff : PCI Bus 0000:00",
// which two blanks for each range that holds them precede.
func parseMemoryMap(s string) ([]Range, error) {
	var all []Range
	for line := range strings.Lines(s) {
		trimmed := strings.TrimLeft(line, " ")
		addresses, name, ok := strings.Cut(strings.TrimSpace(trimmed), " : ")
		first, last, isRange := strings.Cut(addresses, "-")
		start, err1 := strconv.ParseUint(first, 16, 64)
		end, err2 := strconv.ParseUint(last, 16, 64)
		if !ok || !isRange || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("line %q: want a range of addresses and a name", strings.TrimSpace(line))
		}
		all = append(all, Range{
			Start: pcicfg.Hex(start), End: pcicfg.Hex(end), Name: strings.ToValidUTF8(name, "?"), Depth: (len(line) - len(trimmed)) / 2,
		})
	}
	return all, nil
}

// bus names a window of a host bridge or of a bridge, or memory-mapped
// configuration space.
var busRE = regexp.MustCompile(`^(PCI Bus |PCI ECAM |PCI MMCONFIG |CXL Window )`)

// relevantRanges keeps the windows of buses, the BARs of GPUs with what claims
// them, and what stands in the way of windows: memory and reserved ranges.
func relevantRanges(all []Range, gpus map[string]bool) []Range {
	var kept []Range
	inGPU := -1 // depth of the BAR that holds the ranges now, or -1
	for _, r := range all {
		if r.Depth <= inGPU {
			inGPU = -1
		}
		switch {
		case inGPU >= 0:
		case gpus[r.Name]:
			inGPU = r.Depth
		case busRE.MatchString(r.Name):
		case r.Depth == 0 && (r.Name == "System RAM" || strings.EqualFold(r.Name, "reserved")):
		default:
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// nodes reads the NUMA nodes. A kernel without NUMA shows none.
func (g *gatherer) nodes() {
	const dir = "sys/devices/system/node"
	names, _ := g.list("NUMA nodes", dir)
	for _, name := range names {
		number, isNode := strings.CutPrefix(name, "node")
		id, err := strconv.Atoi(number)
		if !isNode || err != nil {
			continue // other files
		}
		n := Node{ID: id, Package: -1, CPUs: g.may("processors of a NUMA node", dir+"/"+name+"/cpulist")}
		n.Package = g.packageOf(n.CPUs)
		distances := dir + "/" + name + "/distance"
		for field := range strings.FieldsSeq(g.may("distances of a NUMA node", distances)) {
			d, err := strconv.Atoi(field)
			if err != nil {
				g.unknown("distances of a NUMA node", distances, err)
				break
			}
			n.Distances = append(n.Distances, d)
		}
		g.facts.Nodes = append(g.facts.Nodes, n)
	}
	slices.SortFunc(g.facts.Nodes, func(a, b Node) int { return a.ID - b.ID })
}

// packageOf returns the physical package of the first processor of a list such
// as "0-15,32-47", -1 when it can't be told.
func (g *gatherer) packageOf(cpus string) int {
	first := cpus
	if end := strings.IndexAny(cpus, "-,"); end >= 0 {
		first = cpus[:end]
	}
	if first == "" {
		return -1
	}
	s := g.may("package of a processor", "sys/devices/system/cpu/cpu"+first+"/topology/physical_package_id")
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return -1
}

// framebuffers reads /proc/fb: lines of a number and the name of a driver.
func (g *gatherer) framebuffers() {
	for line := range strings.Lines(g.may("framebuffers", "proc/fb")) {
		if _, driver, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			g.facts.Framebuffers = append(g.facts.Framebuffers, driver)
		}
	}
}
