package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"

	"mkp2pimg/images"
)

// Artifact is an artifact in its archive.
type Artifact struct {
	Root ocispec.Descriptor // of the manifest

	store  *oci.ReadOnlyStore
	layers map[string]ocispec.Descriptor // by file name
}

// Open reads the index, the manifest and the empty configuration of the artifact at a path. The error is
// [images.ErrOtherFormat] if it is no archive of an image layout, a
// *[images.DamagedError], or that of reading.
func Open(ctx context.Context, name string) (*Artifact, error) {
	if err := isLayout(name); err != nil {
		return nil, err
	}
	a, err := open(ctx, name)
	return a, damaged(ctx, name, err)
}

// damaged says that a file is damaged, unless it could not be read.
func damaged(ctx context.Context, name string, err error) error {
	var failed *os.PathError
	if err == nil || ctx.Err() != nil || errors.As(err, &failed) && failed.Path == name {
		return err
	}
	return &images.DamagedError{Path: name, Err: err}
}

// isLayout looks at the first file of an archive.
func isLayout(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if h, err := tar.NewReader(f).Next(); err != nil || h.Name != ocispec.ImageLayoutFile {
		return images.ErrOtherFormat
	}
	return nil
}

func open(ctx context.Context, name string) (*Artifact, error) {
	store, err := oci.NewFromTar(ctx, name)
	if err != nil {
		return nil, err
	}
	root, err := store.Resolve(ctx, tag)
	if err != nil {
		return nil, fmt.Errorf("its index has no %s: %w", tag, err)
	}
	data, err := content.FetchAll(ctx, store, root)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if manifest.ArtifactType != ArtifactType {
		return nil, fmt.Errorf("it is of type %q, not %s", manifest.ArtifactType, ArtifactType)
	}
	if _, err := content.FetchAll(ctx, store, manifest.Config); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	a := &Artifact{root, store, map[string]ocispec.Descriptor{}}
	for _, l := range manifest.Layers {
		a.layers[l.Annotations[ocispec.AnnotationTitle]] = l
	}
	return a, nil
}

// maxDocument bounds the files that are read into memory.
const maxDocument = 64 << 20

// OpenContents reads, verifies and describes the artifact at a path. The error is
// as of [Open].
func OpenContents(ctx context.Context, name string) (*images.Contents, error) {
	a, err := Open(ctx, name)
	if err != nil {
		return nil, err
	}
	c, err := a.contents(ctx)
	if err != nil {
		return nil, damaged(ctx, name, err)
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	c.Size = st.Size()
	var sum int64
	for _, p := range c.Parts {
		sum += p.Size
	}
	c.Parts = append(c.Parts, images.Part{Name: "manifest of the artifact and headers of the archive", Size: c.Size - sum})
	return c, nil
}

func (a *Artifact) contents(ctx context.Context) (*images.Contents, error) {
	c := &images.Contents{Format: "oci", Documents: map[string][]byte{}}
	var documents int64
	for name, l := range a.layers {
		if name == images.KernelName || name == images.InitrdName {
			continue
		}
		if l.Size > maxDocument {
			return nil, fmt.Errorf("%s has %d bytes", name, l.Size)
		}
		data, err := content.FetchAll(ctx, a.store, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.Documents[name] = data
		documents += l.Size
	}
	var err error
	if c.Manifest, err = images.ReadManifest(bytes.NewReader(c.Documents[images.ManifestName])); err != nil {
		return nil, err
	}
	err = images.CheckFiles(ctx, c.Documents[images.SumsName], func(name string) (io.Reader, error) {
		l, ok := a.layers[name]
		if !ok {
			return nil, errors.New("it is missing")
		}
		return a.store.Fetch(ctx, l)
	})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{images.KernelName, images.InitrdName} {
		c.Parts = append(c.Parts, images.Part{Name: name, Size: a.layers[name].Size})
	}
	c.Parts = append(c.Parts, images.Part{Name: "manifest and other documents", Size: documents})
	return c, nil
}
