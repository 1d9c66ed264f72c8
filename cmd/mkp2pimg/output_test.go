package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/pipeline"
	"mkp2pimg/kmod/build"
)

func TestProgressIsForTerminals(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer f.Close()
	for _, w := range []io.Writer{io.Discard, f} {
		var o pipeline.Options
		follow(&o, w)
		assert.Equal(t, pipeline.Options{Log: w}, o)
	}

	b := newBench(t)
	code, _, stderr := b.run(t.Context(), "fetch")
	require.Equal(t, exitOK, code)
	assert.NotContains(t, stderr, "\r")
	assert.NotContains(t, stderr, "\x1b")
}

func TestBarCountsAllDownloads(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	first := b.Start("a.deb", 100)
	second := b.Start("b.deb", 0)
	first.Add(60)
	first.Add(-60) // starts over
	first.Add(100)
	assert.Contains(t, out.String(), "download")
	first.End(nil)
	require.NotNil(t, b.bar, "the second is under way")
	assert.EqualValues(t, 100, b.bar.State().CurrentNum)
	second.End(io.ErrUnexpectedEOF)
	assert.Nil(t, b.bar)
	b.Start("c.deb", 7).Add(3)
	assert.EqualValues(t, 7, b.bar.GetMax64(), "a new bar")
}

func TestBarShowsTheStep(t *testing.T) {
	var out bytes.Buffer
	b := &bar{out: &out}
	b.doing("modules", 61400*time.Millisecond)
	assert.Equal(t, "\r\x1b[Kmodules … 1m1s", out.String())
	out.Reset()
	b.doing("", time.Minute)
	assert.Equal(t, "\r\x1b[K", out.String())

	download := b.Start("a.deb", 100)
	out.Reset()
	b.doing("fetch", time.Second)
	assert.Empty(t, out.String(), "a download has the line")
	download.End(nil)
}

func TestPrintBuild(t *testing.T) {
	r := &pipeline.Result{
		Out: "out", Driver: "535.261.03", Kernel: "6.12.117+deb12-amd64", Edits: []string{"P2P-A", "P2P-B"},
		Initrd:   initramfs.Sizes{Packed: 71_400_000, Raw: 190_200_000},
		Steps:    []pipeline.Step{{Name: "inputs", Detail: "77 files", Wall: time.Second, Peak: 12_000_000}},
		Compiled: []build.Step{{Name: "stock/modules", Wall: time.Minute}},
	}
	var text, asJSON bytes.Buffer
	require.NoError(t, printBuild(&text, r, false))
	assert.Equal(t, "out: driver 535.261.03 (2 edits), kernel 6.12.117+deb12-amd64, initrd 71.4 MB (190.2 MB unpacked)\n", text.String())
	require.NoError(t, printBuild(&asJSON, r, true))
	var back pipeline.Result
	require.NoError(t, json.Unmarshal(asJSON.Bytes(), &back))
	assert.Equal(t, r, &back)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"build", "--help"}, {"fetch", "--help"}, {"smoke", "--help"}, {"--version"}} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr), args)
		assert.Contains(t, stdout.String(), "mkp2pimg")
		assert.Empty(t, stderr.String())
	}
	var help bytes.Buffer
	for _, command := range []string{"build", "fetch"} {
		help.Reset()
		run(t.Context(), []string{command, "--help"}, &help, io.Discard)
		assert.Regexp(t, `--keyring string +file of the OpenPGP keys`, help.String())
	}
}
