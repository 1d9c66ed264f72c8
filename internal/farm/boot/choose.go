package boot

import (
	"cmp"
	"fmt"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// Choice is what a machine that starts from the network boots.
type Choice struct {
	Image bool   // the image; else its disk
	Why   string // for the machine's screen and the log
	lab.Settings
}

// Choose decides it from the settings of lab.yaml, the node's runs of this night,
// and what it is armed with, nil if it is not. An armed node boots what it is armed
// with, whatever it did before that.
func Choose(s lab.Settings, tonight []farm.Run, armed *store.Armed) Choice {
	c := Choice{Settings: s}
	var since time.Time
	switch {
	case s.Boot == lab.Never:
		c.Why = "lab.yaml has boot: never"
		return c
	case armed != nil:
		since = armed.At
		c.Settings.Image = cmp.Or(armed.Image, s.Image)
		c.Plan = cmp.Or(armed.Plan, s.Plan)
		c.Attempts = cmp.Or(armed.Attempts, s.Attempts)
		c.Deadline = cmp.Or(armed.Deadline, s.Deadline)
	case s.Boot == lab.WhenArmed:
		c.Why = "it is not armed"
		return c
	case s.Boot == lab.Always:
		c.Image, c.Why = true, "lab.yaml has boot: always"
		return c
	}
	started := 0
	for _, r := range tonight {
		if r.Source != farm.Network || r.Offered.Before(since) {
			continue
		}
		if r.State == farm.Complete {
			c.Why = "it has delivered the report of this night, run " + r.ID
			return c
		}
		started++
	}
	if started >= c.Attempts {
		c.Why = fmt.Sprintf("it was started %d times this night and delivered no report", started)
		return c
	}
	c.Image, c.Why = true, fmt.Sprintf("attempt %d of %d", started+1, c.Attempts)
	return c
}
