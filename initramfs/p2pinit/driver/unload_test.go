package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
)

func TestLoadedModules(t *testing.T) {
	for name, test := range map[string]struct {
		holders []string // "module/holder" or "module"
		want    []string
	}{
		"none":          {nil, nil},
		"the image's":   {[]string{"nvidia/nvidia_uvm", "nvidia_uvm"}, []string{"nvidia_uvm", "nvidia"}},
		"a desktop's":   {[]string{"nvidia/nvidia_modeset", "nvidia/nvidia_uvm", "nvidia_modeset/nvidia_drm", "nvidia_drm", "nvidia_uvm"}, []string{"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia"}},
		"no such thing": {[]string{"nvidia/a", "a/nvidia"}, []string{"a", "nvidia"}},
		"others":        {[]string{"drm/nouveau", "nouveau"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, h := range test.holders {
				module, holder := filepath.Split(h)
				if module == "" {
					module, holder = holder, ""
				}
				require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/module", module, "holders", holder), 0o755))
			}
			assert.Equal(t, test.want, LoadedModules(os.DirFS(root)))
		})
	}
}

func TestUsers(t *testing.T) {
	root := t.TempDir()
	open := func(pid, fd, target string) {
		dir := filepath.Join(root, "proc", pid, "fd")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "proc", pid, "comm"), []byte("name of "+pid+"\n"), 0o644))
		require.NoError(t, os.Symlink(target, filepath.Join(dir, fd)))
	}
	open("93", "3", "/dev/nvidiactl")
	open("93", "4", "/dev/nvidia0")
	open("94", "0", "/dev/null")
	open("7", "9", "/dev/nvidia-uvm")
	assert.Equal(t, []string{"name of 7 (process 7)", "name of 93 (process 93)"}, Users(os.DirFS(root)))
}

func TestUnloaded(t *testing.T) {
	assert.Nil(t, Unloaded("nvidia", nil, nil, nil))
	assert.Nil(t, Unloaded("nvidia", fmt.Errorf("delete_module: %w", syscall.ENOENT), nil, nil))

	f := Unloaded("nvidia_uvm", fmt.Errorf("delete_module: %w", syscall.EWOULDBLOCK), []string{"p2pbw (process 93)"}, []string{"NVRM: x"})
	require.NotNil(t, f)
	assert.Equal(t, "nvidia_uvm is in use and was not unloaded", f.Title)
	assert.Equal(t, checks.Unknown, f.Status)
	assert.NotEmpty(t, f.Fix)
	require.Len(t, f.Evidence, 3)
	assert.Equal(t, "p2pbw (process 93)", f.Evidence[1].Raw)

	f = Unloaded("nvidia", syscall.EPERM, nil, nil)
	require.NotNil(t, f)
	assert.Equal(t, "nvidia could not be unloaded", f.Title)
	assert.Len(t, f.Evidence, 1)
}
