package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"mkp2pimg/internal/fetch"
)

// now is the time at which the tests' archives are read.
var now = time.Date(2026, 7, 20, 12, 0, 0, 0, time.UTC)

// newKey makes a key that is valid for the given time from a year before now.
func newKey(t testing.TB, valid time.Duration) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("Test archive", "", "ftpmaster@example.org", &packet.Config{
		Algorithm:       packet.PubKeyAlgoEdDSA,
		KeyLifetimeSecs: uint32(valid.Seconds()),
		Time:            func() time.Time { return now.AddDate(-1, 0, 0) },
	})
	require.NoError(t, err)
	return key
}

const decade = 10 * 365 * 24 * time.Hour

// sign clear-signs text with each of keys, a day before now.
func sign(t testing.TB, text string, keys ...*openpgp.Entity) []byte {
	t.Helper()
	var private []*packet.PrivateKey
	for _, k := range keys {
		private = append(private, k.PrivateKey)
	}
	var b bytes.Buffer
	w, err := clearsign.EncodeMulti(&b, private, &packet.Config{
		Time: func() time.Time { return now.AddDate(0, 0, -1) },
	})
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// archive is a Debian archive in the making.
type archive struct {
	key   *openpgp.Entity
	files fstest.MapFS        // by path below the mirror's base
	lines map[string][]string // lines of the Release file, by suite
}

func newArchive(t testing.TB) *archive {
	return &archive{newKey(t, decade), make(fstest.MapFS), make(map[string][]string)}
}

func (a *archive) put(path string, data []byte) { a.files[path] = &fstest.MapFile{Data: data} }

// index adds an index file such as "main/binary-amd64/Packages.gz" to a suite.
func (a *archive) index(t testing.TB, suite, name, text string) {
	data := []byte(text)
	switch filepath.Ext(name) {
	case ".gz":
		data = compress(t, "gz", data)
	case ".xz":
		data = compress(t, "xz", data)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	dir := "dists/" + suite + "/" + filepath.Dir(name)
	a.put(dir+"/by-hash/SHA256/"+sum, data)
	a.lines[suite] = append(a.lines[suite], fmt.Sprintf(" %s %d %s", sum, len(data), name))
}

// release signs the suite as it stands.
func (a *archive) release(t testing.TB, suite string, fields ...string) {
	text := "Origin: Test\nSuite: oldstable\nCodename: " + suite + "\n" +
		"Date: Sat, 11 Jul 2026 10:16:37 UTC\nAcquire-By-Hash: yes\n" +
		"Architectures: all amd64\nComponents: main contrib\nNo-Support-for-Architecture-all: Packages\n" +
		strings.Join(append(fields, ""), "\n") +
		"SHA256:\n" + strings.Join(a.lines[suite], "\n") + "\n"
	a.put("dists/"+suite+"/InRelease", sign(t, text, a.key))
}

// client serves the archive and returns its base URL and a client for it.
func (a *archive) client(t testing.TB) (mirror string, c *Client) {
	t.Helper()
	s := httptest.NewServer(http.StripPrefix("/debian", http.FileServerFS(a.files)))
	t.Cleanup(s.Close)
	return s.URL + "/debian", &Client{
		Fetch: &fetch.Client{Dir: t.TempDir()},
		Keys:  openpgp.EntityList{a.key},
		Now:   func() time.Time { return now },
	}
}

// stanza writes a paragraph of a Packages file. Its digest and size are made
// up.
func stanza(name, version string, fields ...string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nPriority: optional\n"+
		"Filename: pool/%[1]s_%[2]s_amd64.deb\nSize: 10\nSHA256: %[3]x\nDescription: short\n long\n .\n more\n%[4]s\n",
		name, version, sha256.Sum256([]byte(name+version)), strings.Join(append(fields, ""), "\n"))
}

func compress(t testing.TB, how string, data []byte) []byte {
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

// tarOf makes a tar archive. Regular files have their size set from content.
func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, ModTime: mtime}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
			h.Size = int64(len(e.content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = tar.Header{Name: e.name, Typeflag: e.kind, PAXRecords: map[string]string{"comment": "commit id"}}
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

var mtime = time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)

type entry struct {
	name    string
	kind    byte // of archive/tar; 0: a regular file
	mode    int64
	link    string
	content string
}

// arOf makes an ar archive of name and content pairs.
func arOf(members ...[2]string) []byte {
	b := bytes.NewBufferString(arMagic)
	for _, m := range members {
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m[0], 0, 0, 0, "100644", len(m[1]), m[1])
		if len(m[1])%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// debOf makes a .deb whose data is compressed with "xz", "gz", "zst" or "".
func debOf(t testing.TB, how string, entries ...entry) []byte {
	ext := map[bool]string{true: "", false: "." + how}[how == ""]
	return arOf(
		[2]string{"debian-binary", "2.0\n"},
		[2]string{"control.tar.gz", string(compress(t, "gz", tarOf(t)))},
		[2]string{"data.tar" + ext, string(compress(t, how, tarOf(t, entries...)))},
	)
}

// tempFile writes data to a new file and returns its path.
func tempFile(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path
}

func names(packages []*Package) []string {
	var all []string
	for _, p := range packages {
		all = append(all, p.Name+" "+p.Version)
	}
	return all
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
