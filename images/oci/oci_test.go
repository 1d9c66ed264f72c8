package oci

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"

	"mkp2pimg/images"
	"mkp2pimg/images/imagestest"
)

func TestMake(t *testing.T) {
	path := imagestest.Write(t, Medium{})
	c, err := OpenContents(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "oci", c.Format)
	assert.Equal(t, "535.261.03", c.Manifest.Driver)
	var sum int64
	for _, p := range c.Parts {
		assert.Positive(t, p.Size, p.Name)
		sum += p.Size
	}
	assert.Equal(t, c.Size, sum, "the parts are the whole")
}

func TestReproducible(t *testing.T) { imagestest.Reproducible(t, Medium{}) }

// server is a registry.
func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestPush pulls what was pushed as ORAS does and boots, so to speak, from it.
func TestPush(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	path := imagestest.Write(t, Medium{})
	a, err := Open(t.Context(), path)
	require.NoError(t, err)
	host := server(t)
	o := PushOptions{PlainHTTP: true, UserAgent: "test"}
	p, err := a.Push(t.Context(), host+"/lab/image:535", o)
	require.NoError(t, err)
	assert.Equal(t, host+"/lab/image@"+a.Root.Digest.String(), p.Reference)
	again, err := a.Push(t.Context(), host+"/lab/image", o)
	require.NoError(t, err)
	assert.Equal(t, "latest", again.Tag)
	assert.Equal(t, p.Digest, again.Digest)

	repository, err := remote.NewRepository(host + "/lab/image")
	require.NoError(t, err)
	repository.PlainHTTP = true
	dir := t.TempDir()
	store, err := file.New(dir)
	require.NoError(t, err)
	defer store.Close()
	root, err := oras.Copy(t.Context(), repository, "535", store, "", oras.DefaultCopyOptions)
	require.NoError(t, err)
	pulled, err := images.Open(dir)
	require.NoError(t, err)
	assert.Equal(t, "535.261.03", pulled.Manifest.Driver)
	assert.FileExists(t, filepath.Join(dir, images.ScriptName))

	data, err := content.FetchAll(t.Context(), repository, root)
	require.NoError(t, err)
	var manifest ocispec.Manifest
	require.NoError(t, json.Unmarshal(data, &manifest))
	assert.Equal(t, ArtifactType, manifest.ArtifactType)
	assert.Equal(t, "2023-11-14T22:13:20Z", manifest.Annotations[ocispec.AnnotationCreated])
}

func TestPushFails(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	a, err := Open(t.Context(), imagestest.Write(t, Medium{}))
	require.NoError(t, err)
	for _, reference := range []string{"", "image", "lab/", "lab/UPPER", "lab/image:no space", "lab/image@sha256:" + strings.Repeat("0", 64)} {
		_, err := a.Push(t.Context(), reference, PushOptions{})
		var wrong *ReferenceError
		require.ErrorAs(t, err, &wrong, reference)
	}
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	_, err = a.Push(t.Context(), strings.TrimPrefix(silent.URL, "http://")+"/lab/image", PushOptions{PlainHTTP: true, Patience: 10 * time.Millisecond})
	require.ErrorContains(t, err, "timeout awaiting response headers")

	s := httptest.NewServer(nil)
	s.Close()
	_, err = a.Push(t.Context(), strings.TrimPrefix(s.URL, "http://")+"/lab/image", PushOptions{PlainHTTP: true})
	var failed *PushError
	require.ErrorAs(t, err, &failed)
}

// entry is a file of an archive, whose content begins at start.
type entry struct {
	*tar.Header
	start int64
}

func entries(t *testing.T, path string) []entry {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var list []entry
	for r := tar.NewReader(f); ; { // which reads no further than the header
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		require.NoError(t, err)
		start, err := f.Seek(0, io.SeekCurrent)
		require.NoError(t, err)
		list = append(list, entry{h, start})
	}
}

// TestDamaged changes a byte of each file of the archive, never of the padding
// between them, which no one reads.
func TestDamaged(t *testing.T) {
	path := imagestest.Write(t, Medium{})
	var damaged *images.DamagedError
	for _, e := range entries(t, path) {
		// Of the two files that no digest covers, these are the braces.
		for _, at := range []int64{e.start, e.start + e.Size - 1} {
			imagestest.Flip(t, path, at)
			_, err := OpenContents(t.Context(), path)
			require.ErrorAs(t, err, &damaged, "%s: byte %d", e.Name, at)
			imagestest.Flip(t, path, at)
		}
	}
	_, err := OpenContents(t.Context(), path)
	require.NoError(t, err, "all is as it was")
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, st.Size()/2))
	_, err = OpenContents(t.Context(), path)
	require.ErrorAs(t, err, &damaged)
	for _, name := range []string{images.KernelName, images.ManifestName} {
		_, err = Open(t.Context(), filepath.Join(filepath.Dir(path), name))
		require.ErrorIs(t, err, images.ErrOtherFormat)
	}
}
