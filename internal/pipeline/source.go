package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"

	"mkp2pimg/internal/cachedir"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/gittree"
	"mkp2pimg/internal/lock"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/patch"
	"mkp2pimg/kmod/source"
)

// givenSource puts the source of o.DriverSource into the cache and describes it.
func (o *Options) givenSource(ctx context.Context, tag string) (lock.Input, error) {
	in := lock.Input{Role: lock.DriverSource, Name: upstreamSource, Suite: lock.Local, Licence: driverLicence}
	s, err := source.Find(o.DriverSource, tag)
	if err != nil {
		return in, &RequestError{"--source", err}
	}
	if s.Remote && o.Offline {
		return in, refuse("--source %s is a repository elsewhere, and the network is off", o.DriverSource)
	}
	r, err := s.Open(ctx)
	if err != nil {
		return in, &RequestError{"--source", err}
	}
	f, err := o.keep(s.Name, r)
	if err != nil {
		return in, fmt.Errorf("--source %s: %w", o.DriverSource, err)
	}
	in.Path, in.SHA256, in.Size = f.Name, f.SHA256, f.Size
	in.Version, in.Tree, err = o.describeSource(ctx, in)
	return in, err
}

// describeSource unpacks a source that is in the cache and says of which release
// it is and what git would call its tree, which must be that of in if in has one.
func (o *Options) describeSource(ctx context.Context, in lock.Input) (version, tree string, err error) {
	dir, err := o.unpackSource(ctx, in)
	if err != nil {
		return "", "", err
	}
	if version, err = patch.TreeVersion(os.DirFS(dir)); err != nil {
		return "", "", fmt.Errorf("driver source %s: %w", in.Path, err)
	}
	if tree, err = gittree.Hash(dir); err == nil && in.Tree != "" && tree != in.Tree {
		err = &TreeMismatchError{in, tree, in.Tree}
	}
	return version, tree, err
}

// unpackSource unpacks a source that is in the cache.
func (o *Options) unpackSource(ctx context.Context, in lock.Input) (string, error) {
	dir := o.unpackedDir(in.Name, in.SHA256)
	err := cachedir.Make(ctx, dir, func(partial string) error {
		return of(in, debian.UnpackTar(o.fetcher().Path(in.SHA256), partial, debian.UnpackOptions{}))
	})
	if err != nil {
		return "", err
	}
	dir, err = source.Top(dir)
	if err != nil {
		return "", &debian.DamagedError{File: in.Path, Err: err}
	}
	return dir, nil
}

// TreeMismatchError says that a source is not what its release was published as.
type TreeMismatchError struct {
	Input     lock.Input
	Got, Want string // git trees
}

func (e *TreeMismatchError) Error() string {
	return fmt.Sprintf("source of driver %s from %s: its content is git tree %s, but the release is tree %s: "+
		"the download or its mirror is wrong; to build changed source, give it with --source",
		e.Input.Version, e.Input.Path, e.Got, e.Want)
}

// sourceURL is where upstream's repository serves the files of a release's
// commit. Their packing is not pinned by anything; their content is, by the
// catalog's git tree.
func sourceURL(r *catalog.Release) string {
	return catalog.Load().Upstream.Repository + "/" + sourcePath(r)
}

func sourcePath(r *catalog.Release) string { return "archive/" + r.Commit + ".tar.gz" }

// upstreamSource downloads a release's source from upstream's repository.
func (o *Options) upstreamSource(ctx context.Context, r *catalog.Release) (lock.Input, lock.Archive, error) {
	archive := lock.Archive{Suite: upstreamSuite, Mirror: catalog.Load().Upstream.Repository}
	in := lock.Input{
		Role: lock.DriverSource, Name: upstreamSource, Version: r.Version, Suite: archive.Suite,
		Path: sourcePath(r), Tree: r.Tree, Licence: driverLicence,
	}
	if r.Commit == "" || r.Tree == "" {
		return in, archive, errors.New("the catalog does not know its commit")
	}
	mirror := archive.Mirror
	if o.SourceMirror != "" {
		mirror = o.SourceMirror
	}
	f, err := o.fetcher().Pin(ctx, fetch.File{
		Name: fmt.Sprintf("%s-%s.tar.gz", upstreamSource, r.Version), URLs: []string{mirror + "/" + in.Path},
	})
	if err != nil {
		return in, archive, err
	}
	in.SHA256, in.Size = f.SHA256, f.Size
	_, _, err = o.describeSource(ctx, in)
	return in, archive, err
}
