package loadopt

import (
	"fmt"
	"slices"
)

// Data is what an image carries for the choice on the machine that it boots.
type Data struct {
	Offer Offer `json:"offer"`
	// Edited are the module sets whose driver has the P2P edits.
	Edited []string `json:"edited"`
	// Models are the known GPUs by PCI device id, in four lower case hexadecimal digits.
	Models map[string]Model `json:"models"`
}

// Model is what is known of a GPU model with a release.
type Model struct {
	Name string `json:"name"`
	// Memory is the most memory in MiB that cards of the model are known to have.
	Memory uint64 `json:"memory_mib,omitempty"`
	// Patch says that the release does BAR1 peer-to-peer on it only with edits of its source.
	Patch bool `json:"patch,omitempty"`
}

// Choose is [Choose] for a module set of the image.
func (d *Data) Choose(set string, gpus []GPU) Choice {
	return Choose(d.Offer, slices.Contains(d.Edited, set), gpus)
}

// ChooseMailbox is [ChooseMailbox], which is alike for all module sets.
func (d *Data) ChooseMailbox() Choice { return ChooseMailbox(d.Offer) }

// GPU describes a GPU with what is known of its model.
func (d *Data) GPU(address string, id uint16, bar1 uint64, headless bool) GPU {
	m, known := d.Models[fmt.Sprintf("%04x", id)]
	return GPU{Address: address, BAR1: bar1, Memory: m.Memory << 20, Patch: m.Patch || !known, Headless: headless}
}
