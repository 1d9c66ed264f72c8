package predict

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
)

const vendorNVIDIA = 0x10de

// machine is what all pairs share.
type machine struct {
	Driver
	facts *facts.Facts
	major int
	gpus  []*gpu
	// The chipset that the driver finds, and whether the driver's table lets it forward.
	chipsetName     string
	chipsetForwards bool
}

// gpu is a GPU with what is known of its model.
type gpu struct {
	*facts.Device
	// models are the models with its device ID, none if it is not known.
	models []catalog.GPU
	nvml   *facts.NVMLGPU // nil without
}

// pair is a pair of GPUs to ask about, a with the lesser address: the driver too
// takes them in its own order, whichever is to reach the other.
type pair struct {
	*machine
	a, b    *gpu
	answers map[*Gate]Answer
}

func newMachine(f *facts.Facts, d Driver) *machine {
	m := &machine{Driver: d, facts: f, major: d.major()}
	m.chipsetName, m.chipsetForwards = chipsetOf(f)
	c := catalog.Load()
	for _, dev := range f.GPUs() {
		g := &gpu{Device: dev}
		if dev.Vendor == vendorNVIDIA {
			// An ID that the catalog does not have is no error here.
			g.models, _ = c.LookupGPU(fmt.Sprintf("10de:%04x", uint64(dev.Device)))
		}
		if f.NVIDIA != nil {
			i := slices.IndexFunc(f.NVIDIA.NVML, func(n facts.NVMLGPU) bool { return n.Address == dev.Address })
			if i >= 0 {
				g.nvml = &f.NVIDIA.NVML[i]
			}
		}
		m.gpus = append(m.gpus, g)
	}
	return m
}

// name returns "GeForce RTX 4090", or the IDs of a model that is not known.
func (g *gpu) name() string {
	if len(g.models) == 0 {
		return fmt.Sprintf("GPU %04x:%04x", uint64(g.Vendor), uint64(g.Device.Device))
	}
	return g.models[0].Name
}

// chip returns the name of the chip, such as AD102, "" if it is not known.
// Models that share an ID have the same.
func (g *gpu) chip() string {
	if len(g.models) == 0 {
		return ""
	}
	return g.models[0].Chip
}

// series is a family of chips as far as the gates tell them apart.
type series string

const (
	older     series = "Turing, Ampere or Ada"
	hopper    series = "Hopper"
	blackwell series = "data center Blackwell" // GB100, GB102
	geforce   series = "Blackwell"             // GB202 … GB207, GeForce and RTX PRO
)

// series returns the series of the chip, "" if it is not known.
func (g *gpu) series() series {
	chip := g.chip()
	switch {
	case chip == "":
		return ""
	case strings.HasPrefix(chip, "GB10"):
		return blackwell
	case strings.HasPrefix(chip, "GB20"):
		return geforce
	case strings.HasPrefix(chip, "GH"):
		return hopper
	}
	return older
}

// each asks about both GPUs.
func (p *pair) each(ask func(g *gpu) reply) reply { return both(ask(p.a), ask(p.b)) }

// key returns the value of a registry key, 0 if it is not set: the default of
// all but ForceP2P and RMForceStaticBar1.
func (d Driver) key(name string) uint32 { return d.Keys[name] }

// Values of RMForceP2PType (NV_REG_STR_RM_FORCE_P2P_TYPE_* in nvrm_registry.h).
// From 575 on the mailbox and BAR1 are one, and the rest moves down. A value
// past the last counts as 0.
const (
	typeDefault = 0

	joint       = 570 // last branch with one key for link and protocol
	jointBAR1   = 2
	jointNVLink = 3
	jointC2C    = 4

	typePCIe   = 1
	typeNVLink = 2
	typeC2C    = 3
)

// Values of RMPcieP2PType (NV_REG_STR_RM_PCIEP2P_TYPE_* in nvrm_registry.h).
const (
	pcieMailbox = 0
	pcieBAR1    = 1
	pcieAuto    = 2
)

// linkType returns RMForceP2PType as the release takes it.
func (m *machine) linkType() uint32 {
	v, last := m.key(rm.KeyForceP2PType), uint32(typeC2C)
	if m.major <= joint {
		last = jointC2C
	}
	if v > last {
		return typeDefault
	}
	return v
}
