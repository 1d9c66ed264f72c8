package tarpipe

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	put := func(w *tar.Writer, name string, mode fs.FileMode) error {
		return Add(w, Header(name, tar.TypeReg, "", mode, 7, time.Unix(1000, 5)), strings.NewReader("content"))
	}
	r := Read(func(w *tar.Writer) error { return errors.Join(put(w, "a", 0o640), put(w, "b", 0o700)) })
	archive := tar.NewReader(r)
	hdr, err := archive.Next()
	require.NoError(t, err)
	assert.Equal(t, "a", hdr.Name)
	assert.Equal(t, int64(0o644), hdr.Mode)
	assert.Equal(t, time.Unix(1000, 0), hdr.ModTime)
	data, err := io.ReadAll(archive)
	require.NoError(t, err)
	assert.Equal(t, "content", string(data))
	hdr, err = archive.Next()
	require.NoError(t, err)
	assert.Equal(t, int64(0o755), hdr.Mode)
	_, err = archive.Next()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, r.Close())

	broken := errors.New("medium error")
	_, err = io.ReadAll(Read(func(*tar.Writer) error { return broken }))
	require.ErrorIs(t, err, broken)
}
