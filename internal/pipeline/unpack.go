package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"mkp2pimg/internal/cachedir"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/runfile"
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

// unpack unpacks one package, or what an image needs of a .run archive.
func (in *inputs) unpack(ctx context.Context, o *Options, p lock.Input) (dir string, err error) {
	dir = o.unpackedDir(p.Name, p.SHA256)
	file := in.paths[p.SHA256]
	return dir, cachedir.Make(ctx, dir, func(partial string) error {
		switch path.Ext(p.Path) {
		case ".run":
			_, err := runfile.Extract(ctx, file, partial, runfile.Driver(in.lock.Driver))
			return of(p, err)
		case ".deb":
			return of(p, debian.Unpack(file, partial, debian.UnpackOptions{}))
		}
		return of(p, debian.UnpackTar(file, partial, debian.UnpackOptions{}))
	})
}

// of says which input an error is about: the cache's file names do not.
func of(p lock.Input, err error) error {
	_, damaged := errors.AsType[*debian.DamagedError](err)
	switch {
	case damaged && p.Suite == lock.Local:
		return fmt.Errorf("%s: %w (it was given: another copy may be whole)", p.Path, err)
	case damaged:
		err = fmt.Errorf("%w (%s has it so: another copy is no help, another version may be)", err, p.Suite)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", p.Name, p.Version, err)
	}
	return err
}

// source unpacks the driver's source and checks that it is what the lock says.
// key names its content.
func (in *inputs) source(ctx context.Context, o *Options) (dir, key string, err error) {
	p := in.lock.ByRole(lock.DriverSource)[0]
	version, key, err := o.describeSource(ctx, p)
	if err != nil {
		return "", "", err
	}
	if version != in.lock.Driver {
		return "", "", fmt.Errorf("the source is of driver %s, the lock file asks for %s", version, in.lock.Driver)
	}
	dir, err = o.unpackSource(ctx, p)
	return dir, key, err
}
