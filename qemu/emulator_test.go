package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// fakeRunner stands for a sandbox: it has a root of its own and answers as told.
type fakeRunner struct {
	root string
	out  string
	err  error
}

func (f fakeRunner) Root() string          { return f.root }
func (fakeRunner) Path(host string) string { return "/host" + host }
func (f fakeRunner) Run(_ context.Context, c Command) error {
	if c.Stdout != nil {
		fmt.Fprint(c.Stdout, f.out)
	}
	return f.err
}

var _ Runner = fakeRunner{}

func touch(t *testing.T, elem ...string) {
	t.Helper()
	file := filepath.Join(elem...)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
}

func TestFind(t *testing.T) {
	ctx := t.Context()
	root := t.TempDir()
	_, err := Find(ctx, fakeRunner{root: root})
	require.ErrorIs(t, err, ErrNoEmulator)

	touch(t, root, "usr/bin/qemu-system-x86_64")
	e, err := Find(ctx, fakeRunner{root: root, out: "QEMU emulator version 11.1.3\n"})
	require.NoError(t, err)
	assert.Equal(t, "/usr/bin/qemu-system-x86_64", e.Binary)
	assert.Equal(t, "11.1.3", e.Version.String())

	_, err = Find(ctx, fakeRunner{root: root, err: errors.New("exec format error")})
	require.ErrorContains(t, err, "exec format error")

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

func TestBootThatNeverStarts(t *testing.T) {
	e := &Emulator{Runner: fakeRunner{root: t.TempDir(), err: errors.New("exit status 1"), out: "no such device"}, Binary: "/usr/bin/qemu-system-x86_64"}
	m, err := Lookup("plain")
	require.NoError(t, err)
	r, err := Smoke(t.Context(), Options{Image: Image{Kernel: "/k", Initrd: "/i"}, Machine: m, Emulator: e, Accel: TCG})
	require.NoError(t, err)
	assert.Equal(t, Exit{Failed, "the emulator ended: exit status 1: no such device"}, r.Exit)
	assert.False(t, r.OK())
	assert.Zero(t, r.Count(Pass), "nothing passes in a run that did not take place")
	assert.Contains(t, r.Argv, "/host/k", "paths are those that the emulator sees")
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
