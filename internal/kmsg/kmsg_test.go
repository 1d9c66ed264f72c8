package kmsg_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mkp2pimg/internal/kmsg"
)

func TestReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "kmsg")
	require.NoError(t, os.WriteFile(name, []byte("6,1,2,-;hello\n"), 0o644))
	r, err := kmsg.Open(name)
	require.NoError(t, err)
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "6,1,2,-;hello\n", string(b))
	require.NoError(t, r.Close())

	r, err = kmsg.Open(name)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, r.SkipToEnd())
	_, err = r.Read(make([]byte, kmsg.MaxRecord))
	assert.Equal(t, io.EOF, err)
}

// A log without a record at hand does not block.
func TestNothingNow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(name, 0o600))
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	r, err := kmsg.Open(name)
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Read(make([]byte, kmsg.MaxRecord))
	assert.Equal(t, io.EOF, err)
	require.Error(t, r.SkipToEnd(), "a pipe has no end")
}

func TestErrors(t *testing.T) {
	_, err := kmsg.Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	r, err := kmsg.Open(t.TempDir())
	require.NoError(t, err)
	defer r.Close()
	_, err = r.Read(make([]byte, kmsg.MaxRecord))
	require.ErrorIs(t, err, unix.EISDIR)
}
