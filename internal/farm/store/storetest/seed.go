package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/report"
)

// LastNight is the begin of the last night that [Seed] makes.
var LastNight = time.Date(2026, 3, 5, 22, 0, 0, 0, time.UTC)

// NodeName is the name of the i-th node that [Seed] makes, from 0.
func NodeName(i int) string { return fmt.Sprintf("gpu-%04d", i) }

// Seed fills a store with a run of each of some nodes in each of some nights, up to
// [LastNight]. It makes the same runs whenever it is called with the same numbers.
//
// Every 50th node has four GPUs and every 100th, gpu-0000 among them, eight; the
// others have two. About one run in a hundred is lost; on some nodes a link comes
// up narrower for some nights, and a new BIOS turns ACS redirect on. Runs of the
// last night have a report, the others had one.
func Seed(t testing.TB, s *store.Store, nodes, nights int) {
	t.Helper()
	ctx := context.Background()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(128)
	for i := range nodes {
		n := farm.Node{
			Name: NodeName(i), MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8&0xff, i&0xff),
			UUID: uuid.NewSHA1(uuid.Nil, []byte(NodeName(i))).String(), Serial: fmt.Sprintf("S%06d", i),
			FirstSeen: LastNight.AddDate(0, 0, 1-nights),
		}
		require.NoError(t, s.Touch(ctx, n))
		g.Go(func() error {
			m := newMachine(i)
			for back := nights - 1; back >= 0; back-- {
				r, chunks := m.run(LastNight.AddDate(0, 0, -back), back == 0)
				if _, err := s.Import(ctx, r, chunks); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// machine is a node as it is in the nights that are made up.
type machine struct {
	name   string
	gpus   int
	rng    *rand.Rand
	width  int // lanes of the first GPU's link
	narrow int // nights until its link is as it was
	bios   string
	acs    bool // ACS redirect is on
}

func newMachine(i int) *machine {
	m := &machine{name: NodeName(i), gpus: 2, rng: rand.New(rand.NewPCG(1, uint64(i))), width: 16, bios: "2.4.1"}
	switch {
	case i%100 == 0:
		m.gpus = 8
	case i%50 == 0:
		m.gpus = 4
	}
	return m
}

// one tells true once in n calls.
func (m *machine) one(n int) bool { return m.rng.IntN(n) == 0 }

// pass lets a night go by, and returns what it changed.
func (m *machine) pass() []farm.Change {
	var changes []farm.Change
	change := func(kind farm.ChangeKind, subject, before, after string, worse bool, fix string) {
		changes = append(changes, farm.Change{Kind: kind, Subject: subject, Before: before, After: after, Worse: worse, Fix: fix})
	}
	switch {
	case m.narrow > 0:
		if m.narrow--; m.narrow == 0 {
			m.width = 16
			change(farm.LinkChanged, "link.0000:01:00.0", "x8", "x16", false, "")
		}
	case m.one(300):
		m.width, m.narrow = 8, 1+m.rng.IntN(10)
		change(farm.LinkChanged, "link.0000:01:00.0", "x16", "x8", true, "reseat the GPU and its riser")
	}
	if m.bios == "2.4.1" && m.one(400) {
		m.bios, m.acs = "2.5.0", true
		change(farm.SettingChanged, "bios.version", "2.4.1", m.bios, false, "")
		change(farm.SettingChanged, "acs.redirect", "none", "0000:00:01.1", true, "turn ACS off in the BIOS, or add pci=disable_acs_redir=pci:1022:* to the kernel's command line")
	}
	return changes
}

// run makes the machine's run of a night.
func (m *machine) run(night time.Time, kept bool) (farm.Run, []store.Chunk) {
	at := night.Add(time.Duration(m.rng.IntN(7200)) * time.Second)
	r := farm.Run{
		ID: uuid.NewSHA1(uuid.Nil, []byte(m.name+night.String())).String(), Node: m.name, Night: night.Format(time.DateOnly),
		Source: farm.Network, State: farm.Complete, Image: "lab", Plan: "quick", Stage: "report",
		Offered: at, Started: at.Add(40 * time.Second), Updated: at.Add(95 * time.Second), Ended: at.Add(95 * time.Second), Deadline: at.Add(30 * time.Minute),
	}
	r.Changes = m.pass()
	if m.one(100) {
		r.State, r.Why, r.Stage, r.Ended = farm.Lost, "nothing arrived after stage driver", "driver", r.Deadline
		r.Summary = &farm.Summary{Reason: "the run ended in stage driver"}
		r.Changes = append(r.Changes, farm.Change{Kind: farm.NotDelivered, Subject: "report", Before: "whole", After: "ends in stage driver", Worse: true,
			Fix: "look at the console of the machine"})
	} else {
		r.Summary = m.summary()
	}
	if !kept {
		return r, nil
	}
	text := m.report(r)
	return r, []store.Chunk{{Data: text}}
}

// summary is what a run finds out.
func (m *machine) summary() *farm.Summary {
	s := &farm.Summary{
		Verdict: checks.VerdictReady, Reason: "every pair reaches its ceiling", Driver: "580.95.05", Kernel: "6.12.48", Product: "1.0",
		Settings: map[string]string{
			"bios.version": m.bios, "acs.redirect": "none", "iommu.mode": "off",
			"gpu.count": fmt.Sprint(m.gpus), "gpu.models": fmt.Sprintf("%d × NVIDIA GeForce RTX 4090", m.gpus),
		},
		Findings: []farm.Finding{{ID: checks.ACSRedirect, Status: checks.Pass, Title: "no port between the GPUs redirects"}},
	}
	for i := range m.gpus {
		s.Settings["rebar."+bdf(i)] = "32 GiB of 32 GiB"
		s.Settings["link."+bdf(i)+".width"] = "x16"
		s.Settings["link."+bdf(i)+".speed"] = "Gen4"
	}
	s.Settings["link."+bdf(0)+".width"] = fmt.Sprintf("x%d", m.width)
	if m.width < 16 {
		s.Verdict, s.Reason = checks.VerdictDegraded, "the link of GPU "+bdf(0)+" has 8 of 16 lanes"
		s.Findings = append(s.Findings, farm.Finding{ID: checks.LinkWidth, Status: checks.Warn, Title: "GPU " + bdf(0) + " runs at x8 of x16",
			Fix: "reseat the GPU and its riser", Devices: []string{bdf(0)}})
	}
	if m.acs {
		s.Verdict, s.Reason = checks.VerdictDegraded, "ACS sends traffic between GPUs through the root complex"
		s.Settings["acs.redirect"] = "0000:00:01.1"
		s.Findings[0] = farm.Finding{ID: checks.ACSRedirect, Status: checks.Fail, Title: "port 0000:00:01.1 redirects traffic between GPUs to the root",
			Fix: "turn ACS off in the BIOS", Devices: []string{"0000:00:01.1"}}
	}
	s.Pairs = m.pairs()
	worst := s.Pairs[0].Percent()
	for _, p := range s.Pairs {
		worst = min(worst, p.Percent())
	}
	s.Worst = &worst
	return s
}

// pairs are the figures of all ordered pairs; the ceiling is that of Gen4 x16, or of
// the narrow link.
func (m *machine) pairs() []farm.Pair {
	const ceiling = 28.3 // GB/s
	var pairs []farm.Pair
	for i := range m.gpus {
		for j := range m.gpus {
			if i == j {
				continue
			}
			for _, direction := range []string{"write", "read"} {
				for _, method := range []string{"ce", "sm"} {
					p := farm.Pair{Initiator: bdf(i), Peer: bdf(j), Direction: direction, Method: method, Ceiling: ceiling, Verdict: "ok"}
					part := 0.93 + 0.01*m.rng.NormFloat64()
					if (i == 0 || j == 0) && m.width < 16 {
						part /= 2
					}
					if m.acs {
						part *= 0.8
					}
					p.GBps = part * ceiling
					if direction == "read" && method == "sm" {
						p.LatencyNS = 1250 + 20*m.rng.NormFloat64()
					}
					pairs = append(pairs, p)
				}
			}
		}
	}
	return pairs
}

func bdf(i int) string { return fmt.Sprintf("0000:%02x:00.0", 1+0x20*i) }

// report is a small report with the summary's verdict.
func (m *machine) report(r farm.Run) []byte {
	at := r.Started
	w := report.New(report.Clock(func() time.Time {
		at = at.Add(time.Second)
		return at
	}))
	w.Start(report.RunStart{Name: "mkp2pimg", Version: "1.0", DUT: report.DUT{ID: m.name}})
	step := w.Step("report", "report")
	if r.State == farm.Complete {
		step.Verdict(report.Verdict{Verdict: r.Summary.Verdict, Reason: r.Summary.Reason})
		step.End(report.StatusComplete)
		status, result := report.StatusComplete, report.ResultPass
		if r.Summary.Verdict != checks.VerdictReady {
			result = report.ResultFail
		}
		if err := w.End(status, result); err != nil {
			panic(err) // a legal pair, once
		}
	}
	return bytes.Clone(w.Bytes())
}
