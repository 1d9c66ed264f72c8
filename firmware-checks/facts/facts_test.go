package facts_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/golden"
)

func kind(t testing.TB, name string) fixture.Kind {
	t.Helper()
	for _, k := range fixture.Kinds() {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no machine of kind %q", name)
	return fixture.Kind{}
}

// tree builds the tree of a machine.
func tree(t testing.TB, m fixture.Machine) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, m.Write(root))
	return root
}

func gather(t testing.TB, k fixture.Kind) *facts.Facts {
	t.Helper()
	f, err := facts.Gather(tree(t, k.Machine), facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
	require.NoError(t, err)
	return f
}

// schema is compiled once for all documents.
var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return jsonschema.NewCompiler().Compile("schema.json")
})

// saved returns the document of f and checks it against the schema.
func saved(t testing.TB, f *facts.Facts) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, f.Save(&b))
	compiled, err := schema()
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(doc))
	return b.Bytes()
}

// The document of one machine, whole: a change here needs a new version or must
// only add.
func TestDocument(t *testing.T) {
	doc := saved(t, gather(t, fixture.Kind{Machine: rich()}))
	const file = "testdata/v2.json"
	golden.Equal(t, file, doc)

	loaded, err := facts.LoadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(doc), string(saved(t, loaded)))
}

// A document that version 1 of this package wrote.
func TestVersion1(t *testing.T) {
	f, err := facts.LoadFile(filepath.Join("testdata", "v1.json"))
	require.NoError(t, err)
	assert.Equal(t, 1, f.Version)
	assert.Equal(t, "6.12.117+deb12-amd64", f.Kernel.Release)
	assert.Nil(t, f.ACPI)
	assert.Nil(t, f.Installed)
	assert.Nil(t, f.Kernel.Config)
	require.Len(t, f.GPUs(), 2)
	gpu := f.GPUs()[0]
	assert.Nil(t, gpu.AER)
	assert.Nil(t, gpu.D3ColdAllowed)
	require.NotNil(t, gpu.Config, "decoded anew")
	assert.Equal(t, "DMA-FQ", f.Group(gpu).Type)
	saved(t, f)
}

func TestKindsFollowSchema(t *testing.T) {
	for _, k := range fixture.Kinds() {
		f := gather(t, k)
		loaded, err := facts.Load(bytes.NewReader(saved(t, f)))
		require.NoError(t, err, k.Name)
		assert.Equal(t, f, loaded, k.Name)
	}
}

func TestNothingPersonal(t *testing.T) {
	k := kind(t, "good-2x4090")
	k.Log = "NVRM: GPU-5f1c9a30-77aa-4b5e-9d0e-2a6bdf1f3c11 on 52:54:00:12:34:56 of http://bob:secret@lab/x\n" +
		"Kernel command line: nouveau p2p.token=secret\nnvidia " + strings.Repeat("x", 380) + " 5f1c9a30-77aa-4b5e-9d0e-2a6bdf1f3c11\n"
	k.CommandLine += " BOOTIF=01-52-54-00-12-34-56 p2p.report=https://bob:secret@lab/report p2p.gpu=10de:2684 p2p.token=secret-_"
	f := gather(t, k)
	doc := string(saved(t, f))
	for _, secret := range []string{"MUST-NOT-LEAK", "4c4c4544", "0f3c1a52", "5f1c9a30", "52:54:00", "52-54-00", "secret"} {
		assert.NotContains(t, doc, secret)
	}
	assert.Contains(t, f.Kernel.CommandLine, "p2p.gpu=10de:2684")
	for _, gpu := range f.GPUs() {
		require.NotNil(t, gpu.Config)
		for _, c := range gpu.Config.ExtendedCapabilities {
			if c.ID == pcicfg.ExtCapSerial {
				assert.Equal(t, make([]byte, 8), gpu.RawConfig[c.Offset+4:c.Offset+12])
			}
		}
		assert.NotContains(t, string(gpu.RawConfig), "\x2d\x4b\x04\x00", "part of the serial number")
	}
}

func TestGatherReadsTheMachine(t *testing.T) {
	f := gather(t, kind(t, "iommu-translating"))
	assert.Equal(t, "6.12.117+deb12-amd64", f.Kernel.Release)
	assert.Equal(t, "integrity", f.Kernel.Lockdown)
	assert.Equal(t, "Pro WS W790E-SAGE SE", f.Firmware.BoardName)
	assert.True(t, f.Firmware.UEFI)
	require.NotNil(t, f.Firmware.SecureBoot)
	assert.True(t, *f.Firmware.SecureBoot)
	assert.Equal(t, []string{"APIC", "DMAR", "FACP", "MCFG", "SSDT"}, f.Firmware.ACPITables)
	assert.Equal(t, facts.CPU{Vendor: "GenuineIntel", Family: 6, Model: 143, Name: "Intel(R) Xeon(R) w9-3495X", Sockets: 1, Logical: 1}, f.CPU)
	assert.Equal(t, []string{"dmar0"}, f.IOMMU.Units)
	require.Len(t, f.IOMMU.Groups, 4)
	assert.Empty(t, f.Unknown)

	gpu := f.Device("0000:01:00.0")
	require.NotNil(t, gpu)
	assert.Equal(t, "pci0000:00", gpu.Root)
	assert.Equal(t, []string{"0000:00:01.1"}, gpu.Path)
	assert.Equal(t, "DMA-FQ", f.Group(gpu).Type)
	assert.Equal(t, "16.0 GT/s PCIe", gpu.LinkSpeed)
	assert.Equal(t, map[int]pcicfg.Hex{1: 0xffc0}, gpu.Resizable)
	assert.Equal(t, "pcieport", f.Device("0000:00:01.1").Driver)
	require.Len(t, gpu.Resources, 3)
	assert.Equal(t, uint64(32<<30), gpu.Resources[1].Size())
	assert.True(t, gpu.Resources[1].Prefetchable64())
}

// What cannot be read is listed, the rest stands.
func TestGatherGoesOnWithoutSources(t *testing.T) {
	root := tree(t, kind(t, "good-2x4090").Machine)
	device := filepath.Join(root, "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0")
	for name, content := range map[string]string{
		filepath.Join(device, "resource"):         "0x0 0x0\n",
		filepath.Join(device, "vendor"):           "10de\n",
		filepath.Join(device, "config"):           "short",
		filepath.Join(device, "numa_node"):        "many\n",
		filepath.Join(root, "proc/cpuinfo"):       "no colon\nphysical id: 0\n",
		filepath.Join(root, "sys/class/dmi"):      "", // removed
		filepath.Join(root, "proc/cmdline"):       "",
		filepath.Join(device, "resource1_resize"): "zz\n",
	} {
		require.NoError(t, os.RemoveAll(name))
		if content != "" {
			require.NoError(t, os.WriteFile(name, []byte(content), 0o644))
		}
	}
	f, err := facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	saved(t, f)
	var where []string
	for _, u := range f.Unknown {
		where = append(where, u.Where)
		assert.NotEmpty(t, u.What)
		assert.NotEmpty(t, u.Why)
		assert.NotContains(t, u.Why, root, "the reason must not name the fixture's path")
	}
	assert.Subset(t, where, []string{
		"/proc/cmdline",
		"/sys/bus/pci/devices/0000:01:00.0/resource",
		"/sys/bus/pci/devices/0000:01:00.0/vendor",
	})
	assert.Len(t, f.GPUs(), 1, "the second GPU stands")
	assert.Equal(t, -1, f.Device("0000:01:00.0").NUMANode)
}

func TestGatherEmptyRoot(t *testing.T) {
	f, err := facts.Gather(t.TempDir(), facts.Options{})
	require.NoError(t, err)
	saved(t, f)
	assert.Empty(t, f.Devices)
	assert.NotEmpty(t, f.Unknown)
}

func TestGatherRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for name, tc := range map[string]struct {
		root string
		opt  facts.Options
		want string
	}{
		"no root":             {"/does/not/exist", facts.Options{}, "/does/not/exist"},
		"root is a file":      {file, facts.Options{}, "not a directory"},
		"stand-in half":       {t.TempDir(), facts.Options{StandIn: "1b36"}, "1b36:0005"},
		"stand-in no number":  {t.TempDir(), facts.Options{StandIn: "qemu:test"}, "qemu:test"},
		"stand-in too large":  {t.TempDir(), facts.Options{StandIn: "1b36:10005"}, "1b36:10005"},
		"stand-in three part": {t.TempDir(), facts.Options{StandIn: "1b36:0005:0"}, "hexadecimal"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := facts.Gather(tc.root, tc.opt)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The running system is gathered without an error, whatever it is.
func TestGatherThisMachine(t *testing.T) {
	f, err := facts.Gather("/", facts.Options{})
	require.NoError(t, err)
	saved(t, f)
	assert.NotEmpty(t, f.Kernel.Release)
}

func TestKernelLog(t *testing.T) {
	for name, tc := range map[string]struct {
		log  string
		want []string
	}{
		"dmesg":   {"[    1.5] NVRM: loading\n[    2.0] usb 1-1: new device\n", []string{"NVRM: loading"}},
		"kmsg":    {"4,120,99,-;pci 0000:01:00.0: BAR 1: can't assign; no space\n SUBSYSTEM=pci\n DEVICE=+pci:nvidia\n", []string{"pci 0000:01:00.0: BAR 1: can't assign; no space"}},
		"plain":   {"AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0]\n", []string{"AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0]"}},
		"aer":     {"pcieport 0000:00:01.1: AER: Corrected error\n", []string{"pcieport 0000:00:01.1: AER: Corrected error"}},
		"nothing": {"hello\n", nil},
		"cut":     {"NVRM " + strings.Repeat("x", 1000) + "\n", []string{"NVRM " + strings.Repeat("x", 395) + " …"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := facts.Gather(t.TempDir(), facts.Options{KernelLog: strings.NewReader(tc.log)})
			require.NoError(t, err)
			assert.Equal(t, tc.want, f.KernelLog)
		})
	}
	t.Run("flood", func(t *testing.T) {
		f, err := facts.Gather(t.TempDir(), facts.Options{KernelLog: strings.NewReader(strings.Repeat("NVRM: again\n", 250))})
		require.NoError(t, err)
		assert.Len(t, f.KernelLog, 200)
		assert.Contains(t, f.Unknown, facts.Unknown{What: "kernel log", Where: "/dev/kmsg", Why: "50 further relevant lines left out"})
	})
}

// A copy of a machine can hold its log.
func TestKernelLogOfCopy(t *testing.T) {
	root := tree(t, fixture.Machine{})
	require.NoError(t, os.WriteFile(filepath.Join(root, "dev/kmsg"), []byte("4,120,99,-;NVRM: loading\n"), 0o644))
	f, err := facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"NVRM: loading"}, f.KernelLog)
	assert.Empty(t, f.Unknown)

	require.NoError(t, os.Remove(filepath.Join(root, "dev/kmsg")))
	f, err = facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	assert.Equal(t, []facts.Unknown{{What: "kernel log", Where: "/dev/kmsg", Why: "no such file or directory"}}, f.Unknown)
}

func TestLoadRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ doc, want string }{
		"empty":            {"", "the document is empty"},
		"not JSON":         {"facts", "no document of mkp2pimg facts: invalid character"},
		"no version":       {"{}", "it has no version"},
		"two documents":    {`{"version":1} {"version":1}`, "there is more after the document, at byte 15"},
		"rubbish behind":   {`{"version":1}rubbish`, "there is more after the document"},
		"newer":            {`{"version": 3}`, "version 3, this program reads 1 to 2"},
		"no address":       {`{"version":1,"devices":[{"address":"../x"}]}`, `device 0: "../x" is no address`},
		"no port":          {`{"version":1,"devices":[{"address":"0000:01:00.0","path":["root"]}]}`, `device 0: "root" is no address`},
		"no host bridge":   {`{"version":1,"devices":[{"address":"0000:01:00.0","root":"pci"}]}`, `"pci" is no name of a host bridge`},
		"same address":     {`{"version":1,"devices":[{"address":"0000:01:00.0"},{"address":"0000:01:00.0"}]}`, "device 1: there are two with the address 0000:01:00.0"},
		"bad hex":          {`{"version":1,"devices":[{"vendor":"10de"}]}`, "0x prefix"},
		"truncated":        {`{"version":1,"devices":[`, "the document is cut off"},
		"config too short": {`{"version":1,"devices":[{"address":"0000:01:00.0","raw_config":"AAAA"}]}`, "raw_config of 0000:01:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := facts.Load(strings.NewReader(tc.doc))
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := facts.LoadFile("testdata/does-not-exist.json")
	require.ErrorContains(t, err, "does-not-exist.json")
}

// A terminal must not obey what a document says.
func TestControlCharacters(t *testing.T) {
	f, err := facts.Load(strings.NewReader(`{"version":2,"kernel":{"release":"6.1\u001b[31m","config":{"CONFIG_A":"\u0007","B\u0000":"y"}},
		"kernel_log":["\u009b2J line"],"devices":[{"address":"0000:01:00.0","driver":"a\rb","raw_config":"` + strings.Repeat("AAAA", 22) + `"}],
		"nvidia":{"version":"x","params":"A: 1\nB:\t2\n"}}`))
	require.NoError(t, err)
	assert.Equal(t, "6.1\ufffd[31m", f.Kernel.Release)
	assert.Equal(t, map[string]string{"CONFIG_A": "\ufffd"}, f.Kernel.Config)
	assert.Equal(t, []string{"\ufffd2J line"}, f.KernelLog)
	assert.Equal(t, "a\ufffdb", f.Devices[0].Driver)
	assert.Equal(t, make([]byte, 66), f.Devices[0].RawConfig)
	assert.Equal(t, "A: 1\nB:\t2\n", f.NVIDIA.Params)
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"version":1,"cpu":{"sockets":2},"iommu":{"known":true,"groups":[{"id":"1","type":"DMA","devices":["0000:01:00.0"]}]},` +
		`"devices":[{"address":"0000:01:00.0","vendor":"0x10de","gpu":true,"root":"pci0000:00","path":["0000:00:01.0"],"numa_node":-1},` +
		`{"address":"0000:02:00.0","gpu":true,"root":"pci0000:00","path":["0000:00:01.0"],"resources":[{"index":1,"start":"0x1","end":"0x2","flags":"0x3"}]}]}`))
	f.Add([]byte(`{"version":1,"devices":[{"address":"0000:01:00.0","raw_config":"` + strings.Repeat("AAAA", 22) + `"}],"unknown":[{"what":"a","where":"b","why":"c"}]}`))
	f.Add([]byte(`{"version":1,"devices":[{"address":"0000:01:00.0","resizable":{"1":"0x1"}}]}`))
	f.Add([]byte(`{"version":2,"acpi":{"dmar":{"units":[{"all":true,"scopes":[{"kind":"bridge","path":["01.0"]}]}]},"srat":{"memory":[{"base":"0x0","size":1}]}},` +
		`"memory_map":[{"start":"0x0","end":"0xfff","name":"Reserved"}],"nvidia":{"nvml":[{"protected":0}],"survey":{"pairs":[{"caps":1}]}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		loaded, err := facts.Load(bytes.NewReader(doc))
		if err != nil {
			return
		}
		var saved bytes.Buffer
		require.NoError(t, loaded.Save(&saved))
		again, err := facts.Load(&saved)
		require.NoError(t, err)
		assert.Len(t, again.Devices, len(loaded.Devices))
	})
}

func BenchmarkGather64(b *testing.B) {
	root := tree(b, fixture.Crowd())
	for b.Loop() {
		if _, err := facts.Gather(root, facts.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
