package pipeline

import (
	"context"
	"errors"
	"path/filepath"

	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/qemu"
)

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
	s := o.steps()
	in, err := s.fetch(ctx, &o, l, lock.Emulator)
	if err != nil {
		return nil, err
	}
	var root sandbox.Root
	err = s.run("emulator", func() (string, error) {
		root, err = in.root(ctx, &o, lock.Emulator)
		return root.Dir, err
	})
	if err != nil {
		return nil, err
	}
	return qemu.Find(ctx, root)
}
