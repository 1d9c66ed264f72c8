package benchview

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
)

func reports() map[string]Report {
	compared := comparison()
	bad := spoil(made(4))
	for i := range bad.Traffic {
		bad.Traffic[i].Reason = "because of <this> & that"
	}
	clock, temperature := 1980, 61
	two := made(2)
	two.Devices[0].Watch = &measure.Watch{Sensors: []measure.Sensor{{BDF: two.Devices[0].BDF, SMClock: &clock, Temperature: &temperature}}}
	two.Pairs[0].Watch = &measure.Watch{Links: []measure.Link{{BDF: two.Pairs[0].Initiator, Seen: []measure.LinkState{{Speed: "16.0 GT/s PCIe", Width: 16}}}}}
	two.Pairs[0].Reach = &measure.Reach{Size: 22 << 30, Memory: 24 << 30}
	two.Pairs[0].Atomics = &measure.Atomics{Want: 2000, Got: 2000}
	two.Pairs[1].Atomics = &measure.Atomics{Want: 2000, Got: 1203}
	return map[string]Report{
		"two": {Verdict: checks.VerdictReady, Reason: "every pair was measured and its data verified", Machine: [][2]string{{"board", "ASRock ROMED8-2T"}, {"NVIDIA driver", "580.142"}},
			Result: two, Comparison: &compared},
		"eight": {Verdict: checks.VerdictReady, Reason: "every pair was measured and its data verified", Result: made(8)},
		"spoilt": {Verdict: checks.VerdictBlocked, Reason: "wrong data", Result: bad, Findings: []checks.Finding{{
			ID: checks.Measured, Status: checks.Fail, Title: "wrong <data>", Meaning: "Nonsense.", Fix: "First this\nthen that",
			Evidence: []checks.Evidence{{What: "verdict", Where: "p2pbw", Raw: "wrong-data"}}, Pairs: [][2]string{{"a", "b"}}}}},
		"nothing": {Verdict: checks.VerdictUnknown, Reason: "nothing was measured"},
	}
}

func TestPages(t *testing.T) {
	for name, r := range reports() {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, r.WriteHTML(&b))
			golden.Equal(t, "testdata/"+name+".html", b.Bytes())
			assert.NotContains(t, b.String(), "<script")
			assert.NotContains(t, b.String(), "ZgotmplZ", "nothing that the templates refuse")
			assert.NotRegexp(t, `(?:src|href)=|url\(|@import`, b.String(), "needs nothing else")
			d := xml.NewDecoder(strings.NewReader(b.String()))
			d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
			for {
				_, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err, "every element is closed")
			}
		})
	}
}

// TestHostileText has markup in what was read from a report.
func TestHostileText(t *testing.T) {
	const evil = `</title></svg><script>alert("x")</script>`
	r := made(2)
	r.Inventory.GPUs[0].Name, r.Inventory.GPUs[0].BDF = evil, evil
	r.Pairs[0].Initiator, r.Pairs[0].Reason, r.Pairs[1].Ways[0].Reason = evil, evil, evil
	r.Pairs[0].Verdict = evil
	var b bytes.Buffer
	require.NoError(t, Report{Verdict: evil, Reason: evil, Result: r, Machine: [][2]string{{evil, evil}}}.WriteHTML(&b))
	assert.NotContains(t, b.String(), "<script")
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteCSV(&b, spoil(made(4))))
	rows, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	assert.Equal(t, columns, rows[0])
	assert.Equal(t, []string{"gpu", "0000:01:00.0", "", "bandwidth", "h2d", "ce", "", "67108864", "GB/s", "25.1", "24.849", "24.8741", "25.3259", "25.351", "0.01", "3", "", "ok"}, rows[1])
	kinds := map[string]int{}
	for _, row := range rows[1:] {
		kinds[row[0]]++
		if row[5] == "staged" {
			assert.Equal(t, "ok", row[17], "whatever came of access to the peer")
		}
		assert.Len(t, row, len(columns))
	}
	// Four GPUs by three figures, twelve pairs by nine, by ten sizes in four ways.
	assert.Equal(t, map[string]int{"gpu": 12, "pair": 108, "sweep": 480, "traffic": 1}, kinds)
	require.Error(t, WriteCSV(broken{}, made(2)))
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestNice(t *testing.T) {
	for v, want := range map[float64]float64{5.3: 10, 0.9: 1, 2: 2, 2.1: 5, 120: 200, 0: 1, -1: 1} {
		assert.InEpsilon(t, want, Nice(v), 1e-9, v)
	}
	assert.InEpsilon(t, 1, Nice(math.Inf(1)), 1e-9)
	assert.InEpsilon(t, 1, Nice(math.NaN()), 1e-9)
	assert.Equal(t, []string{"4 KiB", "1 GiB", "1000 B", "3 MiB"}, []string{bytesOf(4096), bytesOf(1 << 30), bytesOf(1000), bytesOf(3 << 20)})
}
