package disk

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/report"
	"mkp2pimg/qemu/qemutest"
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
	*qemutest.Machine
	path string // of the copy
}

func boot(t *testing.T, firmware string) *stick {
	t.Helper()
	image := os.Getenv("MKP2PIMG_IMAGE")
	if image == "" {
		t.Skip("MKP2PIMG_IMAGE names no directory of an image")
	}
	if _, err := os.Stat("/usr/share/OVMF/OVMF_CODE_4M.fd"); firmware == "OVMF" && err != nil {
		t.Skip("OVMF is not installed")
	}
	s := &stick{path: filepath.Join(t.TempDir(), "stick")}
	data, err := os.ReadFile(filepath.Join(image, Name))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path, data, 0o600))
	s.Machine = qemutest.Start(t, append([]string{
		"-m", "2048", "-nic", "none", "-no-reboot",
		"-device", "qemu-xhci", "-drive", "if=none,id=stick,format=raw,file=" + s.path,
		"-device", "usb-storage,drive=stick,bootindex=0",
	}, firmwares[firmware]...)...)
	return s
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
			s.Wait(t, "checks    done")
			s.Wait(t, "jsonl in partition P2PREPORT")
			// The last lines follow the one that was waited for.
			for !s.unmounted(t) {
				time.Sleep(time.Second)
			}
			text := s.report(t)
			s.Kill()
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
	s.Wait(t, " paths ")
	s.Kill()
	assert.False(t, s.unmounted(t), "the power was cut too late for this test")
	text := s.report(t)
	run, err := report.Parse(bytes.NewReader(text))
	require.NoError(t, err)
	assert.False(t, run.Complete)
	assert.Contains(t, string(text), `{"testStepId":"driver","testStepEnd":`)
}
