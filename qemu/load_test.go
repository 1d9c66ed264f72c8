package qemu

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
)

func TestBuiltinMachines(t *testing.T) {
	names := Names()
	for _, want := range []string{"plain", "pair", "switch", "iommu", "iommu-pt", "amd-iommu"} {
		assert.Contains(t, names, want)
	}
	for _, name := range names {
		m, err := Lookup(name)
		require.NoError(t, err)
		assert.Equal(t, name, m.Name, "a built-in machine is named as its file")
		assert.NotEmpty(t, m.Summary, name)
		for _, v := range m.Variants() {
			e := v.Expect
			assert.NotEmpty(t, e.Verdicts, v.Title())
			var ids []checks.ID
			for _, f := range e.Findings {
				ids = append(ids, checks.ID(f.ID))
			}
			switch {
			case len(m.GPUs()) == 0:
				assert.NotEmpty(t, ids, v.Title())
			case e.BAR != 0: // about the driver, whatever its release finds
			default:
				require.NotNil(t, e.Trouble, "%s: what it expects is exact", v.Title())
				assert.NotEmpty(t, e.AsIf, v.Title())
				assert.NotEmpty(t, e.Paths, v.Title())
				ids = append(ids, slices.Concat(e.Trouble.Fail, e.Trouble.Warn, e.Trouble.Unknown)...)
			}
			for _, id := range ids {
				_, known := checks.Explain(id)
				assert.True(t, known, "%s expects %s", v.Title(), id)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	_, err := Lookup("pear")
	assert.ErrorContains(t, err, `no machine is named "pear": use one of`)
	assert.ErrorContains(t, err, "iommu-pt")

	_, err = Lookup("no/such/file.yaml")
	assert.ErrorIs(t, err, os.ErrNotExist)

	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte(minimal), 0o644))
	m, err := Lookup(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", m.Name)
}

const minimal = `version: 1
name: mine
summary: smallest description
memory: 512M
cpus: 1
`

func TestParseMistakes(t *testing.T) {
	tests := []struct {
		name, yaml string
		want       []string // each: line, field and message
	}{
		{"empty", "", []string{"m.yaml: the file is empty"}},
		{"two documents", minimal + "---\n" + minimal, []string{"m.yaml: more than one YAML document"}},
		{"syntax", "version: 1\nname: [\n", []string{"m.yaml:2: "}},
		{"unknown field", minimal + "colour: blue\n", []string{"m.yaml:6: unknown field colour"}},
		{"not a size", strings.Replace(minimal, "512M", "many", 1), []string{`m.yaml:4: "many" is not a size`}},
		{"size too large", strings.Replace(minimal, "512M", "99999999T", 1), []string{`is not a size`}},
		{"not a number", strings.Replace(minimal, "cpus: 1", "cpus: two", 1), []string{"m.yaml:5: "}},
		{"version", strings.Replace(minimal, "version: 1", "version: 2", 1), []string{"m.yaml:1: version: is 2"}},
		{"name", strings.Replace(minimal, "mine", "../mine", 1), []string{"m.yaml:2: name: "}},
		{"memory", strings.Replace(minimal, "512M", "1M", 1), []string{"m.yaml:4: memory: is 1M"}},
		{"cpus", strings.Replace(minimal, "cpus: 1", "cpus: 0", 1), []string{"m.yaml:5: cpus: is 0"}},
		{"nodes", minimal + "nodes: 2\n", []string{"m.yaml:6: nodes: 1 CPUs and 512M of memory can't be shared evenly by 2 nodes"}},
		{"words", minimal + "firmware: bios\niommu: arm\nreport: fax\n", []string{
			`m.yaml:6: firmware: "bios" is not one of seabios, ovmf`,
			`m.yaml:7: iommu: "arm" is not one of none, intel, amd`,
			`m.yaml:8: report: "fax" is not one of virtio, serial`}},
		{"command line", minimal + "cmdline:\n  - quiet\n  - a b\n", []string{`m.yaml:8: cmdline[1]: "a b" is not one word`}},
		{"unknown kind", minimal + "pcie:\n  - kind: npu\n", []string{`m.yaml:7: pcie[0].kind: "npu" is not a kind of device`}},
		{"gpu without model", minimal + "pcie:\n  - kind: gpu\n", []string{"m.yaml:7: pcie[0]: a gpu has to say its model"}},
		{"unknown model", minimal + "pcie:\n  - kind: gpu\n    model: voodoo-2\n", []string{"m.yaml:8: pcie[0].model: ", "rtx-4090"}},
		{"BAR", minimal + "pcie:\n  - {kind: gpu, model: rtx-4090, bar: 3G}\n  - {kind: gpu, model: rtx-4090, bar: 1T}\n  - {kind: gpu, model: rtx-4090, bar: 32G, largest: 256M}\n", []string{
			"m.yaml:7: pcie[0].bar: is 3G: the framebuffer BAR of rtx-4090 can be a power of two from 64M to 32G",
			"m.yaml:8: pcie[1].bar: is 1T", "m.yaml:9: pcie[2].bar: is 32G, more than the largest size 256M"}},
		{"model of a testdev", minimal + "pcie:\n  - {kind: testdev, model: rtx-4090}\n", []string{"m.yaml:7: pcie[0]: a testdev has no model"}},
		{"link", minimal + "pcie:\n  - {kind: root-port, speed: 7, width: 3}\n  - {kind: testdev, speed: 1, window: 1G}\n", []string{
			"m.yaml:7: pcie[0].speed: is 7", "m.yaml:7: pcie[0].width: is 3", "m.yaml:8: pcie[1]: the link of a testdev is what QEMU makes it", "m.yaml:8: pcie[1].window: a testdev has no window"}},
		{"link of a board", minimal + "pcie:\n  - {kind: gpu, model: rtx-4090, speed: 5}\n  - {kind: gpu, model: rtx-4090, width: 32}\n", []string{
			"m.yaml:7: pcie[0].speed: is 5: the fastest link of rtx-4090 is of generation 4", "m.yaml:8: pcie[1].width: is 32: the widest link of rtx-4090 has 16 lanes"}},
		{"processor", minimal + "cpu: EPYC,hypervisor=off\n", []string{`m.yaml:6: cpu: "EPYC,hypervisor=off" is not the name of a processor`}},
		{"hypervisor", minimal + "hypervisor: true\n", []string{"m.yaml:6: hypervisor: without a cpu"}},
		{"above 4G of SeaBIOS", minimal + "above4g: 64G\n", []string{"m.yaml:6: above4g: only ovmf takes"}},
		{"above 4G", minimal + "firmware: ovmf\nabove4g: 1000\n", []string{"m.yaml:7: above4g: is 1000: want whole megabytes"}},
		{"as-if", minimal + "expect: {as-if: FINE}\n", []string{`m.yaml:6: expect.as-if: "FINE" is not one of P2P-READY`}},
		{"knob", minimal + "knobs:\n  - {name: A b, values: [{value: x}, {value: x}, {value: '?', change: {iommu: intel}}]}\n", []string{
			`m.yaml:7: knobs[0].name: "A b" is not a name`, "m.yaml:7: knobs[0]: has no summary", `knobs[0].values[1].value: "x" is already taken`,
			`knobs[0].values[2].value: "?" is not a value`, "m.yaml:7: knobs[0]: 2 of its values change nothing"}},
		{"knob twice", minimal + "knobs:\n  - &k {name: a, summary: s, values: [{value: x}]}\n  - *k\n", []string{`knobs[1].name: "a" is already taken`}},
		{"what a knob changes", minimal + "pcie: [{kind: testdev}]\nknobs:\n  - name: a\n    summary: s\n    values:\n      - value: x\n      - value: y\n        change: {iommu: arm, devices: {gpu: {bar: 1G}}}\n" +
			"      - value: z\n        change: {firmware: ovmf, color: red}\n", []string{"m.yaml:15: unknown field color"}},
		{"what a knob makes", minimal + "pcie: [{kind: testdev}]\nknobs:\n  - name: a\n    summary: s\n    values:\n      - value: x\n      - value: y\n        change: {iommu: arm, devices: {gpu: {bar: 1G}, testdev: {bar: 1G}}}\n", []string{
			`m.yaml:13: knobs[0].values[1].change.devices: no device has the id or the kind "gpu"`, `in the machine that it makes, iommu: "arm" is not one of`, "in the machine that it makes, pcie[0]: a testdev has no model"}},
		{"downstream on the root", minimal + "pcie:\n  - kind: downstream\n", []string{"m.yaml:7: pcie[0].kind: a downstream can't be on the root bus"}},
		{"deep", minimal + `pcie:
  - kind: root-port
    below:
      - kind: upstream
        below:
          - kind: testdev
            membar: 3G
`, []string{
			"m.yaml:11: pcie[0].below[0].below[0].kind: a testdev can't be below a upstream",
			"m.yaml:12: pcie[0].below[0].below[0].membar: is 3G: want a power of two"}},
		{"membar of a port", minimal + "pcie:\n  - {kind: root-port, membar: 1G}\n", []string{"only a testdev has"}},
		{"two on a link", minimal + "pcie:\n  - kind: root-port\n    below: [{kind: testdev}, {kind: testdev}]\n", []string{"m.yaml:8: pcie[0].below: 2 devices below a port"}},
		{"below an endpoint", minimal + "pcie:\n  - kind: testdev\n    below: [{kind: testdev}]\n", []string{"m.yaml:8: pcie[0].below: a testdev has no bus below it"}},
		{"id twice", minimal + "pcie:\n  - {kind: root-port, id: a}\n  - {kind: root-port, id: a}\n", []string{`m.yaml:8: pcie[1].id: "a" is already taken`}},
		{"id with a comma", minimal + "pcie:\n  - {kind: root-port, id: 'a,b'}\n", []string{`pcie[0].id: "a,b" is not a name`}},
		{"node without nodes", minimal + "pcie:\n  - {kind: pxb, node: 0}\n", []string{"pcie[0].node: is 0: the machine has 0 nodes"}},
		{"node of a port", minimal + "pcie:\n  - {kind: root-port, node: 1}\n", []string{"pcie[0].node: only a pxb has a node"}},
		{"finding", minimal + "expect:\n  findings:\n    - evidence: [x]\n", []string{"m.yaml:8: expect.findings[0]: has no id", "has no status"}},
		{"expected words", minimal + "expect:\n  verdicts: [FINE]\n  findings:\n    - {id: x, status: [good]}\n", []string{
			`m.yaml:7: expect.verdicts[0]: "FINE" is not one of P2P-READY`, `m.yaml:9: expect.findings[0].status[0]: "good" is not one of pass`}},
		{"too many", minimal + "pcie:\n" + strings.Repeat("  - kind: testdev\n", 25), []string{"m.yaml:6: pcie: 25 devices"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Parse("m.yaml", []byte(tt.yaml))
			require.Error(t, err)
			assert.Nil(t, m)
			var pe *ParseError
			assert.True(t, errors.As(err, &pe), "is a ParseError")
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "4096": 4 * KiB, "4K": 4 * KiB, "512M": 512 * MiB, "16G": 16 * GiB, "1T": TiB} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
		again, err := ParseSize(got.String())
		require.NoError(t, err)
		assert.Equal(t, want, again)
	}
	for _, text := range []string{"", "G", "-1G", "1.5G", "16g", "0x10", "18446744073709551616", "16777216T"} {
		_, err := ParseSize(text)
		assert.Error(t, err, text)
	}
}

// FuzzParse holds a description to: no panic, errors that name the file, and an
// accepted machine can be written out, read back, and turned into arguments.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("machines/*.yaml")
	require.NoError(f, err)
	for _, name := range files {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("pcie: &a [{kind: root-port, below: *a}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("m.yaml", data)
		if err != nil {
			require.ErrorContains(t, err, "m.yaml")
			return
		}
		args := m.Args(Boot{Kernel: "vmlinuz"})
		for i := range args {
			require.NotContains(t, args[i], "\x00")
		}
		again, err := json.Marshal(m)
		require.NoError(t, err)
		m2, err := Parse("again.yaml", again) // JSON is YAML
		if err == nil {
			require.Equal(t, args, m2.Args(Boot{Kernel: "vmlinuz"}))
		}
	})
}

func TestAppend(t *testing.T) {
	m, err := Lookup("plain")
	require.NoError(t, err)
	before := m.Cmdline
	require.NoError(t, m.Append("p2p.driver=stock", "quiet"))
	assert.Equal(t, append(slices.Clone(before), "p2p.driver=stock", "quiet"), m.Cmdline)
	assert.ErrorContains(t, m.Append("fine", "two words"), `"two words" is not one word`)
	assert.Equal(t, []string{"p2p.driver=stock", "quiet"}, m.Cmdline[len(before):], "all or none")
}
