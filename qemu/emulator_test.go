package qemu

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/sandbox"
)

func TestParseVersion(t *testing.T) {
	for out, want := range map[string]Version{
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright": {7, 2, 22},
		"QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)":                       {10, 0, 2},
		"QEMU emulator version 11.1.3":                                              {11, 1, 3},
	} {
		got, err := ParseVersion(out)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, out := range []string{"", "bash: qemu: not found", "QEMU emulator version seven", "QEMU emulator version 99999999999999999999.1.1"} {
		_, err := ParseVersion(out)
		assert.Error(t, err, out)
	}
}

// script puts a shell script in place of the host's emulator.
func script(t *testing.T, body string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+body), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestFindOnHost(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find(t.Context(), sandbox.Root{})
	require.ErrorIs(t, err, ErrNoEmulator)

	script(t, "echo QEMU emulator version 11.1.3")
	e, err := Find(t.Context(), sandbox.Root{})
	require.NoError(t, err)
	assert.Equal(t, "11.1.3", e.Version.String())

	script(t, "echo no libfoo.so >&2; exit 127")
	_, err = Find(t.Context(), sandbox.Root{})
	require.ErrorContains(t, err, "no libfoo.so")
}

func TestNeedVFIOUser(t *testing.T) {
	find := func(says string) *Emulator {
		script(t, `case $1 in --version) echo QEMU emulator version 7.2.22;; *) `+says+`;; esac`)
		e, err := Find(t.Context(), sandbox.Root{})
		require.NoError(t, err)
		return e
	}
	assert.NoError(t, find("echo 'vfio-user-pci options:'; echo '  socket=<SocketAddress>'").NeedVFIOUser(t.Context()))

	err := find(`echo "qemu: -device vfio-user-pci,help: Device 'vfio-user-pci' not found" >&2`).NeedVFIOUser(t.Context())
	require.ErrorIs(t, err, ErrNoVFIOUser, "though the emulator ends well")
	assert.ErrorContains(t, err, "is version 7.2.22 and says: qemu: -device vfio-user-pci,help: Device 'vfio-user-pci' not found")

	err = find("echo no libfoo.so >&2; exit 127").NeedVFIOUser(t.Context())
	assert.NotErrorIs(t, err, ErrNoVFIOUser)
	assert.ErrorContains(t, err, "no libfoo.so")
}

func TestJobs(t *testing.T) {
	assert.Equal(t, Size(16384)*KiB, available("MemTotal:  99 kB\nMemAvailable:   16384 kB\nBuffers: 3 kB\n"))
	assert.Zero(t, available("MemTotal: 99 kB\n"))
	m := &Machine{Memory: TiB}
	assert.Equal(t, 1, Jobs([]Options{{Machine: m}}), "one at least, whatever the memory")
	m.Memory = 0
	assert.LessOrEqual(t, Jobs([]Options{{Machine: m}}), runtime.NumCPU())
}

func touch(t *testing.T, elem ...string) {
	t.Helper()
	file := filepath.Join(elem...)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
}

func TestEmulatorInRoot(t *testing.T) {
	root := t.TempDir()
	_, err := Find(t.Context(), sandbox.Root{Dir: root})
	require.ErrorIs(t, err, ErrNoEmulator)

	e := &Emulator{Root: sandbox.Root{Dir: root}}
	_, path := e.bind("/home/me/out/vmlinuz", true)
	assert.Equal(t, "/host/home/me/out/vmlinuz", path)
	_, path = (&Emulator{}).bind("/home/me/out/vmlinuz", true)
	assert.Equal(t, "/home/me/out/vmlinuz", path)

	_, _, err = e.ovmf()
	require.ErrorContains(t, err, "install the package ovmf")
	touch(t, root, "usr/share/OVMF/OVMF_CODE_4M.fd")
	_, _, err = e.ovmf()
	require.Error(t, err, "code without variables is of no use")
	touch(t, root, "usr/share/OVMF/OVMF_VARS_4M.fd")
	code, vars, err := e.ovmf()
	require.NoError(t, err)
	assert.Equal(t, "/usr/share/OVMF/OVMF_CODE_4M.fd", code, "as the emulator sees it")
	assert.Equal(t, filepath.Join(root, "usr/share/OVMF/OVMF_VARS_4M.fd"), vars, "as this program sees it")
}

func TestSmokeOfEmulatorThatFails(t *testing.T) {
	script(t, `case $1 in --version) echo QEMU emulator version 7.2.22;; *) echo no such device >&2; exit 1;; esac`)
	m, err := Lookup("plain")
	require.NoError(t, err)
	r, err := Smoke(t.Context(), Options{Image: Image{Kernel: "/k", Initrd: "/i"}, Machine: m, Accel: TCG})
	require.NoError(t, err)
	assert.Equal(t, Failed, r.Exit.Kind)
	assert.Contains(t, r.Exit.Detail, "no such device")
	assert.False(t, r.OK())
	assert.Zero(t, r.Count(Pass), "nothing passes in a run that did not take place")
}

func TestArgv(t *testing.T) {
	script(t, "echo QEMU emulator version 7.2.22")
	m, err := Lookup("iommu")
	require.NoError(t, err)
	argv, err := Options{Image: Image{Kernel: "/k", Initrd: "/i", Cmdline: []string{"quiet"}}, Machine: m}.Argv(t.Context())
	require.NoError(t, err)
	assert.Contains(t, argv, "quiet console=ttyS0 loglevel=7 panic=-1 no_timer_check p2p.plan=full p2p.after=poweroff p2p.node=iommu intel_iommu=on p2p.gpu=1b36:0005")
}

func TestSurroundings(t *testing.T) {
	plain, err := Lookup("plain")
	require.NoError(t, err)
	assert.Equal(t, "# machine plain\n"+
		"# DIR/control, DIR/console, DIR/report: UNIX sockets that smoke listens on\n", Options{Machine: plain}.Surroundings())

	epyc, err := Lookup("epyc-4x4090")
	require.NoError(t, err)
	require.NoError(t, epyc.Set("acs=on"))
	e := &Emulator{Root: sandbox.Root{Dir: "/cache/emulator"}}
	assert.Equal(t, "# machine epyc-4x4090,acs=on\n"+
		"# in the root /cache/emulator, where files of the host are below /host\n"+
		"# DIR/control, DIR/console, DIR/report: UNIX sockets that smoke listens on\n"+
		"# DIR/gpu*: UNIX sockets at which smoke serves the functions of the emulated GPUs (vfio-user)\n"+
		"# DIR/vars: a copy of OVMF's variables\n", Options{Machine: epyc, Emulator: e}.Surroundings())
}

func TestParseAccel(t *testing.T) {
	for text, want := range map[string]Accel{"auto": Auto, "": Auto, "tcg": TCG, "kvm": KVM} {
		got, err := ParseAccel(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := ParseAccel("xen")
	assert.Error(t, err)
}

func TestJudgeProbe(t *testing.T) {
	got, _, err := judgeProbe(&Run{Console: []Line{{Text: "[    0.000000] Linux version 6.12"}}})
	require.NoError(t, err)
	assert.Equal(t, KVM, got)
	got, why, err := judgeProbe(&Run{Console: []Line{{Text: "SeaBIOS"}}, Exit: Exit{Deadline, "killed after 10s"}})
	require.NoError(t, err)
	assert.Equal(t, TCG, got)
	assert.Contains(t, why, "killed after 10s")
}

func TestExit(t *testing.T) {
	failed := errors.New("signal: killed")
	for _, tt := range []struct {
		err, cause error
		reason     string
		want       ExitKind
	}{
		{nil, nil, "guest-shutdown", PowerOff},
		{nil, nil, "guest-reset", Reset},
		{nil, nil, watchdogReset, Reset},
		{nil, nil, "host-signal", Failed},
		{nil, nil, "", Failed},
		{failed, nil, "", Failed},
		{failed, errDeadline, "", Deadline},
		{failed, errPanic, "", Panic},
		{failed, errStopped, "", Stopped},
		{failed, context.Canceled, "", Interrupted},
	} {
		got := exit(tt.err, tt.cause, tt.reason, "", 0)
		assert.Equal(t, tt.want, got.Kind, "%v %v %q", tt.err, tt.cause, tt.reason)
		assert.Equal(t, tt.want == PowerOff, got.Detail == "", "only a clean end needs no words")
	}
}

// pipe lets a reader of a stream read from one place and write to another.
type pipe struct {
	io.Reader
	io.Writer
}
