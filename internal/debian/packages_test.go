package debian

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

// testIndex reads an archive of two suites.
func testIndex(t *testing.T, main, security string) *Index {
	t.Helper()
	a := debiantest.NewArchive(t, now)
	a.Index(t, "stable", "main/binary-amd64/Packages.gz", main)
	a.Release(t, "stable")
	a.Index(t, "stable-security", "main/binary-amd64/Packages.xz", security)
	a.Release(t, "stable-security")
	mirror, c := serve(t, a)
	x, err := c.Packages(t.Context(), "amd64",
		Suite{Name: "stable", Mirror: mirror, Snapshot: "http://snapshot.invalid/debian", Components: []string{"main"}},
		Suite{Name: "stable-security", Mirror: mirror + "/", Components: []string{"main"}})
	require.NoError(t, err)
	return x
}

func TestPackages(t *testing.T) {
	x := testIndex(t,
		debiantest.Stanza("kernel", "6.1-9", "Depends: a, b", "Pre-Depends: c", "Provides: k", "Source: linux (6.1-8)", "Installed-Size: 12")+"\n"+
			debiantest.Stanza("same", "1.0")+"\n"+debiantest.Stanza("newer-here", "2:1"),
		debiantest.Stanza("kernel", "6.1-10")+"\n"+debiantest.Stanza("same", "1.0")+"\n"+debiantest.Stanza("newer-here", "3"))

	p, ok := x.Lookup("kernel")
	require.True(t, ok)
	assert.Equal(t, "6.1-10", p.Version)
	assert.Equal(t, "stable-security", p.Origin.Name)
	assert.Equal(t, []string{"kernel", "6.1-10"}, []string{p.Source, p.SourceVersion})

	p, ok = x.Lookup("kernel=6.1-9")
	require.True(t, ok)
	origin := x.Origins()[0]
	assert.Len(t, origin.InRelease, 64)
	assert.Equal(t, &Package{
		Name: "kernel", Version: "6.1-9", Architecture: "amd64", Source: "linux", SourceVersion: "6.1-8",
		Component: "main", Filename: "pool/kernel_6.1-9_amd64.deb", SHA256: p.SHA256, Size: 10, InstalledSize: 12,
		Priority: "optional", PreDepends: "c", Depends: "a, b", Provides: "k", Origin: origin,
	}, p)
	f := p.File()
	assert.Equal(t, "kernel_6.1-9_amd64.deb", f.Name)
	assert.Equal(t, []string{
		origin.Mirror + "/pool/kernel_6.1-9_amd64.deb",
		"http://snapshot.invalid/debian/20260711T120000Z/pool/kernel_6.1-9_amd64.deb",
		"http://snapshot.invalid/debian/20260712T120000Z/pool/kernel_6.1-9_amd64.deb",
	}, f.URLs)

	p, _ = x.Lookup("same")
	assert.Equal(t, "stable", p.Origin.Name, "of equal versions the first suite's")
	p, _ = x.Lookup("newer-here")
	assert.Equal(t, "2:1", p.Version)
	_, ok = x.Lookup("kernel=7")
	assert.False(t, ok)
	assert.Equal(t, []string{"kernel", "same"}, x.Names(func(n string) bool { return len(n) < 7 }))
}

func TestPackagesReadsIndexOfAll(t *testing.T) {
	a := debiantest.NewArchive(t, now)
	a.Index(t, "stable", "main/binary-amd64/Packages", debiantest.Stanza("a", "1"))
	a.Index(t, "stable", "main/binary-all/Packages", debiantest.Stanza("data", "1"))
	a.Release(t, "stable")
	mirror, c := serve(t, a)
	suite := Suite{Name: "stable", Mirror: mirror, Components: []string{"main"}}
	x, err := c.Packages(t.Context(), "amd64", suite)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, x.Names(func(string) bool { return true }), "binary-amd64 has them all")

	f := a.Files["dists/stable/InRelease"]
	text := "Codename: stable\nDate: Sat, 11 Jul 2026 10:16:37 UTC\nAcquire-By-Hash: yes\n" +
		"Architectures: all amd64\nComponents: main\nSHA256:\n" + strings.Join(a.Lines["stable"], "\n") + "\n"
	f.Data = sign(t, text, a.Key)
	x, err = c.Packages(t.Context(), "amd64", suite)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "data"}, x.Names(func(string) bool { return true }))
}

func TestPackagesRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(t *testing.T, a *debiantest.Archive)
		suite  string
		want   []string
		is     error
	}{
		"missing suite": {
			func(*testing.T, *debiantest.Archive) {}, "sid", []string{"dists/sid/InRelease", "404"}, nil,
		},
		"another suite in its place": {
			func(_ *testing.T, a *debiantest.Archive) {
				a.Files["dists/testing/InRelease"] = a.Files["dists/stable/InRelease"]
			},
			"testing", []string{"dists/testing/InRelease", "stable"}, ErrWrongSuite,
		},
		"tampered release": {
			func(_ *testing.T, a *debiantest.Archive) {
				f := a.Files["dists/stable/InRelease"]
				f.Data = bytes.Replace(f.Data, []byte("Origin: Test"), []byte("Origin: Evil"), 1)
			},
			"stable", []string{"dists/stable/InRelease"}, ErrBadSignature,
		},
		"tampered index": {
			func(_ *testing.T, a *debiantest.Archive) {
				for name, f := range a.Files {
					if strings.Contains(name, "by-hash") {
						f.Data = bytes.ToUpper(f.Data)
					}
				}
			},
			"stable", []string{"stable/main/binary-amd64/Packages.gz", "SHA-256"}, nil,
		},
		"missing component": {
			func(t *testing.T, a *debiantest.Archive) {
				a.Lines["stable"] = []string{" " + digest + " 0 contrib/binary-amd64/Packages"}
				a.Release(t, "stable")
			},
			"stable", []string{"main/binary-amd64/Packages", "contrib"}, nil,
		},
		"malformed package": {
			func(t *testing.T, a *debiantest.Archive) {
				a.Lines["stable"] = nil
				a.Index(t, "stable", "main/binary-amd64/Packages", strings.Replace(debiantest.Stanza("c", "1"), "Size", "Sise", 1))
				a.Release(t, "stable")
			},
			"stable", []string{"stable/main/binary-amd64/Packages", `"c"`, "Size"}, nil,
		},
		"path that leads outside": {
			func(t *testing.T, a *debiantest.Archive) {
				a.Lines["stable"] = nil
				a.Index(t, "stable", "main/binary-amd64/Packages", strings.Replace(debiantest.Stanza("c", "1"), "pool/", "../", 1))
				a.Release(t, "stable")
			},
			"stable", []string{`"c"`, "Filename"}, nil,
		},
		"bad version": {
			func(t *testing.T, a *debiantest.Archive) {
				a.Lines["stable"] = nil
				a.Index(t, "stable", "main/binary-amd64/Packages", debiantest.Stanza("c", "x:1")+"\n"+debiantest.Stanza("c", "2"))
				a.Release(t, "stable")
			},
			"stable", []string{"package c", `"x:1"`}, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := debiantest.NewArchive(t, now)
			a.Index(t, "stable", "main/binary-amd64/Packages.gz", debiantest.Stanza("a", "1"))
			a.Release(t, "stable")
			tt.change(t, a)
			mirror, c := serve(t, a)
			_, err := c.Packages(t.Context(), "amd64", Suite{Name: tt.suite, Mirror: mirror, Components: []string{"main"}})
			require.Error(t, err)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
			for _, part := range tt.want {
				assert.ErrorContains(t, err, part)
			}
		})
	}
}

func TestSuites(t *testing.T) {
	s := Suites("bookworm", "", "http://mirror.example/security")
	require.Len(t, s, 3)
	assert.Equal(t, "https://deb.debian.org/debian", s[1].Mirror)
	assert.Equal(t, "bookworm-updates", s[1].Name)
	assert.Equal(t, "http://mirror.example/security", s[2].Mirror)
	assert.Equal(t, "https://snapshot.debian.org/archive/debian-security", s[2].Snapshot)
}

// TestBookworm reads the real archive.
func TestBookworm(t *testing.T) {
	if os.Getenv("MKP2PIMG_NETWORK") == "" {
		t.Skip("needs the Debian mirror and 20 MB: set MKP2PIMG_NETWORK=1")
	}
	_, c := serve(t, debiantest.NewArchive(t, now))
	c.Keys, c.Now = nil, nil
	x, err := c.Packages(t.Context(), "amd64", Suites("bookworm", "", "")...)
	require.NoError(t, err)
	all, err := x.Resolve([]string{"gcc-12"}, ResolveOptions{})
	require.NoError(t, err)
	t.Logf("%d packages, gcc-12 needs %q", len(x.versions), names(all))
	assert.Contains(t, strings.Join(names(all), "\n"), "libc6 2.36")

	s, err := c.Sources(t.Context(), Suite{Name: "bookworm", Mirror: DefaultMirror, Components: []string{"contrib"}})
	require.NoError(t, err)
	driver, err := s.Lookup("nvidia-open-gpu-kernel-modules", "")
	require.NoError(t, err)
	orig, err := driver.Orig()
	require.NoError(t, err)
	t.Logf("%s %s: %+v", driver.Name, driver.Version, driver.File(orig))
}
