package pipeline

import (
	"bytes"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline/pipelinetest"
	"mkp2pimg/kmod/build"
)

func TestMain(m *testing.M) {
	debiantest.NoNames()
	os.Exit(m.Run())
}

// request asks for the inputs of the defaults from a test's archive.
func request(t *testing.T, m *pipelinetest.Mirror) Options {
	t.Helper()
	return Options{
		Driver: DefaultDriver, Kernel: DefaultKernel,
		Mirror: m.URL, SecurityMirror: m.URL, Keyring: m.Keyring,
		Cache: filepath.Join(t.TempDir(), "cache"), LockFile: filepath.Join(t.TempDir(), "mkp2pimg.lock"),
		Log: io.Discard,
	}
}

// indexes are those of requests that are for an archive's indexes.
func indexes(requests []string) []string {
	var list []string
	for _, r := range requests {
		if strings.HasPrefix(r, "dists/") {
			list = append(list, r)
		}
	}
	return list
}

func TestFetchLocksEveryInput(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	l, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, m.Driver.Version, l.Driver)
	assert.Equal(t, pipelinetest.Newest612, l.Kernel)

	for _, role := range lock.Roles {
		assert.NotEmpty(t, l.ByRole(role), role)
	}
	names := func(role lock.Role) []string {
		var list []string
		for _, in := range l.ByRole(role) {
			list = append(list, in.Name)
		}
		return list
	}
	assert.ElementsMatch(t, append([]string{"linux-headers-" + l.Kernel, "libc6"}, build.ToolchainPackages...), names(lock.Toolchain),
		"with what they need, but for the kernel itself and pahole")
	assert.Equal(t, []string{"linux-image-" + l.Kernel}, names(lock.Kernel))

	fetcher := o.fetcher()
	for _, in := range l.Inputs {
		assert.FileExists(t, fetcher.Path(in.SHA256), in.Name)
		switch in.Role {
		case lock.DriverSource:
			assert.Equal(t, driverLicence, in.Licence)
			assert.Equal(t, m.Driver.Debian.SourceVersion, in.Version)
		case lock.Firmware, lock.Userspace:
			assert.Equal(t, m.Driver.Debian.Version, in.Version, "%s: that of the driver, not the newest", in.Name)
			fallthrough
		default:
			assert.Equal(t, "MIT", in.Licence, in.Name)
		}
		if in.Name == "libc6" {
			assert.Equal(t, pipelinetest.Security, in.Suite, "the newest")
		}
	}

	var suites []string
	for _, a := range l.Archives {
		suites = append(suites, a.Suite)
		assert.Equal(t, m.URL, a.Mirror)
		assert.Len(t, a.InRelease, 64)
		assert.False(t, a.Date.IsZero())
		assert.Contains(t, a.Snapshot, "snapshot.debian.org")
	}
	assert.ElementsMatch(t, []string{pipelinetest.Main, pipelinetest.Security}, suites, "those that gave an input")

	written, err := os.ReadFile(o.LockFile)
	require.NoError(t, err)
	want, err := l.Marshal()
	require.NoError(t, err)
	assert.Equal(t, string(want), string(written))
}

func TestFetchTakesTheKernelAskedFor(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	for want, release := range map[string]string{
		"6.12":                 pipelinetest.Newest612,
		"6.1":                  pipelinetest.Newest61,
		"6.12.9+deb12-amd64":   pipelinetest.Older612,
		"6.1.0-9-amd64":        "6.1.0-9-amd64",
		pipelinetest.Newest612: pipelinetest.Newest612,
	} {
		o := request(t, m)
		o.Kernel = want
		l, err := Fetch(t.Context(), o)
		require.NoError(t, err, want)
		assert.Equal(t, release, l.Kernel, want)
	}
}

func TestFetchRefusesKernelsItDoesNotFind(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	for _, want := range []string{
		"5.10", "6.1.", "6.12.200", "6.12.200+deb12-cloud-amd64", "6.12.200+deb12-rt-amd64",
		"6.12.200+deb12-amd64-unsigned", "amd64",
	} {
		o := request(t, m)
		o.Kernel = want
		_, err := Fetch(t.Context(), o)
		var refused *RequestError
		require.ErrorAs(t, err, &refused, want)
		require.ErrorContains(t, err, `"`+want+`"`)
		assert.Regexp(t, `has 6\.1\.0-10-amd64, 6\.1\.0-9-amd64, 6\.12\.117\+deb12-amd64, 6\.12\.9\+deb12-amd64$`, err.Error())
		assert.NoFileExists(t, o.LockFile)
	}
}

func TestFetchNamesTheVersionThatTheArchiveLost(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	d := m.Driver.Debian
	driver, moved := *m.Driver, *d
	moved.Version = "999-1"
	driver.Debian = &moved
	m.Driver = &driver
	m.Withdraw(pipelinetest.Main)
	m.Fill(t)
	_, err := Fetch(t.Context(), request(t, m))
	require.ErrorContains(t, err, "package "+d.Firmware[0]+"="+d.Version)
	require.ErrorContains(t, err, "the newest there is 999-1")
}

func TestLockIsUsedAgain(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	first, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	require.NotEmpty(t, indexes(m.Requests()))

	_, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Empty(t, m.Requests(), "all is there")

	o.Cache = t.TempDir()
	again, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, first.Inputs, again.Inputs)
	requests := m.Requests()
	assert.NotEmpty(t, requests)
	assert.Empty(t, indexes(requests), "the lock says it all")

	// The archive moves on.
	const newer = "6.12.118+deb12-amd64"
	for _, kind := range []string{"linux-image-", "linux-headers-"} {
		m.Add(t, pipelinetest.Main, "main", debiantest.Package{Name: kind + newer, Version: "6.12.118-1~bpo12+1"})
	}
	m.Publish(t, pipelinetest.Main, pipelinetest.Components)
	again, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, pipelinetest.Newest612, again.Kernel)
	o.Update = true
	again, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, newer, again.Kernel)
	written, err := lock.Read(o.LockFile)
	require.NoError(t, err)
	assert.Equal(t, newer, written.Kernel)
}

func TestLockForAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	_, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	before, err := os.ReadFile(o.LockFile)
	require.NoError(t, err)
	for name, change := range map[string]func(*Options){
		"driver": func(o *Options) { o.Driver = "580" },
		"kernel": func(o *Options) { o.Kernel = "6.1" },
	} {
		o := o
		change(&o)
		_, err := Fetch(t.Context(), o)
		var refused *RequestError
		require.ErrorAs(t, err, &refused, name)
		for _, part := range []string{o.LockFile, DefaultDriver, pipelinetest.Newest612, "--update", "--lock"} {
			require.ErrorContains(t, err, part, name)
		}
	}
	after, err := os.ReadFile(o.LockFile)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))

	o.Driver, o.Kernel = "535.261.03", pipelinetest.Newest612
	_, err = Fetch(t.Context(), o)
	require.NoError(t, err, "the same request in other words")
}

func TestLockDecidesWhatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	o.Driver, o.Kernel = "", ""
	l, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, DefaultDriver, l.Driver)
	assert.Equal(t, pipelinetest.Newest612, l.Kernel)

	o.Update, o.Kernel = true, "6.1.0-9-amd64"
	_, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	o.Update, o.Kernel = false, ""
	l, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, "6.1.0-9-amd64", l.Kernel, "not the default")
	o.Update = true
	l, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, pipelinetest.Newest61, l.Kernel, "the newest of the same series")

	require.NoError(t, os.WriteFile(o.LockFile, []byte("damaged"), 0o644))
	l, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, pipelinetest.Newest612, l.Kernel)
}

func TestMirrorOverridesThatOfTheLock(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	_, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	m.Requests()

	other, security := m.Serve(t), m.Serve(t)
	o.Cache, o.Mirror, o.SecurityMirror = t.TempDir(), other.URL, security.URL
	_, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Empty(t, m.Requests())
	assert.Contains(t, other.Requests(), m.Firmware)
	for _, r := range security.Requests() {
		assert.Equal(t, "libc6_2.36-9+deb12u1_amd64.deb", path.Base(r))
	}

	o.Cache, o.Mirror, o.SecurityMirror = t.TempDir(), "", ""
	_, err = Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.NotEmpty(t, m.Requests(), "the lock's own")
}

func TestOffline(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	o.Offline = true
	_, err := Fetch(t.Context(), o)
	var offline *fetch.OfflineError
	require.ErrorAs(t, err, &offline, "no lock and no index")
	require.ErrorContains(t, err, m.URL+"/dists/bookworm/InRelease")

	o.Offline = false
	l, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	m.Requests()
	o.Offline = true
	_, err = Fetch(t.Context(), o)
	require.NoError(t, err, "a full cache")
	require.NoError(t, os.Remove(o.LockFile))
	again, err := Fetch(t.Context(), o)
	require.NoError(t, err, "the last index is in the cache too")
	assert.Equal(t, l, again)

	lost := l.ByRole(lock.Firmware)[0]
	place := o.fetcher().Path(lost.SHA256)
	require.NoError(t, os.Remove(place))
	_, err = Fetch(t.Context(), o)
	var missing *fetch.MissingError
	require.ErrorAs(t, err, &missing)
	for _, part := range []string{path.Base(m.Firmware), m.URL + "/" + m.Firmware, place, lost.SHA256, "mkp2pimg fetch"} {
		require.ErrorContains(t, err, part)
	}
	assert.Empty(t, m.Requests())
}

func TestFileMirror(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, m.Files))
	o := request(t, m)
	o.Mirror, o.SecurityMirror, o.Offline = "file://"+dir, "file://"+dir, true
	_, err := Fetch(t.Context(), o)
	require.NoError(t, err, "a mirror on a disk needs no network")
	assert.Empty(t, m.Requests())
}

func TestSteps(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	var log bytes.Buffer
	o := request(t, m)
	o.Log = &log
	for range 2 {
		_, err := Fetch(t.Context(), o)
		require.NoError(t, err)
	}
	m.Golden(t, "fetch.txt", filepath.Dir(o.LockFile), log.String())
}
