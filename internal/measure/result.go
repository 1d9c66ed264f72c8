// Package measure answers, for every ordered pair of GPUs, whether
// peer-to-peer access works and how fast it is.
//
// The rule of the package is that a bandwidth counts for nothing until the
// owner of the memory has seen the right bytes in it: a GPU that writes into a
// private mirror of its peer reads its own data back perfectly well.
//
// [Enumerate], [ProbeDevice] and [ProbePair] talk to GPUs through
// [mkp2pimg/internal/cuda]; everything that decides (statistics, data patterns,
// verdicts) is a pure function of their results. The JSON form of [Result] is
// described by schema.json in this directory.
package measure

import (
	"time"

	"mkp2pimg/internal/cuda"
)

// Version is the version of the JSON form of [Result]. It grows when a reader
// of the former version would misread the new one; added fields leave it alone.
const Version = 1

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
	// the order in which the driver enumerates.
	Devices []Device `json:"devices"`
	Pairs   []Pair   `json:"pairs"`

	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"` // one sentence for a person
}

// Settings are the choices of a run that its numbers depend on.
type Settings struct {
	Size    int64  `json:"size"`    // bytes per copy
	Samples int    `json:"samples"` // timed samples per measurement
	Full    bool   `json:"full"`    // verify all of the buffer, not only windows of it
	Staged  bool   `json:"staged"`  // also measure the copy with peer access off
	Seed    uint64 `json:"seed"`    // of the data patterns
	// MinGBps is the median bandwidth in GB/s below which a pair that delivers
	// right data is slow. Zero sets no floor.
	MinGBps float64 `json:"min_gbps"`
}

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
	Verdict      Verdict       `json:"verdict"`
	Reason       string        `json:"reason"`
	Step         string        `json:"step,omitempty"` // last step begun, if it was not the end
	Problem      *Problem      `json:"problem,omitempty"`
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

	Measurements []Measurement `json:"measurements"`
	Checks       []Check       `json:"checks"`
	Verdict      Verdict       `json:"verdict"`
	Reason       string        `json:"reason"`
	Step         string        `json:"step,omitempty"` // last step begun, if it was not the end
	Problem      *Problem      `json:"problem,omitempty"`
	Seconds      float64       `json:"seconds"` // wall time of the pair, start of its process included
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
	Staged Method = "staged" // cuMemcpyPeerAsync without peer access: through host memory
)

// GBps is the unit of bandwidths: 10^9 bytes per second. A local copy counts
// its bytes once, though each is read and written.
const GBps = "GB/s"

// A Measurement is one quantity, sampled several times. Summary figures are in
// Unit; see [Summarise] for their definitions.
type Measurement struct {
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Unit      string    `json:"unit"`
	Size      int64     `json:"size"`   // bytes per copy
	Copies    int       `json:"copies"` // copies per sample
	Samples   []float64 `json:"samples"`
	Summary
}

// A Check is one owner-side verification of data.
type Check struct {
	Direction Direction `json:"direction"`
	Method    Method    `json:"method"`
	Phase     string    `json:"phase"` // "before" or "after" the bandwidth samples
	Bytes     int64     `json:"bytes"` // compared
	Windows   []Window  `json:"windows"`
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
}

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
	Refused     ProblemKind = "refused"     // the driver does not grant peer access
	Failed      ProblemKind = "failed"      // an operation across the link failed
	Setup       ProblemKind = "setup"       // a preparation failed: the link was not reached
	Timeout     ProblemKind = "timeout"     // did not end in time
	Crashed     ProblemKind = "crashed"     // the measuring process died
	Interrupted ProblemKind = "interrupted" // the user stopped the run
)
