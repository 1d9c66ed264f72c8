package predict_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/loadopt"
)

// TestGates asks each gate on machines that differ in what it asks about.
func TestGates(t *testing.T) {
	pair := func(id uint16) fixture.Machine { return machine(rome, 0x790e, gpu(id, 64*gib), gpu(id, 64*gib)) }
	mixed := machine(rome, 0x790e, gpu(a6000, 64*gib), gpu(rtx4090, 64*gib))
	unlisted := machine(rome, 0x790e, gpu(0x2fff, 64*gib), gpu(0x2fff, 64*gib))
	plx := func(vendor, device uint16) fixture.Machine {
		sw := fixture.Switch(nil, gpu(a6000, 64*gib), gpu(a6000, 64*gib))
		for i := range sw.Below {
			sw.Below[i].Vendor, sw.Below[i].Device = vendor, device
		}
		return fixture.Machine{CPU: emerald, Hosts: []fixture.Host{{Functions: []fixture.Function{fixture.RootPort("01.0", nil, sw)}}}}
	}
	hubs := func(device uint16) fixture.Machine {
		m := machine(emerald, 0x8d44, gpu(a6000, 64*gib), gpu(a6000, 64*gib))
		ports := m.Hosts[0].Functions
		for i := range 2 {
			ports[i].Vendor, ports[i].Device = 0x8086, device
		}
		m.Hosts = []fixture.Host{{Functions: append(ports[:1:1], ports[2])}, {Bus: 0x80, Node: 1, Functions: ports[1:2]}}
		return m
	}
	driver := func(release string, keys rm.Keys) predict.Driver { return predict.Driver{Release: release, Keys: keys} }
	nvml := func(change func(g *facts.NVMLGPU)) func(f *facts.Facts) {
		return func(f *facts.Facts) {
			f.NVIDIA = &facts.NVIDIA{}
			for _, d := range f.GPUs() {
				g := facts.NVMLGPU{Address: d.Address, MIG: "N/A"}
				change(&g)
				f.NVIDIA.NVML = append(f.NVIDIA.NVML, g)
			}
		}
	}
	clique := func(ids ...byte) func(f *facts.Facts) {
		return func(f *facts.Facts) {
			for i, id := range ids {
				d := f.GPUs()[i]
				d.Config.Capabilities = append(d.Config.Capabilities, pcicfg.Capability{ID: 9, Offset: 0xc8})
				copy(d.RawConfig[0xc8:], []byte{9, 0, 8, 'P', '2', 'P', id << 3, 0})
			}
		}
	}
	guest := pair(a6000)
	guest.CPU.Hypervisor = true
	bar1 := rm.Keys{rm.KeyPCIeP2PType: 1}
	protected := uint64(1)

	for _, tc := range []struct {
		gate    string
		name    string
		machine fixture.Machine
		change  func(f *facts.Facts)
		driver  predict.Driver
		want    predict.Verdict
		path    rm.Path
	}{
		{"KNOWN", "Blackwell in 570", pair(rtx5090), nil, driver("570.211.01", nil), predict.Yes, rm.NoPath},
		{"KNOWN", "Blackwell before", pair(0x2bb1), nil, driver("565.77", nil), predict.No, rm.NoPath},
		{"KNOWN", "model not known", unlisted, nil, driver("565.77", nil), predict.Unknown, rm.NoPath},
		{"MIG", "chip without MIG", pair(a6000), nil, driver("580.142", nil), predict.Yes, rm.Mailbox},
		{"MIG", "not known", pair(h100), nil, driver("580.142", nil), predict.Unknown, rm.Mailbox},
		{"MIG", "on", pair(h100), nvml(func(g *facts.NVMLGPU) { g.MIG = "Enabled" }), driver("580.142", nil), predict.No, rm.NoPath},
		{"C2C", "card", pair(h100), nil, driver("580.142", nil), predict.No, rm.Mailbox},
		{"C2C", "left out", unlisted, nil, driver("580.142", rm.Keys{rm.KeyForceP2PType: 1}), predict.No, rm.NoPath},
		{"C2C", "model not known", unlisted, nil, driver("580.142", nil), predict.Unknown, rm.NoPath},
		{"NVLINK", "chip without", pair(rtx4090), nil, driver("580.142", nil), predict.No, rm.NoPath},
		{"NVLINK", "bridge may be there", pair(a6000), nil, driver("580.142", nil), predict.Unknown, rm.Mailbox},
		{"NVLINK", "board with NVSwitch", pair(0x2330), nil, driver("580.142", nil), predict.Unknown, rm.NVLink},
		{"NVLINK", "left out by the joint key", pair(a6000), nil, driver("570.211.01", rm.Keys{rm.KeyForceP2PType: 2}), predict.No, rm.Mailbox},
		{"NVLINK", "2 is NVLink from 575 on", pair(a6000), nil, driver("575.64.05", rm.Keys{rm.KeyForceP2PType: 2}), predict.Unknown, rm.Mailbox},
		{"NVLINK", "kept by the edits", pair(a6000), nil, predict.Driver{Release: "570.211.01", Edited: true, Keys: rm.Keys{rm.KeyForceP2PType: 2}}, predict.Unknown, rm.BAR1},
		{"NVSWITCH", "none", pair(a6000), nil, driver("580.142", nil), predict.Yes, rm.Mailbox},
		{"NVSWITCH", "left to PCIe by key", pair(0x2330), nil, driver("580.142", rm.Keys{rm.KeyForceP2PType: 1}), predict.Unknown, rm.NoPath},
		{"NVSWITCH", "on the bus", pair(0x2330), func(f *facts.Facts) {
			f.Devices = append(f.Devices, facts.Device{Address: "0000:99:00.0", Vendor: 0x10de, Class: 0x068000})
		}, driver("580.142", rm.Keys{rm.KeyForceP2PType: 1}), predict.No, rm.NoPath},
		{"FORCE-OFF", "off", pair(a6000), nil, driver("580.142", rm.Keys{rm.KeyForceP2P: 0}), predict.No, rm.NoPath},
		{"FORCE-OFF", "default is as good as off", pair(a6000), nil, driver("580.142", rm.Keys{rm.KeyForceP2P: 0x22}), predict.No, rm.NoPath},
		{"FORCE-OFF", "reads only", pair(a6000), nil, driver("580.142", rm.Keys{rm.KeyForceP2P: 0x1}), predict.Yes, rm.Mailbox},
		{"FORCE", "set", pair(rtx4090), nil, driver("580.142", rm.Keys{rm.KeyForceP2P: 0x11}), predict.Yes, rm.Mailbox},
		{"FORCE", "not set", pair(rtx4090), nil, driver("580.142", nil), predict.No, rm.NoPath},
		{"CLIQUE", "bare metal", pair(a6000), nil, driver("580.142", nil), predict.No, rm.Mailbox},
		{"CLIQUE", "one clique", guest, clique(3, 3), driver("550.163.01", nil), predict.Yes, rm.Mailbox},
		{"CLIQUE", "two cliques", guest, clique(3, 4), driver("550.163.01", nil), predict.No, rm.Mailbox},
		{"CLIQUE", "one GPU in none", guest, clique(3), driver("550.163.01", nil), predict.No, rm.Mailbox},
		{"CLIQUE", "the firmware may approve", guest, nil, driver("580.142", nil), predict.Unknown, rm.Mailbox},
		{"IOH", "two hubs", hubs(0x2f02), nil, driver("580.142", nil), predict.No, rm.NoPath},
		{"IOH", "CPUs without", hubs(0x352a), nil, driver("580.142", nil), predict.Yes, rm.Mailbox},
		{"SAME", "one model", pair(a6000), nil, driver("580.142", nil), predict.Yes, rm.Mailbox},
		{"SAME", "two chips", mixed, nil, driver("580.142", nil), predict.No, rm.NoPath},
		{"SAME", "two models of one chip", machine(rome, 0x790e, gpu(a6000, 64*gib), gpu(0x2231, 64*gib)), nil, driver("580.142", nil), predict.Yes, rm.Mailbox},
		{"CHIPSET", "listed", pair(a6000), nil, driver("610.43.02", nil), predict.Yes, rm.Mailbox},
		{"CHIPSET", "in the firmware before 610", pair(a6000), nil, driver("595.71.05", nil), predict.Unknown, rm.Mailbox},
		{"CHIPSET", "listed as unfit", machine(emerald, 0x7d06, gpu(a6000, 64*gib), gpu(a6000, 64*gib)), nil, driver("610.43.02", nil), predict.No, rm.NoPath},
		{"CHIPSET", "PLX switch", plx(0x10b5, 0x9797), nil, driver("610.43.02", nil), predict.Yes, rm.Mailbox},
		{"CHIPSET", "Broadcom switch", plx(0x1000, 0xc030), nil, driver("610.43.02", nil), predict.No, rm.NoPath},
		{"GPU", "denied", pair(rtx4090), nil, driver("610.43.02", nil), predict.No, rm.NoPath},
		{"GPU", "not known", unlisted, nil, driver("570.211.01", nil), predict.Unknown, rm.NoPath},
		{"BAR1-KEY", "570 takes the joint key", pair(a6000), nil, driver("570.211.01", rm.Keys{rm.KeyForceP2PType: 2}), predict.Yes, rm.Mailbox},
		{"BAR1-KEY", "and no other", pair(a6000), nil, driver("570.211.01", bar1), predict.No, rm.Mailbox},
		{"BAR1-KEY", "out of range", pair(a6000), nil, driver("570.211.01", rm.Keys{rm.KeyForceP2PType: 5}), predict.No, rm.Mailbox},
		{"BAR1-CHIP", "Ampere has a stub", pair(a6000), nil, driver("610.43.02", bar1), predict.No, rm.Mailbox},
		{"BAR1-CHIP", "Hopper has it", pair(h100), nil, driver("580.142", bar1), predict.Yes, rm.Mailbox}, // BAR1 is too small
		{"BAR1-DEFAULT", "Blackwell, automatic", pair(0x2bb1), nil, driver("610.43.02", rm.Keys{rm.KeyPCIeP2PType: 2}), predict.Yes, rm.Mailbox},
		{"BAR1-DEFAULT", "Hopper, automatic", pair(h100), nil, driver("610.43.02", rm.Keys{rm.KeyPCIeP2PType: 2}), predict.No, rm.Mailbox},
		{"STATIC", "off by default in 575", pair(h100), nil, driver("575.64.05", bar1), predict.No, rm.Mailbox},
		{"STATIC", "off by key", pair(h100), nil, driver("580.142", rm.Keys{rm.KeyPCIeP2PType: 1, predict.KeyForceStaticBAR1: 0}), predict.No, rm.Mailbox},
		{"STATIC", "confidential computing", pair(h100), nvml(func(g *facts.NVMLGPU) {
			g.Memory, g.BAR1, g.Protected = 8*gib, 64*gib, &protected
		}), driver("580.142", bar1), predict.No, rm.Mailbox},
		{"STATIC", "memory as NVML tells it", pair(h100), nvml(func(g *facts.NVMLGPU) { g.Memory, g.BAR1 = 80*gib, 128*gib }), driver("580.142", bar1), predict.Yes, rm.BAR1},
		{"STATIC", "no room for a console", pair(h100), nvml(func(g *facts.NVMLGPU) { g.Memory, g.BAR1 = 80*gib, 80*gib }), driver("580.142", bar1), predict.Unknown, rm.BAR1},
		{"STATIC", "too small, fixed", machine(rome, 0x790e, gpu(rtx4090, gib/4), gpu(rtx4090, 32*gib)), nil, chosen(t, "580.142"), predict.No, rm.NoPath},
		{"STATIC", "too small, resizable", machine(rome, 0x790e, fixture.GeForce(rtx5090, gib/4, 32*gib), fixture.GeForce(rtx5090, 32*gib, 32*gib)), nil, chosen(t, "580.142"), predict.Unknown, rm.BAR1},
		{"STATIC", "too small at its largest", machine(rome, 0x790e, fixture.GeForce(rtx5090, gib/4, 16*gib), fixture.GeForce(rtx5090, 32*gib, 32*gib)), nil, chosen(t, "580.142"), predict.No, rm.NoPath},
		{"STATIC", "no address", machine(rome, 0x790e, gpu(rtx4090, 32*gib), gpu(rtx4090, 32*gib)), func(f *facts.Facts) {
			f.GPUs()[1].Resources = nil
		}, chosen(t, "580.142"), predict.No, rm.NoPath},
		{"HOST", "Zen 2", pair(h100), nvml(func(g *facts.NVMLGPU) { g.Memory, g.BAR1 = 80*gib, 128*gib }), driver("550.163.01", rm.Keys{rm.KeyForceP2PType: 2}), predict.Yes, rm.BAR1},
		{"HOST", "Sapphire Rapids", machine(sapphire, 0x1b81, gpu(h100, 128*gib), gpu(h100, 128*gib)), nil, driver("580.142", bar1), predict.Yes, rm.BAR1},
		{"HOST", "not read", pair(h100), func(f *facts.Facts) {
			f.CPU = facts.CPU{}
			nvml(func(g *facts.NVMLGPU) { g.Memory, g.BAR1 = 80*gib, 128*gib })(f)
		}, driver("580.142", bar1), predict.Unknown, rm.Mailbox},
		{"MAILBOX", "stands in as published", pair(rtx4090), nil, driver("580.142", rm.Keys{rm.KeyForceP2P: 0x11, rm.KeyPCIeP2PType: 1}), predict.Yes, rm.Mailbox},
		{"MAILBOX", "must not with the edits", pair(h100), nil, predict.Driver{
			Release: "580.142", Edited: true, Keys: rm.Keys{rm.KeyForceP2P: 0x11, rm.KeyPCIeP2PType: 1, predict.KeyForceStaticBAR1: 0},
		}, predict.No, rm.NoPath},
	} {
		t.Run(tc.gate+" "+tc.name, func(t *testing.T) {
			f := gather(t, tc.machine)
			if tc.change != nil {
				tc.change(f)
			}
			ps := predict.Pairs(f, tc.driver)
			require.Len(t, ps, 2)
			for _, p := range ps {
				var got predict.Verdict
				for _, a := range append(p.Gates, p.Checks...) {
					if a.ID == tc.gate {
						got = a.Verdict
						assert.NotEmpty(t, a.Reason)
					}
				}
				assert.Equal(t, tc.want, got)
				assert.Equal(t, tc.path, p.Path, p.String())
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	f := gather(t, machine(emerald, 0x1b81, gpu(h100, 128*gib), gpu(h100, 128*gib)))
	for _, tc := range []struct {
		name        string
		driver      predict.Driver
		read, write rm.P2PStatus
	}{
		{"writes only on 535", predict.Driver{Release: "535.261.03", Keys: rm.Keys{rm.KeyForceP2PType: 2}}, rm.P2PUnsupported, rm.P2POK},
		{"reads only by key", predict.Driver{Release: "580.142", Keys: rm.Keys{rm.KeyForceP2P: 1}}, rm.P2POK, rm.Disabled},
		{"off by key", predict.Driver{Release: "580.142", Keys: rm.Keys{rm.KeyForceP2P: 0x20}}, rm.Disabled, rm.P2PUnsupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := predict.Pairs(f, tc.driver)[0]
			assert.Equal(t, [2]rm.P2PStatus{tc.read, tc.write}, [2]rm.P2PStatus{p.Read, p.Write}, p.String())
		})
	}
}

func TestReleaseNotKnown(t *testing.T) {
	f := gather(t, machine(rome, 0x790e, gpu(a6000, 64*gib), gpu(a6000, 64*gib)))
	for _, release := range []string{"", "abc", "525.60.13"} {
		p := predict.Pairs(f, predict.Driver{Release: release})[0]
		assert.Equal(t, predict.UnknownPath, p.Path, release)
		assert.NotEmpty(t, p.If)
	}
	p := predict.Pairs(f, predict.Driver{Release: "999.1"})[0]
	assert.Equal(t, rm.Mailbox, p.Path)
	assert.Contains(t, p.Notes[0], "newer than the rules")
}

// Every gate that a step leads to must be there, and hold where the step is
// taken; what refuses must say what opens it.
func TestGatesAreWhole(t *testing.T) {
	ids := map[string]predict.Gate{}
	for _, g := range predict.Gates() {
		assert.NotContains(t, ids, g.ID)
		ids[g.ID] = g
		assert.NotEmpty(t, g.Question, g.ID)
		assert.NotEmpty(t, g.Source, g.ID)
		assert.NotEmpty(t, g.Releases, g.ID)
	}
	for _, g := range ids {
		for _, s := range []predict.Step{g.Yes, g.No} {
			if s.GoTo != "" {
				assert.Contains(t, ids, s.GoTo, g.ID)
			}
		}
		if g.Refuses && g.ID != "MAILBOX" { // refuses only after another has
			assert.NotEmpty(t, g.Opens, g.ID)
		}
	}
	_, err := json.Marshal(predict.Gates())
	require.NoError(t, err)
}

// The driver answers alike for both directions.
func TestBothDirections(t *testing.T) {
	f := gather(t, fixture.Crowd())
	ps := predict.Pairs(f, chosen(t, "580.142"))
	gpus := f.GPUs()
	require.Len(t, ps, len(gpus)*(len(gpus)-1))
	i := 0
	for _, a := range gpus {
		for _, b := range gpus {
			if a != b {
				assert.Equal(t, [2]string{a.Address, b.Address}, [2]string{ps[i].A, ps[i].B})
				assert.Equal(t, rm.BAR1, ps[i].Path)
				i++
			}
		}
	}
}

func TestCompare(t *testing.T) {
	predictions := []predict.Prediction{
		{A: "a", B: "b", Path: rm.BAR1, Possible: []rm.Path{rm.BAR1, rm.NoPath}, If: []string{"there is room"}},
		{A: "b", B: "a", Path: rm.BAR1, Possible: []rm.Path{rm.BAR1, rm.NoPath}},
		{A: "a", B: "c", Path: rm.BAR1, Possible: []rm.Path{rm.BAR1}},
		{A: "c", B: "a", Path: rm.BAR1, Possible: []rm.Path{rm.BAR1}},
		{A: "b", B: "c", Path: predict.UnknownPath, Possible: []rm.Path{predict.UnknownPath}},
		{A: "c", B: "b", Path: rm.BAR1, Possible: []rm.Path{rm.BAR1}},
	}
	survey := &rm.Survey{Pairs: []rm.Pair{
		{A: "a", B: "b", Path: rm.BAR1},
		{A: "b", B: "a", Path: rm.NoPath},  // left possible
		{A: "a", B: "c", Path: rm.Mailbox}, // not
		{A: "c", B: "a", Error: "not started"},
		{A: "b", B: "c", Path: rm.BAR1},
	}}
	mismatches, compared := predict.Compare(predictions, survey)
	assert.Equal(t, 3, compared)
	require.Len(t, mismatches, 1)
	assert.Equal(t, "a to c: predicted bar1, granted mailbox (read OK, write OK)", mismatches[0].String())

	mismatches, compared = predict.Compare(predictions, nil)
	assert.Empty(t, mismatches)
	assert.Zero(t, compared)
}

func TestLoaded(t *testing.T) {
	d, err := predict.Loaded("580.142", true, []loadopt.Option{
		{Name: "NVreg_EnableResizableBar", Value: "1"}, {Name: "NVreg_RmMsg", Value: "x"}, {Name: "ForceP2P", Value: "0x211", Key: true},
	})
	require.NoError(t, err)
	assert.Equal(t, predict.Driver{Release: "580.142", Edited: true, Keys: rm.Keys{"ForceP2P": 0x211}, Resize: true}, d)
	_, err = predict.Loaded("580.142", false, []loadopt.Option{{Name: "ForceP2P", Value: "on", Key: true}})
	require.ErrorContains(t, err, "registry key ForceP2P")
}
