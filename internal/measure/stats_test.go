package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSummarise(t *testing.T) {
	for _, tc := range []struct {
		name    string
		samples []float64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{7}, Summary{Min: 7, P5: 7, Median: 7, P95: 7, Max: 7, Mean: 7}},
		{"all zero", []float64{0, 0}, Summary{}},
		// 21 samples put the percentiles on whole ranks.
		{"0 to 20", []float64{20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0},
			Summary{Min: 0, P5: 1, Median: 10, P95: 19, Max: 20, Mean: 10, CV: 0.6204836822995428}},
		{"between ranks", []float64{4, 2}, Summary{Min: 2, P5: 2.1, Median: 3, P95: 3.9, Max: 4, Mean: 3, CV: 0.47140452079103173}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Summarise(tc.samples)
			for _, f := range []struct {
				name      string
				want, got float64
			}{
				{"min", tc.want.Min, got.Min}, {"p5", tc.want.P5, got.P5}, {"median", tc.want.Median, got.Median},
				{"p95", tc.want.P95, got.P95}, {"max", tc.want.Max, got.Max}, {"mean", tc.want.Mean, got.Mean}, {"cv", tc.want.CV, got.CV},
			} {
				assert.InDelta(t, f.want, f.got, 1e-12, f.name)
			}
		})
	}
}

func TestSummariseLeavesSamplesAlone(t *testing.T) {
	s := []float64{3, 1, 2}
	Summarise(s)
	assert.Equal(t, []float64{3, 1, 2}, s)
}
