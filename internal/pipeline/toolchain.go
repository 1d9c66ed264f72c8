package pipeline

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	"mkp2pimg/internal/digest"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/build"
)

// toolchainKeys name the contents of the toolchain that o asks for: the whole,
// and what is the same for every kernel.
func (in *inputs) toolchainKeys(ctx context.Context, o *Options) (whole, compiler string, err error) {
	if o.Toolchain == ToolchainHost {
		return hostKeys(ctx, in.lock.Kernel)
	}
	pkgs := in.lock.ByRole(lock.Toolchain)
	whole = keyOf(digests(pkgs)...)
	pkgs = slices.DeleteFunc(pkgs, func(p lock.Input) bool { return build.HeadersPackage(p.Name) })
	return whole, keyOf(digests(pkgs)...), nil
}

// hostKeys name what the modules get from the host itself: its compiler and
// linker by what they say of themselves, and the headers of a kernel release by
// the files that differ from one configuration to another.
func hostKeys(ctx context.Context, kernel string) (whole, compiler string, err error) {
	_, headers, err := build.Headers(sandbox.Root{}, kernel)
	if err != nil {
		return "", "", &RequestError{fmt.Sprintf("toolchain %s needs the headers of kernel %s: install the host's package of them "+
			"(linux-headers-%[2]s), or use --toolchain=%[3]s", ToolchainHost, kernel, ToolchainSandbox), err}
	}
	parts := []string{"host"}
	for _, tool := range []string{"cc", "ld"} {
		version, err := exec.CommandContext(ctx, tool, "--version").Output()
		if err != nil {
			return "", "", &RequestError{fmt.Sprintf("toolchain %s needs %s: install it, or use --toolchain=%s", ToolchainHost, tool, ToolchainSandbox), err}
		}
		parts = append(parts, string(version))
	}
	compiler = keyOf(parts...)
	for _, name := range []string{".config", "Module.symvers"} {
		sum, err := digest.File(filepath.Join(headers, name))
		if err != nil {
			return "", "", fmt.Errorf("headers of kernel %s: %w", kernel, err)
		}
		parts = append(parts, sum)
	}
	return keyOf(parts...), compiler, nil
}
