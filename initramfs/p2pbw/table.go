package main

import (
	"fmt"
	"io"
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
		for _, d := range []measure.Direction{measure.Write, measure.Read} {
			if len(r.Pairs) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\nP2P %s, GB/s (row: the GPU whose engine copies, column: the GPU that owns the memory)\n", d)
			if err := writeMatrix(&b, r, d); err != nil {
				return err
			}
		}
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
			fmt.Fprintf(tw, "\t%s", median(d.Measurements, dir))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func writeMatrix(w io.Writer, r measure.Result, d measure.Direction) error {
	tw := tabwriter.NewWriter(w, 6, 0, 2, ' ', tabwriter.AlignRight)
	for i := range r.Inventory.GPUs {
		fmt.Fprintf(tw, "\t%d", i)
	}
	fmt.Fprintln(tw, "\t")
	for i, a := range r.Inventory.GPUs {
		fmt.Fprintf(tw, "%d", i)
		for _, b := range r.Inventory.GPUs {
			fmt.Fprintf(tw, "\t%s", cell(r.Pairs, a.BDF, b.BDF, d))
		}
		fmt.Fprintln(tw, "\t")
	}
	return tw.Flush()
}

// cell returns the bandwidth of a pair, or its verdict if a number would
// mislead.
func cell(pairs []measure.Pair, initiator, peer string, d measure.Direction) string {
	for _, p := range pairs {
		if p.Initiator != initiator || p.Peer != peer {
			continue
		}
		if p.Verdict == measure.OK || p.Verdict == measure.Slow {
			return median(p.Measurements, d)
		}
		return string(p.Verdict)
	}
	return "-"
}

// median returns the median of the copy engine's measurement of d.
func median(ms []measure.Measurement, d measure.Direction) string {
	for _, m := range ms {
		if m.Direction == d && m.Method == measure.CE {
			return fmt.Sprintf("%.2f", m.Median)
		}
	}
	return "-"
}
