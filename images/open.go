package images

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Dir is a netboot directory whose files have been verified.
type Dir struct {
	Path     string // of the directory
	Manifest *Manifest
}

// Kernel returns the host path of the kernel.
func (d *Dir) Kernel() string { return filepath.Join(d.Path, KernelName) }

// Initrd returns the host path of the packed initramfs.
func (d *Dir) Initrd() string { return filepath.Join(d.Path, InitrdName) }

// DirError says that a directory is no netboot directory, or a damaged one.
type DirError struct{ Err error }

func (e *DirError) Error() string { return e.Err.Error() }

func (e *DirError) Unwrap() error { return e.Err }

// Open reads a netboot directory and verifies the SHA-256 of each of its files.
// All that are missing or damaged are named in the error, a *DirError. Files
// that Write did not make are not looked at.
func Open(dir string) (*Dir, error) { return openDir(context.Background(), dir) }

func openDir(ctx context.Context, dir string) (*Dir, error) {
	d, err := open(ctx, dir)
	if err != nil {
		return nil, &DirError{err}
	}
	return d, nil
}

func open(ctx context.Context, dir string) (*Dir, error) {
	data, err := os.ReadFile(filepath.Join(dir, SumsName))
	if err != nil {
		return nil, fmt.Errorf("not a netboot directory of %s: %w", ProductName, err)
	}
	err = CheckFiles(ctx, data, func(name string) (io.Reader, error) { return os.Open(filepath.Join(dir, name)) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("netboot directory %s is damaged; build it again:\n%w", dir, err)
	}
	f, err := os.Open(filepath.Join(dir, ManifestName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := ReadManifest(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return &Dir{dir, m}, nil
}

// formatSums gives the text that sha256sum -c reads.
func formatSums(list []Artifact) []byte {
	var b bytes.Buffer
	for _, a := range list {
		fmt.Fprintf(&b, "%s  %s\n", a.SHA256, a.Name)
	}
	return b.Bytes()
}

// ParseSums reads the text of SHA256SUMS: digest by file name.
func ParseSums(data []byte) (map[string]string, error) {
	sums := map[string]string{}
	s := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; s.Scan(); n++ {
		sum, name, ok := strings.Cut(s.Text(), "  ")
		raw, err := hex.DecodeString(sum)
		switch {
		case !ok || err != nil || len(raw) != sha256.Size || sum != strings.ToLower(sum):
			return nil, fmt.Errorf("line %d is not a SHA-256, two spaces and a file name", n)
		case name == "" || name == "." || name == ".." || name != filepath.Base(name):
			return nil, fmt.Errorf("line %d: %q is not the name of a file of the directory", n, name)
		case sums[name] != "":
			return nil, fmt.Errorf("line %d: %s is listed twice", n, name)
		}
		sums[name] = sum
	}
	return sums, s.Err()
}
