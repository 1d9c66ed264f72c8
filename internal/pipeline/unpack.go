package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"mkp2pimg/internal/cachedir"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
)

// unpackedDir is the place in the cache of what is unpacked from the inputs
// with these digests.
func (o *Options) unpackedDir(kind string, digests ...string) string {
	return filepath.Join(o.Cache, "unpacked", kind+"-"+keyOf(digests...))
}

// keyOf is a name for what is made from parts: the same parts, the same name.
func keyOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// root unpacks the packages with a role into one root to run commands in.
func (in *inputs) root(ctx context.Context, o *Options, role lock.Role) (sandbox.Root, error) {
	pkgs := in.lock.ByRole(role)
	return sandbox.Make(ctx, o.unpackedDir(string(role), digests(pkgs)...), func(dir string) error {
		if err := debian.UsrMerge(dir); err != nil {
			return err
		}
		for _, p := range pkgs {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := debian.Unpack(in.paths[p.SHA256], dir, debian.UnpackOptions{}); err != nil {
				return of(p, err)
			}
		}
		return nil
	})
}

func digests(pkgs []lock.Input) []string {
	var sums []string
	for _, p := range pkgs {
		sums = append(sums, p.SHA256)
	}
	return sums
}

// unpack unpacks one package.
func (in *inputs) unpack(ctx context.Context, o *Options, p lock.Input) (dir string, err error) {
	dir = o.unpackedDir(p.Name, p.SHA256)
	return dir, cachedir.Make(ctx, dir, func(partial string) error {
		return of(p, debian.Unpack(in.paths[p.SHA256], partial, debian.UnpackOptions{}))
	})
}

// of says which input an error is about: the cache's file names do not.
func of(p lock.Input, err error) error {
	if _, ok := errors.AsType[*debian.DamagedError](err); ok {
		err = fmt.Errorf("%w (%s has it so: another copy is no help, another version may be)", err, p.Suite)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", p.Name, p.Version, err)
	}
	return err
}

// source unpacks the driver's source.
func (in *inputs) source(ctx context.Context, o *Options) (dir, digest string, err error) {
	p := in.lock.ByRole(lock.DriverSource)[0]
	dir = o.unpackedDir(p.Name, p.SHA256)
	return dir, p.SHA256, cachedir.Make(ctx, dir, func(partial string) error {
		return of(p, debian.UnpackSource(in.paths[p.SHA256], partial))
	})
}
