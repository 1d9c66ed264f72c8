// Package loadopt decides with which options nvidia.ko is loaded, so that peer-to-peer between the
// GPUs of a machine goes over BAR1: from what the driver release offers, and from the GPUs.
//
// It depends on the standard library only, since the init of the image decides too.
package loadopt

import (
	"fmt"
	"strings"
)

// Offer is what a driver release lets one set.
type Offer struct {
	// ResizableBAR: module parameter NVreg_EnableResizableBar.
	ResizableBAR bool `json:"resizable_bar,omitempty" yaml:"resizable_bar"`
	// HoldsBack: GeForce and workstation GPUs are refused unless
	// NVreg_OpenRmEnableUnsupportedGpus is 1.
	HoldsBack bool `json:"holds_back,omitempty" yaml:"holds_back"`
	// Messages: module parameter NVreg_RmMsg.
	Messages bool `json:"messages,omitempty" yaml:"messages"`
	// ForceP2P: registry key of that name.
	ForceP2P bool `json:"force_p2p,omitempty" yaml:"force_p2p"`
	// BAR1 is the registry key that chooses BAR1 over the mailbox.
	BAR1 BAR1Key `json:"bar1,omitempty" yaml:"bar1"`
	// Static is what the release does about static BAR1 when it is told nothing.
	Static Static `json:"static,omitempty" yaml:"static"`
}

// BAR1Key is the registry key that chooses BAR1 over the mailbox for PCIe.
type BAR1Key string

const (
	// Joint is the key until 570: it chooses the link and the PCIe protocol at once, and 2 is
	// BAR1. From 575 on the value 2 of the same key stands for NVLink.
	Joint BAR1Key = "RMForceP2PType"
	// Separate is the key from 575 on: it chooses the PCIe protocol only, and 1 is BAR1.
	Separate BAR1Key = "RMPcieP2PType"
)

// value is what BAR1 is called in the key (NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P and
// NV_REG_STR_RM_PCIEP2P_TYPE_BAR1 in nvrm_registry.h).
func (k BAR1Key) value() string {
	if k == Joint {
		return "2"
	}
	return "1"
}

// mailbox is what the mailbox is called in the key (NV_REG_STR_RM_FORCE_P2P_TYPE_MAILBOXP2P and
// NV_REG_STR_RM_PCIEP2P_TYPE_MAILBOX).
func (k BAR1Key) mailbox() string {
	if k == Joint {
		return "1"
	}
	return "0"
}

// Static is a release's default of the registry key RMForceStaticBar1: whether all of a GPU's
// memory is mapped in BAR1, which BAR1 peer-to-peer needs.
type Static string

// The defaults. A release without the key has none of them.
const (
	StaticOff   Static = "off"   // not mapped
	StaticAsked Static = "asked" // mapped where it fits, if BAR1 was chosen for PCIe
	StaticAuto  Static = "auto"  // mapped where it fits, with room for the driver's other mappings
)

const (
	// ForceP2P is the value of the registry key of that name. It allows peer reads (bits 1:0 = 1) and writes (5:4 = 1) and leaves atomics at the
	// driver's default (9:8 = 2): NV_REG_STR_CL_FORCE_P2P_* in nvrm_registry.h.
	ForceP2P = "0x211"
	// NV_REG_STR_RM_FORCE_STATIC_BAR1_ENABLE and _AUTO in nvrm_registry.h.
	staticEnable, staticAuto = "1", "2"
	// Padding is what static BAR1 may lose at the start of BAR1 where a console lies there: its
	// offset is rounded up to RM_PAGE_SIZE_512M (kbusInitBar1_GM107, from 580 on).
	Padding = 512 << 20
)

// messages are parts of the names of the functions of the resource manager whose messages tell
// how static BAR1 and each pair of GPUs were set up. NVreg_RmMsg takes them separated by commas,
// in at most 511 bytes, and prints all messages of functions and files whose names hold one of
// them (nvDbgRmMsgCheck in nvlog_printf.c). Whole files would print much else besides.
var messages = []string{
	"kbusSetupBar1P2PCapability",     // The gpu … is (not) BAR1 P2P capable (535 only)
	"kbusEnableStaticBar1Mapping",    // Static bar1 mapped offset … size …
	"kbusIsStaticBar1Supported",      // Enabling static BAR1 automatically!
	"kbusCreateP2PMappingForBar1P2P", // added PCIe BAR1 P2P mapping between GPU… and GPU…
	"kbusCreateP2PMappingForMailbox", // added PCIe P2P mapping between GPU… (peer …) and …
	"kbusAllocP2PMailboxBar1",        // P2P write mailboxes allocated at BAR1 addr …
}

// GPU is a GPU as far as the choice depends on it.
type GPU struct {
	// Address is its PCI address, or what else it is to be called by.
	Address string
	// BAR1 is the size in bytes of the BAR that shows its memory, as it is now; 0 if not known.
	BAR1 uint64
	// Memory is the most memory in bytes that a GPU of its kind has; 0 if not known.
	Memory uint64
	// Patch says that the release does BAR1 peer-to-peer on it only with edits of its source.
	Patch bool
	// Headless says that no console lies in its BAR1.
	Headless bool
}

// Option is a setting with which nvidia.ko is loaded.
type Option struct {
	// Name is the module parameter, or the registry key if Key is set.
	Name string `json:"name"`
	// Value is as the driver reads it.
	Value string `json:"value"`
	// Key says that Name goes into NVreg_RegistryDwords. Module parameters have no effect there.
	Key bool `json:"key,omitempty"`
	// Why says what the setting is for, or in [Choice.Left] why it is not made.
	Why string `json:"why"`
}

// Choice are the options to load nvidia.ko with.
type Choice struct {
	Options []Option `json:"options"`
	// Left are settings that would serve and are not made.
	Left []Option `json:"left_out,omitempty"`
}

func (c *Choice) set(name, value string, key bool, why string) {
	c.Options = append(c.Options, Option{name, value, key, why})
}

// Choose decides with which options the driver of a release is loaded on a machine with these
// GPUs. edited says that the driver was built with the P2P edits. Without GPUs the choice holds
// on any machine.
func Choose(o Offer, edited bool, gpus []GPU) Choice {
	c := common(o)
	keys := force(o)
	switch o.BAR1 {
	case Joint:
		keys = append(keys, Option{string(o.BAR1), o.BAR1.value(), true, "chooses BAR1 over the mailbox"})
	case Separate:
		keys = append(keys, Option{string(o.BAR1), o.BAR1.value(), true,
			"chooses BAR1 over the mailbox, and leaves NVLink to pairs that have it"})
	}
	if why := unedited(edited, gpus); why != "" {
		for _, k := range keys {
			k.Why = why
			c.Left = append(c.Left, k)
		}
		return c
	}
	c.Options = append(c.Options, keys...)
	c.static(o.Static, gpus)
	return c
}

// ChooseMailbox decides with which options the driver of a release is loaded so that GPUs reach
// each other over the mailbox, to compare that with BAR1. A GPU whose firmware denies it a mailbox
// is granted one all the same, and loses what is written to it.
func ChooseMailbox(o Offer) Choice {
	c := common(o)
	c.Options = append(c.Options, force(o)...)
	if o.BAR1 != "" {
		c.set(string(o.BAR1), o.BAR1.mailbox(), true, "chooses the mailbox over BAR1, to compare them")
	}
	return c
}

// common are the options that hold whichever way peers reach each other.
func common(o Offer) Choice {
	c := Choice{Options: []Option{}}
	if o.ResizableBAR {
		c.set("NVreg_EnableResizableBar", "1", false,
			"grows BAR1 where firmware left it small; the driver never shrinks it")
	}
	if o.HoldsBack {
		c.set("NVreg_OpenRmEnableUnsupportedGpus", "1", false,
			"lets the open modules drive GeForce and workstation cards in releases that hold them back")
	}
	if o.Messages {
		c.set("NVreg_RmMsg", strings.Join(messages, ","), false,
			"makes the driver log whether it maps memory in BAR1 and which way each pair goes")
	}
	return c
}

// force is the key that answers in place of the driver's tables.
func force(o Offer) []Option {
	if !o.ForceP2P {
		return nil
	}
	return []Option{{"ForceP2P", ForceP2P, true,
		"allows peer reads and writes whatever the driver's list of chipsets says, atomics as they are"}}
}

// unedited says why BAR1 must not be forced on a driver without the edits, or nothing if it may.
func unedited(edited bool, gpus []GPU) string {
	if edited {
		return ""
	}
	where := "on GPUs that need the edits"
	for _, g := range gpus {
		if g.Patch {
			where = "on " + g.Address
			break
		}
		where = ""
	}
	if where == "" {
		return ""
	}
	return fmt.Sprintf("this driver has no P2P edits: BAR1 that is forced %s ends in a mailbox that was not set up, "+
		"and writes to peers are lost without an error", where)
}

// static decides about RMForceStaticBar1. Forcing it on a GPU whose BAR1 can't hold its memory
// fails the GPU's start (kbusIsStaticBar1Supported_TU102: NV_ERR_INVALID_REGISTRY_KEY).
func (c *Choice) static(byDefault Static, gpus []GPU) {
	const name = "RMForceStaticBar1"
	tight := tight(gpus)
	left := Option{name, staticEnable, true, ""}
	switch byDefault {
	case StaticAsked:
		left.Why = "choosing BAR1 turns static BAR1 on where it fits; " +
			"forced, a GPU whose BAR1 can't hold its memory does not start"
	case StaticOff, StaticAuto:
		if tight == "" {
			c.set(name, staticEnable, true, "maps all memory in BAR1: every GPU's BAR1 holds it")
			return
		}
		left.Why = tight + ": forced, a GPU whose BAR1 can't hold its memory does not start"
		if byDefault == StaticOff {
			c.set(name, staticAuto, true, "maps all memory in BAR1 where it fits; this release does not by default")
		} else {
			left.Why += "; the driver's default maps it where it fits"
		}
	default:
		return // there is no such key
	}
	c.Left = append(c.Left, left)
}

// tight says which GPU's BAR1 is not known to hold its memory, or nothing if all do.
func tight(gpus []GPU) string {
	if len(gpus) == 0 {
		return "the machine's GPUs are not known"
	}
	for _, g := range gpus {
		switch {
		case g.Memory == 0:
			return "the memory of " + g.Address + " is not known"
		case g.BAR1 == 0:
			return "the size of BAR1 of " + g.Address + " is not known"
		case g.BAR1 < g.Memory:
			return fmt.Sprintf("BAR1 of %s has %d MiB now, its memory may have %d MiB", g.Address, g.BAR1>>20, g.Memory>>20)
		case !g.Headless && g.BAR1 < g.Memory+Padding:
			return fmt.Sprintf("BAR1 of %s has no room for a console beside its memory of %d MiB", g.Address, g.Memory>>20)
		}
	}
	return ""
}
