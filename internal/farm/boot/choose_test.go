package boot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

func TestChoose(t *testing.T) {
	run := func(state farm.State, at time.Duration) farm.Run {
		return farm.Run{ID: "r", Source: farm.Network, State: state, Offered: noon.Add(at)}
	}
	imported := farm.Run{ID: "r", Source: farm.Stick, State: farm.Complete, Offered: noon}
	armed := &store.Armed{Attempts: 1, At: noon, Plan: "full", Image: "other", Deadline: time.Hour}
	for name, tt := range map[string]struct {
		boot    lab.Boot
		tonight []farm.Run
		armed   *store.Armed
		image   bool
		why     string
	}{
		"first start":                {lab.WhenDue, nil, nil, true, "attempt 1 of 2"},
		"delivered":                  {lab.WhenDue, []farm.Run{run(farm.Complete, 0)}, nil, false, "it has delivered the report of this night, run r"},
		"lost, then delivered":       {lab.WhenDue, []farm.Run{run(farm.Complete, time.Hour), run(farm.Lost, 0)}, nil, false, "it has delivered the report of this night, run r"},
		"lost":                       {lab.WhenDue, []farm.Run{run(farm.Lost, 0)}, nil, true, "attempt 2 of 2"},
		"lost again":                 {lab.WhenDue, []farm.Run{run(farm.Lost, time.Hour), run(farm.Lost, 0)}, nil, false, "it was started 2 times this night and delivered no report"},
		"never came up":              {lab.WhenDue, []farm.Run{run(farm.Offered, time.Hour), run(farm.Running, 0)}, nil, false, "it was started 2 times this night and delivered no report"},
		"a stick's report":           {lab.WhenDue, []farm.Run{imported}, nil, true, "attempt 1 of 2"},
		"always":                     {lab.Always, []farm.Run{run(farm.Complete, 0)}, nil, true, "lab.yaml has boot: always"},
		"never":                      {lab.Never, nil, nil, false, "lab.yaml has boot: never"},
		"never, armed":               {lab.Never, nil, armed, false, "lab.yaml has boot: never"},
		"not armed":                  {lab.WhenArmed, nil, nil, false, "it is not armed"},
		"armed":                      {lab.WhenArmed, nil, armed, true, "attempt 1 of 1"},
		"armed after a report":       {lab.WhenDue, []farm.Run{run(farm.Complete, -time.Hour)}, armed, true, "attempt 1 of 1"},
		"armed, delivered since":     {lab.WhenDue, []farm.Run{run(farm.Complete, time.Minute)}, armed, false, "it has delivered the report of this night, run r"},
		"armed, attempts used up":    {lab.WhenDue, []farm.Run{run(farm.Lost, time.Minute)}, armed, false, "it was started 1 times this night and delivered no report"},
		"armed in the same instant":  {lab.WhenDue, []farm.Run{run(farm.Lost, 0)}, armed, false, "it was started 1 times this night and delivered no report"},
		"armed, and always the disk": {lab.Always, []farm.Run{run(farm.Complete, time.Minute)}, armed, false, "it has delivered the report of this night, run r"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Choose(lab.Settings{Image: "p2p", Plan: "check", Attempts: 2, Deadline: time.Minute, Boot: tt.boot}, tt.tonight, tt.armed)
			assert.Equal(t, tt.image, c.Image)
			assert.Equal(t, tt.why, c.Why)
			if tt.image && tt.armed != nil {
				assert.Equal(t, []any{"other", "full", time.Hour}, []any{c.Settings.Image, c.Plan, c.Deadline})
			}
		})
	}
	defaults := Choose(lab.Settings{Image: "p2p", Plan: "check", Attempts: 2, Deadline: time.Minute}, nil, &store.Armed{})
	assert.Equal(t, []any{"p2p", "check", 2, time.Minute}, []any{defaults.Settings.Image, defaults.Plan, defaults.Attempts, defaults.Deadline})
}
