package predict_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/loadopt"
)

// releases are one of each stretch between which a gate changes.
var releases = []string{"535.261.03", "545.29.06", "560.35.03", "570.211.01", "575.64.05", "580.142", "590.48.01", "610.43.02"}

// gathered holds the facts of machines as documents: their trees are many small
// files, and tests change what they load.
var gathered = map[string][]byte{}

func gather(t testing.TB, m fixture.Machine) *facts.Facts {
	t.Helper()
	key, err := json.Marshal(m)
	require.NoError(t, err)
	if gathered[string(key)] == nil {
		root := t.TempDir()
		require.NoError(t, m.Write(root))
		f, err := facts.Gather(root, facts.Options{KernelLog: strings.NewReader("")})
		require.NoError(t, err)
		var doc bytes.Buffer
		require.NoError(t, f.Save(&doc))
		gathered[string(key)] = doc.Bytes()
	}
	f, err := facts.Load(bytes.NewReader(gathered[string(key)]))
	require.NoError(t, err)
	return f
}

// chosen returns an edited driver of a release loaded with what mkp2pimg would
// choose.
func chosen(t testing.TB, release string) predict.Driver {
	t.Helper()
	c := catalog.Load()
	offer, err := c.Offer(&catalog.Release{Version: release})
	require.NoError(t, err)
	d, err := predict.Loaded(release, true, loadopt.Choose(offer, true, nil).Options)
	require.NoError(t, err)
	return d
}

// TestKinds shows what happens on each kind of machine with the driver as
// published, and as this program builds and loads it.
func TestKinds(t *testing.T) {
	for _, k := range fixture.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, k.Write(root))
			f, err := facts.Gather(root, facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
			require.NoError(t, err)
			if len(f.GPUs()) < 2 {
				assert.Empty(t, predict.Pairs(f, predict.Driver{Release: "580.142"}))
				return
			}
			var b strings.Builder
			fmt.Fprintf(&b, "# %s\n", k.About)
			for _, release := range []string{"535.261.03", "580.142", "610.43.02"} {
				for _, edited := range []bool{false, true} {
					fmt.Fprintf(&b, "\n%s %s\n", release, map[bool]string{false: "as published", true: "edited, with options"}[edited])
					d := predict.Driver{Release: release}
					if edited {
						d = chosen(t, release)
					}
					require.NoError(t, predict.WriteText(&b, predict.Pairs(f, d)))
				}
			}
			golden.Equal(t, "testdata/"+k.Name+".txt", b.String())
		})
	}
}

var (
	ryzen    = fixture.CPU{Vendor: "AuthenticAMD", Family: 25, Model: 97, Name: "AMD Ryzen 9 7950X"}
	rome     = fixture.CPU{Vendor: "AuthenticAMD", Family: 23, Model: 49, Name: "AMD EPYC 7302"}
	sapphire = fixture.CPU{Vendor: "GenuineIntel", Family: 6, Model: 143, Name: "Intel Xeon w7"}
	emerald  = fixture.CPU{Vendor: "GenuineIntel", Family: 6, Model: 207, Name: "Intel Xeon Gold 6530"}
)

// machine returns two GPUs on root ports, with a bridge to the low pin count
// bus by which the driver knows the chipset.
func machine(cpu fixture.CPU, lpc uint16, a, b fixture.Function) fixture.Machine {
	vendor := uint16(0x8086)
	if cpu.Vendor == "AuthenticAMD" {
		vendor = 0x1022
	}
	isa := fixture.Function{Slot: "1f.0", Vendor: vendor, Device: lpc, Class: 0x060100, Conventional: true}
	return fixture.Machine{CPU: cpu, Hosts: []fixture.Host{{Node: -1, Functions: []fixture.Function{
		fixture.RootPort("01.1", nil, a), fixture.RootPort("01.3", nil, b), isa,
	}}}}
}

const (
	a6000   = 0x2230
	rtx4090 = 0x2684
	rtx5090 = 0x2b85
	h100    = 0x2331
	gib     = fixture.GiB
)

func gpu(id uint16, bar1 uint64) fixture.Function { return fixture.GeForce(id, bar1, 0) }

// bar1Keys are the registry keys that ask for BAR1 and answer for the tables.
func bar1Keys(release string) rm.Keys {
	if release < "575" {
		return rm.Keys{rm.KeyForceP2P: 0x211, rm.KeyForceP2PType: 2}
	}
	return rm.Keys{rm.KeyForceP2P: 0x211, rm.KeyPCIeP2PType: 1, predict.KeyForceStaticBAR1: 1}
}

// TestReleases follows one pair through the releases.
func TestReleases(t *testing.T) {
	for _, tc := range []struct {
		name    string
		machine fixture.Machine
		edited  bool
		keys    func(release string) rm.Keys
		want    map[string]string // by release: path, first refusing gate, works
	}{
		{
			name: "4090 as published", machine: machine(ryzen, 0x790e, gpu(rtx4090, 64*gib), gpu(rtx4090, 64*gib)),
			want: all("none GPU "),
		},
		{
			name: "4090 as published with keys", machine: machine(ryzen, 0x790e, gpu(rtx4090, 64*gib), gpu(rtx4090, 64*gib)),
			keys: bar1Keys,
			want: map[string]string{
				// The mailbox that stands in: not set up once BAR1 is chosen,
				// and denied to the model anyway.
				"535.261.03": "mailbox BAR1-CHIP no",
				// ForceP2P is heeded before anyone looks.
				"545.29.06": "bar1  no", "560.35.03": "bar1  no", "570.211.01": "bar1  no",
				"575.64.05": "mailbox BAR1-CHIP no", "580.142": "mailbox BAR1-CHIP no",
				"590.48.01": "mailbox BAR1-CHIP no", "610.43.02": "mailbox BAR1-CHIP no",
			},
		},
		{
			name: "4090 edited with keys", machine: machine(ryzen, 0x790e, gpu(rtx4090, 64*gib), gpu(rtx4090, 64*gib)),
			edited: true, keys: bar1Keys, want: all("bar1  yes"),
		},
		{
			name: "4090 edited with keys, small BAR1", machine: machine(ryzen, 0x790e, gpu(rtx4090, gib/4), gpu(rtx4090, 64*gib)),
			edited: true, keys: bar1Keys, want: all("none STATIC "),
		},
		{
			name: "5090 as published with keys", machine: machine(emerald, 0x1b81, gpu(rtx5090, 64*gib), gpu(rtx5090, 64*gib)),
			keys: bar1Keys,
			want: map[string]string{
				"535.261.03": "none KNOWN ", "545.29.06": "none KNOWN ", "560.35.03": "none KNOWN ",
				"570.211.01": "bar1  no", // page table entries
				"575.64.05":  "bar1  no",
				"580.142":    "bar1  yes", "590.48.01": "bar1  yes", "610.43.02": "bar1  yes",
			},
		},
		{
			name: "H100 PCIe as published with a key, Ryzen", machine: machine(ryzen, 0x790e, gpu(h100, 128*gib), gpu(h100, 128*gib)),
			keys: func(release string) rm.Keys {
				k := bar1Keys(release)
				delete(k, rm.KeyForceP2P)
				return k
			},
			want: map[string]string{
				"535.261.03": "bar1  no", "545.29.06": "bar1  no", "560.35.03": "bar1  no", "570.211.01": "bar1  no", "575.64.05": "bar1  no",
				"580.142": "bar1  yes", "590.48.01": "bar1  yes", "610.43.02": "bar1  yes",
			},
		},
		{
			name: "H100 PCIe as published with a key, Emerald Rapids", machine: machine(emerald, 0x1b81, gpu(h100, 128*gib), gpu(h100, 128*gib)),
			keys: func(release string) rm.Keys {
				k := bar1Keys(release)
				delete(k, rm.KeyForceP2P)
				return k
			},
			want: map[string]string{
				"535.261.03": "bar1  no", // writes only are enough
				"545.29.06":  "mailbox HOST unknown", "560.35.03": "mailbox HOST unknown",
				"570.211.01": "mailbox HOST no", "575.64.05": "mailbox HOST no", "580.142": "mailbox HOST no",
				"590.48.01": "mailbox HOST no", "610.43.02": "mailbox HOST no",
			},
		},
		{
			name: "A6000 as published", machine: machine(rome, 0x790e, gpu(a6000, 64*gib), gpu(a6000, 64*gib)),
			want: all("mailbox BAR1-KEY yes"),
		},
		{
			name: "A6000 on Arrow Lake", machine: machine(emerald, 0x7d06, gpu(a6000, 64*gib), gpu(a6000, 64*gib)),
			want: all("none CHIPSET "),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := gather(t, tc.machine)
			for _, release := range releases {
				d := predict.Driver{Release: release, Edited: tc.edited}
				if tc.keys != nil {
					d.Keys = tc.keys(release)
				}
				for _, p := range predict.Pairs(f, d) {
					gate := ""
					if p.Gate != nil {
						gate = p.Gate.ID
					}
					assert.Equal(t, tc.want[release], fmt.Sprintf("%s %s %s", p.Path, gate, p.Works), "%s %s to %s", release, p.A, p.B)
				}
			}
		})
	}
}

// all expects the same of all releases.
func all(want string) map[string]string {
	m := map[string]string{}
	for _, r := range releases {
		m[r] = want
	}
	return m
}

func BenchmarkPairs(b *testing.B) {
	f := gather(b, fixture.Crowd())
	d := chosen(b, "580.142")
	for b.Loop() {
		predict.Pairs(f, d)
	}
}
