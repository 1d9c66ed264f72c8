package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Medium makes one more file of an image, from which a machine boots without
// the netboot directory.
type Medium interface {
	// Name is the name of the file in the directory of the image.
	Name() string
	// Make writes the file path, which does not exist, from p. The same payload
	// gives the same bytes.
	Make(ctx context.Context, path string, p *Payload) error
}

// Payload is what a medium is made of.
type Payload struct {
	Kernel, Initrd string // paths on the host
	Manifest       *Manifest
	// Documents are the small files that go along, by name: those of the netboot
	// directory but for kernel, initramfs and script. SHA256SUMS and manifest are
	// of the files in the medium and know nothing of the medium itself.
	Documents map[string][]byte
}

// Part is a piece of an image and its size in bytes.
type Part struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Contents is what is in an image file or directory of any format.
type Contents struct {
	Format    string            `json:"format"` // netboot, disk …
	Size      int64             `json:"size"`   // bytes that it takes
	Parts     []Part            `json:"parts"`  // what they are taken by
	Manifest  *Manifest         `json:"manifest"`
	Documents map[string][]byte `json:"-"` // the small files, by name
}

// ErrOtherFormat says that a file is not of the format that was looked for.
var ErrOtherFormat = errors.New("it is of another format")

// DamagedError says that a file is of one of the formats of an image, but not
// whole or not as it was written.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %v; make or copy it again", e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// OpenNetboot reads and verifies a netboot directory. The error is that of Open,
// or ErrOtherFormat if path is no directory.
func OpenNetboot(ctx context.Context, path string) (*Contents, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, ErrOtherFormat
	}
	d, err := openDir(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Contents{Format: "netboot", Manifest: d.Manifest, Documents: map[string][]byte{}}
	for _, name := range []string{SBOMName, ManifestName, SumsName} {
		if c.Documents[name], err = os.ReadFile(filepath.Join(path, name)); err != nil {
			return nil, err
		}
	}
	for _, a := range append(d.Manifest.Artifacts, artifact(ManifestName, c.Documents[ManifestName]), artifact(SumsName, c.Documents[SumsName])) {
		c.Parts = append(c.Parts, Part{a.Name, a.Size})
		c.Size += a.Size
	}
	return c, nil
}
