package boot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"mkp2pimg/images"
	"mkp2pimg/images/pxe"
)

// image is a netboot directory that is served. Builds replace the directory as a
// whole; URLs have the digest of the manifest in them, so that a machine never gets
// the kernel of one build and the initramfs of another.
type image struct {
	dir string

	mu       sync.Mutex
	info     fs.FileInfo // of the manifest that was read
	contents *contents
}

// contents is what a directory has in it.
type contents struct {
	digest   string // first 16 digits of the SHA-256 of the manifest
	manifest *images.Manifest
	files    map[string]images.Artifact // that may be fetched
}

// read reads the directory, or what was read before if it is still the same. The
// files that machines boot are verified.
func (i *image) read() (*contents, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	path := filepath.Join(i.dir, images.ManifestName)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if i.info != nil && os.SameFile(info, i.info) && info.ModTime().Equal(i.info.ModTime()) && info.Size() == i.info.Size() {
		return i.contents, nil
	}
	c, err := readContents(i.dir)
	if err != nil {
		return nil, err
	}
	i.info, i.contents = info, c
	return c, nil
}

func readContents(dir string) (*contents, error) {
	data, err := os.ReadFile(filepath.Join(dir, images.ManifestName))
	if err != nil {
		return nil, err
	}
	m, err := images.ReadManifest(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	sum := sha256.Sum256(data)
	c := &contents{digest: hex.EncodeToString(sum[:8]), manifest: m, files: map[string]images.Artifact{}}
	for _, a := range m.Artifacts {
		c.files[a.Name] = a
	}
	for _, name := range append(images.Initrds(m), images.KernelName, pxe.BIOS, pxe.EFI) {
		a, ok := c.files[name]
		if !ok {
			continue // loaders of another directory
		}
		f, err := c.open(dir, name)
		if err != nil {
			return nil, err
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != a.SHA256 {
			return nil, &images.DamagedError{Path: filepath.Join(dir, name), Err: fmt.Errorf("its SHA-256 is %s, its manifest has %s", got, a.SHA256)}
		}
	}
	return c, nil
}

// open opens a file of the directory, which has to be in its manifest.
func (c *contents) open(dir, name string) (*os.File, error) {
	a, ok := c.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	f, err := os.OpenInRoot(dir, name)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() != a.Size {
		return nil, errors.Join(fmt.Errorf("%s: it is not what its manifest says", filepath.Join(dir, name)), f.Close())
	}
	return f, nil
}

// loaders finds iPXE's programs.
type loaders struct {
	dir    string // of lab.yaml; empty: the images'
	images []*image
}

// open opens one of them. Nothing else is opened, whatever the name.
func (l *loaders) open(name string) (*os.File, error) {
	if name != pxe.BIOS && name != pxe.EFI {
		return nil, fmt.Errorf("%q is neither %s nor %s: %w", name, pxe.BIOS, pxe.EFI, fs.ErrNotExist)
	}
	if l.dir != "" {
		return os.Open(filepath.Join(l.dir, name))
	}
	for _, i := range l.images {
		if c, err := i.read(); err == nil {
			if f, err := c.open(i.dir, name); err == nil {
				return f, nil
			}
		}
	}
	return nil, fmt.Errorf("%s is in no image: make one with \"mkp2pimg build --format pxe\", or name a directory with the key loaders: %w", name, fs.ErrNotExist)
}
