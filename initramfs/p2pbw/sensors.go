package main

import (
	"time"

	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/nvml"
)

// sensorPeriod is the time between two readings, each of which takes the driver
// some tens of microseconds per GPU.
const sensorPeriod = 100 * time.Millisecond

// Sensors are the readings of GPUs. They are taken in the child: the driver may
// not answer any more.
type sensors struct {
	lib     *nvml.Library // nil if there is none to ask
	gpus    []*nvml.Device
	found   []measure.Sensor
	replays []int // at the start; -1: not known
	last    time.Time
}

// readSensors begins to read the sensors of GPUs, as far as there are any.
func readSensors(bdfs ...string) *sensors {
	s := new(sensors)
	lib, err := nvml.Open("")
	if err != nil {
		return s // a driver can be complete without it
	}
	s.lib = lib
	for _, bdf := range bdfs {
		g, err := lib.Device(bdf)
		if err != nil {
			continue
		}
		replays, err := g.Replays()
		if err != nil {
			replays = -1
		}
		s.gpus = append(s.gpus, g)
		s.replays = append(s.replays, replays)
		s.found = append(s.found, measure.Sensor{BDF: bdf})
	}
	return s
}

// sample reads the sensors, if step puts load on the GPUs.
func (s *sensors) sample(step string) {
	if time.Since(s.last) < sensorPeriod || !measure.Loading(step) {
		return
	}
	s.last = time.Now()
	for i, g := range s.gpus {
		to := &s.found[i]
		for _, r := range []struct {
			to   **int
			read func() (int, error)
		}{{&to.SMClock, g.SMClock}, {&to.MemoryClock, g.MemoryClock}, {&to.Temperature, g.Temperature}} {
			if v, err := r.read(); err == nil {
				*r.to = &v
			}
		}
	}
}

// end returns what was read.
func (s *sensors) end() []measure.Sensor {
	for i, g := range s.gpus {
		if now, err := g.Replays(); err == nil && s.replays[i] >= 0 {
			n := int64(now - s.replays[i])
			s.found[i].Replays = &n
		}
	}
	if s.lib != nil {
		_ = s.lib.Close() // nothing was changed
	}
	return s.found
}
