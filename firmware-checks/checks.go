// Package checks judges the facts of a machine: will PCIe peer-to-peer work
// between its GPUs, and if not, what has to change.
//
// Every finding has a stable ID, says what was read and where, what it means
// and what to do on this very machine. Findings come from pure functions of
// [facts.Facts]: a document saved anywhere is judged the same everywhere.
package checks

import (
	"cmp"
	"slices"

	"mkp2pimg/firmware-checks/facts"
)

// Status is the outcome of one finding.
type Status string

// The outcomes. Unknown is never taken for a pass.
const (
	Pass    Status = "pass"
	Warn    Status = "warn"    // works, slower or with a risk
	Fail    Status = "fail"    // peer-to-peer does not work, or must not be trusted, until this is changed
	Skip    Status = "skip"    // does not apply to this machine
	Unknown Status = "unknown" // could not be told
)

// ID names a kind of finding. IDs are stable across releases.
type ID string

// The findings about the fabric between GPUs.
const (
	GPUPair     ID = "P2P-GPU-PAIR"
	ACSRedirect ID = "P2P-ACS-REDIRECT"
	IOMMU       ID = "P2P-IOMMU"
	CommandLine ID = "P2P-CMDLINE"

	LinkWidth      ID = "P2P-LINK-WIDTH"
	LinkSpeed      ID = "P2P-LINK-SPEED"
	LinkErrors     ID = "P2P-LINK-ERRORS"
	Chipset        ID = "P2P-CHIPSET"
	MaxPayload     ID = "P2P-MAX-PAYLOAD"
	Ordering       ID = "P2P-RELAXED-ORDERING"
	Tags           ID = "P2P-EXTENDED-TAGS"
	Atomics        ID = "P2P-ATOMICS"
	ATS            ID = "P2P-ATS"
	PeerSlots      ID = "P2P-PEER-SLOTS"
	PathPrediction ID = "P2P-PREDICTION"
)

// The findings about GPUs, their BARs, the driver and the platform.
const (
	GPUPresent ID = "P2P-GPU-PRESENT"
	Virtual    ID = "P2P-VIRTUAL"
	Above4G    ID = "P2P-ABOVE-4G"
	ReBAR      ID = "P2P-REBAR"

	GPUMix       ID = "P2P-GPU-MIX"
	DriverBound  ID = "P2P-DRIVER-BOUND"
	MMIOSpace    ID = "P2P-MMIO-SPACE"
	BAR1Memory   ID = "P2P-BAR1-MEMORY"
	Console      ID = "P2P-CONSOLE"
	ModuleTrust  ID = "P2P-MODULE-TRUST"
	DriverMatch  ID = "P2P-DRIVER-MATCH"
	DriverOpen   ID = "P2P-DRIVER-OPEN"
	GSPFirmware  ID = "P2P-GSP-FIRMWARE"
	ReadGate     ID = "P2P-CPU-READ-GATE"
	Confidential ID = "P2P-CONFIDENTIAL"
	MIG          ID = "P2P-MIG"
	VGPU         ID = "P2P-VGPU"
	Xid          ID = "P2P-XID"
	DriverLog    ID = "P2P-DRIVER-LOG"
	BARLog       ID = "P2P-BAR-LOG"
)

// IDs returns the IDs of all findings of [Run], in the order of the report.
func IDs() []ID {
	var ids []ID
	for _, f := range families {
		ids = append(ids, f.doc.ID)
	}
	return ids
}

// Evidence is one thing that was read.
type Evidence struct {
	What  string `json:"what"`  // "ACS control of 0000:02:08.0"
	Where string `json:"where"` // "config 0x156" or a path
	Raw   string `json:"raw"`   // the value as read
}

// Finding is the judgement of one question about the machine.
type Finding struct {
	ID     ID     `json:"id"`
	Status Status `json:"status"`
	// Title says the finding in one line.
	Title    string     `json:"title"`
	Evidence []Evidence `json:"evidence,omitempty"`
	// Meaning is one sentence: what follows for peer-to-peer traffic.
	Meaning string `json:"meaning,omitempty"`
	// Fix says what to do on this machine, one step a line; empty when nothing
	// has to change.
	Fix string `json:"fix,omitempty"`
	// Devices and Pairs are the addresses of the functions concerned.
	Devices []string    `json:"devices,omitempty"`
	Pairs   [][2]string `json:"pairs,omitempty"`
	// StandIn says that the finding is about stand-in devices or emulated GPUs.
	StandIn bool `json:"stand_in,omitempty"`
	// Again says that the finding takes the place of those with its ID that were
	// made before: see [Add].
	Again bool `json:"again,omitempty"`
}

// Add returns findings with more behind them. Those that were made again take the
// place of the earlier ones.
func Add(findings []Finding, more ...Finding) []Finding {
	findings = append(findings, more...)
	replaced := map[ID]bool{} // of those behind the one that is looked at
	keep := make([]bool, len(findings))
	for i, f := range slices.Backward(findings) {
		keep[i] = f.Again || !replaced[f.ID]
		replaced[f.ID] = replaced[f.ID] || f.Again
	}
	i := -1
	return slices.DeleteFunc(findings, func(Finding) bool {
		i++
		return !keep[i]
	})
}

// family is a kind of finding: what it is about, and what it finds in f.
type family struct {
	doc Doc
	run func(f *facts.Facts) []Finding
}

// families are in the order of the report.
var families = []family{
	{gpuPresentDoc, gpuPresent},
	{emulatedDoc, emulated},
	{gpuPairDoc, gpuPair},
	{virtualDoc, virtual},
	{above4GDoc, above4G},
	{rebarDoc, rebar},
	{acsRedirectDoc, acsRedirect},
	{iommuDoc, iommu},
	{atsDoc, ats},
	{commandLineDoc, commandLine},
	{linkWidthDoc, linkWidth},
	{linkSpeedDoc, linkSpeed},
	{linkErrorsDoc, linkErrors},
	{chipsetDoc, chipset},
	{maxPayloadDoc, maxPayload},
	{orderingDoc, ordering},
	{tagsDoc, tags},
	{atomicsDoc, atomics},
	{peerSlotsDoc, peerSlots},
	{predictionDoc, prediction},

	{gpuMixDoc, gpuMix},
	{driverBoundDoc, driverBound},
	{mmioSpaceDoc, mmioSpace},
	{bar1MemoryDoc, bar1Memory},
	{consoleDoc, console},
	{moduleTrustDoc, moduleTrust},
	{driverMatchDoc, driverMatch},
	{driverOpenDoc, driverOpen},
	{gspFirmwareDoc, gspFirmware},
	{readGateDoc, readGate},
	{confidentialDoc, confidential},
	{migDoc, mig},
	{vgpuDoc, vgpu},
	{xidDoc, xid},
	{driverLogDoc, driverLog},
	{barLogDoc, barLog},
}

// Run judges f. The order of the findings is that of the families, within a
// family the worst first, then by device.
func Run(f *facts.Facts) []Finding {
	standIn := slices.ContainsFunc(f.GPUs(), func(d *facts.Device) bool { return d.StandIn || isEmulated(d) })
	var all []Finding
	for _, family := range families {
		found := family.run(f)
		slices.SortStableFunc(found, func(a, b Finding) int {
			return cmp.Compare(severity(b.Status), severity(a.Status))
		})
		all = append(all, found...)
	}
	if standIn {
		for i := range all {
			all[i].StandIn = true
			all[i].Title = standInPrefix + all[i].Title
		}
	}
	return all
}

// severity orders outcomes, worst highest.
func severity(s Status) int {
	return slices.Index([]Status{Skip, Pass, Warn, Unknown, Fail}, s)
}

// standInPrefix opens the title of every finding about stand-in devices.
const standInPrefix = "stand-in device: "
