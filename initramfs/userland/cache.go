package userland

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mkp2pimg/internal/digest"

	"github.com/google/renameio/v2"
)

// Digest names all that the bytes of the programs depend on: the Go release,
// the versions of the modules, and the files of this module at source that are
// compiled or embedded. It compiles nothing.
func Digest(ctx context.Context, source string) (string, error) {
	return sourceDigest(ctx, source, p2pinit, p2pbw)
}

func sourceDigest(ctx context.Context, source string, pkgs ...string) (string, error) {
	g, err := newGoTool(ctx, source)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	commands, err := g.key(Imports())
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, commands)
	files, err := g.files(ctx, pkgs...)
	if err != nil {
		return "", err
	}
	for _, name := range files {
		sum, err := digest.File(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %s\n", name, sum)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// key names all that the bytes of the busybox depend on. None of its packages
// is of this module, so a change of this project's programs keeps it.
func (g *goTool) key(cmds []string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, g.version, liner, strings.Join(cmds, " "))
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(g.source, name))
		if err != nil {
			return "", err
		}
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// cached returns the busybox with the given key in dir, "" if there is none or
// it is damaged. Its name ends in the digest of its content.
func cached(dir, key string) string {
	list, err := filepath.Glob(filepath.Join(dir, "bb-"+key+"-*"))
	if err != nil {
		return ""
	}
	for _, file := range list {
		if sum, err := digest.File(file); err == nil && strings.HasSuffix(file, sum) {
			return file
		}
	}
	return ""
}

// store copies the busybox in file into dir.
func store(dir, key, file string) error {
	sum, err := digest.File(file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, "bb-"+key+"-"+sum), data, 0o755)
}
