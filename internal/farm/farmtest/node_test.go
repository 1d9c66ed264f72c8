package farmtest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mkp2pimg/qemu/qemutest"
)

// diskSays is what a node's disk says on the first serial port when it is booted.
const diskSays = "DISK BOOTED"

// firmware is the way on which a node starts from the network.
type firmware string

const (
	bios     firmware = "BIOS"      // SeaBIOS and the iPXE of QEMU's network cards
	uefiPXE  firmware = "UEFI PXE"  // OVMF's own PXE, then our loader by TFTP
	uefiHTTP firmware = "UEFI HTTP" // OVMF's HTTP boot
	direct   firmware = "direct"    // none: QEMU loads the kernel
)

// node is an emulated machine.
type node struct {
	*qemutest.Machine
	mac    string
	tap    string
	stream string // file of the second serial port, which its own copy of the report goes to
}

// start switches a node on. more are further arguments for QEMU.
func start(t *testing.T, number int, fw firmware, more ...string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{mac: mac(number), tap: tap(number), stream: filepath.Join(dir, "stream")}
	run(t, "ip", "tuntap", "add", n.tap, "mode", "tap")
	run(t, "ip", "link", "set", n.tap, "master", bridge, "up")
	args := []string{
		"-m", "1536", "-monitor", "none", "-serial", "file:" + n.stream,
		"-netdev", "tap,id=n0,ifname=" + n.tap + ",script=no,downscript=no",
	}
	card := "virtio-net-pci,netdev=n0,mac=" + n.mac
	switch fw {
	case bios:
		card += ",bootindex=0"
		disk := filepath.Join(dir, "disk")
		require.NoError(t, os.WriteFile(disk, bootSector(diskSays+"\r\n"), 0o600))
		args = append(args, "-drive", "if=virtio,format=raw,file="+disk)
	case uefiPXE, uefiHTTP:
		card += ",bootindex=0,romfile="
		args = append(args, ovmf(t, dir)...)
		boot := filepath.Join(dir, "disk", "EFI", "BOOT")
		require.NoError(t, os.MkdirAll(boot, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(boot, "BOOTX64.EFI"), efiProgram(t, diskSays+"\r\n"), 0o600))
		args = append(args, "-drive", "if=none,id=disk,format=raw,readonly=on,file=fat:"+filepath.Join(dir, "disk"), "-device", "virtio-blk-pci,drive=disk,bootindex=1")
	}
	// OVMF tries all ways from the network before the disk, and waits for each.
	absent := map[firmware][]string{uefiPXE: {"IPv6PXESupport"}, uefiHTTP: {"IPv4PXESupport", "IPv6PXESupport"}}
	for _, pxe := range absent[fw] {
		args = append(args, "-fw_cfg", "name=opt/org.tianocore/"+pxe+",string=no")
	}
	n.Machine = qemutest.Start(t, append(append(args, "-device", card), more...)...)
	return n
}

func mac(number int) string { return "52:54:00:77:00:0" + strconv.Itoa(number) }
func tap(number int) string { return "tap" + strconv.Itoa(number) }

// ovmf is UEFI with variables of its own.
func ovmf(t *testing.T, dir string) []string {
	t.Helper()
	vars, err := os.ReadFile(firmwareDir + "OVMF_VARS_4M.fd")
	require.NoError(t, err)
	path := filepath.Join(dir, "vars")
	require.NoError(t, os.WriteFile(path, vars, 0o600))
	return []string{
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + firmwareDir + "OVMF_CODE_4M.fd",
		"-drive", "if=pflash,format=raw,unit=1,file=" + path,
	}
}

// freeze stops a node in whatever it does: to the world it hangs.
func (n *node) freeze(t *testing.T) {
	t.Helper()
	require.NoError(t, n.Signal(syscall.SIGSTOP))
}

// unplug takes the network cable out, plug puts it back.
func (n *node) unplug(t *testing.T) { t.Helper(); run(t, "ip", "link", "set", n.tap, "down") }
func (n *node) plug(t *testing.T)   { t.Helper(); run(t, "ip", "link", "set", n.tap, "up") }

// report is the node's own copy. UEFI has its console on that port too.
func (n *node) report(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(n.stream)
	require.NoError(t, err)
	var own []byte
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("{")) {
			own = append(append(own, bytes.TrimRight(line, "\r\n")...), '\n')
		}
	}
	return own
}
