package libcuda

import (
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// setenvC sets a variable of the C library's environment, which without cgo is
// not the one that os.Setenv changes.
func setenvC(t *testing.T, name, value string) {
	t.Helper()
	lib, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	require.NoError(t, err)
	var setenv func(name, value string, overwrite int32) int32
	purego.RegisterLibFunc(&setenv, lib, "setenv")
	var unsetenv func(name string) int32
	purego.RegisterLibFunc(&unsetenv, lib, "unsetenv")
	require.Zero(t, setenv(name, value, 1))
	t.Cleanup(func() { require.Zero(t, unsetenv(name)) })
}
