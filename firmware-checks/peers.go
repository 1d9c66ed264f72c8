package checks

import (
	"fmt"

	"mkp2pimg/firmware-checks/facts"
)

var peerSlotsDoc = Doc{
	ID:       PeerSlots,
	Question: "Are there more GPUs than one can have peers?",
	Meaning:  "A GPU has eight peer numbers for the PCIe mailbox, and CUDA lets a GPU without NVSwitch have eight peers at a time. With ten GPUs or more some pairs have to do without.",
	Fix:      "Give each process at most nine GPUs (CUDA_VISIBLE_DEVICES), best those below one switch or CPU.",
	Outcomes: []Outcome{
		{Pass, "every GPU can have all others as peers"},
		{Warn, "there are more than nine GPUs"},
		{Skip, "there is one GPU"},
	},
}

// peersOfGPU is how many peer numbers the driver has for a GPU
// (P2P_MAX_NUM_PEERS in g_kern_bus_nvoc.h, handed out by
// kbusGetUnusedPciePeerId; the same from release 535 to 610). BAR1 takes none,
// but the limit of CUDA without NVSwitch is the same (cuCtxEnablePeerAccess).
const peersOfGPU = 8

// peerSlots asks whether a GPU can have all others as peers.
func peerSlots(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	found := Finding{
		ID: PeerSlots, Devices: addresses(gpus),
		Evidence: []Evidence{{What: "GPUs", Where: sysPCI + "*/{vendor,class}", Raw: fmt.Sprint(len(gpus))}},
	}
	switch {
	case len(gpus) == 0:
		return nil
	case len(gpus) == 1:
		found.Status = Skip
		found.Title = "one GPU, no peers"
		found.Meaning = "Peer-to-peer needs two GPUs."
	case len(gpus)-1 > peersOfGPU:
		found.Status = Warn
		found.Title = fmt.Sprintf("%d GPUs, and one can have %d peers", len(gpus), peersOfGPU)
		found.Meaning = fmt.Sprintf("A program that enables all pairs is refused from the ninth peer of a GPU on: the PCIe mailbox has %d peer numbers for each GPU. BAR1 needs none, but CUDA has the same limit where there is no NVSwitch.", peersOfGPU)
		found.Fix = fmt.Sprintf("Give each process at most %d GPUs (CUDA_VISIBLE_DEVICES), best those below one switch or CPU.", peersOfGPU+1)
	default:
		found.Status = Pass
		found.Title = fmt.Sprintf("%d GPUs, each can have all others as peers", len(gpus))
		found.Meaning = fmt.Sprintf("A GPU can have %d peers.", peersOfGPU)
	}
	return []Finding{found}
}
