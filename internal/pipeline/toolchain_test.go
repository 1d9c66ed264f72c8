package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/lock"
)

func TestToolchainKeys(t *testing.T) {
	keys := func(packages ...string) (whole, compiler string) {
		in := &inputs{lock: &lock.Lock{}}
		for _, name := range packages {
			in.lock.Inputs = append(in.lock.Inputs, lock.Input{Role: lock.Toolchain, Name: name, SHA256: "sum of " + name})
		}
		whole, compiler, err := in.toolchainKeys(t.Context(), &Options{Toolchain: ToolchainSandbox})
		require.NoError(t, err)
		return whole, compiler
	}
	whole, compiler := keys("gcc-12", "linux-compiler-gcc-12-x86", "linux-headers-6.1.0-1-amd64", "linux-headers-6.1.0-1-common", "linux-kbuild-6.1", "linux-libc-dev")

	otherKernel, same := keys("gcc-12", "linux-headers-6.12.1-amd64", "linux-headers-6.12.1-common", "linux-kbuild-6.12.1", "linux-libc-dev")
	assert.Equal(t, compiler, same)
	assert.NotEqual(t, whole, otherKernel)

	_, otherLibc := keys("gcc-12", "linux-headers-6.12.1-amd64")
	assert.NotEqual(t, compiler, otherLibc, "the C library's headers are the compiler's")
}
