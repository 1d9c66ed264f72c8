package pipeline

import (
	"context"
	"slices"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
)

// Formats of Options.
const (
	FormatNetboot = "netboot" // the directory itself
	FormatDisk    = "disk"    // a disk image for a USB stick
)

// Formats are all of them.
var Formats = []string{FormatNetboot, FormatDisk}

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
	if len(o.media()) == 0 {
		return buildRoles
	}
	return append(slices.Clone(buildRoles), lock.BootLoader)
}

// isLoader says whether files of an input are in a medium.
func isLoader(p lock.Input) bool {
	return p.Role == lock.BootLoader && slices.Contains(disk.Packages, p.Name)
}

// media unpacks the boot loaders of the media that are asked for.
func (s *steps) media(ctx context.Context, o *Options, in *inputs) ([]images.Medium, error) {
	formats := o.media()
	if len(formats) == 0 {
		return nil, nil
	}
	var root sandbox.Root
	err := s.run("loaders", func() (detail string, err error) {
		root, err = in.root(ctx, o, lock.BootLoader)
		return "systemd-boot, syslinux", err
	})
	if err != nil {
		return nil, err
	}
	var list []images.Medium
	for _, format := range formats {
		if format == FormatDisk {
			list = append(list, disk.Medium{Loaders: root})
		}
	}
	return list, nil
}
