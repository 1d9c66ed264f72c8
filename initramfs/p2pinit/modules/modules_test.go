package modules

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const dir = "lib/modules/6.12"

// image has a few modules with the dependencies and aliases of Debian's.
func image(more map[string]string) fstest.MapFS {
	files := map[string]string{
		dir + "/modules.dep": `kernel/drivers/nvme/host/nvme-core.ko: kernel/drivers/nvme/common/nvme-auth.ko
kernel/drivers/nvme/common/nvme-auth.ko:
kernel/drivers/nvme/host/nvme.ko: kernel/drivers/nvme/host/nvme-core.ko kernel/drivers/nvme/common/nvme-auth.ko
kernel/drivers/scsi/sd_mod.ko:
kernel/drivers/ata/ahci.ko:
kernel/drivers/gpu/drm/nouveau/nouveau.ko:
kernel/drivers/net/virtio_net.ko:
`,
		dir + "/modules.alias": `# Aliases extracted from modules themselves.
alias pci:v*d*sv*sd*bc01sc08i02* nvme
alias pci:v*d*sv*sd*bc01sc06i01* ahci
alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau
alias scsi:t_0x00* sd_mod
alias virtio:d00000001v* virtio_net
alias usb:v0B95p[0-9A-F]*d* ahci
alias dmi:bad[ nvme
`,
		dir + "/modules.builtin": "kernel/drivers/virtio/virtio-pci.ko\n",
	}
	maps.Copy(files, more)
	fsys := fstest.MapFS{}
	for k, v := range files {
		fsys[k] = &fstest.MapFile{Data: []byte(v)}
	}
	return fsys
}

func index(t *testing.T) *Index {
	t.Helper()
	x, err := ReadIndex(image(nil), dir)
	require.NoError(t, err)
	return x
}

func TestMatch(t *testing.T) {
	x := index(t)
	tests := map[string]struct {
		modalias string
		want     []string
	}{
		"nvme":                    {"pci:v0000144Dd0000A808sv0000144Dsd0000A801bc01sc08i02\n", []string{"nvme"}},
		"nothing":                 {"pci:v00008086d00001237sv00001AF4sd00001100bc06sc00i00", nil},
		"gpu":                     {"pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00", []string{"nouveau"}},
		"dash becomes underscore": {"scsi:t-0x00", []string{"sd_mod"}},
		"wildcard takes a slash":  {"virtio:d00000001v0000/1AF4", []string{"virtio_net"}},
		"class of characters":     {"usb:v0B95p7720d0001", []string{"ahci"}},
		"bad pattern":             {"dmi:bad[", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, x.Match(tt.modalias)) })
	}
}

func TestReadIndexErrors(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"no colon": {map[string]string{dir + "/modules.dep": "kernel/a.ko\n"}, `lib/modules/6.12/modules.dep: no colon in "kernel/a.ko"`},
		"cycle":    {map[string]string{dir + "/modules.dep": "a.ko: b.ko\nb.ko: a.ko\n"}, "depends on itself"},
		"long":     {map[string]string{dir + "/modules.alias": strings.Repeat("x", 2<<20)}, "lib/modules/6.12/modules.alias: bufio.Scanner: token too long"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadIndex(image(tt.files), dir)
			require.ErrorContains(t, err, tt.want)
		})
	}
	_, err := ReadIndex(image(nil), "lib/modules/7.0")
	require.ErrorContains(t, err, "index of kernel modules: open lib/modules/7.0/modules.dep")
}

// kernel records insertions and refuses what it is told to.
type kernel struct {
	mu     sync.Mutex
	order  []string
	errors map[string]error
	after  func(file string)
}

func (k *kernel) insert(file, _ string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := nameOf(file)
	if err := k.errors[name]; err != nil {
		return fmt.Errorf("finit_module: %w", err)
	}
	k.order = append(k.order, name)
	if k.after != nil {
		k.after(file)
	}
	return nil
}

func TestLoad(t *testing.T) {
	k := &kernel{errors: map[string]error{"sd_mod": syscall.EEXIST, "ahci": syscall.ENOMEM}}
	l := NewLoader(index(t), k.insert)
	require.NoError(t, l.Load("nvme"))
	require.NoError(t, l.Load("nvme-core"), "by its file's name")
	assert.Equal(t, []string{"nvme_auth", "nvme_core", "nvme"}, k.order, "dependencies first, each once")
	require.NoError(t, l.Load("virtio_pci"), "built in")
	require.NoError(t, l.Load("sd_mod"), "loaded before")
	require.ErrorIs(t, l.Load("ahci"), syscall.ENOMEM)
	require.ErrorContains(t, l.Load("ahci"), "/lib/modules/6.12/kernel/drivers/ata/ahci.ko: finit_module: cannot allocate memory")
	require.ErrorContains(t, l.Load("zfs"), "module zfs is not in the image")
}

func TestLoadNamesTheDependencyThatFailed(t *testing.T) {
	k := &kernel{errors: map[string]error{"nvme_auth": syscall.ENOEXEC}}
	l := NewLoader(index(t), k.insert)
	err := l.Load("nvme")
	require.ErrorIs(t, err, syscall.ENOEXEC)
	assert.ErrorContains(t, err, "needs nvme_core: needs nvme_auth: /lib/modules/6.12/kernel/drivers/nvme/common/nvme-auth.ko")
	assert.Empty(t, k.order)
}

func TestLoadHardware(t *testing.T) {
	fsys := image(map[string]string{
		"sys/bus/pci/devices/0000:00:01.0/modalias": "pci:v0000144Dd0000A808sv0000144Dsd0000A801bc01sc08i02\n",
		"sys/bus/pci/devices/0000:00:02.0/modalias": "pci:v0000144Dd0000A808sv0000144Dsd0000A801bc01sc08i02\n",
		"sys/bus/pci/devices/0000:01:00.0/modalias": "pci:v000010DEd00002684sv000010DEsd0000167Cbc03sc00i00\n",
		"sys/bus/pci/devices/0000:00:03.0/modalias": "\n",
	})
	k := &kernel{errors: map[string]error{"virtio_net": errors.New("refused")}, after: func(file string) {
		if nameOf(file) == "nvme" { // its namespace brings a new device
			fsys["sys/bus/virtio/devices/virtio0/modalias"] = &fstest.MapFile{Data: []byte("virtio:d00000001v00001AF4")}
		}
	}}
	l := NewLoader(index(t), k.insert)
	results, err := l.LoadHardware(fsys)
	require.NoError(t, err)
	assert.Equal(t, []string{"nvme_auth", "nvme_core", "nvme"}, k.order, "and never nouveau")
	text, failed := Summary(results)
	assert.Equal(t, "1 loaded, 1 failed: nvme", text)
	require.Len(t, failed, 1)
	assert.Equal(t, "virtio_net", failed[0].Name)
}

func TestLoadAllInParallel(t *testing.T) {
	k := &kernel{}
	l := NewLoader(index(t), k.insert)
	for _, r := range l.LoadAll([]string{"nvme", "nvme", "nvme_core", "ahci", "sd_mod"}) {
		require.NoError(t, r.Err)
	}
	assert.ElementsMatch(t, []string{"nvme_auth", "nvme_core", "nvme", "ahci", "sd_mod"}, k.order)
	assert.Equal(t, []string{"nvme", "virtio_pci"}, l.Present([]string{"nvme", "zfs", "virtio_pci"}))
}

func FuzzReadIndex(f *testing.F) {
	f.Add("a.ko: b.ko\nb.ko:\n", "alias pci:v*[0-9]- a\n", "pci:v1-")
	f.Fuzz(func(t *testing.T, dep, alias, device string) {
		x, err := ReadIndex(image(map[string]string{dir + "/modules.dep": dep, dir + "/modules.alias": alias}), dir)
		if err != nil {
			return
		}
		l := NewLoader(x, func(string, string) error { return nil })
		for _, name := range x.Match(device) {
			if l.Load(name) == nil {
				assert.True(t, x.Has(name))
			}
		}
	})
}
