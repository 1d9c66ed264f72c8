package measure

import (
	"math"
	"slices"
)

// A Summary describes a set of samples in the unit of the samples.
type Summary struct {
	Min    float64 `json:"min"`
	P5     float64 `json:"p5"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
	Mean   float64 `json:"mean"`
	CV     float64 `json:"cv"` // sample standard deviation / mean; no unit
}

// Summarise describes samples, which it leaves alone. Percentiles interpolate
// linearly between the closest ranks, at rank p*(n-1). The summary of no samples
// is zero.
func Summarise(samples []float64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{}
	}
	s := slices.Sorted(slices.Values(samples))
	var sum float64
	for _, v := range s {
		sum += v
	}
	mean := sum / float64(n)
	var squares float64
	for _, v := range s {
		squares += (v - mean) * (v - mean)
	}
	var cv float64
	if n > 1 && mean != 0 {
		cv = math.Sqrt(squares/float64(n-1)) / mean
	}
	return Summary{
		Min:    s[0],
		P5:     percentile(s, 0.05),
		Median: percentile(s, 0.50),
		P95:    percentile(s, 0.95),
		Max:    s[n-1],
		Mean:   mean,
		CV:     cv,
	}
}

// percentile returns the p-quantile, 0 <= p <= 1, of sorted samples.
func percentile(sorted []float64, p float64) float64 {
	rank := p * float64(len(sorted)-1)
	i := int(rank)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (rank-float64(i))*(sorted[i+1]-sorted[i])
}
