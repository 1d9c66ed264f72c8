package debian

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/fetch"
)

// now is the time at which the tests' archives are read.
var now = time.Date(2026, 7, 20, 12, 0, 0, 0, time.UTC)

type entry = debiantest.Entry

func newKey(t testing.TB, valid time.Duration) *openpgp.Entity {
	t.Helper()
	return debiantest.NewKey(t, now, valid)
}

func sign(t testing.TB, text string, keys ...*openpgp.Entity) []byte {
	t.Helper()
	return debiantest.Sign(t, now, text, keys...)
}

// serve serves the archive and returns its base URL and a client for it.
func serve(t testing.TB, a *debiantest.Archive) (mirror string, c *Client) {
	t.Helper()
	return a.Serve(t).URL, &Client{
		Fetch: &fetch.Client{Dir: t.TempDir()},
		Keys:  openpgp.EntityList{a.Key},
		Now:   func() time.Time { return now },
	}
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
