package source

import (
	"archive/tar"
	"errors"
	"io"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/gittree"
)

// clean are the files of a tree, dirty what a build leaves beside them.
var (
	clean = map[string]string{
		"version.mk": "NVIDIA_VERSION = 570.1\n", "kernel-open/conftest.sh": "#!", "kernel-open/nvidia/nv.c": "c",
		"src/nvidia/x.c": "x", "src/common/unix/.gitignore": "*.o",
	}
	dirty = map[string]string{
		".git/HEAD": "x", "src/nvidia/_out/Linux_x86_64/x.o": "o", "kernel-open/conftest/headers.h": "h",
		"kernel-open/nvidia.ko": "ko", "kernel-open/nvidia.mod.c": "c", "kernel-open/.nvidia.ko.cmd": "cmd",
		"kernel-open/nvidia/nv-kernel.o_binary": "o", "kernel-open/Module.symvers": "s", ".mkp2pimg-undo.json": "{}", ".pc/applied-patches": "x", "kernel-open/nvidia/nv.o": "o",
	}
)

func fill(t *testing.T, dir string, sets ...map[string]string) {
	t.Helper()
	for _, set := range sets {
		for name, text := range set {
			path := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "kernel-open/conftest.sh"), 0o755))
	require.NoError(t, os.Symlink("nv.c", filepath.Join(dir, "kernel-open/nvidia/link.c")))
}

// read opens a source and returns its bytes and the git tree of its content.
func read(t *testing.T, where, tag string) (*Source, []byte, string) {
	t.Helper()
	s, err := Find(where, tag)
	require.NoError(t, err)
	r, err := s.Open(t.Context())
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	tarball := filepath.Join(t.TempDir(), "x.tar")
	require.NoError(t, os.WriteFile(tarball, data, 0o644))
	dir := t.TempDir()
	require.NoError(t, debian.UnpackTar(tarball, dir, debian.UnpackOptions{}))
	top, err := Top(dir)
	require.NoError(t, err)
	tree, err := gittree.Hash(top)
	require.NoError(t, err)
	return s, data, tree
}

func TestDirectory(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "ogkm"), filepath.Join(t.TempDir(), "ogkm#1")
	fill(t, a, clean)
	fill(t, b, clean, dirty)
	date := time.Date(2025, 7, 21, 1, 2, 3, 4, time.UTC)
	for _, dir := range []string{a, b} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, versionFile), date, date))
	}
	want, err := gittree.Hash(a)
	require.NoError(t, err)
	s, one, tree := read(t, a, "")
	assert.Equal(t, want, tree)
	assert.Equal(t, "ogkm.tar", s.Name)
	s, other, tree := read(t, b, "")
	assert.Equal(t, want, tree, "what a build left is not source")
	assert.Equal(t, "ogkm#1.tar", s.Name)
	assert.Equal(t, one, other, "times and place of a checkout do not matter")

	header, err := tar.NewReader(strings.NewReader(string(one))).Next()
	require.NoError(t, err)
	assert.Equal(t, date.Truncate(time.Second), header.ModTime.UTC())
}

func TestTarball(t *testing.T) {
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "open-gpu-kernel-modules-1"), clean)
	packed, err := packed(filepath.Join(dir, "open-gpu-kernel-modules-1"))
	require.NoError(t, err)
	data, err := io.ReadAll(packed)
	require.NoError(t, err)
	path := filepath.Join(dir, "driver.tar")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	s, got, _ := read(t, path, "570.1")
	assert.Equal(t, "driver.tar", s.Name)
	assert.Equal(t, data, got, "as it is")

	top, err := Top(dir)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "open-gpu-kernel-modules-1"), top)
}

func TestFindErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.tar")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for where, want := range map[string]string{
		filepath.Join(dir, "none"):   "want a directory, a tarball or a git repository",
		file + "#580.142":            `"580.142" asks for a commit`,
		dir:                          "name a branch, tag or commit of it, as in " + dir + "#580.142",
		"/dev/zero":                  "/dev/zero: is neither a directory nor a file",
		"https://example.org/x.git":  "name a branch, tag or commit",
		"https://exa mple.org/x#580": "invalid character",
	} {
		_, err := Find(where, "")
		assert.ErrorContains(t, err, want, where)
	}
	s, err := Find(dir+"#580.142", "")
	require.NoError(t, err)
	_, err = s.Open(t.Context())
	require.ErrorContains(t, err, "there is neither version.mk nor a git repository")

	tree := t.TempDir()
	fill(t, tree, clean)
	s, err = Find(tree+"#580.142", "")
	require.NoError(t, err)
	_, err = s.Open(t.Context())
	require.ErrorContains(t, err, `a tree without a git repository has no commits: leave out "#580.142"`)

	_, err = Top(dir)
	require.ErrorContains(t, err, "is it the source of NVIDIA's open kernel modules?")
}

func TestUnreadableDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	fill(t, dir, clean)
	require.NoError(t, os.Chmod(filepath.Join(dir, "src"), 0o000))
	defer func() { require.NoError(t, os.Chmod(filepath.Join(dir, "src"), 0o755)) }()
	s, err := Find(dir, "")
	require.NoError(t, err)
	r, err := s.Open(t.Context())
	require.NoError(t, err)
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, os.ErrPermission)
}

func TestGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: the repositories of this test are made with it")
	}
	dir := filepath.Join(t.TempDir(), "ogkm")
	fill(t, dir, clean)
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e",
			"GIT_COMMITTER_DATE=2025-07-21T01:02:03Z")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "-b", "main")
	run("add", "-A")
	run("commit", "-q", "-m", "570.1")
	run("tag", "570.1")
	run("tag", "-a", "-m", "signed", "570.1-annotated")
	commit, tree := run("rev-parse", "HEAD"), run("rev-parse", "HEAD^{tree}")
	fill2 := filepath.Join(dir, "version.mk")
	require.NoError(t, os.WriteFile(fill2, []byte("NVIDIA_VERSION = 570.2\n"), 0o644))
	run("commit", "-q", "-a", "-m", "570.2")
	head := run("rev-parse", "HEAD^{tree}")
	bare := filepath.Join(t.TempDir(), "mirror.git")
	run("clone", "-q", "--bare", dir, bare)
	run("-C", bare, "config", "uploadpack.allowAnySHA1InWant", "true")

	server := httptest.NewServer(&cgi.Handler{
		Path: git, Args: []string{"http-backend"},
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(bare), "GIT_HTTP_EXPORT_ALL=1"},
	})
	defer server.Close()
	url := server.URL + "/mirror.git"

	var first []byte
	for _, tt := range []struct{ where, tag, tree, name string }{
		{dir + "#570.1", "", tree, "ogkm@570.1.tar"},
		{dir + "#570.1-annotated", "", tree, "ogkm@570.1-annotated.tar"},
		{dir, "570.1", head, "ogkm.tar"}, // the tree as it is checked out
		{bare, "570.1", tree, "mirror@570.1.tar"},
		{bare + "#" + commit, "", tree, "mirror@" + commit + ".tar"},
		{"file://" + bare + "#main", "", head, "mirror@main.tar"},
		{url, "570.1", tree, "mirror@570.1.tar"},
		{url + "#570.1-annotated", "", tree, "mirror@570.1-annotated.tar"},
		{url + "#main", "570.1", head, "mirror@main.tar"},
		{url + "#" + commit, "", tree, "mirror@" + commit + ".tar"},
	} {
		s, data, got := read(t, tt.where, tt.tag)
		assert.Equal(t, tt.tree, got, tt.where)
		assert.Equal(t, tt.name, s.Name)
		assert.Equal(t, strings.HasPrefix(tt.where, "http"), s.Remote)
		if tt.tree == tree {
			if first == nil {
				first = data
			}
			assert.Equal(t, first, data, "%s: a commit gives the same bytes from anywhere", tt.where)
		}
	}
	for _, where := range []string{url + "#nothing", bare + "#nothing", server.URL + "/none.git#570.1", url + "#" + strings.Repeat("1", 40)} {
		s, err := Find(where, "")
		require.NoError(t, err)
		_, err = s.Open(t.Context())
		require.Error(t, err, where)
		place, ref, _ := strings.Cut(where, "#")
		require.ErrorContains(t, err, "driver source "+place+": "+ref+": ")
		assert.False(t, errors.Is(err, os.ErrNotExist))
	}
}
