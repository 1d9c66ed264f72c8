// Package pxe brings the programs of iPXE that firmware loads from the network
// into the directory of an image, as Debian builds them. Each runs the script that
// DHCP names next; mkp2pimg serve hands out both.
//
// They are not signed, so that Secure Boot must be off on machines that start
// from the network.
package pxe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/images"
	"mkp2pimg/internal/sandbox"
)

// Names of the programs in the directory of an image.
const (
	BIOS = "undionly.kpxe" // by legacy BIOS, on the network driver of the card's ROM
	// EFI runs on the firmware's driver of the card that it was loaded by. Debian's
	// ipxe.efi has drivers of its own, and never comes back from "exit" to OVMF.
	EFI = "snponly.efi"
)

// Packages are the Debian packages that the programs come from.
var Packages = []string{"ipxe"}

// paths are those in the packages, and how each program begins.
var paths = map[string]struct{ path, magic string }{
	BIOS: {"usr/lib/ipxe/undionly.kpxe", ""},
	EFI:  {"usr/lib/ipxe/snponly.efi", "MZ"},
}

// Medium copies one of the programs.
type Medium struct {
	Loaders sandbox.Root // where Packages are unpacked
	Program string       // BIOS or EFI
}

// Media are all programs.
func Media(loaders sandbox.Root) []images.Medium {
	return []images.Medium{Medium{loaders, BIOS}, Medium{loaders, EFI}}
}

// Name implements [images.Medium].
func (m Medium) Name() string { return m.Program }

// Make implements [images.Medium].
func (m Medium) Make(_ context.Context, path string, _ *images.Payload) error {
	from := paths[m.Program]
	data, err := os.ReadFile(filepath.Join("/", m.Loaders.Dir, from.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the lock file is of a time before iPXE was in it: --update writes it anew", err)
	}
	if err != nil {
		return err
	}
	if len(data) == 0 || !bytes.HasPrefix(data, []byte(from.magic)) {
		return fmt.Errorf("%s of Debian's package ipxe is no program", from.path)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
