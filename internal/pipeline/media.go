package pipeline

import (
	"context"
	"slices"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/images/iso"
	"mkp2pimg/images/oci"
	"mkp2pimg/images/pxe"
	"mkp2pimg/images/uki"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
)

// Formats of Options.
const (
	FormatNetboot = "netboot" // the directory itself
	FormatSplit   = "split"   // in the directory, the initramfs in two files as well
	FormatDisk    = "disk"    // a disk image for a USB stick
	FormatISO     = "iso"     // a CD for the virtual drive of a BMC
	FormatUKI     = "uki"     // one EFI program
	FormatOCI     = "oci"     // an artifact for a registry of containers
	FormatPXE     = "pxe"     // in the directory, iPXE's programs for firmware that boots from the network
)

// Formats are all of them.
var Formats = []string{FormatNetboot, FormatSplit, FormatDisk, FormatISO, FormatUKI, FormatOCI, FormatPXE}

// media are the formats that are asked for besides the directory, in the order
// of Formats.
func (o *Options) media() []string {
	var list []string
	for _, format := range Formats {
		if format != FormatNetboot && slices.Contains(o.Formats, format) {
			list = append(list, format)
		}
	}
	return list
}

// roles are those of the inputs that the build reads.
func (o *Options) roles() []lock.Role {
	if !o.needsLoaders() {
		return buildRoles
	}
	return append(slices.Clone(buildRoles), lock.BootLoader)
}

// needsLoaders says whether a format has a boot loader in it.
func (o *Options) needsLoaders() bool {
	return slices.ContainsFunc(o.Formats, func(f string) bool { return slices.Contains([]string{FormatDisk, FormatISO, FormatUKI, FormatPXE}, f) })
}

// loaderPackages are those of the lock's role for boot loaders, besides what they
// depend on.
var loaderPackages = slices.Concat(disk.Packages, disk.Tools, iso.Packages, pxe.Packages)

// isLoader says whether files of an input are in a medium.
func isLoader(p lock.Input) bool {
	return p.Role == lock.BootLoader && slices.Contains(slices.Concat(disk.Packages, iso.Packages, pxe.Packages), p.Name)
}

// media unpacks the boot loaders of the media that are asked for.
func (s *steps) media(ctx context.Context, o *Options, in *inputs) ([]images.Medium, error) {
	var root sandbox.Root
	if o.needsLoaders() {
		err := s.run("loaders", func() (detail string, err error) {
			root, err = in.root(ctx, o, lock.BootLoader)
			return "systemd-boot, syslinux, iPXE", err
		})
		if err != nil {
			return nil, err
		}
	}
	var list []images.Medium
	for _, format := range o.media() {
		switch format {
		case FormatDisk:
			list = append(list, disk.Medium{Loaders: root})
		case FormatISO:
			list = append(list, iso.Medium{Disk: disk.Medium{Loaders: root}})
		case FormatUKI:
			list = append(list, uki.Medium{Loaders: root, Key: o.key})
		case FormatOCI:
			list = append(list, oci.Medium{})
		case FormatPXE:
			list = append(list, pxe.Media(root)...)
		}
	}
	return list, nil
}
