package disk

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/report"
)

// The firmware that a stick is booted by. SeaBIOS is the emulator's own.
var firmwares = map[string][]string{
	"SeaBIOS": nil,
	"OVMF": {
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd",
		"-drive", "if=pflash,format=raw,unit=1,snapshot=on,file=/usr/share/OVMF/OVMF_VARS_4M.fd",
	},
}

// stick is a machine that boots from a USB stick and nothing else, which is a copy
// of the disk image of the directory MKP2PIMG_IMAGE.
type stick struct {
	path    string // of the copy
	console string
	began   time.Time
	cmd     *exec.Cmd
	ended   chan error
}

func boot(t *testing.T, firmware string) *stick {
	t.Helper()
	image := os.Getenv("MKP2PIMG_IMAGE")
	if image == "" {
		t.Skip("MKP2PIMG_IMAGE names no directory of an image")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("qemu-system-x86_64 is not installed")
	}
	if _, err := os.Stat("/usr/share/OVMF/OVMF_CODE_4M.fd"); firmware == "OVMF" && err != nil {
		t.Skip("OVMF is not installed")
	}
	dir := t.TempDir()
	s := &stick{path: filepath.Join(dir, "stick"), console: filepath.Join(dir, "console"), ended: make(chan error, 1)}
	data, err := os.ReadFile(filepath.Join(image, Name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path, data, 0o600))
	args := append([]string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-m", "2048", "-smp", "2",
		"-nic", "none", "-display", "none", "-no-reboot", "-serial", "file:" + s.console,
		"-device", "qemu-xhci", "-drive", "if=none,id=stick,format=raw,file=" + s.path,
		"-device", "usb-storage,drive=stick,bootindex=0",
	}, firmwares[firmware]...)
	s.cmd = exec.CommandContext(t.Context(), qemu, args...)
	s.cmd.Stderr = os.Stderr
	s.began = time.Now()
	require.NoError(t, s.cmd.Start())
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(s.cut)
	return s
}

// wait waits until the console says a text. A machine that hangs never does; the
// test's own deadline ends it.
func (s *stick) wait(t *testing.T, text string) {
	t.Helper()
	for {
		said, _ := os.ReadFile(s.console)
		if bytes.Contains(said, []byte(text)) {
			t.Logf("%q after %.1f s", text, time.Since(s.began).Seconds())
			return
		}
		select {
		case err := <-s.ended:
			t.Fatalf("the emulator ended (%v) before %q; the console said:\n%s", err, text, tail(said))
		case <-time.After(100 * time.Millisecond):
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < 20*time.Second {
			t.Fatalf("no %q; the console said:\n%s", text, tail(said))
		}
	}
}

func tail(text []byte) []byte { return text[max(0, len(text)-2000):] }

// cut takes the power away.
func (s *stick) cut() {
	if s.cmd.Process.Kill() == nil {
		<-s.ended //nolint:errcheck // killed, as it says
	}
}

// unmounted tells whether nobody writes to the partition for reports.
func (s *stick) unmounted(t *testing.T) bool {
	t.Helper()
	d, err := Open(s.path)
	require.NoError(t, err)
	defer d.Close()
	var state [1]byte // Linux marks a mounted FAT32 in BS_Reserved1 (fs/fat/inode.c, fat_set_state)
	_, err = d.f.ReadAt(state[:], d.at.report.start+65)
	require.NoError(t, err)
	return state[0]&1 == 0
}

// report reads the one report in the stick's partition.
func (s *stick) report(t *testing.T) (text []byte) {
	t.Helper()
	d, err := Open(s.path)
	require.NoError(t, err)
	defer d.Close()
	v, err := openVolume(d.f, d.at.report)
	require.NoError(t, err)
	require.NoError(t, v.walk(func(e entry) error {
		if !strings.HasSuffix(e.path, ".jsonl") {
			return nil
		}
		require.Nil(t, text, "more than one report")
		r, err := v.open(e)
		if err == nil {
			text, err = io.ReadAll(r)
		}
		return err
	}))
	require.NotEmpty(t, text, "no report on the stick")
	return text
}

func TestBoot(t *testing.T) {
	for firmware := range firmwares {
		t.Run(firmware, func(t *testing.T) {
			s := boot(t, firmware)
			s.wait(t, "checks    done")
			s.wait(t, "jsonl in partition P2PREPORT")
			// The last lines follow the one that was waited for.
			for !s.unmounted(t) {
				time.Sleep(time.Second)
			}
			text := s.report(t)
			s.cut()
			for _, err := range report.Check(text) {
				t.Error(err)
			}
			run, err := report.Parse(bytes.NewReader(text))
			require.NoError(t, err)
			assert.True(t, run.Complete)
			tool(t, "sgdisk", "-v", s.path)
		})
	}
}

// TestPowerCut switches the machine off after a stage: what the stages before
// found is on the stick.
func TestPowerCut(t *testing.T) {
	s := boot(t, "SeaBIOS")
	s.wait(t, " paths ")
	s.cut()
	assert.False(t, s.unmounted(t), "the power was cut too late for this test")
	text := s.report(t)
	run, err := report.Parse(bytes.NewReader(text))
	require.NoError(t, err)
	assert.False(t, run.Complete)
	assert.Contains(t, string(text), `{"testStepId":"driver","testStepEnd":`)
}
