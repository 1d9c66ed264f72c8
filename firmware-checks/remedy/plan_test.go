package remedy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/remedy"
)

const (
	gib       = fixture.GiB
	aGPU      = 0x2684
	withDT    = fixture.KernelACS | pcicfg.DirectTranslated
	allOnPort = pcicfg.SourceValidation | pcicfg.Redirecting | pcicfg.DirectTranslated
)

func gpu() fixture.Function { return fixture.GeForce(aGPU, 32*gib, 32*gib) }

// gather writes a machine and gathers its facts.
func gather(t *testing.T, m fixture.Machine) (root string, f *facts.Facts) {
	t.Helper()
	root = t.TempDir()
	require.NoError(t, m.Write(root))
	f, err := facts.Gather(root, facts.Options{KernelLog: strings.NewReader("")})
	require.NoError(t, err)
	return root, f
}

// behindSwitch puts GPUs behind a switch with this access control.
func behindSwitch(acs *pcicfg.ACS, gpus ...fixture.Function) fixture.Machine {
	return fixture.Machine{Hosts: []fixture.Host{{Functions: []fixture.Function{
		fixture.RootPort("01.1", fixture.ACS(fixture.KernelACS), fixture.Switch(acs, gpus...)),
	}}}}
}

// onRoot puts GPUs below root ports with this access control.
func onRoot(acs *pcicfg.ACS, gpus ...fixture.Function) fixture.Machine {
	var h fixture.Host
	for i, g := range gpus {
		h.Functions = append(h.Functions, fixture.RootPort(fmt.Sprintf("01.%d", i+1), acs, g))
	}
	return fixture.Machine{Hosts: []fixture.Host{h}}
}

func driven(by string, fn fixture.Function) fixture.Function {
	fn.Driver = by
	return fn
}

// lines writes a plan as lines.
func lines(p remedy.Plan) []string {
	out := []string{}
	for _, port := range p.Ports {
		out = append(out, port.String())
	}
	return out
}

func TestPlan(t *testing.T) {
	enhanced := fixture.ACS(withDT)
	enhanced.Enhanced = &pcicfg.ACSEnhanced{UnclaimedRedirect: true}
	egress := &pcicfg.ACS{Capable: allOnPort, Control: allOnPort, EgressBits: 8, Egress: []int{2}}
	ats := gpu()
	ats.ATS = true
	tests := map[string]struct {
		machine fixture.Machine
		opt     remedy.Options
		want    []string
	}{
		"no GPU":  {machine: fixture.Machine{}, want: []string{}},
		"one GPU": {machine: behindSwitch(fixture.ACS(fixture.KernelACS), gpu()), want: []string{}},
		"the root port above the switch is on no path": {
			machine: behindSwitch(fixture.ACS(fixture.KernelACS), gpu(), gpu()),
			want: []string{
				"0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
				"0000:02:04.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
			}},
		"DT and the bits of ACS Enhanced Capability stay": {
			machine: behindSwitch(enhanced, ats, gpu()),
			want: []string{
				"0000:02:00.0 switch downstream port: 0x105d (SV RR CR UF DT) -> 0x1051 (SV UF DT)",
				"0000:02:04.0 switch downstream port: 0x105d (SV RR CR UF DT) -> 0x1051 (SV UF DT)",
			}},
		"egress control goes with the redirect": {
			machine: behindSwitch(egress, gpu(), gpu()),
			want: []string{
				"0000:02:00.0 switch downstream port: 0x006d (SV RR CR EC DT) -> 0x0041 (SV DT)",
				"0000:02:04.0 switch downstream port: 0x006d (SV RR CR EC DT) -> 0x0041 (SV DT)",
			}},
		"root ports": {
			machine: onRoot(fixture.ACS(fixture.KernelACS), gpu(), gpu()),
			want: []string{
				"0000:00:01.1 root port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
				"0000:00:01.2 root port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
			}},
		"nothing redirects": {
			machine: onRoot(fixture.ACS(pcicfg.SourceValidation|pcicfg.UpstreamForwarding), gpu(), gpu()),
			want:    []string{"0000:00:01.1 root port: 0x0011 (SV UF) left, it does not redirect", "0000:00:01.2 root port: 0x0011 (SV UF) left, it does not redirect"}},
		"no ACS": {
			machine: onRoot(nil, gpu(), gpu()),
			want:    []string{"0000:00:01.1 root port: left, it has no ACS", "0000:00:01.2 root port: left, it has no ACS"}},
		"one pair": {
			machine: behindSwitch(fixture.ACS(fixture.KernelACS), gpu(), gpu(), gpu()),
			opt:     remedy.Options{Pairs: [][2]string{{"0000:05:00.0", "0000:03:00.0"}}},
			want: []string{
				"0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
				"0000:02:08.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
			}},
		"a virtual machine is kept apart": {
			machine: behindSwitch(fixture.ACS(fixture.KernelACS), gpu(), driven("vfio-pci", gpu())),
			want: []string{
				"0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
				"0000:02:04.0 switch downstream port: 0x001d (SV RR CR UF) left, 0000:04:00.0 below it is given to a virtual machine, which the redirect isolates",
			}},
		"unless that is wanted": {
			machine: behindSwitch(fixture.ACS(fixture.KernelACS), driven("vfio-pci", gpu()), driven("vfio-pci", gpu())),
			opt:     remedy.Options{Isolated: true},
			want: []string{
				"0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
				"0000:02:04.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)",
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, f := gather(t, tt.machine)
			plan, err := remedy.NewPlan(f, tt.opt)
			require.NoError(t, err)
			assert.Equal(t, tt.want, lines(plan))
			for _, p := range plan.Changes() {
				assert.Zero(t, p.After.Bits()&pcicfg.Redirecting)
				assert.Equal(t, p.Before&^remedy.Word(pcicfg.Redirecting), p.After, "nothing but the redirect is cleared")
			}
		})
	}
}

func TestPlanOfWhatCannotBeRead(t *testing.T) {
	for _, k := range fixture.Kinds() {
		if k.Name != "unprivileged" {
			continue
		}
		_, f := gather(t, k.Machine)
		plan, err := remedy.NewPlan(f, remedy.Options{})
		require.NoError(t, err)
		assert.Len(t, plan.Ports, 2)
		assert.Empty(t, plan.Changes())
		assert.True(t, plan.Unread())
		for _, p := range plan.Ports {
			assert.Equal(t, "its configuration space could not be read", p.Left)
		}
		return
	}
	t.Fatal("no such machine")
}

func TestPlanOfAPortThatIsGone(t *testing.T) {
	_, f := gather(t, behindSwitch(fixture.ACS(fixture.KernelACS), gpu(), gpu()))
	f.Devices = slices.DeleteFunc(f.Devices, func(d facts.Device) bool { return d.Address == "0000:02:04.0" })
	plan, err := remedy.NewPlan(f, remedy.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)", "0000:02:04.0: left, it is gone from the bus"}, lines(plan))
}

func TestPairsThatAreNone(t *testing.T) {
	_, f := gather(t, behindSwitch(fixture.ACS(0), gpu(), gpu()))
	for want, pair := range map[string][2]string{
		"0000:02:00.0 is no GPU of this machine: it has 0000:03:00.0, 0000:04:00.0": {"0000:03:00.0", "0000:02:00.0"},
		"0000:99:00.0 is no GPU of this machine: it has 0000:03:00.0, 0000:04:00.0": {"0000:99:00.0", "0000:03:00.0"},
		"a pair has two GPUs, and both are 0000:03:00.0":                            {"0000:03:00.0", "0000:03:00.0"},
	} {
		_, err := remedy.NewPlan(f, remedy.Options{Pairs: [][2]string{pair}})
		assert.EqualError(t, err, want)
	}
}
