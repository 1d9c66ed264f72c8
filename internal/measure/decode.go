package measure

import (
	"encoding/json"
	"fmt"
)

// Decode reads the JSON form of a result, of this version or of version 1. The
// result is of this version: what the older one had no words for is as it was
// then, bandwidths and checks by the copy engine.
func Decode(b []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return Result{}, fmt.Errorf("measurement result: %w", err)
	}
	switch r.Version {
	case Version:
	case 1:
		r.upgrade()
	default:
		return Result{}, fmt.Errorf("measurement result of version %d: this program reads versions 1 and %d", r.Version, Version)
	}
	return r, nil
}

// upgrade turns a result of version 1 into one of this version.
func (r *Result) upgrade() {
	r.Version = Version
	each := func(ms []Measurement, checks []Check) {
		for i := range ms {
			ms[i].Quantity = Bandwidth
		}
		for i := range checks {
			checks[i].Reader = ByCE
		}
	}
	for _, d := range r.Devices {
		each(d.Measurements, d.Checks)
	}
	for _, p := range r.Pairs {
		each(p.Measurements, p.Checks)
	}
}
