package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/kmod/catalog"
)

var bar1MemoryDoc = Doc{
	ID:       BAR1Memory,
	Question: "Does BAR1 show all of the GPU's memory?",
	Meaning:  "Peer-to-peer over BAR1 needs static BAR1: all memory mapped at once. Where BAR1 is smaller, the driver falls back to a mailbox, or promises what it cannot map. A BAR1 that can never be as large, as on cards modified to more memory, rules it out.",
	Fix:      "Enlarge BAR1 as P2P-REBAR says. Where its largest size is below the memory, no setting helps.",
	Outcomes: []Outcome{
		{Pass, "BAR1 is at least as large as the memory that the driver tells, or that the model is sold with"},
		{Warn, "it is smaller, and the driver can enlarge it"},
		{Fail, "it is smaller, and cannot be enlarged as things are"},
		{Skip, "the BAR has no address, or the function is no NVIDIA GPU"},
		{Unknown, "the memory of the model is not known, or the model is sold with different sizes"},
	},
}

// bar1Memory asks whether the framebuffer BAR of each GPU shows all its memory.
func bar1Memory(f *facts.Facts) []Finding {
	var found []Finding
	for _, d := range f.GPUs() {
		found = append(found, bar1MemoryOf(f, d))
	}
	return merge(found)
}

// gpuMemory is what is known about the memory of a GPU, in bytes.
type gpuMemory struct {
	exact bool // the driver told
	// sold are the sizes that the model is sold with; modified is the size of
	// cards that were changed later, 0 if there are none.
	sold     []uint64
	modified uint64
	evidence Evidence
}

// memoryOf finds the memory of d, from NVML, the driver's resource manager or
// the catalog.
func memoryOf(f *facts.Facts, d *facts.Device) gpuMemory {
	if n := nvmlOf(f, d); n != nil && n.Memory > 0 {
		return gpuMemory{exact: true, sold: []uint64{n.Memory}, evidence: Evidence{
			What: "memory of " + d.Address, Where: "NVML", Raw: bytes(n.Memory),
		}}
	}
	if f.NVIDIA != nil && f.NVIDIA.Survey != nil {
		for _, g := range f.NVIDIA.Survey.GPUs {
			if g.BDF == d.Address && g.Memory > 0 {
				return gpuMemory{exact: true, sold: []uint64{g.Memory}, evidence: Evidence{
					What: "memory of " + d.Address, Where: "NV2080_CTRL_CMD_FB_GET_INFO", Raw: bytes(g.Memory),
				}}
			}
		}
	}
	var m gpuMemory
	var names []string
	for _, model := range models(d) {
		names = append(names, model.String())
	}
	m.evidence = Evidence{What: "memory of " + d.Address, Where: "catalog of GPUs, by device ID", Raw: "not in the catalog"}
	if names != nil {
		m.evidence.Raw = strings.Join(names, " or ")
	}
	for _, model := range models(d) {
		sizes := model.Memory
		if len(sizes) == 0 {
			m.sold, m.modified = nil, 0
			return m
		}
		if hasTrap(model, "modified") {
			m.modified = max(m.modified, sizes[len(sizes)-1]<<30)
			sizes = sizes[:len(sizes)-1] // as sold come first
		}
		for _, gib := range sizes {
			m.sold = append(m.sold, gib<<30)
		}
	}
	return m
}

// hasTrap reports whether the catalog warns of a model under a name that begins
// with this.
func hasTrap(model catalog.GPU, name string) bool {
	return slices.ContainsFunc(model.Traps, func(t string) bool { return strings.HasPrefix(t, name) })
}

// nvmlOf returns what NVML says of d, nil when it was not asked.
func nvmlOf(f *facts.Facts, d *facts.Device) *facts.NVMLGPU {
	if f.NVIDIA == nil {
		return nil
	}
	i := slices.IndexFunc(f.NVIDIA.NVML, func(n facts.NVMLGPU) bool { return n.Address == d.Address })
	if i < 0 {
		return nil
	}
	return &f.NVIDIA.NVML[i]
}

func bar1MemoryOf(f *facts.Facts, d *facts.Device) Finding {
	found := Finding{ID: BAR1Memory, Devices: []string{d.Address}}
	fb, ok := d.Framebuffer()
	if d.Vendor != vendorNVIDIA {
		found.Status, found.Title = Skip, "no NVIDIA GPU, it has no memory to show"
		found.Meaning = "Only the memory of a GPU is shown through its BAR."
		return found
	}
	if d.NoResponse || !ok || !fb.Assigned {
		found.Status, found.Title = Skip, "no framebuffer BAR with an address"
		found.Meaning = "P2P-GPU-PRESENT or P2P-ABOVE-4G says what is missing."
		return found
	}
	m := memoryOf(f, d)
	found.Evidence = []Evidence{assignment(d, fb), m.evidence}
	if m.sold == nil {
		found.Status, found.Title = Unknown, "the memory of the GPU is not known"
		found.Meaning = "Whether BAR1 shows all of it cannot be told."
		found.Fix = "Load the driver and gather the facts again: it tells the size of the memory."
		return found
	}
	least, most := slices.Min(m.sold), slices.Max(m.sold)
	largest := fb.Largest()
	switch {
	case fb.Size >= most:
		found.Status, found.Title = Pass, fmt.Sprintf("BAR1 of %s shows all %s of memory", bytes(fb.Size), bytes(most))
		found.Meaning = "The driver can map all memory at once, as peer-to-peer over BAR1 needs."
		if fb.Size < m.modified {
			found.Title = fmt.Sprintf("BAR1 of %s shows the %s that the model is sold with", bytes(fb.Size), bytes(most))
			found.Meaning += fmt.Sprintf(" A card modified to %s would not fit.", bytes(m.modified))
		}
	case fb.Size >= least:
		found.Status, found.Title = Unknown, fmt.Sprintf("BAR1 is %s, the model is sold with %s to %s", bytes(fb.Size), bytes(least), bytes(most))
		found.Meaning = "Whether BAR1 shows all memory of this card cannot be told."
		found.Fix = "Load the driver and gather the facts again: it tells the size of the memory."
	case largest >= least:
		found.Status, found.Title = Fail, fmt.Sprintf("BAR1 shows %s of %s of memory", bytes(fb.Size), bytes(least))
		found.Meaning = "Peers cannot reach what BAR1 does not show; the driver falls back to a mailbox, or promises what it cannot map."
		found.Fix = "Enlarge BAR1: see P2P-REBAR."
		if bridge, _, _ := rigidWindow(f, d); bridge == nil {
			found.Status = Warn // the driver can do it
		}
	case slices.ContainsFunc(models(d), func(m catalog.GPU) bool { return hasTrap(m, "display-mode") }):
		found.Status, found.Title = Fail, fmt.Sprintf("BAR1 is %s in the card's display mode, the memory is %s", bytes(largest), bytes(least))
		found.Meaning = "The display mode of this card decides how large BAR1 is; no other setting does."
		found.Fix = "Switch the card to a mode with a large BAR1 with NVIDIA's displaymodeselector, and reboot."
	default:
		found.Status, found.Title = Fail, fmt.Sprintf("BAR1 can be %s at most, the memory is %s", bytes(largest), bytes(least))
		found.Meaning = "No setting makes BAR1 show all memory, so the driver's static BAR1 and with it peer-to-peer over BAR1 is not possible on this card."
		found.Fix = "Do not load nvidia.ko with RMForceStaticBar1=1: the driver would not start this GPU. Whether another way works only the measurement tells."
	}
	return found
}
