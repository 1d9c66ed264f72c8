package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/measure"
)

// A pciTree is a made-up /sys.
type pciTree struct {
	t    *testing.T
	root string
}

// add adds a function at a path below /sys/devices, and files in it.
func (p pciTree) add(path string, files map[string]string) {
	p.t.Helper()
	dir := filepath.Join(p.root, "devices", path)
	require.NoError(p.t, os.MkdirAll(dir, 0o755))
	require.NoError(p.t, os.MkdirAll(p.bus(), 0o755))
	require.NoError(p.t, os.Symlink(dir, filepath.Join(p.bus(), filepath.Base(path))))
	for name, text := range files {
		p.write(filepath.Base(path), name, text)
	}
}

func (p pciTree) bus() string { return filepath.Join(p.root, "bus") }

func (p pciTree) write(bdf, name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.bus(), bdf, name), []byte(text), 0o644))
}

const (
	rootPort   = "pci0000:40/0000:40:01.1"
	upstream   = rootPort + "/0000:41:00.0"
	downstream = upstream + "/0000:42:10.0"
)

func TestLocate(t *testing.T) {
	p := pciTree{t, t.TempDir()}
	p.add(downstream+"/0000:43:00.0", map[string]string{
		"resource": "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n" +
			"0x0000020000000000 0x00000207ffffffff 0x000000000014220c\n0x0 0x0 0x0\n",
	})
	p.add(rootPort+"/0000:44:00.0", map[string]string{"resource": "nonsense"})
	for _, tc := range []struct {
		bdf   string
		place measure.Place
		ports []string
	}{
		{"0000:43:00.0", measure.Place{BDF: "0000:43:00.0", Root: "0000:40", Switch: "0000:41:00.0", BAR1: 32 << 30},
			[]string{"0000:43:00.0", "0000:42:10.0", "0000:41:00.0", "0000:40:01.1"}},
		{"0000:44:00.0", measure.Place{BDF: "0000:44:00.0", Root: "0000:40"}, []string{"0000:44:00.0", "0000:40:01.1"}},
		{"0000:99:00.0", measure.Place{BDF: "0000:99:00.0"}, []string{"0000:99:00.0"}},
	} {
		place, ports := locate(p.bus(), tc.bdf)
		assert.Equal(t, tc.place, place)
		assert.Equal(t, tc.ports, ports)
	}
}

func TestObserver(t *testing.T) {
	p := pciTree{t, t.TempDir()}
	aer := func(n string) string { return "RxErr 0\nBadTLP 1\nTOTAL_ERR_COR " + n + "\n" }
	p.add(rootPort, map[string]string{"current_link_speed": "16.0 GT/s PCIe\n", "current_link_width": "16\n"})
	p.add(rootPort+"/0000:44:00.0", map[string]string{
		"current_link_speed": "2.5 GT/s PCIe\n", "current_link_width": "16\n", "max_link_speed": "16.0 GT/s PCIe\n", "max_link_width": "16\n",
		"aer_dev_correctable": aer("3"), "aer_dev_fatal": "TOTAL_ERR_FATAL 0\n",
	})
	log := filepath.Join(p.root, "kmsg")
	require.NoError(t, os.WriteFile(log, []byte("6,1,1,-;NVRM: Xid before\n"), 0o644))

	o := observe(p.bus(), log, []string{"0000:44:00.0"}, func() bool { return false })
	o.sample()
	p.write("0000:44:00.0", "current_link_speed", "16.0 GT/s PCIe\n")
	o.sample()
	o.sample()
	p.write("0000:44:00.0", "aer_dev_correctable", aer("5"))
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("4,2,2,-;NVRM: Xid (PCI:0000:44:00): 31\n SUBSYSTEM=pci\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())

	w := o.end()
	require.Len(t, w.Links, 2)
	assert.Equal(t, measure.Link{
		BDF: "0000:44:00.0", MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16,
		Seen:   []measure.LinkState{{Speed: "16.0 GT/s PCIe", Width: 16, Samples: 2}, {Speed: "2.5 GT/s PCIe", Width: 16, Samples: 1}},
		Errors: map[string]int64{"correctable": 2},
	}, w.Links[1])
	assert.Equal(t, "0000:40:01.1", w.Links[0].BDF)
	assert.Equal(t, 3, w.Links[0].Seen[0].Samples)
	assert.Equal(t, []string{"NVRM: Xid (PCI:0000:44:00): 31"}, w.Kernel)
}

func TestObserverWithoutAnything(t *testing.T) {
	o := observe(t.TempDir(), "/nonexistent", []string{"0000:44:00.0"}, func() bool { return true })
	o.sample()
	w := o.end()
	assert.Equal(t, []measure.Link{{BDF: "0000:44:00.0"}}, w.Links)
	assert.Empty(t, w.Kernel)
}
