package loadopt

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const gib = 1 << 30

func gpu(address string, bar1, memory uint64) GPU {
	return GPU{Address: address, BAR1: bar1, Memory: memory, Patch: true}
}

// brief lists settings as "name=value", keys in brackets.
func brief(options []Option) string {
	var list []string
	for _, o := range options {
		s := o.Name + "=" + o.Value
		if o.Key {
			s = "[" + s + "]"
		}
		list = append(list, s)
	}
	return strings.Join(list, " ")
}

func TestChoose(t *testing.T) {
	a2 := Offer{BAR1: Joint, Static: StaticAsked}
	b := Offer{BAR1: Separate, Static: StaticOff}
	c := Offer{BAR1: Separate, Static: StaticAuto}
	roomy := gpu("01:00.0", 32*gib, 24*gib)
	native := GPU{Address: "02:00.0", BAR1: 128 * gib, Memory: 96 * gib}
	headless := gpu("03:00.0", 32*gib, 32*gib)
	headless.Headless = true
	for name, test := range map[string]struct {
		offer     Offer
		unedited  bool
		gpus      []GPU
		set, left string
		why       string // in the reason of what is left out
	}{
		"nothing offered": {offer: Offer{}, gpus: []GPU{roomy}},
		"535": {
			offer: Offer{ResizableBAR: true, HoldsBack: true, ForceP2P: true, BAR1: Joint},
			gpus:  []GPU{roomy},
			set:   "NVreg_EnableResizableBar=1 NVreg_OpenRmEnableUnsupportedGpus=1 [ForceP2P=0x211] [RMForceP2PType=2]",
		},
		"570":          {offer: a2, gpus: []GPU{roomy}, set: "[RMForceP2PType=2]", left: "[RMForceStaticBar1=1]", why: "choosing BAR1 turns static BAR1 on"},
		"575, roomy":   {offer: b, gpus: []GPU{roomy}, set: "[RMPcieP2PType=1] [RMForceStaticBar1=1]"},
		"575, unknown": {offer: b, set: "[RMPcieP2PType=1] [RMForceStaticBar1=2]", left: "[RMForceStaticBar1=1]", why: "the machine's GPUs are not known"},
		"580, roomy":   {offer: c, gpus: []GPU{roomy, native}, set: "[RMPcieP2PType=1] [RMForceStaticBar1=1]"},
		"580, one too small": {
			offer: c, gpus: []GPU{roomy, gpu("04:00.0", gib/4, 11*gib)}, set: "[RMPcieP2PType=1]", left: "[RMForceStaticBar1=1]",
			why: "BAR1 of 04:00.0 has 256 MiB now, its memory may have 11264 MiB: forced, a GPU whose BAR1 can't hold its memory does not start; the driver's default",
		},
		"580, memory unknown":   {offer: c, gpus: []GPU{gpu("05:00.0", 32*gib, 0)}, set: "[RMPcieP2PType=1]", left: "[RMForceStaticBar1=1]", why: "the memory of 05:00.0 is not known"},
		"580, BAR1 unknown":     {offer: c, gpus: []GPU{gpu("05:00.0", 0, 24*gib)}, set: "[RMPcieP2PType=1]", left: "[RMForceStaticBar1=1]", why: "the size of BAR1 of 05:00.0 is not known"},
		"580, one byte short":   {offer: c, gpus: []GPU{gpu("05:00.0", 24*gib-1, 24*gib)}, set: "[RMPcieP2PType=1]", left: "[RMForceStaticBar1=1]", why: "24575 MiB now"},
		"580, console":          {offer: c, gpus: []GPU{gpu("05:00.0", 32*gib, 32*gib)}, set: "[RMPcieP2PType=1]", left: "[RMForceStaticBar1=1]", why: "no room for a console"},
		"580, room for console": {offer: c, gpus: []GPU{gpu("05:00.0", 32*gib, 32*gib-Padding)}, set: "[RMPcieP2PType=1] [RMForceStaticBar1=1]"},
		"580, no console":       {offer: c, gpus: []GPU{headless}, set: "[RMPcieP2PType=1] [RMForceStaticBar1=1]"},
		"unedited, needs it":    {offer: c, unedited: true, gpus: []GPU{native, roomy}, left: "[RMPcieP2PType=1]", why: "forced on 01:00.0 ends in a mailbox"},
		"unedited, native":      {offer: c, unedited: true, gpus: []GPU{native}, set: "[RMPcieP2PType=1] [RMForceStaticBar1=1]"},
		"unedited, unknown":     {offer: c, unedited: true, left: "[RMPcieP2PType=1]", why: "forced on GPUs that need the edits ends"},
		"unedited, the rest": {
			offer: Offer{ResizableBAR: true, ForceP2P: true, BAR1: Joint}, unedited: true,
			set: "NVreg_EnableResizableBar=1", left: "[ForceP2P=0x211] [RMForceP2PType=2]", why: "no P2P edits",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Choose(test.offer, !test.unedited, test.gpus)
			assert.Equal(t, test.set, brief(got.Options))
			assert.Equal(t, test.left, brief(got.Left))
			for _, o := range got.Options {
				assert.NotEmpty(t, o.Why, o.Name)
			}
			for _, o := range got.Left {
				assert.Contains(t, o.Why, test.why)
			}
		})
	}
}

// TestModuleParametersAreNoKeys: inside NVreg_RegistryDwords the driver would not see them.
func TestModuleParametersAreNoKeys(t *testing.T) {
	all := Offer{ResizableBAR: true, HoldsBack: true, Messages: true, ForceP2P: true, BAR1: Separate, Static: StaticAuto}
	for _, o := range Choose(all, true, []GPU{gpu("01:00.0", 32*gib, 24*gib)}).Options {
		assert.Equal(t, !strings.HasPrefix(o.Name, "NVreg_"), o.Key, o.Name)
	}
}

func TestMessagesFitTheDriver(t *testing.T) {
	c := Choose(Offer{Messages: true}, true, nil)
	require.Len(t, c.Options, 1)
	value := c.Options[0].Value
	assert.Less(t, len(value), 512, "NV0000_CTRL_SYSTEM_DEBUG_RMMSG_SIZE")
	assert.NotContains(t, value, " ", "the kernel and modprobe would split it")
	assert.NotRegexp(t, `[!:@^-]`, value, "characters with a meaning to the driver")
}

func TestFormat(t *testing.T) {
	c := Choice{
		Options: []Option{
			{"ForceP2P", "0x211", true, "allows peers"},
			{"NVreg_EnableResizableBar", "1", false, "grows BAR1"},
			{"NVreg_RmMsg", "a,b", false, "logs"},
			{"RMPcieP2PType", "1", true, "chooses BAR1"},
		},
		Left: []Option{{"RMForceStaticBar1", "1", true, "too small"}},
	}
	const args = `NVreg_EnableResizableBar=1 NVreg_RmMsg=a,b NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=1"`
	assert.Equal(t, args, Arguments(c.Options))
	assert.Equal(t, "options nvidia "+args+"\n", Modprobe(c.Options))
	assert.Equal(t, []string{
		"# ForceP2P: allows peers",
		"# NVreg_EnableResizableBar: grows BAR1",
		"# NVreg_RmMsg: logs",
		"# RMPcieP2PType: chooses BAR1",
		"# not RMForceStaticBar1=1: too small",
		"options nvidia " + args,
	}, c.Lines())
	assert.Empty(t, Modprobe(nil))
	assert.Empty(t, Arguments(nil))
	assert.Empty(t, Choice{}.Lines())
}

func TestData(t *testing.T) {
	d := &Data{
		Offer:  Offer{BAR1: Separate},
		Edited: []string{"p2p"},
		Models: map[string]Model{"2684": {Name: "GeForce RTX 4090", Memory: 48 << 10, Patch: true}, "2bb1": {Memory: 96 << 10}},
	}
	assert.Equal(t, GPU{Address: "01:00.0", BAR1: 32 * gib, Memory: 48 * gib, Patch: true}, d.GPU("01:00.0", 0x2684, 32*gib, false))
	assert.Equal(t, GPU{Address: "01:00.0", BAR1: 128 * gib, Memory: 96 * gib, Headless: true}, d.GPU("01:00.0", 0x2bb1, 128*gib, true))
	assert.Equal(t, GPU{Address: "01:00.0", Patch: true}, d.GPU("01:00.0", 0x0042, 0, false), "an unknown model")
	assert.NotEmpty(t, d.Choose("p2p", nil).Options)
	assert.Empty(t, d.Choose("stock", nil).Options)
}

func TestChooseMailbox(t *testing.T) {
	for name, test := range map[string]struct {
		offer Offer
		set   string
	}{
		"nothing offered": {Offer{}, ""},
		"570":             {Offer{ResizableBAR: true, ForceP2P: true, BAR1: Joint, Static: StaticAsked}, "NVreg_EnableResizableBar=1 [ForceP2P=0x211] [RMForceP2PType=1]"},
		"580":             {Offer{ForceP2P: true, BAR1: Separate, Static: StaticAuto}, "[ForceP2P=0x211] [RMPcieP2PType=0]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&Data{Offer: test.offer}).ChooseMailbox()
			assert.Equal(t, test.set, brief(got.Options))
			assert.Empty(t, got.Left)
			for _, o := range got.Options {
				assert.NotEmpty(t, o.Why, o.Name)
			}
		})
	}
}
