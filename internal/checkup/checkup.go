// Package checkup is what "mkp2pimg check" says about one machine: the verdict,
// the findings, the paths between GPUs and the path that the driver will grant,
// for a terminal, as JSON and as a page of HTML. It knows [facts.Facts] only, so
// that a document from any machine is answered alike.
package checkup

import (
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// Version is the version of the JSON document.
const Version = 1

// Checkup is the answer about a machine.
type Checkup struct {
	Version int            `json:"version"`
	Verdict checks.Verdict `json:"verdict"`
	Reason  string         `json:"reason"`
	Machine Machine        `json:"machine"`
	// Findings are in the order of the checks.
	Findings []checks.Finding `json:"findings"`
	// Pairs are the ordered pairs of GPUs.
	Pairs       []Pair     `json:"pairs"`
	Predictions []Forecast `json:"predictions"`
	// Unknown are the sources that could not be read.
	Unknown []facts.Unknown `json:"unknown"`

	graph *topology.Graph
	gpus  int
}

// Machine names the machine.
type Machine struct {
	Board    string `json:"board,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	CPU      string `json:"cpu,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	Driver   string `json:"driver,omitempty"` // NVIDIA's, when it is loaded
}

// Pair is a path from one GPU to another.
type Pair struct {
	A string `json:"a"`
	B string `json:"b"`
	topology.Path
}

// Driver is a driver to predict for, and what to call it.
type Driver struct {
	Name string
	predict.Driver
}

// Forecast is what a driver will do.
type Forecast struct {
	Driver string               `json:"driver"`
	Pairs  []predict.Prediction `json:"pairs"`
}

// New judges f and predicts for some drivers. What a loaded driver said of the
// pairs, as far as f has it, is judged too.
func New(f *facts.Facts, drivers []Driver) *Checkup {
	c := &Checkup{
		Version: Version, Machine: machine(f), Findings: checks.Run(f), Unknown: f.Unknown,
		Pairs: []Pair{}, Predictions: []Forecast{}, graph: topology.New(f), gpus: len(f.GPUs()),
	}
	if c.Unknown == nil {
		c.Unknown = []facts.Unknown{}
	}
	if f.NVIDIA != nil && f.NVIDIA.Survey != nil {
		var asked checks.Request
		asked.Keys, asked.PerDevice = rm.ParseKeys(f.NVIDIA.Params)
		c.Findings = append(c.Findings, checks.RM(f.NVIDIA.Survey, asked)...)
	}
	c.Verdict, c.Reason = checks.Judge(c.Findings)
	for _, p := range c.graph.Paths() {
		c.Pairs = append(c.Pairs, Pair{p.A.Address, p.B.Address, p})
	}
	if len(c.Pairs) > 0 {
		for _, d := range drivers {
			c.Predictions = append(c.Predictions, Forecast{d.Name, predict.Pairs(f, d.Driver)})
		}
	}
	return c
}

func machine(f *facts.Facts) Machine {
	join := func(words ...string) string { return strings.Join(strings.Fields(strings.Join(words, " ")), " ") }
	m := Machine{
		Board:    join(f.Firmware.BoardVendor, f.Firmware.BoardName),
		Firmware: join(f.Firmware.BIOSVendor, f.Firmware.BIOSVersion, f.Firmware.BIOSDate),
		CPU:      join(f.CPU.Name),
		Kernel:   f.Kernel.Release,
	}
	if m.Board == "" {
		m.Board = join(f.Firmware.SystemVendor, f.Firmware.Product)
	}
	if f.NVIDIA != nil {
		m.Driver = f.NVIDIA.Release
	}
	return m
}

// run returns c as a run of the image, which has a rendering for terminals.
func (c *Checkup) run() *report.Run {
	r := &report.Run{Findings: c.Findings, Verdict: &report.Verdict{Verdict: c.Verdict, Reason: c.Reason}}
	id := c.Machine.Board
	if id == "" {
		id = "unnamed"
	}
	start := &report.RunStart{DUT: report.DUT{ID: id}}
	add := func(name, version string) {
		if version != "" {
			start.DUT.Software = append(start.DUT.Software, report.SoftwareInfo{Name: name, Version: version})
		}
	}
	add("BIOS", c.Machine.Firmware)
	add("CPU", c.Machine.CPU)
	add("linux", c.Machine.Kernel)
	add("nvidia", c.Machine.Driver)
	r.Start = start
	return r
}
