// Package oci makes, reads and pushes an OCI artifact, by which a registry of
// containers hands images to a fleet: a manifest whose layers are the files of the
// netboot directory, named by the annotation that ORAS and others pull by.
//
// On disk it is an image layout in one tar archive (OCI image specification 1.1,
// "Image Layout"), which skopeo and ORAS read too.
package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"

	"mkp2pimg/images"
)

// Name is the name of an OCI artifact in the directory of an image.
const Name = "mkp2pimg.oci.tar"

// ArtifactType says what the artifact's layers are.
const ArtifactType = "application/vnd.mkp2pimg.netboot.v1"

// tag is the artifact's name in its layout.
const tag = "latest"

// mediaTypes are those of the layers, by the extension of their names.
var mediaTypes = map[string]string{
	".zst": "application/zstd", ".json": "application/json", ".ipxe": "text/plain", ".diff": "text/plain",
}

// Medium makes OCI artifacts.
type Medium struct{}

// Name implements [images.Medium].
func (Medium) Name() string { return Name }

// Make implements [images.Medium].
func (Medium) Make(ctx context.Context, path string, p *images.Payload) error {
	layers, blobs, err := layersOf(p)
	if err != nil {
		return err
	}
	epoch := time.Unix(p.Manifest.SourceDateEpoch, 0).UTC()
	store := memory.New()
	root, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, ArtifactType, oras.PackManifestOptions{
		Layers: layers,
		ManifestAnnotations: map[string]string{
			ocispec.AnnotationCreated: epoch.Format(time.RFC3339), ocispec.AnnotationVersion: p.Manifest.Product.Version,
			ocispec.AnnotationTitle: images.ProductName, "org.mkp2pimg.driver": p.Manifest.Driver, "org.mkp2pimg.kernel": p.Manifest.Kernel,
		},
	})
	if err != nil {
		return err
	}
	manifest, err := content.FetchAll(ctx, store, root)
	if err != nil {
		return err
	}
	blobs = append([]blob{{root, inMemory(manifest)}, {ocispec.DescriptorEmptyJSON, inMemory(ocispec.DescriptorEmptyJSON.Data)}}, blobs...)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(writeLayout(ctx, f, epoch, root, blobs), f.Close())
}

// blob is what goes below blobs/ in a layout.
type blob struct {
	ocispec.Descriptor
	open func() (io.ReadCloser, error)
}

func inMemory(data []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

// layersOf describes the files of the netboot directory, sorted by name.
func layersOf(p *images.Payload) ([]ocispec.Descriptor, []blob, error) {
	script, err := images.Script(p.Manifest)
	if err != nil {
		return nil, nil, err
	}
	sums, err := images.ParseSums(p.Documents[images.SumsName])
	if err != nil {
		return nil, nil, err
	}
	small := maps.Clone(p.Documents)
	small[images.ScriptName] = script
	all := map[string]blob{}
	for name, data := range small {
		all[name] = blob{content.NewDescriptorFromBytes(mediaType(name), data), inMemory(data)}
	}
	for name, host := range map[string]string{images.KernelName: p.Kernel, images.InitrdName: p.Initrd} {
		st, err := os.Stat(host)
		if err != nil {
			return nil, nil, err
		}
		d := ocispec.Descriptor{MediaType: mediaType(name), Digest: digest.NewDigestFromEncoded(digest.SHA256, sums[name]), Size: st.Size()}
		all[name] = blob{d, func() (io.ReadCloser, error) { return os.Open(host) }}
	}
	var layers []ocispec.Descriptor
	var blobs []blob
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		b.Annotations = map[string]string{ocispec.AnnotationTitle: name}
		layers, blobs = append(layers, b.Descriptor), append(blobs, b)
	}
	return layers, blobs, nil
}

func mediaType(name string) string {
	if t, ok := mediaTypes[path.Ext(name)]; ok {
		return t
	}
	return "application/octet-stream"
}

// writeLayout writes an image layout of one manifest as a tar archive.
func writeLayout(ctx context.Context, w io.Writer, epoch time.Time, root ocispec.Descriptor, blobs []blob) error {
	t := tar.NewWriter(w)
	add := func(name string, size int64, r io.Reader) error {
		h := &tar.Header{Name: name, Size: size, Mode: 0o644, ModTime: epoch}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.CopyBuffer(t, struct{ io.Reader }{r}, make([]byte, 1<<20))
		return err
	}
	root.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	for _, part := range []struct {
		name  string
		value any
	}{
		{ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}},
		{ocispec.ImageIndexFile, ocispec.Index{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{root},
		}},
	} {
		data, err := json.Marshal(part.value)
		if err != nil {
			return err
		}
		if err := add(part.name, int64(len(data)), bytes.NewReader(data)); err != nil {
			return err
		}
	}
	written := map[digest.Digest]bool{}
	for _, b := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if written[b.Digest] { // two files may have the same content
			continue
		}
		written[b.Digest] = true
		r, err := b.open()
		if err != nil {
			return err
		}
		err = errors.Join(add(path.Join(ocispec.ImageBlobsDir, b.Digest.Algorithm().String(), b.Digest.Encoded()), b.Size, r), r.Close())
		if err != nil {
			return fmt.Errorf("%s: %w", b.Digest, err)
		}
	}
	return t.Close()
}
