package predict

import (
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/loadopt"
)

// Names of gates that others lead to.
const (
	bar1Gate    = "BAR1-KEY"
	mailboxGate = "MAILBOX"
)

const (
	p2pCaps = "p2p_caps.c: "
	gh100   = "kern_bus_gh100.c: "
)

// Conditions that two gates share.
const (
	bothMapped    = "both GPUs map all their memory in BAR1"
	notBothMapped = "a GPU does not map all its memory in BAR1"
)

// gates are the questions in the order in which the driver asks them, from
// p2pGetCapsStatus (p2p_caps.c) on. NVLink by way of a CPU, which is between
// NVSWITCH and FORCE-OFF, is for machines with POWER CPUs and left out.
var gates []Gate

func init() {
	gates = []Gate{
		{
			ID: "KNOWN", Releases: always,
			Question: "Does the release drive these GPUs?",
			Source:   "g_nv_name_released.h",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.P2PUnsupported,
			IfYes: "the release drives the GPUs", IfNo: "the release does not drive the GPUs",
			Opens: "Take a release that knows the GPUs: 570 is the first for Blackwell.",
			ask:   (*pair).known,
		},
		{
			ID: "MIG", Releases: always,
			Question: "Is MIG off on both GPUs?",
			Source:   p2pCaps + "p2pGetCapsStatus",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.P2PUnsupported,
			IfYes: "MIG is off", IfNo: "MIG is on",
			Opens: "Turn MIG off: nvidia-smi -i <GPU> -mig 0.",
			ask:   (*pair).migOff,
		},
		{
			ID: "C2C", Releases: []Range{{From: 580}},
			Question: "Does a C2C link join the GPUs?",
			Source:   p2pCaps + "_kgetP2PCapsStatusOverC2C",
			Yes:      Step{Grant: rm.C2C},
			IfYes:    "a C2C link joins the GPUs", IfNo: "no C2C link joins the GPUs",
			ask: (*pair).c2c,
		},
		{
			ID: "NVLINK", Releases: always,
			Question: "Does NVLink join the GPUs?",
			Source:   p2pCaps + "_gpumgrGetP2PCapsStatusOverNvLink",
			Yes:      Step{Grant: rm.NVLink},
			IfYes:    "NVLink joins the GPUs", IfNo: "no NVLink joins the GPUs",
			ask: (*pair).nvlink,
		},
		{
			ID: "NVSWITCH", Releases: always,
			Question: "May PCIe stand in for NVLink?",
			Source:   p2pCaps + "p2pGetCapsStatus",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.P2PUnsupported,
			IfYes: "no NVSwitch is present", IfNo: "an NVSwitch is present",
			Opens: "Start nvidia-fabricmanager of the driver's release: on machines with NVSwitch the driver never takes PCIe instead.",
			ask:   (*pair).noNVSwitch,
		},
		{
			ID: "FORCE-OFF", Releases: always,
			Question: "Do the registry keys leave peer access over PCIe on?",
			Source:   p2pCaps + "_kp2pCapsCheckStatusOverridesForPcie",
			No:       Step{Grant: rm.NoPath}, Refuses: true,
			Opens: "Load nvidia.ko without ForceP2P, or with ForceP2P=" + loadopt.ForceP2P + ".",
			ask:   (*pair).notForcedOff,
		},
		{
			ID: "FORCE", Releases: always,
			Question: "Does ForceP2P answer in place of the driver's tables?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcie",
			Yes:      Step{GoTo: bar1Gate},
			ask:      (*pair).forced,
		},
		{
			ID: "CLIQUE", Releases: []Range{{535, 535}, {From: 550}},
			Question: "Has the hypervisor put the GPUs into one clique?",
			Source:   "hypervisor.c: hypervisorPcieP2pDetection",
			Yes:      Step{GoTo: bar1Gate},
			IfYes:    "the hypervisor approves", IfNo: "the hypervisor says nothing about peers",
			ask: (*pair).clique,
		},
		{
			ID: "IOH", Releases: always,
			Question: "Are the GPUs below one Intel I/O hub, or below none?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcie",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.TopologyUnfit,
			IfYes: "the GPUs are below one I/O hub", IfNo: "the GPUs are below different I/O hubs",
			Opens: "Put the GPUs into slots of one CPU: these I/O hubs do not forward to each other. ForceP2P would hide that, not change it.",
			ask:   (*pair).oneIOH,
		},
		{
			ID: "SAME", Releases: always,
			Question: "Have the GPUs the same chip?",
			Source:   p2pCaps + "areGpusP2PCompatible",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.P2PUnsupported,
			IfYes: "the GPUs have the same chip", IfNo: "the GPUs have different chips",
			Opens: "Pair GPUs of one chip. ForceP2P skips the question, but CUDA does not pair GPUs of different generations.",
			ask:   (*pair).sameChip,
		},
		{
			ID: "CHIPSET", Releases: always,
			Question: "Does the driver know the chipset to forward peer traffic, or a switch above both GPUs?",
			Source:   "chipset_pcie.c: pciePeerAccessCaps (in the GSP firmware before 610)",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.ChipsetUnsupported,
			IfYes: "the driver knows the chipset", IfNo: "the driver does not know the chipset",
			Opens: "Load nvidia.ko with the registry key ForceP2P=" + loadopt.ForceP2P + ", which answers in place of the table; then only the measurement tells whether the chipset forwards.",
			ask:   (*pair).chipset,
		},
		{
			ID: "GPU", Releases: always,
			Question: "Does the GSP firmware let GPUs of this model be PCIe peers?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcie, answered by the GSP firmware",
			No:       Step{Grant: rm.NoPath}, Refuses: true, Status: rm.GPUUnsupported,
			IfYes: "the firmware allows the model", IfNo: "the firmware denies it to the model",
			Opens: "Load nvidia.ko with the registry key ForceP2P=" + loadopt.ForceP2P + ", which answers in place of the firmware, and with BAR1 chosen: such GPUs have no mailbox.",
			ask:   (*pair).allowed,
		},
		{
			ID: bar1Gate, Releases: always,
			Question: "Do the registry keys choose BAR1?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcieBar1",
			No:       Step{GoTo: mailboxGate}, Refuses: true,
			Opens: "Load nvidia.ko with RMForceP2PType=2 until release 570, with RMPcieP2PType=1 from 575 on.",
			ask:   (*pair).asksBAR1,
		},
		{
			ID: "BAR1-FORCE-FIRST", Releases: []Range{{545, 570}},
			Question: "Does ForceP2P grant BAR1 before anyone looks whether the GPUs have it?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcieBar1",
			Yes:      Step{Grant: rm.BAR1},
			ask:      (*pair).forcedFirst,
		},
		{
			ID: "BAR1-CHIP", Releases: always,
			Question: "Has the driver BAR1 peer-to-peer for these chips?",
			Source:   "g_kern_bus_nvoc.c: kbusIsPcieBar1P2PMappingSupported",
			No:       Step{GoTo: mailboxGate}, Refuses: true, Status: rm.P2PUnsupported,
			IfYes: "the driver has BAR1 peer-to-peer for the chip", IfNo: "the driver has no BAR1 peer-to-peer for the chip",
			Opens: "Load a driver built with the P2P edits (mkp2pimg, p2p.driver=p2p): as published these chips have a stub.",
			ask:   (*pair).hasBAR1,
		},
		{
			ID: "BAR1-DEFAULT", Releases: []Range{{From: 590}},
			Question: "Is BAR1 chosen by name, or on by default for the chip?",
			Source:   gh100 + "kbusIsPcieBar1P2PMappingSupported_GH100",
			No:       Step{GoTo: mailboxGate}, Refuses: true,
			IfYes: "the chip has BAR1 by default", IfNo: "the chip does not have BAR1 by default",
			Opens: "Load nvidia.ko with RMPcieP2PType=1; 2 is for GPUs that have BAR1 by default.",
			ask:   (*pair).byName,
		},
		{
			ID: "STATIC", Releases: always,
			Question: "Do both GPUs map all their memory in BAR1?",
			Source:   gh100 + "kbusIsBar1P2PCapable_GH100 until 560, kern_bus_tu102.c: kbusIsStaticBar1Supported_TU102 from 565 on",
			No:       Step{GoTo: mailboxGate}, Refuses: true,
			IfYes: bothMapped, IfNo: notBothMapped,
			Opens: "Make BAR1 larger than the memory: Above 4G Decoding and Resizable BAR in the firmware setup, NVreg_EnableResizableBar=1; take displays off these GPUs; on 575 set RMForceStaticBar1=2.",
			ask:   (*pair).static,
		},
		{
			ID: "BAR1-FORCE", Releases: always,
			Question: "Does ForceP2P answer in place of the list of CPUs?",
			Source:   p2pCaps + "_kp2pCapsGetStatusOverPcieBar1",
			Yes:      Step{Grant: rm.BAR1},
			ask:      (*pair).forcedLast,
		},
		{
			ID: "HOST", Releases: always,
			Question: "Does the driver know the CPU to forward peer reads, or a switch above both GPUs?",
			Source:   p2pCaps + "_p2pCapsGetHostSystemStatusOverPcieBar1, cpu.c",
			Yes:      Step{Grant: rm.BAR1}, No: Step{GoTo: mailboxGate}, Refuses: true,
			IfYes: "the driver knows the CPU", IfNo: "the driver does not know the CPU",
			Opens: "Load nvidia.ko with the registry key ForceP2P=" + loadopt.ForceP2P + ", which answers in place of the list (on 535 with the P2P edits only); then only the measurement tells whether reads arrive.",
			ask:   (*pair).host,
		},
		{
			ID: mailboxGate, Releases: always,
			Question: "May the mailbox take the place of BAR1?",
			Source:   p2pCaps + "p2pGetCapsStatus",
			Yes:      Step{Grant: rm.Mailbox}, No: Step{Grant: rm.NoPath}, Refuses: true, Status: rm.P2PUnsupported,
			ask: (*pair).mayFallBack,
		},
	}
}

// workings are the questions whether a path that is granted works.
var workings = []Gate{
	{
		ID: "BAR1-MAPPED", Releases: []Range{{545, 570}}, Path: rm.BAR1,
		Question: "Do both GPUs map all their memory in BAR1?",
		Source:   gh100 + "kbusGetBar1P2PDmaInfo_GH100",
		IfYes:    bothMapped, IfNo: notBothMapped,
		Opens: "Make BAR1 larger than the memory, see STATIC: ForceP2P made the driver promise BAR1 without a look.",
		ask:   (*pair).static,
	},
	{
		ID: "BAR1-MAPPING", Releases: always, Path: rm.BAR1,
		Question: "Can the driver create a BAR1 mapping on these chips?",
		Source:   "kern_bus_gp100.c: kbusCreateP2PMapping_GP100",
		IfYes:    "the driver can map BAR1 peers on the chip", IfNo: "the driver can't map BAR1 peers on the chip",
		Opens: "Load a driver built with the P2P edits.",
		ask:   (*pair).hasBAR1,
	},
	{
		ID: "BAR1-PTE", Releases: always, Path: rm.BAR1,
		Question: "Do page table entries of peer memory point at its BAR1?",
		Source:   "nv_gpu_ops.c: nvGpuOpsBuildExternalAllocPtes",
		Opens:    "Use release 580 or newer, or a driver built with the P2P edits.",
		ask:      (*pair).entries,
	},
	{
		ID: "MAILBOX-SET-UP", Releases: always, Path: rm.Mailbox,
		Question: "Has the driver set the mailbox up?",
		Source:   "kern_bus_gm107.c: _kbusRequiresP2PMailboxBar1_GM107",
		IfYes:    "the mailbox is set up", IfNo: "the mailbox is not set up",
		Opens: "Make BAR1 work, or load nvidia.ko without the key that chooses it: a mailbox that was not set up swallows data without an error.",
		ask:   (*pair).mailboxSetUp,
	},
	{
		ID: "MAILBOX-MODEL", Releases: always, Path: rm.Mailbox,
		Question: "Does the GSP firmware let GPUs of this model be PCIe peers?",
		Source:   p2pCaps + "_kp2pCapsGetStatusOverPcie, answered by the GSP firmware",
		IfYes:    "the firmware allows the model", IfNo: "the firmware denies it to the model",
		Opens: "Choose BAR1: ForceP2P grants such GPUs a mailbox that their firmware denies.",
		ask:   (*pair).allowed,
	},
}
