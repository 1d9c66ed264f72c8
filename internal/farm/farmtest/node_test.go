package farmtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	name    string
	mac     string
	tap     string
	console string // file of the first serial port
	stream  string // file of the second, which its own copy of the report goes to
	cmd     *exec.Cmd
	ended   chan error
}

// start switches a node on. more are further arguments for QEMU.
func start(t *testing.T, name string, number int, fw firmware, more ...string) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{
		name: name, mac: mac(number), tap: tap(number),
		console: filepath.Join(dir, "console"), stream: filepath.Join(dir, "stream"), ended: make(chan error, 1),
	}
	run(t, "ip", "tuntap", "add", n.tap, "mode", "tap")
	run(t, "ip", "link", "set", n.tap, "master", bridge, "up")
	args := []string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-m", "1536", "-smp", "2", "-display", "none", "-monitor", "none",
		"-serial", "file:" + n.console, "-serial", "file:" + n.stream,
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
	n.cmd = exec.CommandContext(t.Context(), "qemu-system-x86_64", append(append(args, "-device", card), more...)...)
	n.cmd.Stderr = os.Stderr
	require.NoError(t, n.cmd.Start())
	go func() { n.ended <- n.cmd.Wait() }()
	t.Cleanup(n.kill)
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
	require.NoError(t, n.cmd.Process.Signal(syscall.SIGSTOP))
}

// kill takes the power away.
func (n *node) kill() {
	if n.cmd.Process.Kill() == nil {
		<-n.ended //nolint:errcheck // killed, as it says
	}
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

// said returns what the console said so far.
func (n *node) said() []byte {
	text, _ := os.ReadFile(n.console) // not there before it says anything
	return text
}

// wait waits until the console says a text.
func (n *node) wait(t *testing.T, text string) {
	t.Helper()
	for !bytes.Contains(n.said(), []byte(text)) {
		select {
		case err := <-n.ended:
			t.Fatalf("%s: the emulator ended (%v) before %q; the console said:\n%s", n.name, err, text, tail(n.said()))
		case <-t.Context().Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < 20*time.Second {
			t.Fatalf("%s: no %q; the console said:\n%s", n.name, text, tail(n.said()))
		}
	}
}

func tail(text []byte) []byte { return text[max(0, len(text)-3000):] }
