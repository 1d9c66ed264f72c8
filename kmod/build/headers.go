package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/ko"
)

// Headers returns the directories with the headers of a kernel release in a
// toolchain root: source has include/linux, output has .config, Module.symvers
// and the generated headers. Where a distribution does not part them, both are
// the same.
func Headers(root sandbox.Root, kernel string) (source, output string, err error) {
	modules := filepath.Join("/lib/modules", kernel)
	output, err = follow(root, filepath.Join(modules, "build"))
	if err != nil {
		return "", "", fmt.Errorf("headers of kernel %s: %w", kernel, err)
	}
	source, err = follow(root, filepath.Join(modules, "source"))
	if errors.Is(err, fs.ErrNotExist) {
		source, err = output, nil
	}
	return source, output, err
}

// follow returns the host's path of a directory of the root. The links on the
// way there, all in the path's last element, may be absolute inside the root.
func follow(root sandbox.Root, path string) (string, error) {
	host := filepath.Join("/", root.Dir, path)
	if root.Host() {
		return filepath.EvalSymlinks(host)
	}
	target, err := os.Readlink(host)
	switch {
	case err == nil && filepath.IsAbs(target):
		host = filepath.Join("/", root.Dir, target)
	case err == nil:
		host = filepath.Join(filepath.Dir(host), target)
	}
	_, err = os.Stat(host)
	return host, err
}

// Check decides whether the modules would be accepted by the kernel whose
// Module.symvers and vermagic are given, each with the others loaded.
func Check(modules []Module, symvers, vermagic string) ([]*ko.Report, error) {
	f, err := os.Open(symvers)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	kernel, err := ko.ParseSymvers(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", symvers, err)
	}
	providers := []ko.Exports{kernel}
	var parsed []*ko.Module
	for _, m := range modules {
		k, err := ko.Open(m.Path)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, k)
		providers = append(providers, k.Exports)
	}
	var reports []*ko.Report
	for _, k := range parsed {
		reports = append(reports, ko.CheckImports(k, vermagic, providers...))
	}
	return reports, nil
}
