package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"mkp2pimg/images"
)

// imageKey names all that decides the bytes of the image: this program, the
// source of the image's programs, the Go release that compiles them, the inputs
// and the request.
func (in *inputs) imageKey(ctx context.Context, o *Options) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := fileDigest(self)
	if err != nil {
		return "", err
	}
	source, err := sourceDigest(os.DirFS(o.Source))
	if err != nil {
		return "", err
	}
	golang := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	golang.Dir = o.Source
	version, err := golang.Output()
	if err != nil {
		return "", fmt.Errorf("ask Go for its version (the image's programs are compiled with the host's Go): %w", err)
	}
	locked, err := in.lock.Marshal()
	if err != nil {
		return "", err
	}
	return keyOf(program, source, string(bytes.TrimSpace(version)), string(locked), o.Edits, o.Toolchain), nil
}

// sourceDigest is a digest of the files that Go compiles, or embeds, of a
// module's source.
func sourceDigest(root fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// bin and out hold what builds make.
			if hidden := strings.HasPrefix(name, ".") && name != "."; hidden || name == "bin" || name == "out" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".mod", ".sum", ".json", ".yaml", ".ptx":
		default:
			return nil
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		fmt.Fprintf(h, "%s\x00%x\n", name, sum.Sum(nil))
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// builtPath is the file that says which image a key gave: the digest of the
// image's list of checksums.
func (o *Options) builtPath(key string) string { return filepath.Join(o.Cache, "built", key) }

// upToDate returns the manifest of the image in o.Out if it is the one that
// key gave, and undamaged; else nil.
func (o *Options) upToDate(key string) *images.Manifest {
	want, err := os.ReadFile(o.builtPath(key))
	if err != nil {
		return nil
	}
	have, err := fileDigest(filepath.Join(o.Out, images.SumsName))
	if err != nil || have != string(want) {
		return nil
	}
	dir, err := images.Open(o.Out)
	if err != nil {
		return nil
	}
	return dir.Manifest
}

// remember notes which image key gave.
func (o *Options) remember(key string) error {
	sums, err := fileDigest(filepath.Join(o.Out, images.SumsName))
	if err != nil {
		return err
	}
	path := o.builtPath(key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), renameio.WriteFile(path, []byte(sums), 0o644)); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}
