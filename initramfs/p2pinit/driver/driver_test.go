package driver

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	checks "mkp2pimg/firmware-checks"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noGPU is what 550.163.01 logs on Linux 6.12 without a GPU.
var noGPU = []string{
	"nvidia: loading out-of-tree module taints kernel.",
	"nvidia: module verification failed: signature and/or required key missing - tainting kernel",
	"nvidia-nvlink: Nvlink Core is being initialized, major device number 244",
	"NVRM: No NVIDIA GPU found.",
	"nvidia-nvlink: Unregistered Nvlink Core",
}

func TestClassify(t *testing.T) {
	tests := map[string]struct {
		err   error
		log   []string
		want  Kind
		title string
	}{
		"loaded":         {nil, noGPU[:3], Loaded, "nvidia.ko is loaded"},
		"loaded before":  {syscall.EEXIST, nil, Loaded, "nvidia.ko is loaded"},
		"no gpu":         {syscall.ENODEV, noGPU, NoGPU, "nvidia.ko ran on this kernel and found no GPU"},
		"no gpu, silent": {syscall.ENODEV, nil, Failed, "nvidia.ko was not loaded"},
		"no GSP": {syscall.ENODEV, []string{noGPU[0],
			"NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2684)",
			"NVRM: installed in this system is not supported by open",
			"nvidia: probe of 0000:01:00.0 failed with error -1"}, Unsupported, "this release of nvidia.ko does not run this GPU"},
		"nouveau": {syscall.ENODEV, []string{"NVRM: The NVIDIA probe routine was not called for 1 device(s)."}, Taken,
			"another driver has the GPU, nvidia.ko was not asked"},
		"BAR": {syscall.ENODEV, []string{"nvidia 0000:01:00.0: enabling device", "NVRM: pci_enable_device failed, aborting"}, NotStarted,
			"nvidia.ko found a GPU and could not start it: NVRM: pci_enable_device failed, aborting"},
		"secure boot": {syscall.EKEYREJECTED, []string{"Loading of module with unavailable key is rejected"}, Signature,
			"the kernel refused nvidia.ko for want of a signature"},
		"lockdown": {syscall.EPERM, []string{"Lockdown: p2pinit: unsigned module loading is restricted; see man kernel_lockdown.7"}, Signature,
			"the kernel refused nvidia.ko for want of a signature"},
		"other kernel": {syscall.ENOEXEC, []string{"nvidia: version magic '6.1.0-57-amd64 SMP preempt mod_unload modversions ' should be '6.12.117+deb12-amd64 SMP preempt mod_unload modversions '"},
			WrongKernel, "nvidia.ko was built for another kernel: version magic"},
		"symbol":  {syscall.ENOENT, []string{"nvidia: Unknown symbol drm_gem_object_free (err -2)"}, Symbols, "nvidia.ko does not fit the kernel: nvidia: Unknown symbol drm_gem_object_free (err -2)"},
		"crc":     {syscall.EINVAL, []string{"nvidia: disagrees about version of symbol module_layout"}, Symbols, "nvidia.ko does not fit the kernel"},
		"memory":  {syscall.ENOMEM, nil, NoMemory, "no memory to load nvidia.ko"},
		"damaged": {syscall.ENOEXEC, nil, Damaged, "nvidia.ko is no module for this kernel"},
		"no file": {errors.New("open /lib/x.ko: no such file"), nil, Failed, "nvidia.ko was not loaded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.err
			if err != nil {
				err = fmt.Errorf("finit_module: %w", err)
			}
			got := Classify("nvidia.ko", err, tt.log)
			assert.Equal(t, tt.want, got.Kind)
			assert.True(t, strings.HasPrefix(strings.ReplaceAll(got.Title, "nvidia: version", "version"), tt.title), got.Title)
			if got.Kind != Loaded {
				assert.NotEmpty(t, got.Meaning)
			}
		})
	}
}

func TestFinding(t *testing.T) {
	err := fmt.Errorf("finit_module: %w", syscall.ENODEV)
	f := Classify("nvidia.ko", err, noGPU).Finding("nvidia.ko", err, noGPU)
	assert.Equal(t, LoadFinding, f.ID)
	assert.Equal(t, checks.Skip, f.Status)
	require.Len(t, f.Evidence, 6)
	assert.Equal(t, checks.Evidence{What: "insertion of nvidia.ko", Where: "finit_module(2)", Raw: "errno 19, no such device"}, f.Evidence[0])
	assert.Equal(t, "NVRM: No NVIDIA GPU found.", f.Evidence[4].Raw)

	assert.Equal(t, checks.Pass, Classify("nvidia.ko", nil, nil).Finding("nvidia.ko", nil, nil).Status)
	assert.Equal(t, checks.Fail, Classify("nvidia.ko", syscall.ENOMEM, nil).Finding("nvidia.ko", syscall.ENOMEM, nil).Status)
}

func TestOptions(t *testing.T) {
	conf := "# options nvidia A=1\noptions nvidia NVreg_EnableResizableBar=1 \\\n  NVreg_RegistryDwords=\"ForceP2P=17;X=1\"\n" +
		"options nvidia-uvm uvm_disable_hmm=1\n\noptions nvidia\noptions nvidia NVreg_B=2\nblacklist nouveau\n"
	for module, want := range map[string]string{
		"nvidia":     `NVreg_EnableResizableBar=1 NVreg_RegistryDwords="ForceP2P=17;X=1" NVreg_B=2`,
		"nvidia_uvm": "uvm_disable_hmm=1",
		"drm":        "",
	} {
		got, err := Options(strings.NewReader(conf), module)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := Options(strings.NewReader(strings.Repeat("x", 1<<20)), "nvidia")
	require.Error(t, err)
}

func TestNodes(t *testing.T) {
	devices := "Character devices:\n  1 mem\n195 %s\n%s\nBlock devices:\n  9 nvidia\n259 blkext\n"
	got, err := Nodes(fmt.Sprintf(devices, "nvidia-frontend", "511 nvidia-uvm"), []uint32{1, 0})
	require.NoError(t, err)
	want := []Node{{"/dev/nvidiactl", 195, 255}, {"/dev/nvidia0", 195, 0}, {"/dev/nvidia1", 195, 1},
		{"/dev/nvidia-uvm", 511, 0}, {"/dev/nvidia-uvm-tools", 511, 1}}
	assert.Equal(t, want, got)

	got, err = Nodes(fmt.Sprintf(devices, "nvidia", ""), nil)
	require.NoError(t, err)
	assert.Equal(t, want[:1], got)

	_, err = Nodes("Character devices:\n  1 mem\n\nBlock devices:\n195 nvidia\n", nil)
	require.ErrorContains(t, err, "is nvidia.ko loaded?")
}

func TestMinor(t *testing.T) {
	n, err := Minor("Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 132\nDevice Minor: \t 3\nGPU Excluded:\t No\n")
	require.NoError(t, err)
	assert.Equal(t, uint32(3), n)
	_, err = Minor("Device Minor: x\n")
	require.ErrorContains(t, err, "invalid syntax")
	_, err = Minor("")
	require.ErrorContains(t, err, "no line")
}

func TestMessage(t *testing.T) {
	text, ok := Message("3,1021,5140900,-;NVRM: No NVIDIA GPU found.\n SUBSYSTEM=pci\n")
	assert.True(t, ok)
	assert.Equal(t, "NVRM: No NVIDIA GPU found.", text)
	_, ok = Message("nothing")
	assert.False(t, ok)
	assert.True(t, Relevant("Lockdown: x"))
	assert.True(t, Relevant("pcieport 0000:00:01.1: AER: Correctable error message received from 0000:01:00.0"))
	assert.False(t, Relevant("usb 1-1: new high-speed USB device"))
}

func TestModuleName(t *testing.T) {
	assert.Equal(t, "nvidia_uvm", ModuleName("/lib/modules/x/updates/mkp2pimg/p2p/nvidia-uvm.ko"))
}
