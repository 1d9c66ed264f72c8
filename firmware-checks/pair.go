package checks

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
)

var gpuPairDoc = Doc{
	ID:       GPUPair,
	Question: "Are there two GPUs, and do they hang on one CPU?",
	Meaning:  "Peer traffic between NUMA nodes shares the socket interconnect; it is slower than within a node, and some platforms do not forward it at all.",
	Fix:      "Move both GPUs of a pair to slots of one CPU, or keep work that exchanges much data on GPUs of one node.",
	Outcomes: []Outcome{
		{Pass, "a pair lies within one NUMA node"},
		{Warn, "a pair spans two nodes"},
		{Skip, "there is one GPU, with nothing to pair it with"},
		{Unknown, "there are several sockets, and the firmware assigns no node to the GPUs"},
	},
}

func gpuPair(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	switch len(gpus) {
	case 0:
		return nil // gpuPresent has said so
	case 1:
		return []Finding{{
			ID: GPUPair, Status: Skip,
			Title:   fmt.Sprintf("one GPU (%s), no second one to pair it with", gpus[0].Address),
			Meaning: "Peer-to-peer needs two GPUs; what the other findings say about this one still holds.",
			Devices: addresses(gpus),
		}}
	}
	near := Finding{
		ID: GPUPair, Status: Pass,
		Meaning: "Peer traffic stays within one NUMA node.",
	}
	far := Finding{
		ID: GPUPair, Status: Warn,
		Meaning: "Peer traffic between NUMA nodes shares the socket interconnect and is slower than within one; some platforms do not forward it at all, so only the measurement tells.",
		Fix:     "Move both GPUs of a pair to slots of one CPU, or keep work that exchanges much data on GPUs of one node.",
	}
	unclear := Finding{
		ID: GPUPair, Status: Unknown,
		Meaning: "The machine has several CPU sockets and the firmware names no NUMA node for these GPUs, so their traffic may cross the socket interconnect.",
		Fix:     "Enable NUMA (on some boards: disable node interleaving) in the firmware setup" + ofBoard(f) + ".",
	}
	for _, p := range topology.New(f).Pairs() {
		found := &near
		switch p.Class {
		case topology.SYS:
			found = &far
		case topology.Unclear, topology.Unknown:
			found = &unclear
		}
		found.Pairs = append(found.Pairs, [2]string{p.A.Address, p.B.Address})
		found.Evidence = append(found.Evidence, Evidence{
			What:  fmt.Sprintf("%s to %s", p.A.Address, p.B.Address),
			Where: fmt.Sprintf("%s{%s,%s}: link target, numa_node", sysPCI, p.A.Address, p.B.Address),
			Raw:   fmt.Sprintf("%s through %s", p.Class, meeting(p)),
		})
	}
	far.Title = fmt.Sprintf("%s across the interconnect between CPU sockets", count(len(far.Pairs), "GPU pair"))
	unclear.Title = fmt.Sprintf("%s on host bridges of unknown sockets", count(len(unclear.Pairs), "GPU pair"))
	near.Title = fmt.Sprintf("%s within one NUMA node", count(len(near.Pairs), "GPU pair"))
	return slices.DeleteFunc([]Finding{unclear, far, near}, func(f Finding) bool { return f.Pairs == nil })
}

// meeting names where the paths of a pair meet.
func meeting(p topology.Path) string {
	switch {
	case p.Ancestor != "":
		return p.Ancestor
	case p.A.Root == p.B.Root:
		return p.A.Root
	}
	return p.A.Root + " and " + p.B.Root
}
