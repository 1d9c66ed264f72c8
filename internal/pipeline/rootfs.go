package pipeline

import (
	"context"
	"fmt"
	"path/filepath"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/cachedir"
	"mkp2pimg/internal/lock"
)

// rootfs assembles the tree of the image. work must stay until it is packed.
func (in *inputs) rootfs(ctx context.Context, o *Options, m *modules, work string) (*initramfs.Result, *initramfs.Spec, error) {
	spec := &initramfs.Spec{
		Version: o.Version,
		Release: in.lock.Kernel,
		Source:  o.Source,
		Work:    work,
		Cache:   filepath.Join(o.Cache, "userland"),
		Sets:    m.sets(),
		Options: m.load.Choose(p2pSet, nil).Lines(),
		Load:    m.load,

		Profile:     o.Profile,
		GPUFirmware: o.gpus.firmware,
	}
	if o.SignModules {
		if err := m.sign(spec.Sets, o.key, work); err != nil {
			return nil, nil, fmt.Errorf("sign modules: %w", err)
		}
	}
	var err error
	if spec.Kernel, err = in.one(ctx, o, lock.Kernel); err != nil {
		return nil, nil, err
	}
	if err := in.userspace(ctx, o, spec); err != nil {
		return nil, nil, err
	}
	if spec.Libc, err = in.packages(ctx, o, lock.Libc); err != nil {
		return nil, nil, err
	}
	res, err := initramfs.Build(ctx, spec)
	return res, spec, err
}

// userspace unpacks what the driver needs besides its modules.
func (in *inputs) userspace(ctx context.Context, o *Options, spec *initramfs.Spec) (err error) {
	spec.Driver = in.lock.Driver
	if spec.Firmware, err = in.one(ctx, o, lock.Firmware); err != nil {
		return err
	}
	spec.Userspace, err = in.packages(ctx, o, lock.Userspace)
	return err
}

// packages unpacks the packages with a role, each for itself.
func (in *inputs) packages(ctx context.Context, o *Options, role lock.Role) ([]initramfs.Package, error) {
	var list []initramfs.Package
	for _, p := range in.lock.ByRole(role) {
		dir, err := in.unpack(ctx, o, p)
		if err != nil {
			return nil, err
		}
		list = append(list, initramfs.Package{Name: p.Name, Version: p.Version, Root: dir})
	}
	return list, nil
}

func (in *inputs) one(ctx context.Context, o *Options, role lock.Role) (initramfs.Package, error) {
	list, err := in.packages(ctx, o, role)
	if err != nil {
		return initramfs.Package{}, err
	}
	if len(list) != 1 {
		return initramfs.Package{}, fmt.Errorf("lock file: %d inputs with role %s, want one", len(list), role)
	}
	return list[0], nil
}

// scratch makes a directory below the cache for what lives no longer than a
// build. The cache is used rather than /tmp, since that is often small.
func (o *Options) scratch() (dir string, remove func(), err error) {
	dir, remove, err = cachedir.Temp(o.Cache, "scratch-")
	if err != nil {
		return "", nil, fmt.Errorf("cache: %w", err)
	}
	return dir, remove, nil
}
