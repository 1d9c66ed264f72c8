package checks_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/rm"
)

const gib = 1 << 30

// Words that drivers answer with.
const (
	viaBAR1       = rm.CapRead | rm.CapWrite | rm.CapPCI | rm.CapBAR1
	viaBAR1In535  = rm.CapRead | rm.CapWrite | rm.CapProp | rm.CapBAR1
	viaMailbox    = rm.CapRead | rm.CapWrite | rm.CapPCI | rm.CapProp
	viaNVLink     = rm.CapRead | rm.CapWrite | rm.CapAtomics | rm.CapNVLink
	writesMailbox = rm.CapWrite | rm.CapPCI | rm.CapProp
)

var (
	static = &rm.StaticBAR1{Enabled: true, Size: 24 * gib}
	off    = &rm.StaticBAR1{}
	bar1   = checks.Request{Keys: rm.Keys{"ForceP2P": 0x11, "RMPcieP2PType": 1}, Stock: true}
	bar1Of = func(stock bool, keys rm.Keys) checks.Request {
		keys["RMForceP2PType"] = 2
		return checks.Request{Keys: keys, Stock: stock}
	}
	stock = checks.Request{Keys: rm.Keys{}, Stock: true}
)

// surveyOf is what a driver says about two GPUs between which it grants caps.
func surveyOf(driver string, caps rm.Caps, read, write rm.P2PStatus, a, b rm.Surveyed) *rm.Survey {
	a.BDF, a.ID, b.BDF, b.ID = "0000:01:00.0", 0x100, "0000:02:00.0", 0x200
	status := rm.Statuses{read, write, 5, 5, 5, 5, 5, 5, 5}
	return &rm.Survey{Driver: driver, GPUs: []rm.Surveyed{a, b}, Pairs: []rm.Pair{
		{A: a.BDF, B: b.BDF, Caps: caps, Path: caps.Path(), Status: status},
		{A: b.BDF, B: a.BDF, Caps: caps, Path: caps.Path(), Status: status},
	}}
}

// card is a GPU with so much BAR1 and 24 GiB of memory.
func card(bar uint64, device uint16, sb *rm.StaticBAR1) rm.Surveyed {
	return rm.Surveyed{GPU: rm.GPU{BAR1: bar, Device: device}, Running: true, Memory: 24 * gib, StaticBAR1: sb}
}

// The traps are those of the driver's source: p2p_caps.c decides about the path,
// kern_bus_gm107.c whether a mailbox is set up.
func TestRM(t *testing.T) {
	large, small := uint64(32*gib), uint64(gib/4)
	const ampere, hopper = 0x2204, 0x2330
	two := func(bar uint64, device uint16, sb *rm.StaticBAR1) [2]rm.Surveyed {
		return [2]rm.Surveyed{card(bar, device, sb), card(bar, device, sb)}
	}
	type outcome struct {
		id     checks.ID
		status checks.Status
		title  string
	}
	path := func(s checks.Status, title string) outcome { return outcome{checks.RMPath, s, title + " (1 GPU pair)"} }
	falls := outcome{checks.MailboxFallthrough, checks.Fail, "mailbox granted that was not set up (1 GPU pair)"}
	mayFall := outcome{checks.MailboxFallthrough, checks.Unknown, "mailbox granted, not known whether it was set up (1 GPU pair)"}
	inPlace := path(checks.Warn, "the driver grants the PCIe mailbox in place of BAR1")
	for name, tc := range map[string]struct {
		driver      string
		caps        rm.Caps
		read, write rm.P2PStatus
		gpus        [2]rm.Surveyed
		req         checks.Request
		want        []outcome
	}{
		"nvlink": {"580.142", viaNVLink, 0, 0, two(large, hopper, static), stock,
			[]outcome{path(checks.Pass, "the driver grants NVLink")}},
		"c2c": {"580.142", rm.CapRead | rm.CapWrite | rm.CapC2C, 0, 0, two(large, hopper, off), stock,
			[]outcome{path(checks.Pass, "the driver grants NVLink-C2C")}},

		// The stock driver's own mailbox, on an A6000 or L40S, is fine in every release.
		"535 mailbox": {"535.261.03", viaMailbox, 0, 0, two(large, ampere, nil), stock, []outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"570 mailbox": {"570.211.01", viaMailbox, 0, 0, two(large, ampere, off), stock, []outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"580 mailbox": {"580.142", viaMailbox, 0, 0, two(large, ampere, static), stock, []outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"580 auto keeps the mailbox": {"580.142", viaMailbox, 0, 0, two(large, ampere, off),
			checks.Request{Keys: rm.Keys{"RMPcieP2PType": 2}}, []outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"580 key of 570 asks for nothing": {"580.142", viaMailbox, 0, 0, two(large, ampere, off), bar1Of(true, rm.Keys{}),
			[]outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"570 key of 580 asks for nothing": {"570.211.01", viaMailbox, 0, 0, two(large, ampere, off),
			checks.Request{Keys: rm.Keys{"RMPcieP2PType": 1}, Stock: true}, []outcome{path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"mailbox by force": {"580.142", viaMailbox, 0, 0, two(large, ampere, off),
			checks.Request{Keys: rm.Keys{"ForceP2P": 0x11}, Stock: true}, []outcome{path(checks.Warn, "the driver grants the PCIe mailbox because ForceP2P says so")}},

		// Since 565 a driver that was told to prefer BAR1 sets no mailbox up.
		"580 falls through": {"580.142", viaMailbox, 0, 0, two(large, ampere, static), bar1, []outcome{falls, inPlace}},
		"575 falls through": {"575.64.05", viaMailbox, 0, 0, two(large, ampere, off), bar1, []outcome{falls, inPlace}},
		"570 falls through": {"570.211.01", viaMailbox, 0, 0, two(large, ampere, off), bar1Of(true, rm.Keys{}), []outcome{falls, inPlace}},
		"565 falls through": {"565.77", viaMailbox, 0, 0, two(large, ampere, off), bar1Of(true, rm.Keys{}), []outcome{falls, inPlace}},
		"edited, default not known": {"580.142", viaMailbox, 0, 0, two(large, ampere, off), checks.Request{Keys: rm.Keys{}},
			[]outcome{mayFall, path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"keys not known": {"580.142", viaMailbox, 0, 0, two(large, ampere, off), checks.Request{Stock: true},
			[]outcome{mayFall, path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"keys per device": {"580.142", viaMailbox, 0, 0, two(large, ampere, off), checks.Request{Keys: rm.Keys{}, PerDevice: true, Stock: true},
			[]outcome{mayFall, path(checks.Pass, "the driver grants the PCIe mailbox")}},
		"release not known": {"x", viaMailbox, 0, 0, two(large, ampere, off), bar1,
			[]outcome{mayFall, path(checks.Warn, "the driver grants the PCIe mailbox because ForceP2P says so")}},

		// Before 565 it sets one up on each GPU that has no static BAR1.
		"560 both small": {"560.35.03", viaMailbox, 0, 0, two(small, ampere, nil), bar1Of(false, rm.Keys{}), []outcome{inPlace}},
		"560 one small": {"560.35.03", viaMailbox, 0, 0, [2]rm.Surveyed{card(large, ampere, nil), card(small, ampere, nil)}, bar1Of(false, rm.Keys{}),
			[]outcome{falls, inPlace}},
		"560 near the limit": {"560.35.03", viaMailbox, 0, 0, [2]rm.Surveyed{card(24*gib, ampere, nil), card(small, ampere, nil)}, bar1Of(false, rm.Keys{}),
			[]outcome{mayFall, inPlace}},
		"535 stock, not Hopper": {"535.261.03", viaMailbox, 0, 0, two(large, ampere, nil), bar1Of(true, rm.Keys{}), []outcome{inPlace}},
		"535 stock, Hopper and small": {"535.261.03", viaMailbox, 0, 0, [2]rm.Surveyed{card(large, hopper, nil), card(small, hopper, nil)}, bar1Of(true, rm.Keys{}),
			[]outcome{falls, inPlace}},

		// BAR1: from 545 to 570 ForceP2P answers before anybody looks at static BAR1.
		"535 bar1":            {"535.261.03", viaBAR1In535, 0, 0, two(large, ampere, nil), bar1Of(false, rm.Keys{}), []outcome{path(checks.Pass, "the driver grants PCIe BAR1")}},
		"560 bar1":            {"560.35.03", viaBAR1, 0, 0, two(large, ampere, nil), bar1Of(false, rm.Keys{}), []outcome{path(checks.Pass, "the driver grants PCIe BAR1")}},
		"560 bar1, too small": {"560.35.03", viaBAR1, 0, 0, two(small, ampere, nil), bar1Of(false, rm.Keys{}), []outcome{path(checks.Fail, "the driver grants PCIe BAR1 and can't map it")}},
		"560 bar1, memory not known": {"560.35.03", viaBAR1, 0, 0, [2]rm.Surveyed{{GPU: rm.GPU{BAR1: large}}, card(large, ampere, nil)}, bar1Of(false, rm.Keys{}),
			[]outcome{path(checks.Unknown, "the driver grants PCIe BAR1, not known whether it can map it")}},
		"570 bar1":             {"570.211.01", viaBAR1, 0, 0, two(large, ampere, static), bar1Of(false, rm.Keys{}), []outcome{path(checks.Pass, "the driver grants PCIe BAR1")}},
		"570 bar1, static off": {"570.211.01", viaBAR1, 0, 0, two(large, ampere, off), bar1Of(false, rm.Keys{}), []outcome{path(checks.Fail, "the driver grants PCIe BAR1 and can't map it")}},
		"570 bar1, not told":   {"570.211.01", viaBAR1, 0, 0, two(large, ampere, nil), bar1Of(false, rm.Keys{}), []outcome{path(checks.Unknown, "the driver grants PCIe BAR1, not known whether it can map it")}},
		"610 bar1":             {"610.43.02", viaBAR1, 0, 0, two(large, ampere, static), bar1, []outcome{path(checks.Pass, "the driver grants PCIe BAR1")}},

		"chipset":   {"580.142", 0, 1, 1, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: denied for the chipset (CNS)")}},
		"gpu":       {"580.142", 0, 2, 2, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: denied for the GPU (GNS)")}},
		"topology":  {"580.142", 0, 3, 3, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: denied for the topology (TNS)")}},
		"key":       {"580.142", 0, 4, 4, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: denied by a registry key (DR)")}},
		"none":      {"580.142", 0, 5, 5, two(large, ampere, off), bar1, []outcome{path(checks.Fail, "the driver grants no path: not supported (NS)")}},
		"two ways":  {"580.142", 0, 2, 4, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: read denied for the GPU (GNS), write denied by a registry key (DR)")}},
		"new value": {"700.10", 0, 9, 9, two(large, ampere, off), stock, []outcome{path(checks.Fail, "the driver grants no path: denied for a reason unknown here (9)")}},
		"writes only": {"580.142", writesMailbox, 1, 0, two(large, ampere, off), stock,
			[]outcome{path(checks.Warn, "the driver grants the PCIe mailbox for one direction: read denied for the chipset (CNS), write possible")}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []outcome
			for _, f := range checks.RM(surveyOf(tc.driver, tc.caps, tc.read, tc.write, tc.gpus[0], tc.gpus[1]), tc.req) {
				got = append(got, outcome{f.ID, f.Status, f.Title})
				assert.NotEmpty(t, f.Evidence)
				assert.Equal(t, [][2]string{{"0000:01:00.0", "0000:02:00.0"}}, f.Pairs)
				if f.Status != checks.Pass {
					assert.NotEmpty(t, f.Fix)
				}
				assert.NotEmpty(t, f.Meaning)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestRMWithoutPairs(t *testing.T) {
	found := checks.RM(&rm.Survey{Driver: "580.142", GPUs: []rm.Surveyed{card(gib, 0x2330, nil)}}, stock)
	require.Len(t, found, 1)
	assert.Equal(t, checks.Skip, found[0].Status)
}

// A pair that could not be asked about is not known, whatever the others are.
func TestRMMixed(t *testing.T) {
	s := surveyOf("580.142", viaMailbox, 0, 0, card(32*gib, 0x2204, static), card(32*gib, 0x2204, off))
	third := rm.Surveyed{GPU: rm.GPU{BDF: "0000:03:00.0", ID: 0x300}, Errors: []string{"GPU 0000:03:00.0: open /dev/nvidia2: permission denied"}}
	s.GPUs = append(s.GPUs, third)
	for _, g := range s.GPUs[:2] {
		s.Pairs = append(s.Pairs, rm.Pair{A: g.BDF, B: third.BDF, Error: "the driver has not started GPU 0000:03:00.0"},
			rm.Pair{A: third.BDF, B: g.BDF, Error: "the driver has not started GPU 0000:03:00.0"})
	}
	found := checks.RM(s, bar1)
	golden.Equal(t, "testdata/rm-mixed.golden", text(found))
}

func TestVerdictSaysPath(t *testing.T) {
	measured := checks.Finding{ID: checks.Measured, Status: checks.Pass}
	for name, tc := range map[string]struct {
		found   []checks.Finding
		verdict checks.Verdict
		reason  string
	}{
		"path":          {[]checks.Finding{{ID: checks.RMPath, Status: checks.Pass, Title: "PCIe BAR1"}}, checks.VerdictReady, "data verified; PCIe BAR1"},
		"no path":       {nil, checks.VerdictReady, "data verified; over which path the driver does not tell"},
		"not told":      {[]checks.Finding{{ID: checks.RMPath, Status: checks.Unknown}}, checks.VerdictReady, "does not tell"},
		"falls through": {[]checks.Finding{{ID: checks.MailboxFallthrough, Status: checks.Fail, Title: "lost"}}, checks.VerdictDegraded, fmt.Sprint(checks.MailboxFallthrough)},
	} {
		t.Run(name, func(t *testing.T) {
			v, reason := checks.Judge(append(tc.found, measured))
			assert.Equal(t, tc.verdict, v)
			assert.Contains(t, reason, tc.reason)
		})
	}
}
