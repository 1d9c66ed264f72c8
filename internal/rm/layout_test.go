package rm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const p2pFields = "gpuIds gpuCount p2pCaps p2pOptimalReadCEs p2pOptimalWriteCEs p2pCapsStatus busPeerIds"

// layouts are the structures with their names in C and those of their fields, in
// order.
var layouts = []struct {
	v      any
	c      string
	fields string
	since  int // major release, 0: all
	until  int // 0: all
}{
	{allocParams{}, "NVOS21_PARAMETERS", "hRoot hObjectParent hObjectNew hClass pAllocParms paramsSize status", 0, 0},
	{controlParams{}, "NVOS54_PARAMETERS", "hClient hObject cmd flags params paramsSize status", 0, 0},
	{freeParams{}, "NVOS00_PARAMETERS", "hRoot hObjectParent hObjectOld status", 0, 0},
	{versionParams{}, "nv_ioctl_rm_api_version_t", "cmd reply versionString", 0, 0},
	{cardInfo{}, "nv_ioctl_card_info_t", "valid pci_info.domain pci_info.bus pci_info.slot pci_info.function pci_info.vendor_id pci_info.device_id " +
		"gpu_id interrupt_line reg_address reg_size fb_address fb_size minor_number dev_name", 0, 0},
	{attachedIDs{}, "NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS", "gpuIds", 0, 0},
	{idInfo{}, "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", "gpuId gpuFlags deviceInstance subDeviceInstance sliStatus boardId gpuInstance numaId", 0, 0},
	{deviceParams{}, "NV0080_ALLOC_PARAMETERS", "deviceId hClientShare hTargetClient hTargetDevice flags vaSpaceSize vaStartInternal vaLimitInternal vaMode", 0, 0},
	{subdeviceParams{}, "NV2080_ALLOC_PARAMETERS", "subDeviceId", 0, 0},
	{p2pCaps{}, "NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS", p2pFields, 0, 549},
	{p2pCapsEGM{}, "NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS", p2pFields + " busEgmPeerIds", 550, 0},
	{staticBAR1At0{}, "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS", "bStaticBar1Enabled staticBar1Size", 565, 569},
	{staticBAR1{}, "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS", "bStaticBar1Enabled staticBar1StartOffset staticBar1Size", 570, 0},
	{fbInfoParams{}, "NV2080_CTRL_FB_GET_INFO_PARAMS", "fbInfoListSize fbInfoList", 0, 0},
	{fbInfo{}, "NV2080_CTRL_FB_INFO", "index data", 0, 0},
}

// constants are expressions of the headers with the values that this package
// takes for them.
var constants = []struct {
	c     string
	value uint64
	since int
}{
	{"NV_ESC_RM_FREE", escRMFree, 0},
	{"NV_ESC_RM_CONTROL", escRMControl, 0},
	{"NV_ESC_RM_ALLOC", escRMAlloc, 0},
	{"NV_ESC_CARD_INFO", escCardInfo, 0},
	{"NV_ESC_CHECK_VERSION_STR", escCheckVersion, 0},
	{"NV_IOCTL_MAGIC", 'F', 0},
	{"NV01_ROOT_CLIENT", classRoot, 0},
	{"NV01_DEVICE_0", classDevice, 0},
	{"NV20_SUBDEVICE_0", classSubdevice, 0},
	{"NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", cmdAttachedIDs, 0},
	{"NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", cmdIDInfo, 0},
	{"NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2", cmdP2PCaps, 0},
	{"NV2080_CTRL_CMD_FB_GET_INFO", cmdFBInfo, 0},
	{"NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO", cmdStaticBAR1, 565},
	{"NV0000_CTRL_GPU_INVALID_ID", invalidID, 0},
	{"NV_MAX_DEVICES", maxGPUs, 0},
	{"NV_RM_API_VERSION_CMD_QUERY", versionQuery, 0},
	{"NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE", fbRAMSize, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_READ", IndexRead, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_WRITE", IndexWrite, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_NVLINK", IndexNVLink, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_ATOMICS", IndexAtomics, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_PROP", IndexProp, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_LOOPBACK", IndexLoopback, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_PCI", IndexPCI, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_C2C", IndexC2C, 0},
	{"NV0000_CTRL_P2P_CAPS_INDEX_PCI_BAR1", IndexBAR1, 0},
	{bit("WRITES"), uint64(CapWrite), 0},
	{bit("READS"), uint64(CapRead), 0},
	{bit("PROP"), uint64(CapProp), 0},
	{bit("NVLINK"), uint64(CapNVLink), 0},
	{bit("ATOMICS"), uint64(CapAtomics), 0},
	{bit("LOOPBACK"), uint64(CapLoopback), 0},
	{bit("PCI"), uint64(CapPCI), 0},
	{bit("INDIRECT_WRITES"), uint64(CapIndirectWrite), 0},
	{bit("INDIRECT_READS"), uint64(CapIndirectRead), 0},
	{bit("INDIRECT_ATOMICS"), uint64(CapIndirectAtomic), 0},
	{bit("INDIRECT_NVLINK"), uint64(CapIndirectNVLink), 0},
	{bit("C2C"), uint64(CapC2C), 0},
	{bit("PCI_BAR1"), uint64(CapBAR1), 0},
	{"NV0000_P2P_CAPS_STATUS_OK", uint64(P2POK), 0},
	{"NV0000_P2P_CAPS_STATUS_CHIPSET_NOT_SUPPORTED", uint64(ChipsetUnsupported), 0},
	{"NV0000_P2P_CAPS_STATUS_GPU_NOT_SUPPORTED", uint64(GPUUnsupported), 0},
	{"NV0000_P2P_CAPS_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED", uint64(TopologyUnfit), 0},
	{"NV0000_P2P_CAPS_STATUS_DISABLED_BY_REGKEY", uint64(Disabled), 0},
	{"NV0000_P2P_CAPS_STATUS_NOT_SUPPORTED", uint64(P2PUnsupported), 0},
}

// bit is the bit of a capability; the headers write it as a range "13:13".
func bit(name string) string {
	return fmt.Sprintf("(1u << (0 ? NV0000_CTRL_SYSTEM_GET_P2P_CAPS_%s_SUPPORTED))", name)
}

// flat returns the fields of a structure, with those of structures in it.
func flat(typ reflect.Type) []reflect.StructField {
	var all []reflect.StructField
	for f := range typ.Fields() {
		if f.Type.Kind() == reflect.Struct {
			all = append(all, flat(f.Type)...)
			continue
		}
		all = append(all, f)
	}
	return all
}

// statement prints "name value" from C.
func statement(b *strings.Builder, c string) {
	fmt.Fprintf(b, "\tprintf(\"%%s %%llu\\n\", %q, (unsigned long long)(%s));\n", c, c)
}

// program writes a C program that prints the sizes, offsets and constants that
// release major has, and the same lines as this package would have them.
func program(major int) (c, want string) {
	var b, w strings.Builder
	b.WriteString("#include <stddef.h>\n#include <stdio.h>\n")
	for _, h := range []string{"nvtypes.h", "nvlimits.h", "nvos.h", "nvstatus.h", "class/cl0080.h", "class/cl2080.h", "ctrl/ctrl0000/ctrl0000gpu.h",
		"ctrl/ctrl0000/ctrl0000system.h", "ctrl/ctrl2080/ctrl2080fb.h", "nv_escape.h", "nv-ioctl.h"} {
		fmt.Fprintf(&b, "#include \"%s\"\n", h)
	}
	b.WriteString("int main(void) {\n")
	say := func(c string, value uint64) {
		statement(&b, c)
		fmt.Fprintf(&w, "%s %d\n", c, value)
	}
	for _, l := range layouts {
		if major < l.since || l.until != 0 && major > l.until {
			continue
		}
		say("sizeof("+l.c+")", uint64(len(encode(l.v))))
		names := strings.Fields(l.fields)
		offset := 0
		for _, f := range flat(reflect.TypeOf(l.v)) {
			if f.Name != "_" {
				say(fmt.Sprintf("offsetof(%s, %s)", l.c, names[0]), uint64(offset))
				say(fmt.Sprintf("sizeof(((%s *)0)->%s)", l.c, names[0]), uint64(f.Type.Size()))
				names = names[1:]
			}
			offset += int(f.Type.Size())
		}
	}
	for _, c := range constants {
		if major >= c.since {
			say(c.c, c.value)
		}
	}
	for s := range statuses {
		if s < 0x7c || s == 0xffff { // those of release 535
			say(s.String(), uint64(s))
		}
	}
	b.WriteString("\treturn 0;\n}\n")
	return b.String(), w.String()
}

// TestLayouts proves the layouts and constants of this package against the headers
// of every source tree in the folder MKP2PIMG_TREES.
func TestLayouts(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_TREES")
	if dir == "" {
		t.Skip("set MKP2PIMG_TREES to a folder of open-gpu-kernel-modules trees to compare the layouts with their headers")
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to compile the headers with")
	}
	trees, err := filepath.Glob(filepath.Join(dir, "*", "version.mk"))
	require.NoError(t, err)
	require.NotEmpty(t, trees, "no source trees in %s", dir)
	for _, mk := range trees {
		tree := filepath.Dir(mk)
		text, err := os.ReadFile(mk)
		require.NoError(t, err)
		m := regexp.MustCompile(`(?m)^NVIDIA_VERSION = ((\d+)\..*)$`).FindSubmatch(text)
		require.NotNil(t, m, mk)
		t.Run(string(m[1]), func(t *testing.T) {
			var major int
			_, err := fmt.Sscan(string(m[2]), &major)
			require.NoError(t, err)
			source, want := program(major)
			out := filepath.Join(t.TempDir(), "layouts")
			args := []string{"-x", "c", "-", "-o", out}
			for _, include := range []string{"src/common/sdk/nvidia/inc", "src/nvidia/arch/nvalloc/unix/include", "src/common/inc"} {
				args = append(args, "-I", filepath.Join(tree, include))
			}
			compile := exec.CommandContext(t.Context(), cc, args...)
			compile.Stdin = strings.NewReader(source)
			text, err := compile.CombinedOutput()
			require.NoError(t, err, "%s", text)
			got, err := exec.CommandContext(t.Context(), out).Output()
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		})
	}
}
