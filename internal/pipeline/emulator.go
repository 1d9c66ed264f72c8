package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/qemu"
)

// EmulatorLock is the name of the lock file, in the cache, of an emulator newer
// than the one in the lock files of images.
const EmulatorLock = "emulator.lock"

// emulatorCodename is the Debian release whose backports have a QEMU with
// vfio-user-pci. The release that images are made of has none.
const emulatorCodename = "trixie"

// Emulator returns the host's QEMU, or, if there is none or own is set, the
// one that the lock file in the image's directory names, unpacked into a root.
func Emulator(ctx context.Context, image string, o Options, own bool) (*qemu.Emulator, error) {
	if !own {
		e, err := qemu.Find(ctx, sandbox.Root{})
		if !errors.Is(err, qemu.ErrNoEmulator) {
			return e, err
		}
	}
	if err := o.checkCache(); err != nil {
		return nil, err
	}
	l, err := lock.Read(filepath.Join(image, LockName))
	if err != nil {
		return nil, err
	}
	return o.emulatorOf(ctx, l)
}

// NewEmulator returns a QEMU that has vfio-user-pci, which machines with emulated
// GPUs need: the host's, or, if that has none or own is set, Debian's. The
// packages of the latter are pinned by the lock file EmulatorLock in the cache,
// which is written, from signed indexes, when it isn't there.
func NewEmulator(ctx context.Context, o Options, own bool) (*qemu.Emulator, error) {
	if !own {
		e, err := qemu.Find(ctx, sandbox.Root{})
		if err == nil {
			err = e.NeedVFIOUser(ctx)
		}
		if err == nil {
			return e, nil
		}
		if !errors.Is(err, qemu.ErrNoEmulator) && !errors.Is(err, qemu.ErrNoVFIOUser) {
			return nil, err
		}
	}
	if err := o.checkCache(); err != nil {
		return nil, err
	}
	l, err := o.emulatorLock(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w; it comes from the packages of Debian's %s-backports: %w", qemu.ErrNoVFIOUser, emulatorCodename, err)
	}
	e, err := o.emulatorOf(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("%w; it comes from the packages that %s pins (remove that file to have the newest): %w",
			qemu.ErrNoVFIOUser, filepath.Join(o.Cache, EmulatorLock), err)
	}
	return e, e.NeedVFIOUser(ctx)
}

// emulatorOf fetches the emulator in a lock and unpacks it into a root.
func (o *Options) emulatorOf(ctx context.Context, l *lock.Lock) (*qemu.Emulator, error) {
	s := o.steps()
	in, err := s.fetch(ctx, o, l, lock.Emulator)
	if err != nil {
		return nil, err
	}
	var root sandbox.Root
	err = s.run("emulator", func() (string, error) {
		root, err = in.root(ctx, o, lock.Emulator)
		return root.Dir, err
	})
	if err != nil {
		return nil, err
	}
	return qemu.Find(ctx, root)
}

// emulatorLock reads the lock of the newer emulator, or makes and writes it.
func (o *Options) emulatorLock(ctx context.Context) (*lock.Lock, error) {
	path := filepath.Join(o.Cache, EmulatorLock)
	l, err := lock.Read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return l, err
	}
	keys, err := o.keys()
	if err != nil {
		return nil, err
	}
	client := &debian.Client{Fetch: o.fetcher(), Keys: keys}
	suites := append(debian.Suites(emulatorCodename, o.Mirror, o.SecurityMirror), debian.Backports(emulatorCodename, o.Mirror))
	for i := range suites {
		suites[i].Components = []string{"main"}
	}
	index, err := client.Packages(ctx, arch, suites...)
	if err != nil {
		return nil, err
	}
	packages, err := index.Resolve(qemu.Packages, debian.ResolveOptions{})
	if err != nil {
		return nil, err
	}
	l = &lock.Lock{Version: lock.Version}
	for _, p := range packages {
		l.Inputs = append(l.Inputs, lock.FromPackage(lock.Emulator, p))
		addArchive(l, p.Origin)
	}
	if err := os.MkdirAll(o.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return l, l.Write(path)
}
