// Package source reads a driver's source from where a user has it: a tarball, a
// directory or a git repository.
package source

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Source is one place with a driver's source.
type Source struct {
	// Name is short and the same whenever this place is named: the file name of
	// the tarball that Open reads.
	Name string
	// Remote says that Open asks the network.
	Remote bool
	// Open returns a tar archive of the source, perhaps compressed. Of a directory
	// and of a commit it depends on nothing but their files and one date. Its
	// files are at its top or in one directory there.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// Find says what is at where:
//
//   - a file is a tarball;
//   - a directory with version.mk is a tree, of which build outputs and .git are
//     left out;
//   - any other directory, and a URL, is a git repository. A fragment names a
//     branch, tag or commit in it ("URL#580.142"); without one it is the tag.
func Find(where, tag string) (*Source, error) {
	path, ref, pinned := strings.Cut(strings.TrimPrefix(where, "file://"), "#")
	if _, err := os.Stat(where); err == nil { // a name that is there is meant, even with a "#" in it
		path, pinned = where, false
	}
	if !pinned {
		ref = tag
	}
	if strings.Contains(path, "://") {
		return gitSource(path, ref, true)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("driver source: %w (want a directory, a tarball or a git repository)", err)
	}
	_, noTree := os.Stat(filepath.Join(path, versionFile))
	switch {
	case !info.IsDir() && pinned:
		return nil, fmt.Errorf("driver source %s: is a file, but %q asks for a commit: only a git repository has those", path, ref)
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, fmt.Errorf("driver source %s: is neither a directory nor a file (want a directory, a tarball or a git repository)", path)
	case !info.IsDir():
		return &Source{Name: filepath.Base(path), Open: func(context.Context) (io.ReadCloser, error) { return os.Open(path) }}, nil
	case noTree == nil && !pinned:
		return &Source{Name: filepath.Base(path) + ".tar", Open: func(context.Context) (io.ReadCloser, error) { return packed(path) }}, nil
	}
	return gitSource(path, ref, false)
}

// versionFile is at the top of every driver source.
const versionFile = "version.mk"

// Top returns the directory below dir that holds the driver's source: dir
// itself, or its only directory.
func Top(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, versionFile)); err == nil {
		return dir, nil
	}
	list, err := filepath.Glob(filepath.Join(dir, "*", versionFile))
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("%s: %s is neither at its top nor in one directory there: is it the source of NVIDIA's open kernel modules?",
			dir, versionFile)
	}
	return filepath.Dir(list[0]), nil
}
