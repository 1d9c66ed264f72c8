// Package farm holds what the parts of a farm server speak about: nodes, their
// runs, what a run found out, and what changed since the runs before.
//
// The parts are in directories of their own. [mkp2pimg/internal/farm/lab] reads
// the description of a lab; boot answers machines that start from the network;
// intake takes their reports in; store keeps them; judge compares a run with the
// node's earlier ones; page shows them; nightly starts nodes and waits for them.
package farm

import (
	"time"

	checks "mkp2pimg/firmware-checks"
)

// Node is one machine of the lab.
type Node struct {
	Name   string `json:"name"`             // of lab.yaml, or made of the first identity that it was seen with
	MAC    string `json:"mac,omitempty"`    // of the port it boots from, 52:54:00:12:34:56
	UUID   string `json:"uuid,omitempty"`   // SMBIOS system UUID, lower case
	Serial string `json:"serial,omitempty"` // SMBIOS system serial number

	FirstSeen time.Time `json:"first_seen,omitzero"`
	LastSeen  time.Time `json:"last_seen,omitzero"` // it asked for something to boot, or delivered something
}

// State says how far a run is.
type State string

// The states of a run.
const (
	Offered  State = "offered"  // the node was given an image to boot and has delivered nothing yet
	Running  State = "running"  // a part of the report has arrived
	Complete State = "complete" // the end of the report has arrived
	// Lost is a run whose deadline passed before its end, or whose node started
	// another one. What had arrived is kept, and judged as far as it goes.
	Lost State = "lost"
)

// Over tells whether nothing more is expected of a run.
func (s State) Over() bool { return s == Complete || s == Lost }

// Source is the way on which a report came.
type Source string

// The sources.
const (
	Network Source = "network" // delivered by the node while it ran
	Stick   Source = "stick"   // imported: a file of a stick's partition for reports, or any report file
	Serial  Source = "serial"  // imported: a log of a serial port
)

// Run is one start of a node with the image, from the offer to the end of its
// report.
type Run struct {
	ID       string    `json:"id"` // random UUID
	Node     string    `json:"node"`
	Night    string    `json:"night"` // 2006-01-02: see lab.Night
	Source   Source    `json:"source"`
	State    State     `json:"state"`
	Why      string    `json:"why,omitempty"` // of a lost run: why it is given up
	Image    string    `json:"image,omitempty"`
	Plan     string    `json:"plan,omitempty"`
	Offered  time.Time `json:"offered,omitzero"`
	Started  time.Time `json:"started,omitzero"` // first chunk
	Updated  time.Time `json:"updated,omitzero"` // last chunk
	Ended    time.Time `json:"ended,omitzero"`   // complete or given up
	Deadline time.Time `json:"deadline,omitzero"`
	Chunks   int       `json:"chunks"`
	Bytes    int64     `json:"bytes"`           // of the report, unpacked
	Stage    string    `json:"stage,omitempty"` // last stage begun

	Judged  bool     `json:"judged,omitempty"`  // what follows is about all that has arrived, which takes a moment
	Summary *Summary `json:"summary,omitempty"` // nil until the report says something
	Changes []Change `json:"changes,omitempty"` // against the node's baseline
}

// Summary is what matters of a report when nights are compared.
type Summary struct {
	Verdict checks.Verdict `json:"verdict"` // empty: none was reached
	Reason  string         `json:"reason"`
	Driver  string         `json:"driver,omitempty"` // release of NVIDIA's driver
	Kernel  string         `json:"kernel,omitempty"`
	Product string         `json:"product,omitempty"` // version of mkp2pimg

	// Settings are what firmware and kernel were set to, by a stable name:
	// "bios.version", "acs.redirect", "iommu.mode", "rebar.0000:41:00.0",
	// "link.0000:41:00.0". See judge.
	Settings map[string]string `json:"settings,omitempty"`
	Pairs    []Pair            `json:"pairs,omitempty"`
	Findings []Finding         `json:"findings,omitempty"` // all but skips
	// Worst is the lowest part of its ceiling that a pair reached, in percent;
	// nil where no pair has both.
	Worst *float64 `json:"worst,omitempty"`
}

// Pair is what one direction and method of an ordered pair of GPUs reached.
type Pair struct {
	Initiator string  `json:"initiator"` // BDF
	Peer      string  `json:"peer"`      // BDF
	Direction string  `json:"direction"` // write or read, seen from the initiator
	Method    string  `json:"method"`    // ce, sm or staged
	GBps      float64 `json:"gbps"`      // 10^9 bytes per second, median
	Ceiling   float64 `json:"ceiling,omitempty"`
	LatencyNS float64 `json:"latency_ns,omitempty"` // of a dependent load, only with direction read and method sm
	Verdict   string  `json:"verdict"`              // of measure.Way
}

// Percent is the part of the ceiling that was reached, zero if that is not known.
func (p Pair) Percent() float64 {
	if p.Ceiling == 0 {
		return 0
	}
	return 100 * p.GBps / p.Ceiling
}

// Finding is a finding of the checks in one line; the report has the whole of it.
type Finding struct {
	ID      checks.ID     `json:"id"`
	Status  checks.Status `json:"status"`
	Title   string        `json:"title"`
	Fix     string        `json:"fix,omitempty"`
	Devices []string      `json:"devices,omitempty"`
}

// ChangeKind says in what two runs of a node differ.
type ChangeKind string

// The kinds of changes.
const (
	VerdictChanged   ChangeKind = "verdict"
	BandwidthChanged ChangeKind = "bandwidth"
	LatencyChanged   ChangeKind = "latency"
	LinkChanged      ChangeKind = "link"
	SettingChanged   ChangeKind = "setting" // BIOS version, ACS, IOMMU, ReBAR, driver …
	FindingChanged   ChangeKind = "finding" // a finding that was not there, or is no longer
	HardwareChanged  ChangeKind = "hardware"
	NotDelivered     ChangeKind = "lost" // the node used to deliver whole reports
	DataChanged      ChangeKind = "data" // data arrived wrong: always worse, also on a first run
)

// Change is a difference between a run and what is normal for its node.
type Change struct {
	Kind    ChangeKind `json:"kind"`
	Subject string     `json:"subject"` // "0000:41:00.0 → 0000:61:00.0 write, ce", "bios.version"
	Before  string     `json:"before"`  // with unit: "26.1 GB/s (median of 12 runs)"
	After   string     `json:"after"`
	Worse   bool       `json:"worse"` // a regression
	Fix     string     `json:"fix,omitempty"`
}

// Baseline is what is normal for one quantity of a node.
type Baseline struct {
	Node   string  `json:"node"`
	Key    string  `json:"key"` // which quantity: see judge
	Unit   string  `json:"unit"`
	Median float64 `json:"median"`
	MAD    float64 `json:"mad"` // median absolute deviation
	Runs   int     `json:"runs"`
	Pinned bool    `json:"pinned"` // from lab.yaml or the page, not learned
}
