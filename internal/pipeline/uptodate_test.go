package pipeline

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline/pipelinetest"
)

func TestUpToDate(t *testing.T) {
	o := &Options{Out: filepath.Join(t.TempDir(), "out"), Cache: t.TempDir()}
	assert.Nil(t, o.upToDate("key"), "nothing was ever built")
	require.ErrorIs(t, o.remember("key"), os.ErrNotExist, "no image, nothing to remember")

	pipelinetest.WriteImage(t, o.Out, "535.261.03", nil)
	assert.Nil(t, o.upToDate("key"), "an image of unknown making")
	require.NoError(t, o.remember("key"))
	m := o.upToDate("key")
	require.NotNil(t, m)
	assert.Equal(t, "535.261.03", m.Driver)
	assert.Nil(t, o.upToDate("other key"))

	initrd := filepath.Join(o.Out, images.InitrdName)
	whole, err := os.ReadFile(initrd)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(initrd, bytes.ToUpper(whole), 0o644))
	assert.Nil(t, o.upToDate("key"), "a damaged image")
	require.NoError(t, os.WriteFile(initrd, whole, 0o644))
	assert.NotNil(t, o.upToDate("key"))
	require.NoError(t, os.Remove(initrd))
	assert.Nil(t, o.upToDate("key"), "a file is gone")

	pipelinetest.WriteImage(t, o.Out, "550.163.01", nil)
	assert.Nil(t, o.upToDate("key"), "another image in its place")
	require.NoError(t, o.remember("other key"))
	assert.NotNil(t, o.upToDate("other key"))
	assert.Nil(t, o.upToDate("key"))
}

func TestRememberNamesTheCacheItCannotWrite(t *testing.T) {
	o := &Options{Out: filepath.Join(t.TempDir(), "out"), Cache: filepath.Join(t.TempDir(), "file")}
	pipelinetest.WriteImage(t, o.Out, "535.261.03", nil)
	require.NoError(t, os.WriteFile(o.Cache, nil, 0o644))
	require.ErrorContains(t, o.remember("key"), o.Cache)
}

func TestImageKeyHangsOnTheRequest(t *testing.T) {
	l, err := lock.Read("../lock/testdata/v1.lock")
	require.NoError(t, err)
	in := &inputs{lock: l}
	key := func(change func(*Options)) string {
		o := &Options{Source: "../..", Edits: "auto", Toolchain: ToolchainSandbox, Out: "a", Cache: "b", Jobs: 1}
		change(o)
		k, err := in.imageKey(t.Context(), o)
		require.NoError(t, err)
		return k
	}
	before := key(func(*Options) {})
	assert.Equal(t, before, key(func(o *Options) { o.Out, o.Cache, o.Jobs = "c", "d", 2 }), "where and how fast doesn't matter")
	assert.NotEqual(t, before, key(func(o *Options) { o.Edits = "minimal" }))
	assert.NotEqual(t, before, key(func(o *Options) { o.Profile = "minimal" }))
	assert.NotEqual(t, before, key(func(o *Options) { o.gpus.names = []string{"ada"} }))
	_, err = in.imageKey(t.Context(), &Options{Source: "../..", Edits: "auto", Toolchain: ToolchainHost})
	var refused *RequestError
	require.ErrorAs(t, err, &refused, "no headers of that kernel here")
	assert.Regexp(t, `needs the headers of kernel `+regexp.QuoteMeta(l.Kernel)+`: install .*--toolchain=sandbox: .*no such file`, err.Error())
	l.Inputs[0].SHA256 = strings.Repeat("0", 64)
	assert.NotEqual(t, before, key(func(*Options) {}), "another input")
}
