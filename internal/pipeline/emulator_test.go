package pipeline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline/pipelinetest"
	"mkp2pimg/qemu"
)

// oldEmulator puts an emulator without vfio-user-pci in place of the host's.
func oldEmulator(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte("#!/bin/sh\necho QEMU emulator version 7.2.22\n"), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestNewEmulatorOffline(t *testing.T) {
	oldEmulator(t)
	_, err := NewEmulator(t.Context(), Options{Cache: t.TempDir(), Offline: true, Log: io.Discard}, false)
	require.ErrorIs(t, err, qemu.ErrNoVFIOUser)
	assert.ErrorAs(t, err, new(*fetch.OfflineError))
	assert.ErrorContains(t, err, "trixie-backports")
}

// TestEmulatorLock takes the newest emulator of a test's archive, pins it, and
// has it again once the archive has moved on.
func TestEmulatorLock(t *testing.T) {
	m := pipelinetest.New(t)
	add := func(suite, name, version string, fields ...string) {
		m.Add(t, suite, "main", debiantest.Package{Name: name, Version: version, Fields: fields})
	}
	add("trixie", "qemu-system-x86", "10.0")
	add("trixie", "ovmf", "2025.02")
	add("trixie", "libslirp0", "4.8")
	add("trixie-backports", "qemu-system-x86", "11.1~bpo13", "Depends: libslirp0 (>= 4)")
	for _, suite := range []string{"trixie", "trixie-updates", "trixie-security", "trixie-backports"} {
		m.Publish(t, suite, []string{"main"})
	}
	o := Options{Cache: t.TempDir(), Mirror: m.URL, SecurityMirror: m.URL, Keyring: m.Keyring, Log: io.Discard}
	l, err := o.emulatorLock(t.Context())
	require.NoError(t, err)
	var got []string
	for _, in := range l.Inputs {
		assert.Equal(t, lock.Emulator, in.Role)
		got = append(got, fmt.Sprint(in.Name, " ", in.Version, " of ", in.Suite))
	}
	assert.Equal(t, []string{"libslirp0 4.8 of trixie", "ovmf 2025.02 of trixie", "qemu-system-x86 11.1~bpo13 of trixie-backports"}, got)

	m.Requests()
	again, err := o.emulatorLock(t.Context())
	require.NoError(t, err)
	assert.Equal(t, l.Inputs, again.Inputs)
	assert.Empty(t, m.Requests(), "pinned")
}
