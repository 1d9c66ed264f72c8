package debiantest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// Mtime is the time of all files in the packages that this package makes.
var Mtime = time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)

// Entry is an entry of a tar archive.
type Entry struct {
	Name    string
	Kind    byte // of archive/tar; 0: a regular file
	Mode    int64
	Link    string
	Content string
}

// Compress packs data with "gz", "xz" or "zst"; "" leaves it as it is.
func Compress(t testing.TB, how string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch how {
	case "gz":
		w = gzip.NewWriter(&b)
	case "xz":
		w, err = xz.NewWriter(&b)
	case "zst":
		w, err = zstd.NewWriter(&b)
	case "":
		return data
	default:
		t.Fatalf("unknown compression %q", how)
	}
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Tar makes a tar archive. Regular files have their size set from content.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := tar.Header{Name: e.Name, Linkname: e.Link, Typeflag: e.Kind, Mode: e.Mode, ModTime: Mtime}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(e.Content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = tar.Header{Name: e.Name, Typeflag: e.Kind, PAXRecords: map[string]string{"comment": "commit id"}}
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.Content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// Ar makes an ar archive of name and content pairs.
func Ar(members ...[2]string) []byte {
	b := bytes.NewBufferString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m[0], 0, 0, 0, "100644", len(m[1]), m[1])
		if len(m[1])%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// Deb makes a .deb whose data is compressed with "xz", "gz", "zst" or "".
func Deb(t testing.TB, how string, entries ...Entry) []byte {
	t.Helper()
	ext := map[bool]string{true: "", false: "." + how}[how == ""]
	return Ar(
		[2]string{"debian-binary", "2.0\n"},
		[2]string{"control.tar.gz", string(Compress(t, "gz", Tar(t)))},
		[2]string{"data.tar" + ext, string(Compress(t, how, Tar(t, entries...)))},
	)
}
