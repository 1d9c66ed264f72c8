// Package userspace finds a driver's firmware and libraries in what a user has:
// NVIDIA's .run archive, a directory, or packages.
package userspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/runfile"
	"mkp2pimg/internal/tarpipe"
)

// Part is one file with firmware, libraries or both.
type Part struct {
	Name    string // of the package
	Version string // of the package
	File    string // file name, whose ending says what it is: .run, .deb or .tar

	Firmware, Libraries bool // whether it has them

	// Open returns the content. That of a directory depends only on the files
	// that an image takes from it.
	Open func() (io.ReadCloser, error)
}

// RunName is how NVIDIA names its .run archives, before the release.
const RunName = "NVIDIA-Linux-x86_64"

// Find returns the parts at the given places: .run archives, .deb packages, and
// directories with such packages, with what a .run archive unpacks to, or with
// an installed driver. release is the driver's; a .run archive of another is
// refused at once.
func Find(places []string, release string) ([]Part, error) {
	var parts []Part
	for _, place := range places {
		found, err := find(place, release)
		if err != nil {
			return nil, fmt.Errorf("user space of driver %s: %w", release, err)
		}
		parts = append(parts, found...)
	}
	return parts, nil
}

func find(place, release string) ([]Part, error) {
	info, err := os.Stat(place)
	if err != nil {
		return nil, fmt.Errorf("%w (want a .run archive, .deb packages or a directory)", err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is neither a file nor a directory (want a .run archive, .deb packages or a directory)", place)
	}
	if !info.IsDir() {
		p, err := file(place, release)
		return []Part{p}, err
	}
	debs, err := filepath.Glob(filepath.Join(place, "*.deb"))
	if err != nil {
		return nil, err
	}
	if debs == nil {
		p, err := directory(place, release)
		return []Part{p}, err
	}
	var parts []Part
	for _, deb := range debs {
		p, err := file(deb, release)
		if err != nil {
			return nil, err
		}
		if p.Firmware || p.Libraries {
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// file tells a .deb from a .run by its first bytes.
func file(name, release string) (Part, error) {
	p := Part{File: filepath.Base(name), Open: func() (io.ReadCloser, error) { return os.Open(name) }}
	head, err := readHead(name)
	switch {
	case err != nil:
		return p, err
	case bytes.HasPrefix(head, []byte("!<arch>\n")): // ar(5)
		return deb(p, name)
	case bytes.HasPrefix(head, []byte("#!")):
		return run(p, name, release)
	}
	return p, fmt.Errorf("%s: is neither a .run archive nor a .deb package", name)
}

func readHead(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 8)
	n, err := io.ReadFull(f, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // a short file is neither
	}
	return head[:n], err
}

func run(p Part, name, release string) (Part, error) {
	h, err := runfile.ReadHeaderFile(name)
	if err != nil {
		return p, err
	}
	if err := h.CheckDriver(release); err != nil {
		return p, fmt.Errorf("%s: %w", name, err)
	}
	p.Name, p.Version, p.Firmware, p.Libraries = RunName, release, true, true
	return p, nil
}

// deb takes name and version of a package from its file's name, as archives
// write it.
func deb(p Part, name string) (Part, error) {
	fields := strings.Split(strings.TrimSuffix(p.File, ".deb"), "_")
	p.Name, p.Version = fields[0], "unknown"
	if len(fields) > 1 {
		p.Version = fields[1]
	}
	err := debian.Walk(name, func(hdr *tar.Header, _ io.Reader) error {
		switch base := path.Base(hdr.Name); {
		case hdr.Typeflag != tar.TypeReg:
		case strings.Contains(hdr.Name, "firmware/nvidia/") && isFirmware(base):
			p.Firmware = true
		case isLibrary(base) || base == smi:
			p.Libraries = true
		}
		return nil
	})
	return p, err
}

const smi = "nvidia-smi"

func isFirmware(base string) bool { return strings.HasSuffix(base, ".bin") }

// isLibrary says whether a file is one of the libraries of an image, which all
// carry the release at the end of their names.
func isLibrary(base string) bool {
	return slices.ContainsFunc(initramfs.Libraries, func(soname string) bool {
		return strings.HasPrefix(base, strings.TrimSuffix(soname, "1"))
	})
}

// directory packs what an image takes from a directory.
func directory(dir, release string) (Part, error) {
	p := Part{Name: "driver-files", Version: release, File: "driver-files-" + release + ".tar"}
	var files []member
	add := func(from, to string, want func(base string) bool) (found bool) {
		list, _ := os.ReadDir(filepath.Join(dir, from)) // what isn't there is looked for elsewhere
		for _, f := range list {
			if want(f.Name()) && f.Type().IsRegular() {
				files = append(files, member{path.Join(from, f.Name()), path.Join(to, f.Name())})
				found = true
			}
		}
		return found
	}
	for _, from := range initramfs.LibraryDirs {
		p.Libraries = add(from, from, isLibrary) || p.Libraries
	}
	for _, name := range initramfs.SMIPaths {
		if add(path.Dir(name), path.Dir(name), func(base string) bool { return base == smi }) {
			break
		}
	}
	firmware := path.Join("lib/firmware/nvidia", release)
	for _, from := range []string{"firmware", firmware, path.Join("usr", firmware)} {
		if add(from, firmware, isFirmware) {
			p.Firmware = true
			break
		}
	}
	if !p.Firmware || !p.Libraries {
		return p, fmt.Errorf("%s: has no %s: want what a .run archive unpacks to (libcuda.so.%s, firmware/gsp_*.bin), "+
			"an installed driver (usr/lib/x86_64-linux-gnu, %s), or .deb packages", dir, missing(&p), release, firmware)
	}
	slices.SortFunc(files, func(a, b member) int { return strings.Compare(a.to, b.to) })
	files = slices.CompactFunc(files, func(a, b member) bool { return a.to == b.to })
	p.Open = func() (io.ReadCloser, error) {
		return tarpipe.Read(func(w *tar.Writer) error {
			for _, m := range files {
				if err := packFile(w, filepath.Join(dir, m.from), m.to); err != nil {
					return err
				}
			}
			return nil
		}), nil
	}
	return p, nil
}

func missing(p *Part) string {
	switch {
	case p.Firmware:
		return "libraries of the driver"
	case p.Libraries:
		return "firmware"
	}
	return "libraries and no firmware of the driver"
}

// member is a file of a directory and its name in the archive.
type member struct{ from, to string }

func packFile(w *tar.Writer, host, name string) error {
	f, err := os.Open(host)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is no regular file", host)
	}
	return tarpipe.Add(w, tarpipe.Header(name, tar.TypeReg, "", 0o755, info.Size(), time.Unix(0, 0)), f)
}
