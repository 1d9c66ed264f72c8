// Package inspect tells what is in an image of any format, and in what two differ.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/images/iso"
	"mkp2pimg/images/oci"
	"mkp2pimg/images/uki"
)

// formats read and verify an image, or return [images.ErrOtherFormat].
var formats = []func(ctx context.Context, path string) (*images.Contents, error){
	images.OpenNetboot,
	iso.OpenContents, // before disk: it is one of those too
	disk.OpenContents,
	uki.OpenContents,
	oci.OpenContents,
}

// Open reads and verifies the image at a path: a netboot directory or a file of
// one of the other formats.
func Open(ctx context.Context, path string) (*images.Contents, error) {
	for _, open := range formats {
		c, err := open(ctx, path)
		if !errors.Is(err, images.ErrOtherFormat) {
			return c, err
		}
	}
	return nil, &images.DirError{Err: fmt.Errorf("%s is no image of %s: want a netboot directory or a disk, ISO, UKI or OCI image", path, images.ProductName)}
}

// Component is a package or a part of this program, with the bytes that its files
// take in the unpacked initramfs.
type Component struct {
	Kind    string `json:"kind"` // package, built, generated
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Files   int    `json:"files"`
	Size    int64  `json:"size"`
}

// Components sums the files of an initramfs up by where they are from, the
// largest first.
func Components(m *images.Manifest) []Component {
	var list []Component
	for _, f := range m.Files {
		kind := string(f.Origin.Kind)
		i := slices.IndexFunc(list, func(c Component) bool {
			return c.Kind == kind && c.Name == f.Origin.Name && c.Version == f.Origin.Version
		})
		if i < 0 {
			i = len(list)
			list = append(list, Component{Kind: kind, Name: f.Origin.Name, Version: f.Origin.Version})
		}
		list[i].Files++
		list[i].Size += f.Size
	}
	slices.SortStableFunc(list, func(a, b Component) int { return cmp.Compare(b.Size, a.Size) })
	return list
}
