package predict

import (
	"fmt"
	"slices"

	"mkp2pimg/internal/rm"
)

// Mismatch is a pair to which the driver granted another path than the
// prediction allows.
type Mismatch struct {
	Prediction Prediction `json:"prediction"`
	Granted    rm.Pair    `json:"granted"`
}

// String returns "0000:01:00.0 to 0000:02:00.0: predicted bar1, granted none".
func (m Mismatch) String() string {
	return fmt.Sprintf("%s to %s: predicted %v, granted %s (read %v, write %v)", m.Prediction.A, m.Prediction.B,
		m.Prediction, m.Granted.Path, m.Granted.Status[rm.IndexRead], m.Granted.Status[rm.IndexWrite])
}

// Compare holds predictions against what the driver granted. A path that an
// unknown answer leaves possible is no mismatch. compared is the number of
// pairs that both tell about.
func Compare(predictions []Prediction, s *rm.Survey) (mismatches []Mismatch, compared int) {
	if s == nil {
		return nil, 0
	}
	for _, p := range predictions {
		i := slices.IndexFunc(s.Pairs, func(g rm.Pair) bool { return g.A == p.A && g.B == p.B && g.Error == "" })
		if i < 0 || p.Path == UnknownPath {
			continue
		}
		compared++
		if !slices.Contains(p.Possible, s.Pairs[i].Path) {
			mismatches = append(mismatches, Mismatch{p, s.Pairs[i]})
		}
	}
	return mismatches, compared
}
