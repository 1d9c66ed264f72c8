package judge

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
)

// text is changes for a person.
func text(changes []farm.Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s %s: %s -> %s\n", word(c.Worse, "WORSE", "other"), c.Kind+" "+farm.ChangeKind(c.Subject), c.Before, c.After)
		for line := range strings.Lines(c.Fix) {
			fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(line))
		}
	}
	return b.String()
}

// reach scales what the pairs of a result reach: all with an empty device, else
// those with it.
func reach(r *measure.Result, device string, part float64) *measure.Result {
	for i := range r.Pairs {
		p := &r.Pairs[i]
		if device != "" && p.Initiator != device && p.Peer != device {
			continue
		}
		for k := range p.Measurements {
			m := &p.Measurements[k]
			if m.Quantity == measure.Bandwidth {
				m.Median *= part
			} else {
				m.Median /= part
			}
		}
		p.Ways, p.Verdict, p.Reason = measure.JudgePair(*p, r.Settings)
	}
	r.Verdict, r.Reason = measure.Judge(*r)
	return r
}

// seen has each link run at a speed while something was measured.
func seen(r *measure.Result, speed string) *measure.Result {
	for i := range r.Pairs {
		p := &r.Pairs[i]
		p.Watch = &measure.Watch{}
		for _, bdf := range []string{p.Initiator, p.Peer} {
			p.Watch.Links = append(p.Watch.Links, measure.Link{BDF: bdf, Seen: []measure.LinkState{{Speed: speed, Width: 16, Samples: 9}}})
		}
	}
	return r
}

// TestCompare sets reports of one machine against twelve nights on which it was
// well. Each report is made by the checks and judged by the measurement, as on a
// node.
func TestCompare(t *testing.T) {
	const (
		gpu   = "0000:03:00.0"
		other = "0000:04:00.0"
	)
	well := func() *facts.Facts { return machine(t, "acs-sv-only") }
	full := func(f *facts.Facts) *measure.Result { return seen(measured(f), "16.0 GT/s PCIe") }
	report := func(change func(f *facts.Facts), result func(r *measure.Result) *measure.Result) *farm.Summary {
		f := well()
		if change != nil {
			change(f)
		}
		r := full(f)
		if result != nil {
			r = result(r)
		}
		return summary(t, f, r)
	}
	past := nights(12, report(nil, nil))
	for name, run := range map[string]func() farm.Run{
		"same": func() farm.Run { return night(20, report(nil, nil)) },
		"slower": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result { return reach(r, "", 0.9) }))
		},
		"faster": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result { return reach(r, "", 1.02) }))
		},
		"doubled": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result { return reach(r, gpu, 2) }))
		},
		"narrow": func() farm.Run {
			return night(20, report(func(f *facts.Facts) { narrow(t, f.Device(gpu)) },
				func(r *measure.Result) *measure.Result { return reach(r, "", 1) }))
		},
		"slow-link": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result { return seen(reach(r, "", 0.5), "8.0 GT/s PCIe") }))
		},
		"bios": func() farm.Run {
			s := summary(t, machine(t, "acs-switch"), nil)
			s.Pairs = slices.Clone(past[0].Summary.Pairs)
			for _, name := range []string{"04", "05", "06"} {
				delete(s.Settings, "link.0000:"+name+":00.0.width")
			}
			return night(20, s)
		},
		"updated": func() farm.Run {
			return night(20, report(func(f *facts.Facts) {
				f.Firmware.BIOSVersion, f.Kernel.CommandLine = "1304", "quiet iommu=pt pci=noaer"
			}, func(r *measure.Result) *measure.Result { return reach(r, "", 0.9) }))
		},
		"wrong-data": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result { corrupt(r, 1, measure.Read, measure.SM); return r }))
		},
		"hang": func() farm.Run {
			return night(20, report(nil, func(r *measure.Result) *measure.Result {
				p := &r.Pairs[0]
				p.Ways, p.Measurements, p.Checks = nil, nil, nil
				p.Problem, p.Step = &measure.Problem{Kind: measure.Timeout, Text: "did not end in 30 s"}, "write by ce"
				p.Ways, p.Verdict, p.Reason = measure.JudgePair(*p, r.Settings)
				return r
			}))
		},
		"nothing-measured": func() farm.Run { return night(20, summary(t, well(), nil)) },
		"gpu-gone": func() farm.Run {
			f := well()
			f.Devices = slices.DeleteFunc(f.Devices, func(d facts.Device) bool { return d.Address == other })
			return night(20, summary(t, f, nil))
		},
		"no-gpu":    func() farm.Run { return night(20, summary(t, machine(t, "no-gpu"), nil)) },
		"emulated":  func() farm.Run { return night(20, summary(t, machine(t, "emulated"), nil)) },
		"iommu":     func() farm.Run { return night(20, report(translate, nil)) },
		"rebar":     func() farm.Run { return night(20, report(shrink, nil)) },
		"other-gpu": func() farm.Run { return night(20, report(func(f *facts.Facts) { f.Device(gpu).Device = 0x2704 }, nil)) },
		"lost": func() farm.Run {
			r := night(20, nil)
			r.State, r.Chunks, r.Why = farm.Lost, 0, "the deadline of 30m0s passed"
			return r
		},
		"cut-off": func() farm.Run {
			s := report(nil, nil)
			s.Verdict, s.Reason, s.Pairs, s.Findings = "", "", nil, nil
			r := night(20, s)
			r.State, r.Stage, r.Why = farm.Lost, "bandwidth", "the node started another run"
			return r
		},
		"under-way": func() farm.Run {
			s := report(nil, nil)
			s.Verdict, s.Reason, s.Pairs, s.Findings = "", "", nil, nil
			r := night(20, s)
			r.State = farm.Running
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			changes := Judge(farm.Node{Name: "node7"}, run(), past, nil)
			for _, c := range changes {
				assert.Equal(t, c.Worse, c.Fix != "", "%s: what is worse has a fix, nothing else", c.Subject)
				assert.NotEmpty(t, c.Before)
				assert.NotEmpty(t, c.After)
			}
			golden.Equal(t, "testdata/change-"+name+".txt", text(changes))
		})
	}
}

// narrow has a function negotiate 8 lanes: Negotiated Link Width is bits 9:4 of the
// Link Status register (PCIe 6.0 §7.5.3.8).
func narrow(t *testing.T, d *facts.Device) {
	status := d.RawConfig[d.Config.Express.Offset+0x12:]
	binary.LittleEndian.PutUint16(status, binary.LittleEndian.Uint16(status)&^0x3f0|8<<4)
	cfg, err := pcicfg.Decode(d.RawConfig)
	require.NoError(t, err)
	d.Config, d.LinkWidth = cfg, "8"
}

// translate has the IOMMU translate for all GPUs.
func translate(f *facts.Facts) {
	f.IOMMU = facts.IOMMU{Known: true, Units: []string{"dmar0"}}
	for i := range f.Devices {
		if d := &f.Devices[i]; d.GPU {
			d.IOMMUGroup = fmt.Sprint(i)
			f.IOMMU.Groups = append(f.IOMMU.Groups, facts.IOMMUGroup{ID: d.IOMMUGroup, Type: "DMA-FQ", Devices: []string{d.Address}})
		}
	}
}

// shrink gives the framebuffer BARs 256 MiB.
func shrink(f *facts.Facts) {
	for _, d := range f.GPUs() {
		fb, _ := d.Framebuffer()
		for i := range d.Resources {
			if r := &d.Resources[i]; r.Index == fb.Index {
				r.End = r.Start + 256<<20 - 1
			}
		}
	}
}

// TestFirstRuns have nothing to be compared with: only wrong data is worse.
func TestFirstRuns(t *testing.T) {
	f := machine(t, "acs-sv-only")
	r := measured(f)
	node := farm.Node{Name: "node7"}
	for n := range MinRuns {
		past := nights(n, summary(t, f, r))
		slow := night(n, summary(t, f, reach(measured(f), "", 0.8)))
		for _, c := range Judge(node, slow, past, nil) {
			assert.NotEqual(t, farm.BandwidthChanged, c.Kind, "after %d runs", n)
		}
	}
	bad := measured(f)
	corrupt(bad, 0, measure.Write, measure.CE)
	changes := Judge(node, night(0, summary(t, f, bad)), nil, nil)
	require.Len(t, changes, 1)
	assert.Equal(t, farm.DataChanged, changes[0].Kind)
	assert.True(t, changes[0].Worse)

	lost := night(0, nil)
	lost.State = farm.Lost
	assert.Empty(t, Judge(node, lost, nil, nil))
}

// Wrong data is worse however often it was there.
func TestWrongDataIsNeverNormal(t *testing.T) {
	f := machine(t, "acs-sv-only")
	bad := measured(f)
	corrupt(bad, 0, measure.Write, measure.CE)
	s := summary(t, f, bad)
	changes := Judge(farm.Node{}, night(100, s), nights(100, s), nil)
	require.NotEmpty(t, changes)
	assert.Equal(t, farm.DataChanged, changes[0].Kind)
	assert.Empty(t, Learn(nights(100, s), nil), "nothing is learned from such runs")
}

// TestAfterwards follows a node through the nights after a change.
func TestAfterwards(t *testing.T) {
	f := machine(t, "acs-sv-only")
	good := summary(t, f, measured(f))
	slow := summary(t, f, reach(measured(f), "", 0.9))
	updated := summary(t, f, reach(measured(f), "", 1.1))
	updated.Settings = maps.Clone(updated.Settings)
	updated.Settings[BIOSVersion] = "1304"
	blocked := summary(t, machine(t, "acs-sv-only"), measured(f))
	blocked.Verdict = checks.VerdictBlocked
	for name, test := range map[string]struct {
		then   *farm.Summary
		pinned []farm.Baseline
		kind   farm.ChangeKind
		worse  bool
		nights int // on which it is reported; -1: on all
	}{
		"a regression stays one":          {slow, nil, farm.BandwidthChanged, true, -1},
		"until the new value is pinned":   {slow, pin(slow), farm.BandwidthChanged, true, 0},
		"an improvement becomes normal":   {updated, nil, farm.BandwidthChanged, false, MinRuns},
		"a setting is reported once":      {updated, nil, farm.SettingChanged, false, 1},
		"a bad state is accepted in time": {blocked, nil, farm.VerdictChanged, true, Accept},
	} {
		t.Run(name, func(t *testing.T) {
			runs := nights(20, good)
			reported := 0
			const after = 40
			for i := range after {
				run := night(20+i, test.then)
				changes := Judge(farm.Node{Name: "node7"}, run, runs, test.pinned)
				run.Changes = changes
				runs = append(runs, run)
				if slices.ContainsFunc(changes, func(c farm.Change) bool { return c.Kind == test.kind && c.Worse == test.worse }) {
					reported++
					require.Equal(t, i+1, reported, "reported without a break, then no more")
				}
			}
			if test.nights < 0 {
				test.nights = after
			}
			assert.Equal(t, test.nights, reported)
		})
	}
}

// pin pins what a run reached.
func pin(s *farm.Summary) []farm.Baseline {
	var out []farm.Baseline
	for _, p := range s.Pairs {
		for _, f := range figures(p) {
			out = append(out, farm.Baseline{Node: "node7", Key: string(f.key), Median: f.value, Pinned: true})
		}
	}
	return out
}

// TestComparable compares only runs that were asked to do the same.
func TestComparable(t *testing.T) {
	f := machine(t, "acs-sv-only")
	good := summary(t, f, measured(f))
	slow := summary(t, f, reach(measured(f), "", 0.8))
	for name, change := range map[string]func(r *farm.Run){
		"plan":          func(r *farm.Run) { r.Plan = "check" },
		"modules":       func(r *farm.Run) { r.Summary.Settings[DriverModules] = "stock" },
		"ACS":           func(r *farm.Run) { r.Summary.Settings[RunACS] = "cleared" },
		"size":          func(r *farm.Run) { r.Summary.Settings[CopySize] = "full 512 MiB" },
		"earlier":       func(r *farm.Run) { r.Offered = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) },
		"the run again": func(r *farm.Run) { r.ID = "run-003" },
	} {
		t.Run(name, func(t *testing.T) {
			s := *slow
			s.Settings = maps.Clone(s.Settings)
			run := night(20, &s)
			change(&run)
			past := nights(12, good)
			if name == "the run again" {
				past = past[3:4]
			}
			for _, c := range Judge(farm.Node{}, run, past, nil) {
				assert.NotEqual(t, farm.BandwidthChanged, c.Kind)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	s := func(settings ...string) *farm.Summary {
		m := map[string]string{}
		for i := 0; i < len(settings); i += 2 {
			m[settings[i]] = settings[i+1]
		}
		return &farm.Summary{Settings: m}
	}
	const id, swapped, another = "00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-aabbccddeeff", "11111111-4455-6677-8899-aabbccddeeff"
	for name, test := range map[string]struct {
		node    farm.Node
		summary *farm.Summary
		want    []string
	}{
		"same":              {farm.Node{UUID: id, Serial: "S1"}, s(SystemUUID, id, SystemSerial, "s1"), nil},
		"other byte order":  {farm.Node{UUID: id}, s(SystemUUID, swapped), nil},
		"other UUID":        {farm.Node{UUID: id}, s(SystemUUID, another), []string{SystemUUID}},
		"no UUID":           {farm.Node{UUID: "none"}, s(SystemUUID, "NONE"), nil},
		"serial of a board": {farm.Node{Serial: "B1"}, s(SystemSerial, "S1", BoardSerial, "B1"), nil},
		"other serial":      {farm.Node{Serial: "X"}, s(SystemSerial, "S1", BoardSerial, "B1"), []string{SystemSerial}},
		"report tells none": {farm.Node{UUID: id, Serial: "X"}, s(), nil},
		"node has none":     {farm.Node{}, s(SystemUUID, id), nil},
		"no summary":        {farm.Node{UUID: id}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run := night(1, test.summary)
			var got []string
			for _, c := range Judge(test.node, run, nil, nil) {
				assert.True(t, c.Worse)
				assert.Equal(t, farm.HardwareChanged, c.Kind)
				assert.NotEmpty(t, c.Fix)
				got = append(got, c.Subject)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// TestBoardReplaced replaces the board of a node: the machine is another until
// lab.yaml says otherwise, and then its name is no regression.
func TestBoardReplaced(t *testing.T) {
	was := map[string]string{SystemUUID: "11111111-4455-6677-8899-aabbccddeeff", BoardSerial: "B1", BoardName: "X1"}
	is := map[string]string{SystemUUID: "22222222-4455-6677-8899-aabbccddeeff", BoardSerial: "B2", BoardName: "X2"}
	past := nights(5, &farm.Summary{Settings: was})
	run := night(9, &farm.Summary{Settings: is})
	worse := func(node farm.Node) (subjects []string) {
		for _, c := range Judge(node, run, past, nil) {
			if c.Worse {
				subjects = append(subjects, c.Subject)
			}
		}
		return subjects
	}
	assert.Equal(t, []string{SystemUUID, BoardName, BoardSerial}, worse(farm.Node{UUID: was[SystemUUID]}), "each once")
	assert.Equal(t, []string{BoardName, BoardSerial, SystemUUID}, worse(farm.Node{}), "by its earlier reports")
	assert.Empty(t, worse(farm.Node{UUID: is[SystemUUID]}))
}

func TestLess(t *testing.T) {
	for _, test := range []struct {
		before, after string
		want          bool
	}{
		{"x16", "x8", true},
		{"x8", "x16", false},
		{"Gen5", "Gen4", true},
		{"Gen4 x16", "Gen4 x8", true},
		{"Gen4 x16", "Gen5 x16", false},
		{"32 GiB of 32 GiB", "256 MiB of 32 GiB", true},
		{"256 MiB of 32 GiB", "32 GiB of 32 GiB", false},
		{"32 GiB of 32 GiB", "32 GiB of 64 GiB", false},
		{"256 bytes", "128 bytes", true},
		{"128 bytes", "1024 bytes", false},
		{"", "x8", false},
		{"x8", "junk", false},
	} {
		assert.Equal(t, test.want, less(test.before, test.after), "%s -> %s", test.before, test.after)
	}
}
