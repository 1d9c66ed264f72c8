package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"mkp2pimg/initramfs"
)

// Names of the files of a netboot directory.
const (
	KernelName   = "vmlinuz"
	InitrdName   = "initrd.zst"
	ScriptName   = "boot.ipxe"
	ManifestName = "manifest.json"
	SBOMName     = "sbom.spdx.json"
	SumsName     = "SHA256SUMS"
)

// Netboot is what a netboot directory is written from.
type Netboot struct {
	Manifest Manifest // all but the fields that Write fills in
	Kernel   string   // host path of vmlinuz

	// Initrd writes the packed initramfs: a call of (*initramfs.Tree).Pack.
	Initrd func(io.Writer) (initramfs.Sizes, error)

	// Extra are further files by name: patch-report.json, patch.diff,
	// mkp2pimg.lock.
	Extra map[string][]byte

	// Split also writes the two archives of the initramfs (initramfs.Sizes.First) as
	// files of their own, named by their content, for the script to load.
	Split bool

	// Media are further files to boot from, made of the others.
	Media []Medium
}

// Write writes the netboot directory dir and returns its completed manifest.
// The directory appears whole or not at all: it is written beside dir and
// renamed. One that Write made before is replaced in one step; any other that
// is not empty is left alone and is an error. If dir is a symbolic link, this
// is about the directory that it leads to.
func (n *Netboot) Write(ctx context.Context, dir string) (*Manifest, error) {
	if err := CheckTarget(dir); err != nil {
		return nil, err
	}
	dir, err := follow(dir)
	if err != nil {
		return nil, err
	}
	m := n.Manifest
	err = replaceDir(dir, func(tmp string) error { return n.fill(&writer{ctx: ctx, dir: tmp}, &m) })
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w; an image takes about 100 MB: make room in %s or choose another directory", err, filepath.Dir(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("write netboot directory %s: %w", dir, err)
	}
	return &m, nil
}

// fill writes all files of the directory and completes the manifest m.
func (n *Netboot) fill(w *writer, m *Manifest) error {
	m.Version = ManifestVersion
	m.Product.Name = ProductName
	if _, err := Script(m); err != nil {
		return err
	}
	kernel, err := os.Open(n.Kernel)
	if err != nil {
		return err
	}
	defer kernel.Close()
	w.create(KernelName, func(f io.Writer) error {
		_, err := io.Copy(f, kernel)
		return err
	})
	w.create(InitrdName, func(f io.Writer) (err error) {
		m.Initrd, err = n.Initrd(f)
		return err
	})
	if err := n.script(w, m); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(n.Extra)) {
		w.bytes(name, n.Extra[name])
	}
	if w.err != nil {
		return w.err
	}
	if err := n.media(w, *m); err != nil {
		return err
	}
	documents, err := describe(m, w.done)
	if err != nil {
		return err
	}
	for _, name := range []string{SBOMName, ManifestName, SumsName} {
		w.bytes(name, documents[name])
	}
	return w.err
}

// media makes the media of the files written so far. What they hold says nothing
// of themselves, so m is a copy.
func (n *Netboot) media(w *writer, m Manifest) error {
	if len(n.Media) == 0 {
		return nil
	}
	held := slices.DeleteFunc(slices.Clone(w.done), func(a Artifact) bool { return a.Name == ScriptName || partName.MatchString(a.Name) })
	documents, err := describe(&m, held)
	if err != nil {
		return err
	}
	maps.Copy(documents, n.Extra)
	p := &Payload{
		Kernel: filepath.Join(w.dir, KernelName), Initrd: filepath.Join(w.dir, InitrdName),
		Manifest: &m, Documents: documents,
	}
	for _, medium := range n.Media {
		w.file(medium.Name(), func(path string) error { return medium.Make(w.ctx, path, p) })
	}
	return w.err
}

// describe makes the bill of materials, the manifest, which it completes, and
// the list of checksums of a set of files.
func describe(m *Manifest, files []Artifact) (map[string][]byte, error) {
	sbom, err := bom(m, files)
	if err != nil {
		return nil, err
	}
	m.Artifacts = append(slices.Clone(files), artifact(SBOMName, sbom))
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	manifest = append(manifest, '\n')
	sums := formatSums(append(slices.Clone(m.Artifacts), artifact(ManifestName, manifest)))
	return map[string][]byte{SBOMName: sbom, ManifestName: manifest, SumsName: sums}, nil
}

func artifact(name string, data []byte) Artifact {
	sum := sha256.Sum256(data)
	return Artifact{Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

// writer writes files of one directory and remembers what it wrote. After the
// first error it writes nothing more.
type writer struct {
	ctx  context.Context
	dir  string
	done []Artifact
	err  error
}

func (w *writer) bytes(name string, data []byte) {
	w.create(name, func(f io.Writer) error {
		_, err := f.Write(data)
		return err
	})
}

func (w *writer) create(name string, write func(io.Writer) error) {
	if !w.accepts(name) {
		return
	}
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		w.err = err
		return
	}
	s := &summer{ctx: w.ctx, w: f, h: sha256.New()}
	err = errors.Join(write(s), f.Sync(), f.Close())
	if err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	w.done = append(w.done, Artifact{Name: name, Size: s.n, SHA256: hex.EncodeToString(s.h.Sum(nil))})
}

// file has produce write a file at a path, which suits what is not written from its
// beginning to its end.
func (w *writer) file(name string, produce func(path string) error) {
	if !w.accepts(name) {
		return
	}
	path := filepath.Join(w.dir, name)
	a, err := Artifact{Name: name}, produce(path)
	if err == nil {
		a.Size, a.SHA256, err = sumFile(w.ctx, path)
	}
	if err != nil {
		w.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	w.done = append(w.done, a)
}

// accepts says whether a file may be written: there was no error yet, and it has
// a fitting name.
func (w *writer) accepts(name string) bool {
	if w.err == nil && (name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "\n\\")) {
		w.err = fmt.Errorf("%q is not a name for a file of the directory", name)
	}
	return w.err == nil
}

// sumFile brings a file to the disk, and counts and hashes it.
func sumFile(ctx context.Context, path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	s := &summer{ctx: ctx, w: io.Discard, h: sha256.New()}
	if _, err := io.CopyBuffer(s, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return 0, "", err
	}
	return s.n, hex.EncodeToString(s.h.Sum(nil)), f.Sync()
}

// summer passes on to w, counts and hashes, until the context ends.
type summer struct {
	ctx context.Context
	w   io.Writer
	h   interface {
		io.Writer
		Sum([]byte) []byte
	}
	n int64
}

func (s *summer) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.w.Write(p)
	s.h.Write(p[:n]) //nolint:errcheck // a hash never fails
	s.n += int64(n)
	return n, err
}
