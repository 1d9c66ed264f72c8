package checks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/rm"
)

// ported returns two GPUs below root ports whose functions have a PCI Express
// capability; change may adjust each function.
func ported(change func(d *facts.Device)) *facts.Facts {
	f := two("", "-", "-")
	var ports []facts.Device
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Device, d.NUMANode, d.Root = 0x2684, -1, "pci0000:00"
		port := facts.Device{Address: "0000:00:0" + string(rune('1'+i)) + ".0", Vendor: 0x8086, Class: 0x060400, Root: d.Root, NUMANode: -1}
		d.Path = []string{port.Address}
		d.Address = "0000:0" + string(rune('1'+i)) + ":00.0"
		ports = append(ports, port)
	}
	f.Devices = append(ports, f.Devices...)
	for i := range f.Devices {
		d := &f.Devices[i]
		typ := pcicfg.RootPort
		if d.GPU {
			typ = pcicfg.LegacyEndpoint
		}
		d.Config = &pcicfg.Config{Length: pcicfg.ExtendedSize, ExtendedRead: true, Express: &pcicfg.Express{
			Version: 2, Port: typ, MaxPayload: 256, MaxPayloadSupported: 256,
			Link: &pcicfg.Link{MaxSpeed: 4, Speed: 4, MaxWidth: 16, Width: 16},
		}}
		change(d)
	}
	return f
}

func statuses(found []Finding) []Status {
	var out []Status
	for _, f := range found {
		out = append(out, f.Status)
	}
	return out
}

func TestLinkWidth(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(d *facts.Device)
		want   []Status
	}{
		"whole":                  {func(*facts.Device) {}, []Status{Pass}},
		"lost lanes":             {func(d *facts.Device) { d.Config.Express.Link.Width = 8 }, []Status{Warn}},
		"a slot of eight lanes":  {port(func(l *pcicfg.Link) { l.MaxWidth, l.Width = 8, 8 }), []Status{Pass}},
		"a slot of four lanes":   {port(func(l *pcicfg.Link) { l.MaxWidth, l.Width = 4, 4 }), []Status{Warn}},
		"no configuration space": {func(d *facts.Device) { d.Config = nil }, []Status{Unknown}},
		"sysfs in its place":     {func(d *facts.Device) { d.Config, d.LinkWidth, d.MaxLinkWidth = nil, "8", "16" }, []Status{Warn}},
		"conventional functions": {func(d *facts.Device) { d.Config.Express = nil }, []Status{Skip}},
		"a link that is down":    {func(d *facts.Device) { d.Config.Express.Link.Width = 0 }, []Status{Unknown}},
		"one narrow, one not known": {func(d *facts.Device) {
			if d.Address == "0000:01:00.0" {
				d.Config.Express.Link.Width = 1
			}
			if d.Address == "0000:02:00.0" || d.Address == "0000:00:02.0" {
				d.Config = nil
			}
		}, []Status{Warn, Unknown}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, statuses(linkWidth(ported(tc.change)))) })
	}
}

// port changes the links of ports only, and trains the GPUs below alike.
func port(change func(l *pcicfg.Link)) func(d *facts.Device) {
	return func(d *facts.Device) {
		l := d.Config.Express.Link
		if d.GPU {
			most := l.MaxWidth
			change(l)
			l.MaxWidth = most
			return
		}
		change(l)
	}
}

func TestLinkSpeed(t *testing.T) {
	slow := func(d *facts.Device) { d.Config.Express.Link.Speed = 1 }
	found := linkSpeed(ported(slow))
	require.Len(t, found, 1)
	assert.Equal(t, Pass, found[0].Status, "idle GPUs")

	held := linkSpeed(ported(func(d *facts.Device) {
		slow(d)
		d.Config.Express.Link2 = &pcicfg.Link2{TargetSpeed: 1}
	}))
	require.Len(t, held, 1)
	assert.Equal(t, Warn, held[0].Status)
	assert.Contains(t, held[0].Fix, "Auto")
}

func TestLinkErrors(t *testing.T) {
	counts := func(kinds map[string]uint64) *facts.AERCounters {
		c := &facts.AERCounters{Correctable: facts.AERCounter{Kinds: kinds}}
		for _, n := range kinds {
			c.Correctable.Total += n
		}
		return c
	}
	for name, tc := range map[string]struct {
		change func(d *facts.Device)
		want   Status
	}{
		"no errors":                      {func(d *facts.Device) { d.AER = counts(nil) }, Pass},
		"a few":                          {func(d *facts.Device) { d.AER = counts(map[string]uint64{"BadTLP": manyErrors - 1}) }, Pass},
		"many":                           {func(d *facts.Device) { d.AER = counts(map[string]uint64{"BadTLP": manyErrors}) }, Warn},
		"many that say nothing of links": {func(d *facts.Device) { d.AER = counts(map[string]uint64{"NonFatalErr": 10 * manyErrors}) }, Pass},
		"uncorrected":                    {func(d *facts.Device) { d.AER = &facts.AERCounters{Fatal: facts.AERCounter{Total: 1}} }, Warn},
		"status register": {func(d *facts.Device) {
			d.Config.AER = &pcicfg.AER{UncorrectableStatus: pcicfg.UncorrectableACSViolation}
		}, Warn},
		"left from a scan of the bus": {func(d *facts.Device) {
			d.Config.AER = &pcicfg.AER{UncorrectableStatus: pcicfg.UncorrectableUnsupportedRequest}
		}, Pass},
		"nothing reports": {func(*facts.Device) {}, Skip},
		"not read":        {func(d *facts.Device) { d.Config.ExtendedRead = false }, Unknown},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, []Status{tc.want}, statuses(linkErrors(ported(tc.change)))) })
	}
}

func TestMaxPayload(t *testing.T) {
	at := func(address string, size int) func(d *facts.Device) {
		return func(d *facts.Device) {
			if d.Address == address {
				d.Config.Express.MaxPayload = size
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(d *facts.Device)
		want   Status
	}{
		"alike":                       {func(*facts.Device) {}, Pass},
		"a port takes less":           {at("0000:00:01.0", 128), Fail},
		"a port sends more":           {at("0000:00:01.0", 512), Fail},
		"a side of its own":           {func(d *facts.Device) { at("0000:00:01.0", 128)(d); at("0000:01:00.0", 128)(d) }, Warn},
		"configuration space unknown": {func(d *facts.Device) { d.Config = nil }, Unknown},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, []Status{tc.want}, statuses(maxPayload(ported(tc.change)))) })
	}
}

// What the driver granted is held against the prediction.
func TestPredictionOfLoadedDriver(t *testing.T) {
	f := ported(func(*facts.Device) {})
	f.CPU.Vendor = "GenuineIntel"
	pair := func(path rm.Path) rm.Pair { return rm.Pair{A: "0000:01:00.0", B: "0000:02:00.0", Path: path} }
	f.NVIDIA = &facts.NVIDIA{Release: "580.142", Survey: &rm.Survey{Driver: "580.142", Pairs: []rm.Pair{pair(rm.NoPath)}}}
	found := prediction(f)
	require.Len(t, found, 1)
	assert.NotContains(t, found[0].Title, "not foretold")

	// A chip with a stub in the published driver has BAR1 with the edits only.
	for i := range f.Devices {
		f.Devices[i].Resources = []facts.Resource{{Index: 1, Start: 0x38000000000, End: 0x387ffffffff, Flags: 0x14220c}}
	}
	f.NVIDIA.Survey.Pairs = []rm.Pair{pair(rm.BAR1)}
	found = prediction(f)
	require.Len(t, found, 1)
	assert.Equal(t, Pass, found[0].Status)
	assert.Contains(t, found[0].Meaning, "it has them")

	f.NVIDIA.Survey.Pairs = []rm.Pair{pair(rm.C2C)}
	found = prediction(f)
	require.Len(t, found, 1)
	assert.Equal(t, Warn, found[0].Status)
	assert.Contains(t, found[0].Title, "not foretold")

	f.NVIDIA = &facts.NVIDIA{Release: "470.256.02"}
	found = prediction(f)
	require.Len(t, found, 1)
	assert.Equal(t, Unknown, found[0].Status)
}

// No status of a finding for information changes the verdict.
func TestWeightless(t *testing.T) {
	some := 0
	for _, doc := range Docs() {
		if !doc.Weightless {
			continue
		}
		some++
		for _, s := range []Status{Warn, Fail, Unknown} {
			v, _ := Judge([]Finding{{ID: IOMMU, Status: Pass}, {ID: doc.ID, Status: s}})
			assert.Equal(t, VerdictReady, v, "%s %s", doc.ID, s)
		}
	}
	assert.Positive(t, some)
}

// With more logical CPUs than interrupts can name, the IOMMU has to stay on.
func TestIOMMUFixOfManyCPUs(t *testing.T) {
	f := two("", "DMA", "DMA")
	f.CPU.Logical = 384
	fix := iommuFix(f)
	assert.Contains(t, fix, "iommu=pt")
	assert.NotContains(t, fix, "iommu=off")
}
