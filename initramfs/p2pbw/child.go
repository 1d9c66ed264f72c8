package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/libcuda"
	"mkp2pimg/internal/measure"
)

// What a child is for: the value of --child, with an argument after a colon for
// the last three.
const (
	partEnumerate = "enumerate"
	partHold      = "hold"    // keep the driver and all GPUs awake until killed
	partDevice    = "device"  // BDF
	partPair      = "pair"    // BDF,BDF
	partTraffic   = "traffic" // a measure.Traffic to measure, as JSON
)

// A message is a line of a child's standard output. Each one replaces the one
// before, so that the parent knows how far a child got that it had to kill.
type message struct {
	Inventory *measure.Inventory `json:"inventory,omitempty"`
	Device    *measure.Device    `json:"device,omitempty"`
	Pair      *measure.Pair      `json:"pair,omitempty"`
	Traffic   *measure.Traffic   `json:"traffic,omitempty"`
	Problem   *measure.Problem   `json:"problem,omitempty"`
}

// An opener opens the driver; path is where it was loaded from.
type opener func(library string) (drv cuda.Driver, path string, err error)

func openDriver(library string) (cuda.Driver, string, error) {
	var names []string
	if library != "" {
		names = []string{library}
	}
	drv, err := libcuda.Open(names...)
	if err != nil {
		return nil, "", err
	}
	path, err := drv.Path()
	return drv, path, err
}

// child does one part and writes messages to stdout. Its exit code is zero if
// the last message is whole, whatever it says.
func child(ctx context.Context, o options, stdout, stderr io.Writer, open opener) int {
	enc := json.NewEncoder(stdout)
	var failed error
	send := func(m message) {
		if err := enc.Encode(m); failed == nil {
			failed = err
		}
	}
	if err := part(ctx, o, send, open); err != nil {
		send(message{Problem: measure.NewProblem(measure.Setup, err)})
	}
	if failed != nil {
		fmt.Fprintf(stderr, "p2pbw: child: %v\n", failed)
		return 1
	}
	return 0
}

func part(ctx context.Context, o options, send func(message), open opener) error {
	name, arg, _ := strings.Cut(o.child, ":")
	drv, path, err := open(o.libcuda)
	if err != nil {
		return err
	}
	if name == partHold {
		// The driver puts a GPU to sleep when the last process leaves it, and
		// takes seconds to wake it for the next.
		<-ctx.Done()
		return nil
	}
	w, ctx := watch(ctx, o.timeout)
	defer w.stop()
	switch name {
	case partEnumerate:
		inv, err := measure.Enumerate(drv)
		if err != nil {
			return err
		}
		inv.Library, inv.DriverVersion = path, moduleVersion()
		send(message{Inventory: &inv})
	case partDevice:
		sensors := readSensors(arg)
		d := measure.ProbeDevice(ctx, drv, arg, o.settings, func(d measure.Device) {
			sensors.sample(d.Step)
			if w.progress(d.Step) {
				send(message{Device: &d})
			}
		})
		d.Watch = &measure.Watch{Sensors: sensors.end()}
		send(message{Device: &d})
	case partPair:
		initiator, peer, _ := strings.Cut(arg, ",")
		sensors := readSensors(initiator, peer)
		place, _ := locate(sysPCI, peer)
		p := measure.ProbePair(ctx, drv, initiator, peer, place.BAR1, o.settings, func(p measure.Pair) {
			sensors.sample(p.Step)
			if w.progress(p.Step) {
				send(message{Pair: &p})
			}
		})
		p.Watch = &measure.Watch{Sensors: sensors.end()}
		send(message{Pair: &p})
	case partTraffic:
		var t measure.Traffic
		if err := json.Unmarshal([]byte(arg), &t); err != nil {
			return fmt.Errorf("--child %s: %w", partTraffic, err)
		}
		sensors := readSensors(t.Ends()...)
		t = measure.ProbeTraffic(ctx, drv, t, o.settings, func(t measure.Traffic) {
			sensors.sample(t.Step)
			if w.progress(t.Step) {
				send(message{Traffic: &t})
			}
		})
		t.Watch = &measure.Watch{Sensors: sensors.end()}
		send(message{Traffic: &t})
	default:
		return fmt.Errorf("--child %s: no such part", o.child)
	}
	return nil
}

// moduleVersion returns the version of the loaded nvidia.ko, or nothing if it
// does not say.
func moduleVersion() string {
	v, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(v))
}
