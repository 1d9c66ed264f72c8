package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/pipeline/pipelinetest"
)

func TestMain(m *testing.M) {
	debiantest.NoNames()
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// asProgram is set in the environment of a test that runs itself as mkp2pimg.
const asProgram = "MKP2PIMG_TEST_AS_PROGRAM"

// bench is a place to run commands in: an archive, and a directory for the
// cache and what commands write.
type bench struct {
	*pipelinetest.Mirror
	cache, lock, out string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	return &bench{
		Mirror: pipelinetest.New(t),
		cache:  filepath.Join(dir, "cache"),
		lock:   filepath.Join(dir, "mkp2pimg.lock"),
		out:    filepath.Join(dir, "out"),
	}
}

// run executes a command.
func (b *bench) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, b.args(args...), &out, &errs)
	return code, out.String(), errs.String()
}

// args completes a command line: commands that take inputs get them from the
// archive, unless args say otherwise.
func (b *bench) args(args ...string) []string {
	if args[0] == "fetch" || args[0] == "build" {
		inputs := []string{
			args[0], "--cache", b.cache, "--lock", b.lock,
			"--mirror", b.URL, "--security-mirror", b.URL,
		}
		if b.Keyring != "" {
			inputs = append(inputs, "--keyring", b.Keyring)
		}
		args = append(inputs, args[1:]...)
	}
	if args[0] == "build" {
		args = append(args, "--out", b.out)
	}
	return args
}

// left lists what commands left beside the cache.
func (b *bench) left(t *testing.T) []string {
	t.Helper()
	var all []string
	root := filepath.Dir(b.cache)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if path == b.cache {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		text := ""
		if err == nil && d.Type().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			text = fmt.Sprintf("%x", sha256.Sum256(data))
		}
		all = append(all, path+" "+text)
		return err
	}))
	return all
}

var final = regexp.MustCompile(`^[0-9a-f]{64}$`)

// requireCacheWhole checks that every file of the cache is what its name says.
func (b *bench) requireCacheWhole(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(b.cache, "sha256"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipAll // no cache at all
		}
		if final.MatchString(d.Name()) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, d.Name(), fmt.Sprintf("%x", sha256.Sum256(data)))
		}
		return nil
	})
	require.NoError(t, err)
}

// requireGoodRun checks that a fetch works.
func (b *bench) requireGoodRun(t *testing.T) {
	t.Helper()
	code, stdout, stderr := b.run(t.Context(), "fetch")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, b.lock+": 31 files for driver 535.261.03 and kernel 6.12.117+deb12-amd64 are in "+b.cache)
	assert.FileExists(t, b.lock)
	b.requireCacheWhole(t)
}
