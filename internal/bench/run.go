// Package bench measures the GPUs of a machine with p2pbw and says what the
// result means: in findings for a person, in the measurements of a report for a
// program. The init of the image and "mkp2pimg bench" share it.
package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/rm"
)

// WrapUp is the time before the end of its context at which the measurement is
// asked to stop, so that it still tells what it has.
const WrapUp = 20 * time.Second

// Program is the measuring program and what it is called with.
type Program struct {
	Path string
	Args []string // besides what this package sets
	// Ceilings are what the paths can carry, see [Ceilings].
	Ceilings []measure.Ceiling
	Progress io.Writer // gets what the program says while it measures
}

// Run runs the program in a process group of its own and reads the result from its
// output. Its exit code repeats the verdict that is in the result. A program that
// printed no result is an error.
func (p Program) Run(ctx context.Context) (*measure.Result, error) {
	if end, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, end.Add(-min(WrapUp, time.Until(end)/4)))
		defer cancel()
		ctx = early
	}
	ceilings := p.Ceilings
	if ceilings == nil {
		ceilings = []measure.Ceiling{}
	}
	input, err := json.Marshal(ceilings)
	if err != nil {
		return nil, fmt.Errorf("ceilings: %w", err)
	}
	var stdout bytes.Buffer
	cmd := exec.CommandContext(ctx, p.Path, append([]string{"--json", "--ceilings", "-"}, p.Args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, p.Progress
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = WrapUp / 2
	runErr := cmd.Run()
	if cmd.Process != nil {
		// Whatever the program left behind would hold the GPUs.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	r, err := measure.Decode(stdout.Bytes())
	if err != nil {
		return nil, fmt.Errorf("p2pbw gave no result: %w", errors.Join(runErr, ctx.Err(), err))
	}
	return &r, nil
}

// Ceilings returns what the path of each ordered pair of GPUs can carry, from the
// links and packet sizes on it. A pair that the driver, if s is not nil, lets
// reach each other otherwise than over PCIe has none, nor one whose links are not
// known.
func Ceilings(f *facts.Facts, s *rm.Survey) []measure.Ceiling {
	var all []measure.Ceiling
	for _, p := range topology.New(f).Paths() {
		c := p.Ceiling
		if c.Hop < 0 || c.Write == 0 || c.Read == 0 || aside(s, p.A.Address, p.B.Address) {
			continue
		}
		basis := p.Hops[c.Hop].Link.Loaded.String()
		if c.MaxPayload > 0 {
			basis += fmt.Sprintf(", %d bytes a packet", c.MaxPayload)
		}
		all = append(all, measure.Ceiling{
			Initiator: p.A.Address, Peer: p.B.Address,
			WriteGBps: float64(c.Write), ReadGBps: float64(c.Read), Basis: basis,
		})
	}
	return all
}

// aside reports whether the driver has another way than PCIe between two GPUs.
func aside(s *rm.Survey, a, b string) bool {
	if s == nil {
		return false
	}
	for _, p := range s.Pairs {
		if p.A == a && p.B == b {
			return p.Path == rm.NVLink || p.Path == rm.NVLinkIndirect || p.Path == rm.C2C
		}
	}
	return false
}
