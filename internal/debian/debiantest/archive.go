// Package debiantest makes Debian archives for tests: signed indexes, small but
// real packages, and a server for them.
package debiantest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/require"
)

// Decade is longer than any test's archive is old.
const Decade = 10 * 365 * 24 * time.Hour

// NewKey makes a key that is valid for the given time from a year before now.
func NewKey(t testing.TB, now time.Time, valid time.Duration) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("Test archive", "", "ftpmaster@example.org", &packet.Config{
		Algorithm:       packet.PubKeyAlgoEdDSA,
		KeyLifetimeSecs: uint32(valid.Seconds()),
		Time:            func() time.Time { return now.AddDate(-1, 0, 0) },
	})
	require.NoError(t, err)
	return key
}

// Sign clear-signs text with each of keys, a day before now.
func Sign(t testing.TB, now time.Time, text string, keys ...*openpgp.Entity) []byte {
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

// Keyring returns the public parts of keys, as "gpg --export" writes them.
func Keyring(t testing.TB, keys ...*openpgp.Entity) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, k := range keys {
		require.NoError(t, k.Serialize(&b))
	}
	return b.Bytes()
}

// Armour wraps a keyring as "gpg --export --armor" does.
func Armour(t testing.TB, keyring []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	_, err = w.Write(keyring)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	b.WriteByte('\n')
	return b.Bytes()
}

// Archive is a Debian archive in the making.
type Archive struct {
	Now   time.Time           // its suites are nine days old then
	Key   *openpgp.Entity     // signs its suites
	Files fstest.MapFS        // by path below the mirror's base
	Lines map[string][]string // lines of the Release file, by suite

	stanzas map[place][]string
}

// place is where an index belongs: "Packages" or "Sources" of a component.
type place struct{ suite, component, index string }

// NewArchive makes an empty archive with a key of its own.
func NewArchive(t testing.TB, now time.Time) *Archive {
	t.Helper()
	return &Archive{
		Now: now, Key: NewKey(t, now, Decade),
		Files: fstest.MapFS{}, Lines: map[string][]string{}, stanzas: map[place][]string{},
	}
}

// Clone returns a copy to change on its own.
func (a *Archive) Clone() *Archive {
	c := *a
	c.Files, c.Lines, c.stanzas = maps.Clone(a.Files), maps.Clone(a.Lines), maps.Clone(a.stanzas)
	for at, list := range c.stanzas {
		c.stanzas[at] = slices.Clip(list) // or both would append in the same place
	}
	for suite, lines := range c.Lines {
		c.Lines[suite] = slices.Clip(lines)
	}
	return &c
}

// Put adds a file, or replaces it.
func (a *Archive) Put(name string, data []byte) { a.Files[name] = &fstest.MapFile{Data: data} }

// Index adds an index file such as "main/binary-amd64/Packages.gz" to a suite.
func (a *Archive) Index(t testing.TB, suite, name, text string) {
	t.Helper()
	data := []byte(text)
	if ext := path.Ext(name); ext != "" {
		data = Compress(t, ext[1:], data)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	a.Put(path.Join("dists", suite, path.Dir(name), "by-hash/SHA256", sum), data)
	a.Lines[suite] = append(a.Lines[suite], fmt.Sprintf(" %s %d %s", sum, len(data), name))
}

// Release signs the suite as it stands. Fields are further lines of its index.
func (a *Archive) Release(t testing.TB, suite string, fields ...string) {
	t.Helper()
	text := "Origin: Test\nSuite: oldstable\nCodename: " + suite + "\n" +
		"Date: " + Date(a.Now.AddDate(0, 0, -9)) + "\nAcquire-By-Hash: yes\n" +
		"Architectures: all amd64\nComponents: main contrib\nNo-Support-for-Architecture-all: Packages\n" +
		strings.Join(append(fields, ""), "\n") +
		"SHA256:\n" + strings.Join(a.Lines[suite], "\n") + "\n"
	a.Put("dists/"+suite+"/InRelease", Sign(t, a.Now, text, a.Key))
}

// Date writes a time as the fields of an index do.
func Date(t time.Time) string { return t.UTC().Format("Mon, 02 Jan 2006 15:04:05 UTC") }

// Package is a binary package of an archive.
type Package struct {
	Name, Version string
	Fields        []string // further lines of its index entry, such as "Depends: libc6"
	Entries       []Entry  // its files; a copyright file is added
}

// Add makes a .deb of a package and lists it in a suite. It returns its path
// below the mirror's base. Publish shows it.
func (a *Archive) Add(t testing.TB, suite, component string, p Package) (file string) {
	t.Helper()
	entries := append([]Entry{{
		Name: "./usr/share/doc/" + p.Name + "/copyright",
		Content: "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n" +
			"Files: *\nCopyright: 2026 nobody\nLicense: MIT\n",
	}}, p.Entries...)
	file = fmt.Sprintf("pool/%s/%s_%s_amd64.deb", component, p.Name, p.Version)
	a.AddDeb(suite, component, file, p, Deb(t, "gz", entries...))
	return file
}

// AddDeb is Add of a package whose .deb is given, be it good or not.
func (a *Archive) AddDeb(suite, component, file string, p Package, deb []byte) {
	a.Put(file, deb)
	at := place{suite, component, "Packages"}
	a.stanzas[at] = append(a.stanzas[at], fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: amd64\nPriority: optional\nFilename: %s\nSize: %d\nSHA256: %x\n%s",
		p.Name, p.Version, file, len(deb), sha256.Sum256(deb), strings.Join(append(p.Fields, ""), "\n")))
}

// AddSource lists a source package with its upstream tarball in a suite. It
// returns the tarball's path below the mirror's base.
func (a *Archive) AddSource(t testing.TB, suite, component, name, version string, entries ...Entry) (file string) {
	t.Helper()
	upstream, _, _ := strings.Cut(version, "-")
	data := Compress(t, "gz", Tar(t, entries...))
	dir := "pool/" + component + "/" + name
	base := fmt.Sprintf("%s_%s.orig.tar.gz", name, upstream)
	at := place{suite, component, "Sources"}
	a.stanzas[at] = append(a.stanzas[at], fmt.Sprintf(
		"Package: %s\nVersion: %s\nFormat: 3.0 (quilt)\nDirectory: %s\nChecksums-Sha256:\n %x %d %s\n",
		name, version, dir, sha256.Sum256(data), len(data), base))
	a.Put(dir+"/"+base, data)
	return dir + "/" + base
}

// Withdraw takes all of a suite's packages out of its indexes.
func (a *Archive) Withdraw(suite string) {
	maps.DeleteFunc(a.stanzas, func(at place, _ []string) bool { return at.suite == suite })
}

// Publish writes the indexes of a suite's components and signs them.
func (a *Archive) Publish(t testing.TB, suite string, components []string, fields ...string) {
	t.Helper()
	a.Lines[suite] = nil
	for _, component := range components {
		for index, dir := range map[string]string{"Packages": "binary-amd64", "Sources": "source"} {
			text := strings.Join(a.stanzas[place{suite, component, index}], "\n")
			a.Index(t, suite, path.Join(component, dir, index+".gz"), text)
		}
	}
	slices.Sort(a.Lines[suite])
	a.Release(t, suite, fields...)
}

// Stanza writes a paragraph of a Packages file. Its digest and size are made
// up.
func Stanza(name, version string, fields ...string) string {
	return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\nPriority: optional\n"+
		"Filename: pool/%[1]s_%[2]s_amd64.deb\nSize: 10\nSHA256: %[3]x\nDescription: short\n long\n .\n more\n%[4]s\n",
		name, version, sha256.Sum256([]byte(name+version)), strings.Join(append(fields, ""), "\n"))
}
