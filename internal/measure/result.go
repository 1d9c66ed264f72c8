// Package measure answers, for every ordered pair of GPUs, whether
// peer-to-peer access works and how fast it is.
//
// The rule of the package is that a bandwidth counts for nothing until the
// owner of the memory has seen the right bytes in it: a GPU that writes into a
// private mirror of its peer reads its own data back perfectly well.
//
// [Enumerate], [ProbeDevice], [ProbePair] and [ProbeTraffic] talk to GPUs
// through [mkp2pimg/internal/cuda]; everything that decides (statistics, data
// patterns, verdicts) is a pure function of their results. The JSON form of
// [Result] is described by schema.json in this directory; [Decode] also reads
// that of version 1, which schema-v1.json describes.
package measure

import (
	"time"

	"mkp2pimg/internal/cuda"
)

// Version is the version of the JSON form of [Result]. It grows when a reader
// of the former version would misread the new one; added fields leave it alone.
//
// Version 2 added the quantity and load of a measurement, the reader of a
// check, and what both are needed for: a reader of version 1 would take a
// latency for a bandwidth.
const Version = 2

// A Result is everything one run found out. Its zero Verdict means that the
// run has not been judged yet; see [Judge].
type Result struct {
	Version  int       `json:"version"`
	Started  time.Time `json:"started"`
	Settings Settings  `json:"settings"`

	// Inventory is nil if the GPUs could not be enumerated; Problem says why.
	Inventory *Inventory `json:"inventory,omitempty"`
	Problem   *Problem   `json:"problem,omitempty"`

	// Devices holds one entry per GPU and Pairs one per ordered pair, both in
	// the order in which the driver enumerates. Traffic holds what several
	// pairs do at the same time.
	Devices []Device  `json:"devices"`
	Pairs   []Pair    `json:"pairs"`
	Traffic []Traffic `json:"traffic,omitempty"`

	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`            // one sentence for a person
	Seconds float64 `json:"seconds,omitempty"` // wall time of the run
}

// Settings are the choices of a run that its numbers depend on.
type Settings struct {
	Profile Profile `json:"profile,omitempty"`
	Size    int64   `json:"size"`    // bytes per copy
	Samples int     `json:"samples"` // timed samples per measurement
	Full    bool    `json:"full"`    // verify all of the memory, not only windows of it
	Staged  bool    `json:"staged"`  // also measure the copy with peer access off
	Seed    uint64  `json:"seed"`    // of the data patterns
	// MinGBps is the median bandwidth in GB/s below which a pair that delivers
	// right data is slow. Zero sets no floor.
	MinGBps float64 `json:"min_gbps"`
	// SlowFraction is the part of a pair's [Ceiling] below which it is slow.
	// Zero judges by no ceiling.
	SlowFraction float64 `json:"slow_fraction,omitempty"`
	// Window is how much of a peer's memory is verified for reach, in bytes;
	// zero is all that is free, less a reserve for the driver.
	Window int64 `json:"window,omitempty"`
	// Sweep holds the sizes of the size sweep, in bytes; none, no sweep.
	Sweep []int64 `json:"sweep,omitempty"`
	// Opposed also measures each way while the same goes the other way.
	Opposed bool `json:"opposed,omitempty"`
	// Latency also measures latencies and the issue rate.
	Latency bool `json:"latency,omitempty"`
}

// Preset returns the settings of a profile; the seed is left to the caller.
func Preset(p Profile) Settings {
	set := Settings{
		Profile: p, Size: 64 << 20, Samples: 10, Staged: true, SlowFraction: DefaultSlowFraction,
		Opposed: true, Latency: true,
	}
	if p == Complete {
		set.Size, set.Samples = 512<<20, 20
		for size := int64(4 << 10); size <= 1<<30; size *= 4 {
			set.Sweep = append(set.Sweep, size)
		}
	}
	return set
}

// Profile is a named choice of [Settings].
type Profile string

// The profiles.
const (
	Quick    Profile = "quick" // seconds per pair: what a node runs when it boots
	Complete Profile = "full"  // all measures, large copies, the size sweep
)

// Inventory is the driver and the GPUs it shows.
type Inventory struct {
	Library       string            `json:"library"`        // path or name libcuda was loaded by
	CUDAVersion   string            `json:"cuda_version"`   // newest CUDA version that libcuda supports, "13.0"
	DriverVersion string            `json:"driver_version"` // of the kernel module, "580.159.04"; empty if unknown
	GPUs          []cuda.DeviceInfo `json:"gpus"`
}

// A Device holds what was measured on one GPU by itself.
type Device struct {
	BDF          string        `json:"bdf"`
	Measurements []Measurement `json:"measurements"` // h2d, d2h, local
	Checks       []Check       `json:"checks"`       // the same paths, verified
	Watch        *Watch        `json:"watch,omitempty"`
	Verdict      Verdict       `json:"verdict"`
	Reason       string        `json:"reason"`
	Step         string        `json:"step,omitempty"` // last step begun, if it was not the end
	Problem      *Problem      `json:"problem,omitempty"`
	Seconds      float64       `json:"seconds,omitempty"` // wall time, start of its process included
}

// A Pair holds what was measured between two GPUs. The order matters: every
// operation is issued by the engines of the Initiator, on memory that the Peer
// owns. So direction "write" moves data from Initiator to Peer, and "read"
// moves data from Peer to Initiator.
type Pair struct {
	Initiator string `json:"initiator"` // BDF
	Peer      string `json:"peer"`      // BDF

	// What the driver says, before anything is measured.
	CanAccess  bool               `json:"can_access"` // cuDeviceCanAccessPeer
	Attributes cuda.P2PAttributes `json:"attributes"` // cuDeviceGetP2PAttribute

	// Ceiling is what the path can carry at most, where it is known.
	Ceiling *Ceiling `json:"ceiling,omitempty"`

	Measurements []Measurement `json:"measurements"`
	Sweep        []Measurement `json:"sweep,omitempty"` // bandwidths of the sizes of Settings.Sweep
	Checks       []Check       `json:"checks"`
	Reach        *Reach        `json:"reach,omitempty"`
	Atomics      *Atomics      `json:"atomics,omitempty"`

	// Ways holds a verdict for each direction and method by itself. The verdict
	// of the pair takes in also what concerns them all.
	Ways  []Way  `json:"ways,omitempty"`
	Watch *Watch `json:"watch,omitempty"`

	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason"`
	Step    string   `json:"step,omitempty"` // last step begun, if it was not the end
	Problem *Problem `json:"problem,omitempty"`
	Seconds float64  `json:"seconds"` // wall time of the pair, start of its process included
	// VerifySeconds is the part of Seconds that verification took. No bandwidth
	// contains any of it.
	VerifySeconds float64 `json:"verify_seconds,omitempty"`
}

// A Way is a direction and a method of a pair, judged by themselves.
type Way struct {
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	GBps      float64   `json:"gbps,omitempty"` // median; zero if it was not measured
	// OfCeiling is GBps as a part of the pair's ceiling, where that is known.
	OfCeiling float64 `json:"of_ceiling,omitempty"`
	// OnOff is GBps over that of the same copy with peer access off.
	OnOff   float64 `json:"on_off,omitempty"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
}

// A Ceiling is what the path of an ordered pair can carry at most, computed by
// the caller from the link status and Max Payload Size of every hop.
type Ceiling struct {
	Initiator string  `json:"initiator"`
	Peer      string  `json:"peer"`
	WriteGBps float64 `json:"write_gbps"`      // zero: not known
	ReadGBps  float64 `json:"read_gbps"`       // zero: not known
	Basis     string  `json:"basis,omitempty"` // "Gen4 x16, 256 bytes a packet"
}

// A Fabric is what the caller knows of the way between GPUs, which this package
// can't see through CUDA.
type Fabric struct {
	Ceilings []Ceiling `json:"ceilings,omitempty"` // of ordered pairs
	Places   []Place   `json:"places,omitempty"`
}

// A Place is where a GPU is in the tree of PCI functions.
type Place struct {
	BDF string `json:"bdf"`
	// Switch names the PCIe switch that the GPU is under, by the address of its
	// upstream port; empty for none. Root names the root complex, by the name of
	// the host bridge.
	Switch string `json:"switch,omitempty"`
	Root   string `json:"root,omitempty"`
	// BAR1 is the size in bytes of the GPU's BAR1; zero: not known.
	BAR1 int64 `json:"bar1,omitempty"`
}

// Direction says which way data moves.
type Direction string

// The directions.
const (
	H2D   Direction = "h2d"   // pinned host memory to GPU
	D2H   Direction = "d2h"   // GPU to pinned host memory
	Local Direction = "local" // within one GPU's memory
	Write Direction = "write" // initiator to peer
	Read  Direction = "read"  // peer to initiator
)

// Method says what moves the data.
type Method string

// The methods.
const (
	CE     Method = "ce"     // the initiator's copy engine, cuMemcpyAsync
	SM     Method = "sm"     // loads and stores of a kernel on the initiator
	Staged Method = "staged" // cuMemcpyPeerAsync without peer access: through host memory
)

// Quantity says what a measurement is of.
type Quantity string

// The quantities.
const (
	// Bandwidth is payload over time, in GB/s. A local copy counts its bytes
	// once, though each is read and written.
	Bandwidth Quantity = "bandwidth"
	// LoadLatency is the time of one load that the next one depends on, from one
	// SM to the memory of direction's source and back, in ns.
	LoadLatency Quantity = "load-latency"
	// FlagLatency is the time from raising a flag in the peer's memory until the
	// peer's answer is seen in the initiator's, in ns: two one-way trips.
	FlagLatency Quantity = "flag-latency"
	// IssueRate is how many copies of 16 bytes a second a copy engine takes from
	// its queue. Writes are posted, so it is not the inverse of a latency, though
	// it is often shown as one.
	IssueRate Quantity = "issue-rate"
)

// Units of measurements.
const (
	GBps        = "GB/s" // 10^9 bytes per second
	Nanoseconds = "ns"
	PerSecond   = "1/s"
)

// Load says what else the link did during a measurement.
type Load string

// The loads.
const (
	Alone   Load = ""        // nothing
	Opposed Load = "opposed" // the peer moved as much the other way, which is not counted
	Total   Load = "total"   // the same, both ways counted
)

// A Measurement is one quantity, sampled several times. Summary figures are in
// Unit; see [Summarise] for their definitions.
type Measurement struct {
	Quantity  Quantity  `json:"quantity"`
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Load      Load      `json:"load,omitempty"`
	Unit      string    `json:"unit"`
	Size      int64     `json:"size"`   // bytes per copy, or of the memory that loads walk over
	Copies    int       `json:"copies"` // copies, loads or round trips per sample
	Samples   []float64 `json:"samples"`
	Summary
}

// Phase says when data was verified.
type Phase string

// The phases of a check.
const (
	Before    Phase = "before"    // one copy, before the bandwidth samples
	After     Phase = "after"     // the last of the copies of the bandwidth samples
	Reached   Phase = "reach"     // pages all over the peer's memory, see Reach
	Handshake Phase = "handshake" // data announced by a flag, released and acquired at system scope
	Swept     Phase = "sweep"     // the copies of a size of the size sweep
	Together  Phase = "together"  // after copies at the same time as others
)

// Reader says who looked at the data.
type Reader string

// The readers. Both are the owner of the memory.
const (
	ByCE Reader = "ce" // a copy to the host, compared there
	BySM Reader = "sm" // a kernel of the owner
)

// A Check is one owner-side verification of data.
type Check struct {
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Phase     Phase     `json:"phase"`
	Reader    Reader    `json:"reader"`
	Bytes     int64     `json:"bytes"`             // compared
	Windows   []Window  `json:"windows,omitempty"` // for phase reach, see Reach
	Seconds   float64   `json:"seconds,omitempty"` // that the comparison took
	// Wrong counts the 8-byte words that were not as written.
	Wrong int64 `json:"wrong"`
	// First is the first wrong word, and Kinds counts wrong words by what was
	// found in their place.
	First *Mismatch           `json:"first,omitempty"`
	Kinds map[WrongKind]int64 `json:"kinds,omitempty"`
	// Mirror is true if the initiator reads its own data back where the owner
	// has none of it: the peer mapping leads to other memory than the peer's.
	Mirror bool `json:"mirror,omitempty"`
	// SourceDamaged is true if the data was wrong before it crossed the link,
	// so that the check tells nothing about the link.
	SourceDamaged bool `json:"source_damaged,omitempty"`
	// Lost counts the flags of a handshake that never came.
	Lost int64 `json:"lost,omitempty"`
}

// Failed tells whether a check found anything wrong.
func (c Check) Failed() bool { return c.Wrong > 0 || c.Lost > 0 }

// A Reach is how far into the peer's memory the pair was verified.
type Reach struct {
	Size    int64    `json:"size"`    // bytes allocated in the peer's memory
	Memory  int64    `json:"memory"`  // bytes of memory the peer has
	Windows []Window `json:"windows"` // of the allocation that were verified
}

// Atomics is what became of additions to one word of the peer's memory by the
// initiator and the peer at the same time, at system scope.
type Atomics struct {
	Offered bool   `json:"offered"`         // the driver says that the pair has native atomics
	Want    uint64 `json:"want"`            // the sum
	Got     uint64 `json:"got"`             // what the owner found
	Error   string `json:"error,omitempty"` // why the probe did not end
}

// Work tells whether all additions arrived.
func (a Atomics) Work() bool { return a.Error == "" && a.Got == a.Want }

// A Window is a range of the buffer that is verified.
type Window struct {
	Offset int64 `json:"offset"` // bytes from the start of the buffer
	Size   int64 `json:"size"`   // bytes
}

// A Mismatch is a word that is not as written.
type Mismatch struct {
	Offset int64     `json:"offset"` // bytes from the start of the buffer
	Want   string    `json:"want"`   // hexadecimal, 16 digits
	Got    string    `json:"got"`
	Kind   WrongKind `json:"kind"`
	// From is the offset that the word found here belongs to, for misplaced ones.
	From int64 `json:"from,omitempty"`
}

// WrongKind says what stands where the right data should.
type WrongKind string

// What wrong words turn out to be.
const (
	Unwritten WrongKind = "unwritten" // the poison that was there before
	Stale     WrongKind = "stale"     // the data of the previous pass
	Misplaced WrongKind = "misplaced" // this pass's data of another offset
	Zero      WrongKind = "zero"      // all bits clear
	Ones      WrongKind = "ones"      // all bits set, the answer of an absent PCIe device
	Foreign   WrongKind = "foreign"   // anything else: corrupted or not ours
)

// A Shape is a set of pairs that copy at the same time.
type Shape string

// The shapes. Each GPU is one end or both ends of a flow.
const (
	Ring     Shape = "ring"       // each to the next
	AllToOne Shape = "all-to-one" // all others to the first
	OneToAll Shape = "one-to-all" // the first to all others
	AllToAll Shape = "all-to-all" // each to each
	// Collapse is the probe for posted-write collapse: some GPUs under one PCIe
	// switch write to GPUs under two or more other root complexes.
	Collapse Shape = "collapse"
)

// Traffic holds what several pairs do at the same time.
type Traffic struct {
	Shape     Shape     `json:"shape"`
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Sources   int       `json:"sources"` // GPUs whose engines copy
	Flows     []Flow    `json:"flows"`
	// Sum is the sum of the flows, in GB/s; nil if it was not measured.
	Sum     *Measurement `json:"sum,omitempty"`
	Checks  []Check      `json:"checks"` // of each flow in order, until one is wrong
	Watch   *Watch       `json:"watch,omitempty"`
	Verdict Verdict      `json:"verdict"`
	Reason  string       `json:"reason"`
	Step    string       `json:"step,omitempty"` // last step begun, if it was not the end
	Problem *Problem     `json:"problem,omitempty"`
	Seconds float64      `json:"seconds"`
}

// A Flow is one of the copies of a [Traffic]. Ends are BDFs.
type Flow struct {
	Initiator string  `json:"initiator"`
	Peer      string  `json:"peer"`
	GBps      float64 `json:"gbps,omitempty"` // median; zero if it was not measured
}

// A Watch is what was seen from outside while something was measured.
type Watch struct {
	Links   []Link   `json:"links,omitempty"`   // above the GPUs that took part
	Sensors []Sensor `json:"sensors,omitempty"` // of the GPUs that took part
	Kernel  []string `json:"kernel,omitempty"`  // lines of the kernel's log about GPUs, PCIe and the IOMMU
}

// A Link is the PCIe link of a function: of a GPU, or of a port above one.
type Link struct {
	BDF string `json:"bdf"`
	// Seen holds each state of the link sampled under load, the most frequent
	// first; empty if there was no sample.
	Seen []LinkState `json:"seen,omitempty"`
	// MaxSpeed and MaxWidth are what the function is capable of.
	MaxSpeed string `json:"max_speed,omitempty"`
	MaxWidth int    `json:"max_width,omitempty"`
	// Errors counts errors that Advanced Error Reporting saw meanwhile, by
	// severity: correctable, nonfatal, fatal. Only what is not zero is in it.
	Errors map[string]int64 `json:"errors,omitempty"`
}

// A LinkState is a speed and a width as sysfs words them, and how often it was
// seen.
type LinkState struct {
	Speed   string `json:"speed"` // "16.0 GT/s PCIe"
	Width   int    `json:"width"`
	Samples int    `json:"samples"`
}

// A Sensor is what NVML said of a GPU. A nil field is not known.
type Sensor struct {
	BDF string `json:"bdf"`
	// Clocks in MHz and the temperature in degrees Celsius, under load.
	SMClock     *int `json:"sm_clock,omitempty"`
	MemoryClock *int `json:"memory_clock,omitempty"`
	Temperature *int `json:"temperature,omitempty"`
	// Replays counts the packets that PCIe had to send again meanwhile.
	Replays *int64 `json:"replays,omitempty"`
}

// A Problem is why something could not be measured.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	Text string      `json:"text"`           // for a person
	Call string      `json:"call,omitempty"` // the CUDA call that failed
	Code int         `json:"code,omitempty"` // its CUresult
	Name string      `json:"name,omitempty"` // its name, "CUDA_ERROR_OUT_OF_MEMORY"
}

// ProblemKind is what a [Problem] means for the question asked.
type ProblemKind string

// The kinds of problems.
const (
	NoLibrary   ProblemKind = "no-libcuda"  // libcuda could not be loaded
	NoGPU       ProblemKind = "no-gpu"      // no driver or no GPU behind it
	Mismatched  ProblemKind = "mismatch"    // libcuda and the kernel module are of different releases
	Busy        ProblemKind = "busy"        // another process has the GPU for itself
	NoMemory    ProblemKind = "no-memory"   // too little free memory of a GPU or of the host
	Refused     ProblemKind = "refused"     // the driver does not grant peer access
	Failed      ProblemKind = "failed"      // an operation across the link failed
	Setup       ProblemKind = "setup"       // a preparation failed: the link was not reached
	Timeout     ProblemKind = "timeout"     // did not end in time
	Crashed     ProblemKind = "crashed"     // the measuring process died
	Interrupted ProblemKind = "interrupted" // the user stopped the run
)

// Problems returns why something could not be measured, in order.
func (r Result) Problems() []Problem {
	all := []*Problem{r.Problem}
	for _, d := range r.Devices {
		all = append(all, d.Problem)
	}
	for _, p := range r.Pairs {
		all = append(all, p.Problem)
	}
	for _, t := range r.Traffic {
		all = append(all, t.Problem)
	}
	var problems []Problem
	for _, p := range all {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	return problems
}
