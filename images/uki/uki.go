// Package uki makes and reads a unified kernel image: an EFI program that holds
// kernel, initramfs and kernel parameters (UAPI group specification "Unified
// Kernel Image"), built on the stub of systemd-boot. Firmware boots it as it is,
// as \EFI\BOOT\BOOTX64.EFI or over HTTP, and with Secure Boot if it is signed.
package uki

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/images"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/internal/signing"
)

// Name is the name of a unified kernel image in the directory of an image.
const Name = "mkp2pimg.efi"

// Packages are the Debian packages that the stub comes from.
var Packages = []string{"systemd-boot-efi"}

// stubPath is that of the stub in those packages.
const stubPath = "usr/lib/systemd/boot/efi/linuxx64.efi.stub"

// Sections: what systemd-stub(7) reads, and one of our own that it does not.
const (
	osReleaseSection = ".osrel"
	cmdlineSection   = ".cmdline"
	unameSection     = ".uname"
	documentsSection = ".p2pdocs" // tar archive of the documents
	kernelSection    = ".linux"
	initrdSection    = ".initrd"
)

// Medium makes unified kernel images.
type Medium struct {
	Loaders sandbox.Root // where Packages are unpacked
	Key     *signing.Key // signs the image; nil: it is not signed
}

// Name implements [images.Medium].
func (Medium) Name() string { return Name }

// Make implements [images.Medium].
func (m Medium) Make(ctx context.Context, path string, p *images.Payload) error {
	stub, err := os.ReadFile(filepath.Join("/", m.Loaders.Dir, stubPath))
	if err != nil {
		return err
	}
	sections, err := textSections(p)
	if err != nil {
		return err
	}
	for _, part := range []struct{ section, host string }{{kernelSection, p.Kernel}, {initrdSection, p.Initrd}} {
		f, err := os.Open(part.host)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		sections = append(sections, section{part.section, f, st.Size()})
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	size, err := write(&interruptible{ctx, out}, stub, sections)
	if err == nil && m.Key != nil {
		err = m.Key.EFI(out, size)
	}
	return errors.Join(err, out.Close())
}

// textSections are the sections that are small.
func textSections(p *images.Payload) ([]section, error) {
	m := p.Manifest
	osRelease := fmt.Sprintf("ID=%s\nNAME=%[1]s\nVERSION_ID=%s\nPRETTY_NAME=\"%[1]s %s: NVIDIA driver %s, Linux %s\"\n",
		m.Product.Name, m.Product.Version, m.Product.Version, m.Driver, m.Kernel)
	documents, err := pack(p.Documents, time.Unix(m.SourceDateEpoch, 0))
	if err != nil {
		return nil, err
	}
	var list []section
	for _, s := range []struct {
		name string
		data []byte
	}{
		{osReleaseSection, []byte(osRelease)},
		{cmdlineSection, []byte(strings.Join(m.CommandLine, " "))},
		{unameSection, []byte(m.Kernel)},
		{documentsSection, documents},
	} {
		list = append(list, section{s.name, bytes.NewReader(s.data), int64(len(s.data))})
	}
	return list, nil
}

// pack makes a tar archive of the documents.
func pack(documents map[string][]byte, t time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		h := &tar.Header{Name: name, Size: int64(len(documents[name])), Mode: 0o644, ModTime: t, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(documents[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// interruptible writes until its context ends.
type interruptible struct {
	ctx context.Context
	w   io.Writer
}

func (i *interruptible) Write(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.w.Write(p)
}
