// Package layout names the places inside the image that its builder and its
// programs agree on, and reads the list of files the image ought to hold.
//
// It depends on little but the standard library, so that the init can import it.
package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"mkp2pimg/kmod/loadopt"
)

// Paths of the image. Kernel modules and firmware are under /lib, because the
// kernel's firmware loader and modprobe look there; shared libraries are in
// Debian's multiarch directory, which Debian's ld.so searches by default.
const (
	Description = "/etc/mkp2pimg/image.json"      // the Image below
	Options     = "/etc/modprobe.d/mkp2pimg.conf" // "options nvidia NVreg_…=…" lines that hold on any machine
	Libraries   = "/usr/lib/x86_64-linux-gnu"     // libcuda.so.1, libc.so.6 …
	Firmware    = "/lib/firmware"                 // nvidia/<driver>/gsp_*.bin below it
	Uinit       = "/bin/uinit"                    // what u-root's init starts
	P2PInit     = "/bin/p2pinit"                  // the init of this project
	P2PBW       = "/bin/p2pbw"                    // the measuring program
	Shell       = "/bin/sh"                       // u-root's gosh
	modules     = "/lib/modules"                  // <release> below it
	sets        = "updates/mkp2pimg"              // <set>/nvidia.ko below it
)

// Modules returns the module directory of a kernel release.
func Modules(release string) string { return path.Join(modules, release) }

// DriverModule returns the path of a module of a driver set: set is "p2p" or
// "stock", module is "nvidia" or "nvidia-uvm". These modules are kept out of
// modules.dep and modules.alias, since two sets hold the same names and since
// nothing but the init may load them.
func DriverModule(release, set, module string) string {
	return path.Join(Modules(release), sets, set, module+".ko")
}

// Version is the format version of Image.
const Version = 1

// Image is the content of the Description file. A kernel short of memory
// unpacks a truncated initramfs and still runs init, so init compares what it
// finds with this list.
type Image struct {
	Version int      `json:"version"`
	Driver  string   `json:"driver"` // driver release, 535.261.03
	Kernel  string   `json:"kernel"` // kernel release, 6.12.117+deb12-amd64
	Sets    []string `json:"sets"`   // driver module sets in the image: p2p, stock
	// Load is what the options to load nvidia.ko with are chosen from on the
	// machine. Without it those of Options hold.
	Load  *loadopt.Data `json:"load,omitempty"`
	Files []File        `json:"files"` // sorted by path; all but directories and Description
}

// File is one regular file or symbolic link of the image.
type File struct {
	Path   string `json:"path"` // absolute
	Size   int64  `json:"size"` // bytes; 0 for a link
	SHA256 string `json:"sha256,omitempty"`
	Mode   string `json:"mode"`           // permission bits in octal, "0755"
	Link   string `json:"link,omitempty"` // target of a symbolic link
}

// Read decodes the description of an image.
func Read(r io.Reader) (*Image, error) {
	var img Image
	if err := json.NewDecoder(r).Decode(&img); err != nil {
		return nil, fmt.Errorf("image description: %w", err)
	}
	if img.Version != Version {
		return nil, fmt.Errorf("image description has version %d, this program reads version %d", img.Version, Version)
	}
	return &img, nil
}

// Verify compares the files below root with the description and returns one
// error for each file that is missing or differs, joined; nil when all is
// there. With hash unset only presence, kind and size are compared, which takes
// milliseconds; hashing reads every byte.
func (img *Image) Verify(root fs.FS, hash bool) error {
	var errs []error
	for _, f := range img.Files {
		if err := f.verify(root, hash); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Path, err))
		}
	}
	return errors.Join(errs...)
}

func (f *File) verify(root fs.FS, hash bool) error {
	name := strings.TrimPrefix(f.Path, "/")
	st, err := fs.Lstat(root, name)
	if err != nil {
		return cause(err)
	}
	if f.Link != "" {
		target, err := fs.ReadLink(root, name)
		if err != nil {
			return fmt.Errorf("not a symbolic link to %s", f.Link)
		}
		if target != f.Link {
			return fmt.Errorf("links to %s, not to %s", target, f.Link)
		}
		return nil
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("is %s, not a regular file", st.Mode().Type())
	}
	if st.Size() != f.Size {
		return fmt.Errorf("has %d bytes, not %d", st.Size(), f.Size)
	}
	if !hash {
		return nil
	}
	r, err := root.Open(name)
	if err != nil {
		return cause(err)
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.SHA256 {
		return fmt.Errorf("has sha256 %s, not %s", got, f.SHA256)
	}
	return nil
}

// cause drops the path of a file system error, which the caller names already.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

// FormatMode gives the Mode string of permission bits.
func FormatMode(m fs.FileMode) string { return "0" + strconv.FormatUint(uint64(m.Perm()), 8) }
