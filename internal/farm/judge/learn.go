package judge

import (
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// Key names a figure: "bandwidth/0000:41:00.0/0000:61:00.0/write/ce" or
// "latency/0000:41:00.0/0000:61:00.0" (initiator, then peer). That of a pinned
// baseline may have * for a part: "bandwidth/*/*/write/ce".
type Key string

const (
	bandwidthPrefix = "bandwidth/"
	latencyPrefix   = "latency/"
)

// Bandwidth returns the key of the bandwidth of p, in GB/s.
func Bandwidth(p farm.Pair) Key {
	return Key(bandwidthPrefix + p.Initiator + "/" + p.Peer + "/" + p.Direction + "/" + p.Method)
}

// Latency returns the key of the latency of p, in ns.
func Latency(p farm.Pair) Key { return Key(latencyPrefix + p.Initiator + "/" + p.Peer) }

// Rises tells whether a figure gets worse by rising, as a latency does.
func (k Key) Rises() bool { return strings.HasPrefix(string(k), latencyPrefix) }

// unit is that of the figure.
func (k Key) unit() string {
	if k.Rises() {
		return measure.Nanoseconds
	}
	return measure.GBps
}

// figure is a key and its value.
type figure struct {
	key   Key
	value float64
}

// figures are those of a pair that are known.
func figures(p farm.Pair) []figure {
	var out []figure
	if !verified(p) {
		return nil
	}
	if p.GBps > 0 {
		out = append(out, figure{Bandwidth(p), p.GBps})
	}
	if p.LatencyNS > 0 {
		out = append(out, figure{Latency(p), p.LatencyNS})
	}
	return out
}

// How far from its median a figure may be.
//
// Of the five runs on one GPU behind PCIe Gen5 x16 in docs/measurements/h200, the
// medians of copies spread by 0.2 to 0.5 % (standard deviation), of kernels by up
// to 1 %, with one of them 2.3 % off; latencies by 0.4 %. A node of 8 GPUs has 280
// figures a night, 100,000 a year. With five deviations and the floors, what is as
// noisy as these copies gives no false alarm in a year of such a node; what is twice
// as noisy, has heavy tails or is disturbed now and then, a few (TestFalseAlarms).
//
// With few runs, or runs that are much alike, the deviation says little, so that
// there is a floor. That of copies between GPUs is a loss that has a cause: half
// the Max Payload Size, 512 to 256 bytes, takes 4.3 % (24 bytes of each packet are
// no payload). Kernels and copies through host memory depend on clocks and on what
// else the host does. An IOMMU or another switch on the path adds 100 ns and more
// to the 1200 ns of a load.
//
// What takes a half, as lost lanes or generations do, is never within the limits.
const (
	deviations = 5
	floorCE    = 0.04
	floorOther = 0.08
	floorLoad  = 0.06 // of latencies
	mostWide   = 0.40
)

// Limits returns the least and the greatest value that are normal for b.
func Limits(b farm.Baseline) (low, high float64) {
	least := floorOther
	switch {
	case Key(b.Key).Rises():
		least = floorLoad
	case strings.HasSuffix(b.Key, "/"+string(measure.CE)):
		least = floorCE
	}
	wide := math.Min(math.Max(deviations*sigma(b.MAD, b.Runs), least*b.Median), mostWide*b.Median)
	return b.Median - wide, b.Median + wide
}

// sigma estimates a standard deviation from the median absolute deviation of n
// values. The factors make up for few values (C. Croux and P. J. Rousseeuw,
// "Time-efficient algorithms for two highly robust estimators of scale", 1992).
func sigma(mad float64, n int) float64 {
	factors := [...]float64{2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}
	factor := 1.
	switch {
	case n >= len(factors):
		factor = float64(n) / (float64(n) - 0.8)
	case n >= 2:
		factor = factors[n]
	}
	return 1.4826 * factor * mad
}

// judged says where a value is: -1 for worse than normal, 1 for better.
func judged(b farm.Baseline, v float64) int {
	low, high := Limits(b)
	side := 0
	switch {
	case v < low:
		side = -1
	case v > high:
		side = 1
	}
	if Key(b.Key).Rises() {
		side = -side
	}
	return side
}

// Learn returns the baselines of the figures of runs, in the order of their keys,
// then those that are pinned for figures that no run has. A pinned one takes the
// place of what would be learned. Of runs that were asked to do different things,
// those count that did the same as the last one.
func Learn(history []farm.Run, pinned []farm.Baseline) []farm.Baseline {
	runs := slices.DeleteFunc(inOrder(history), func(r farm.Run) bool { return !good(r) })
	values := map[Key][]float64{}
	node := ""
	for _, r := range runs {
		if !alike(r, runs[len(runs)-1]) {
			continue
		}
		node = r.Node
		for _, p := range r.Summary.Pairs {
			for _, f := range figures(p) {
				values[f.key] = append(values[f.key], f.value)
			}
		}
	}
	var out []farm.Baseline
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if b, ok := find(pinned, k); ok {
			b.Key, b.Pinned = string(k), true
			out = append(out, b)
		} else if b, ok := learn(k, values[k]); ok {
			b.Node = node
			out = append(out, b)
		}
	}
	for _, b := range pinned {
		if values[Key(b.Key)] == nil {
			out = append(out, b)
		}
	}
	return out
}

// find returns the baseline of a figure. One with its very key goes before one
// whose key has a *.
func find(base []farm.Baseline, k Key) (farm.Baseline, bool) {
	for _, same := range []func(farm.Baseline) bool{
		func(b farm.Baseline) bool { return b.Key == string(k) },
		func(b farm.Baseline) bool {
			ok, err := path.Match(b.Key, string(k))
			return err == nil && ok && strings.Contains(b.Key, "*")
		},
	} {
		if i := slices.IndexFunc(base, same); i >= 0 {
			return base[i], true
		}
	}
	return farm.Baseline{}, false
}

// learn returns what is normal after values, the oldest first: none of fewer than
// [MinRuns].
func learn(k Key, values []float64) (farm.Baseline, bool) {
	l := learner{key: k}
	for _, v := range values {
		l.add(v)
	}
	return l.normal()
}

// learner learns a figure from one value after the other.
type learner struct {
	key    Key
	window []float64
	better int // values in a row that are better than normal
}

// normal returns the baseline so far, false before [MinRuns] values.
func (l *learner) normal() (farm.Baseline, bool) {
	if len(l.window) < MinRuns {
		return farm.Baseline{}, false
	}
	return baseline(l.key, l.window), true
}

// add takes a value, and says where it is: see judged.
func (l *learner) add(v float64) (side int) {
	if b, ok := l.normal(); ok {
		side = judged(b, v)
	}
	switch side {
	case -1:
		l.better = 0
		return side
	case 0:
		l.better = 0
	case 1:
		l.better++
	}
	l.window = append(l.window, v)
	n := Window
	if l.better == MinRuns {
		n, l.better = MinRuns, 0
	}
	l.window = l.window[max(0, len(l.window)-n):]
	return side
}

// baseline describes values, at least one.
func baseline(k Key, values []float64) farm.Baseline {
	b := farm.Baseline{Key: string(k), Unit: k.unit(), Runs: len(values)}
	s := slices.Clone(values)
	b.Median = median(s)
	for i := range s {
		s[i] = math.Abs(s[i] - b.Median)
	}
	b.MAD = median(s)
	return b
}

// median returns the median of values, which it sorts.
func median(s []float64) float64 {
	slices.Sort(s)
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
