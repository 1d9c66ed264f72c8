package qemu

import (
	"fmt"
	"path/filepath"

	"mkp2pimg/images"
)

// Image is what is booted.
type Image struct {
	Kernel  string   `json:"kernel"` // host path of vmlinuz
	Initrd  string   `json:"initrd"` // host path; none when empty
	Cmdline []string `json:"cmdline"`
	Driver  string   `json:"driver"`  // driver release in the image, 535.261.03
	Release string   `json:"release"` // kernel release, 6.12.117+deb12-amd64
}

// OpenImage opens a netboot directory, whose files it verifies.
func OpenImage(dir string) (Image, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Image{}, fmt.Errorf("image: %w", err)
	}
	d, err := images.Open(dir)
	if err != nil {
		return Image{}, err
	}
	return Image{
		Kernel:  d.Kernel(),
		Initrd:  d.Initrd(),
		Cmdline: d.Manifest.CommandLine,
		Driver:  d.Manifest.Driver,
		Release: d.Manifest.Kernel,
	}, nil
}
