package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"mkp2pimg/internal/measure"
)

// writeTable writes r for a person: the GPUs, a matrix for each direction, what
// is wrong, and the verdict.
func writeTable(w io.Writer, r measure.Result) error {
	var b strings.Builder
	if r.Inventory != nil {
		fmt.Fprintf(&b, "driver %s, CUDA %s, %s\n\n", orUnknown(r.Inventory.DriverVersion), r.Inventory.CUDAVersion, r.Inventory.Library)
		if err := writeGPUs(&b, r); err != nil {
			return err
		}
		if len(r.Pairs) > 0 {
			b.WriteString("\nrow: the GPU whose engine works; column: the GPU that owns the memory\n")
		}
		for _, m := range matrices {
			if err := m.write(&b, r); err != nil {
				return err
			}
		}
		if err := writeTraffic(&b, r); err != nil {
			return err
		}
		writeCost(&b, r)
		b.WriteString("\n")
	}
	for _, d := range r.Devices {
		if d.Verdict != measure.OK {
			fmt.Fprintf(&b, "%s: %s: %s\n", d.BDF, d.Verdict, d.Reason)
		}
	}
	for _, p := range r.Pairs {
		if p.Verdict != measure.OK {
			fmt.Fprintf(&b, "%s to %s: %s: %s\n", p.Initiator, p.Peer, p.Verdict, p.Reason)
		}
	}
	for _, t := range r.Traffic {
		if t.Verdict != measure.OK {
			fmt.Fprintf(&b, "%s: %s: %s\n", t.Name(), t.Verdict, t.Reason)
		}
	}
	fmt.Fprintf(&b, "verdict: %s: %s\n", r.Verdict, r.Reason)
	_, err := io.WriteString(w, b.String())
	return err
}

func orUnknown(s string) string {
	if s == "" {
		return "of unknown version"
	}
	return s
}

func writeGPUs(w io.Writer, r measure.Result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\taddress\tname\tGiB\tSMs\tH2D GB/s\tD2H GB/s\tlocal GB/s")
	for i, g := range r.Inventory.GPUs {
		var d measure.Device
		for _, x := range r.Devices {
			if x.BDF == g.BDF {
				d = x
			}
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%.1f\t%d", i, g.BDF, g.Name, float64(g.Memory)/(1<<30), g.SMs)
		for _, dir := range []measure.Direction{measure.H2D, measure.D2H, measure.Local} {
			m := matrix{quantity: measure.Bandwidth, direction: dir, method: measure.CE}
			fmt.Fprintf(tw, "\t%s", m.text(d.Measurements))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// A matrix shows one figure of each pair.
type matrix struct {
	title     string
	quantity  measure.Quantity
	direction measure.Direction
	method    measure.Method
	load      measure.Load
}

// matrices are those shown, of which a result may have none.
var matrices = []matrix{
	{"write, copy engine, GB/s", measure.Bandwidth, measure.Write, measure.CE, measure.Alone},
	{"read, copy engine, GB/s", measure.Bandwidth, measure.Read, measure.CE, measure.Alone},
	{"store, SM, GB/s", measure.Bandwidth, measure.Write, measure.SM, measure.Alone},
	{"load, SM, GB/s", measure.Bandwidth, measure.Read, measure.SM, measure.Alone},
	{"write both ways, copy engine, GB/s together", measure.Bandwidth, measure.Write, measure.CE, measure.Total},
	{"write without peer access, GB/s", measure.Bandwidth, measure.Write, measure.Staged, measure.Alone},
	{"dependent load, round trip, ns", measure.LoadLatency, measure.Read, measure.SM, measure.Alone},
	{"flag, to and fro, ns", measure.FlagLatency, measure.Write, measure.SM, measure.Alone},
}

// write writes the matrix, unless there is no pair to show in it.
func (m matrix) write(w io.Writer, r measure.Result) error {
	if !slices.ContainsFunc(r.Pairs, func(p measure.Pair) bool { _, ok := m.of(p.Measurements); return ok }) && m != matrices[0] || len(r.Pairs) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s\n", m.title)
	tw := tabwriter.NewWriter(w, 6, 0, 2, ' ', tabwriter.AlignRight)
	for i := range r.Inventory.GPUs {
		fmt.Fprintf(tw, "\t%d", i)
	}
	fmt.Fprintln(tw, "\t")
	for i, a := range r.Inventory.GPUs {
		fmt.Fprintf(tw, "%d", i)
		for _, b := range r.Inventory.GPUs {
			fmt.Fprintf(tw, "\t%s", m.cell(r.Pairs, a.BDF, b.BDF))
		}
		fmt.Fprintln(tw, "\t")
	}
	return tw.Flush()
}

// cell returns the figure of a pair, or its verdict if a number would mislead.
func (m matrix) cell(pairs []measure.Pair, initiator, peer string) string {
	for _, p := range pairs {
		if p.Initiator != initiator || p.Peer != peer {
			continue
		}
		if p.Verdict == measure.OK || p.Verdict == measure.Slow || m.method == measure.Staged {
			return m.text(p.Measurements)
		}
		return string(p.Verdict)
	}
	return "-"
}

// of returns the measurement that the matrix shows.
func (m matrix) of(ms []measure.Measurement) (measure.Measurement, bool) {
	i := slices.IndexFunc(ms, func(x measure.Measurement) bool {
		return x.Quantity == m.quantity && x.Direction == m.direction && x.Method == m.method && x.Load == m.load
	})
	if i < 0 {
		return measure.Measurement{}, false
	}
	return ms[i], true
}

// text returns the median of the measurement that the matrix shows.
func (m matrix) text(ms []measure.Measurement) string {
	x, ok := m.of(ms)
	if !ok {
		return "-"
	}
	if x.Unit == measure.GBps {
		return fmt.Sprintf("%.2f", x.Median)
	}
	return fmt.Sprintf("%.0f", x.Median)
}

func writeTraffic(w io.Writer, r measure.Result) error {
	if len(r.Traffic) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "at the same time\tflows\tGB/s together\tslowest flow\t")
	for _, t := range r.Traffic {
		sum, slowest := "-", "-"
		if t.Sum != nil {
			sum = fmt.Sprintf("%.2f", t.Sum.Median)
			slowest = fmt.Sprintf("%.2f", slices.MinFunc(t.Flows, func(a, b measure.Flow) int { return cmp.Compare(a.GBps, b.GBps) }).GBps)
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t\n", t.Name(), len(t.Flows), sum, slowest)
	}
	return tw.Flush()
}

// writeCost says what was verified and what it cost.
func writeCost(w io.Writer, r measure.Result) {
	var bytes int64
	var seconds float64
	for _, p := range r.Pairs {
		seconds += p.VerifySeconds
		for _, c := range p.Checks {
			bytes += c.Bytes
		}
	}
	if len(r.Pairs) > 0 {
		fmt.Fprintf(w, "\nverified %.1f GB in %.1f s of %.1f s, outside of what was timed\n", float64(bytes)/1e9, seconds, r.Seconds)
	}
}
