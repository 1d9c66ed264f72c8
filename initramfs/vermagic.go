package initramfs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"mkp2pimg/kmod/ko"
)

// Vermagic returns the vermagic that a kernel asks of its modules, as the
// modules in its package have it.
func Vermagic(kernel Package, release string) (string, error) {
	k, err := openKernel(kernel, release)
	if err != nil {
		return "", err
	}
	names := slices.Sorted(maps.Keys(k.files))
	if len(names) == 0 {
		return "", fmt.Errorf("package %s has no kernel module", kernel.Name)
	}
	data, err := k.read(names[0])
	if err != nil {
		return "", err
	}
	m, err := ko.Parse(bytes.NewReader(data))
	if err != nil {
		return "", fmt.Errorf("%s: %w", k.files[names[0]], err)
	}
	return m.Vermagic, nil
}
