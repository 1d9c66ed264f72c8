package disk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"mkp2pimg/internal/sandbox"
)

// Packages are the Debian packages that the boot loaders come from.
var Packages = []string{"systemd-boot-efi", "syslinux", "syslinux-common"}

// Tools are the packages that installing them takes: syslinux runs mtools through
// a shell.
var Tools = []string{"mtools", "dash"}

// Exclude are packages that those depend on for their own installation only.
var Exclude = []string{"dpkg", "debianutils"}

// Files of those packages.
const (
	systemdBoot = "usr/lib/systemd/boot/efi/systemd-bootx64.efi"
	gptMBR      = "usr/lib/syslinux/mbr/gptmbr.bin" // boots the partition with the attribute legacyBoot
	biosModules = "usr/lib/syslinux/modules/bios"
)

// mbrCode is the size of the part of the first sector that is code; the disk
// signature and the partition table of old follow.
const mbrCode = 440

// loaders are the boot loaders in a root of [Packages] and [Tools].
type loaders struct{ root sandbox.Root }

func (l loaders) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join("/", l.root.Dir, name))
}

// mbr is the code of the first sector.
func (l loaders) mbr() ([]byte, error) {
	code, err := l.read(gptMBR)
	if err == nil && len(code) > mbrCode {
		err = fmt.Errorf("%s has %d bytes, there is room for %d", gptMBR, len(code), mbrCode)
	}
	return code, err
}

// installSyslinux makes the file system at an offset in an image boot by BIOS. It
// writes the boot sector, ldlinux.sys and ldlinux.c32. The program is run, in its
// sandbox, because it carries the first two inside and enters into them where on
// the disk they are.
func (l loaders) installSyslinux(ctx context.Context, image string, offset int64) error {
	dir, name := filepath.Split(image)
	inside := dir
	if !l.root.Host() {
		inside = "/image"
	}
	var said bytes.Buffer
	c := &sandbox.Cmd{
		Root: l.root, Binds: []sandbox.Bind{{Host: dir, Guest: inside}},
		Argv:   []string{"syslinux", "--install", "--directory", syslinuxDir, "--offset", fmt.Sprint(offset), filepath.Join(inside, name)},
		Stdout: &said, Stderr: &said,
	}
	if err := c.Run(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
