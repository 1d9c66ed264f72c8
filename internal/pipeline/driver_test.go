package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline/pipelinetest"
	"mkp2pimg/internal/runfile"
	"mkp2pimg/internal/runfile/runtest"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/patch"
)

// of570 is the release of these tests, which Debian does not have.
const of570 = "570.211.01"

// sourceDir is a directory with the source of a release.
func sourceDir(t *testing.T, release string) string {
	dir := filepath.Join(t.TempDir(), "ogkm")
	for _, e := range pipelinetest.SourceTree("", release) {
		path := filepath.Join(dir, e.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(e.Content), 0o644))
	}
	return dir
}

// runFile is NVIDIA's archive of a release.
func runFile(t *testing.T, release string) string {
	path := filepath.Join(t.TempDir(), "NVIDIA-Linux-x86_64-"+release+".run")
	runtest.Write(t, path, runtest.Options{Version: release, Files: runtest.Driver(t, release)})
	return path
}

// unpackedRun is a directory with what the archive of a release unpacks to.
func unpackedRun(t *testing.T, release string) string {
	dir := t.TempDir()
	for name, data := range runtest.Driver(t, release) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o755))
	}
	return dir
}

// debs is a directory with a distribution's packages of a release.
func debs(t *testing.T, release string) string {
	dir := t.TempDir()
	var libs, firmware []debiantest.Entry
	for name, data := range runtest.Driver(t, release) {
		switch {
		case strings.HasPrefix(name, "firmware/"):
			firmware = append(firmware, debiantest.Entry{Name: "lib/firmware/nvidia/" + release + "/" + filepath.Base(name), Content: string(data)})
		case name == "nvidia-smi":
			libs = append(libs, debiantest.Entry{Name: "usr/bin/nvidia-smi", Content: string(data)})
		default:
			libs = append(libs, debiantest.Entry{Name: "usr/lib/x86_64-linux-gnu/" + name, Content: string(data)})
		}
	}
	for name, entries := range map[string][]debiantest.Entry{
		"nvidia-firmware-570_" + release + "-1_amd64.deb": firmware,
		"libnvidia-compute_" + release + "-1_amd64.deb":   libs,
		"xserver-nvidia_" + release + "-1_amd64.deb":      {{Name: "usr/share/doc/x"}},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), debiantest.Deb(t, "xz", entries...), 0o644))
	}
	return dir
}

// locked fetches the inputs of a request and returns them unpacked as far as
// the driver's user space goes.
func locked(t *testing.T, o Options) (*lock.Lock, *initramfs.Spec) {
	t.Helper()
	s := o.steps()
	in, err := s.inputs(t.Context(), &o, lock.Roles...)
	require.NoError(t, err)
	spec := &initramfs.Spec{}
	require.NoError(t, in.userspace(t.Context(), &o, spec))
	require.NoError(t, initramfs.CheckUserspace(spec))
	return in.lock, spec
}

func TestGivenDriver(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	for name, userspace := range map[string]func(*testing.T, string) string{"run": runFile, "directory": unpackedRun, "debs": debs} {
		t.Run(name, func(t *testing.T) {
			o := request(t, m)
			o.Driver, o.DriverSource, o.Userspace = "570", sourceDir(t, of570), []string{userspace(t, of570)}
			l, spec := locked(t, o)
			assert.Equal(t, of570, l.Driver)
			assert.Equal(t, of570, spec.Driver)
			source := l.ByRole(lock.DriverSource)
			require.Len(t, source, 1)
			assert.Equal(t, lock.Local, source[0].Suite)
			assert.Equal(t, of570, source[0].Version)
			assert.Len(t, source[0].Tree, 40)
			assert.Len(t, l.ByRole(lock.Firmware), 1)

			o.Offline = true
			again, _ := locked(t, o)
			assert.Equal(t, l, again, "the lock is for what is given")
			o.Driver, o.DriverSource, o.Userspace = "", "", nil
			again, _ = locked(t, o)
			assert.Equal(t, l, again, "the cache has what was given")

			require.NoError(t, os.Remove(o.fetcher().Path(source[0].SHA256)))
			_, err := Fetch(t.Context(), o)
			require.ErrorContains(t, err, "ogkm.tar, which was given as a local file before, is not in the cache any more: give it again")
		})
	}
}

func TestGivenDriverThatTheCatalogDoesNotKnow(t *testing.T) {
	t.Parallel()
	o := request(t, pipelinetest.New(t))
	o.Driver, o.DriverSource, o.Userspace = "", sourceDir(t, "999.1.02"), []string{unpackedRun(t, "999.1.02")}
	l, _ := locked(t, o)
	assert.Equal(t, "999.1.02", l.Driver)
	for _, driver := range []string{"", "999.1.02"} {
		o.Driver = driver
		_, err := Fetch(t.Context(), o)
		require.NoError(t, err)
	}
	o.Driver = "999"
	_, err := Fetch(t.Context(), o)
	var unknown *catalog.UnknownError
	require.ErrorAs(t, err, &unknown)
}

func TestGivenSourceWithDebiansUserspace(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	o.Driver, o.DriverSource = "", sourceDir(t, m.Driver.Version)
	l, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.Equal(t, m.Driver.Version, l.Driver)
	assert.Equal(t, m.Driver.Debian.Version, l.ByRole(lock.Firmware)[0].Version)
	assert.Equal(t, lock.Local, l.ByRole(lock.DriverSource)[0].Suite)

	require.NoError(t, os.WriteFile(filepath.Join(o.DriverSource, "src/nvidia/changed.c"), nil, 0o644))
	_, err = Fetch(t.Context(), o)
	require.ErrorContains(t, err, "has other driver-source than ogkm.tar, which was given: use --update")
	o.Update = true
	changed, err := Fetch(t.Context(), o)
	require.NoError(t, err)
	assert.NotEqual(t, l.ByRole(lock.DriverSource)[0].Tree, changed.ByRole(lock.DriverSource)[0].Tree)
}

func TestGivenWrongDriver(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	notRun := filepath.Join(t.TempDir(), "x.run")
	require.NoError(t, os.WriteFile(notRun, []byte("hello"), 0o644))
	damaged := runFile(t, of570)
	data, err := os.ReadFile(damaged)
	require.NoError(t, err)
	data[len(data)-20] ^= 1
	require.NoError(t, os.WriteFile(damaged, data, 0o644))
	prebuilt := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(prebuilt, "version.mk"), []byte("NVIDIA_VERSION = "+of570+"\n"), 0o644))
	firmwareOnly := unpackedRun(t, of570)
	for _, lib := range []string{"libcuda.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so."} {
		require.NoError(t, os.Remove(filepath.Join(firmwareOnly, lib+of570)))
	}

	for name, tt := range map[string]struct {
		source    string
		userspace string
		is        any
		want      string
	}{
		"no such source":      {filepath.Join(prebuilt, "none"), runFile(t, of570), new(*RequestError), "no such file"},
		"other source":        {sourceDir(t, "570.195.03"), runFile(t, of570), new(*RequestError), "is of driver 570.195.03, not of " + of570},
		"prebuilt source":     {prebuilt, runFile(t, of570), new(*patch.TreeError), "src/nvidia, the source of the resource manager, is missing"},
		"no such user space":  {sourceDir(t, of570), notRun + ".none", new(*RequestError), "want a .run archive"},
		"no user space":       {sourceDir(t, of570), notRun, nil, "is neither a .run archive nor a .deb package"},
		"other user space":    {sourceDir(t, of570), runFile(t, "570.195.03"), new(*runfile.VersionError), "570.195.03"},
		"no libraries":        {sourceDir(t, of570), firmwareOnly, nil, "has no libraries of the driver"},
		"empty directory":     {sourceDir(t, of570), t.TempDir(), nil, "has no libraries and no firmware of the driver"},
		"firmware of another": {sourceDir(t, of570), debs(t, "570.195.03"), new(*initramfs.VersionError), "570.195.03"},
		"damaged":             {sourceDir(t, of570), damaged, new(*runfile.ChecksumError), "its MD5 is"},
	} {
		t.Run(name, func(t *testing.T) {
			o := request(t, m)
			o.Driver, o.DriverSource, o.Userspace = "570", tt.source, []string{tt.userspace}
			_, err := Fetch(t.Context(), o)
			require.ErrorContains(t, err, tt.want)
			assert.NoFileExists(t, o.LockFile)
			if tt.is != nil {
				require.ErrorAs(t, err, tt.is)
			}
		})
	}
}

// publisher serves a release as NVIDIA does.
type publisher struct {
	files map[string][]byte
	asked atomic.Int64
	url   string
}

func publish(t *testing.T, release *catalog.Release, source, run []byte) *publisher {
	sum := sha256.Sum256(run)
	name := "NVIDIA-Linux-x86_64-" + release.Version + ".run"
	p := &publisher{files: map[string][]byte{
		"/source/archive/" + release.Commit + ".tar.gz":            source,
		"/run/" + release.Version + "/" + name:                     run,
		"/run/" + release.Version + "/" + name + ".sha256sum":      fmt.Appendf(nil, "%s  %s\n", hex.EncodeToString(sum[:]), name),
		"/source/archive/" + strings.Repeat("0", 40) + ".tar.gz":   nil,
		"/run/" + release.Version + "/" + name + ".sha256sum.orig": nil,
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		data, ok := p.files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func TestPublishedDriver(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	release, err := catalog.Lookup("570")
	require.NoError(t, err)
	tarball := debiantest.Compress(t, "gz", debiantest.Tar(t, pipelinetest.SourceTree("open-gpu-kernel-modules-"+release.Commit+"/", release.Version)...))
	run := runtest.Bytes(t, runtest.Options{Version: release.Version, Files: runtest.Driver(t, release.Version)})
	p := publish(t, release, tarball, run)
	o := request(t, m)
	o.Driver, o.SourceMirror, o.UserspaceMirror = "570", p.url+"/source", p.url+"/run"

	_, err = Fetch(t.Context(), o)
	var other *TreeMismatchError
	require.ErrorAs(t, err, &other, "what is served is not the release's tree")
	assert.Equal(t, release.Tree, other.Want)
	require.ErrorContains(t, err, "give it with --source")
	assert.NoFileExists(t, o.LockFile)

	// As if the catalog had the tree that is served.
	in, archive, err := o.upstreamSource(t.Context(), &catalog.Release{Version: release.Version, Commit: release.Commit, Tree: other.Got})
	require.NoError(t, err)
	list, archive2, err := o.nvidiaUserspace(t.Context(), release)
	require.NoError(t, err)
	l := &lock.Lock{Version: lock.Version, Driver: release.Version, Archives: []lock.Archive{archive, archive2}, Inputs: append(list, in)}
	require.NoError(t, o.debianParts(t.Context(), l, nil, o.Kernel))
	require.NoError(t, l.Write(o.LockFile))
	assert.Equal(t, "https://github.com/NVIDIA/open-gpu-kernel-modules", archive.Mirror, "not the mirror that was asked")
	assert.Equal(t, "https://download.nvidia.com/XFree86/Linux-x86_64", archive2.Mirror)

	asked := p.asked.Load()
	got, spec := locked(t, o)
	assert.Equal(t, asked, p.asked.Load(), "all is in the cache")
	assert.Equal(t, release.Version, spec.Driver)
	assert.Equal(t, int64(len(run)), got.ByRole(lock.Firmware)[0].Size)

	o.Cache = filepath.Join(t.TempDir(), "other")
	locked(t, o)
	assert.Equal(t, asked+2, p.asked.Load(), "the lock's two files come from the mirrors again")
}

func TestPublishedDriverThatIsNotThere(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	release, err := catalog.Lookup("570")
	require.NoError(t, err)
	run := runtest.Bytes(t, runtest.Options{Version: release.Version})
	p := publish(t, release, []byte("no tarball"), run)
	sums := "/run/" + release.Version + "/NVIDIA-Linux-x86_64-" + release.Version + ".run.sha256sum"
	changed := maps.Clone(p.files)
	changed[strings.TrimSuffix(sums, ".sha256sum")] = []byte("other")
	garbled := maps.Clone(p.files)
	garbled[sums] = []byte("<html>no such page</html>")
	for name, tt := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"none":           {nil, "404 Not Found"},
		"other content":  {changed, "wrong content"},
		"no sum":         {garbled, `want one line with the SHA-256`},
		"broken tarball": {p.files, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			p.files = tt.files
			o := request(t, m)
			o.Driver, o.SourceMirror, o.UserspaceMirror = "570", p.url+"/source", p.url+"/run"
			_, err := Fetch(t.Context(), o)
			var parts *PartsError
			require.ErrorAs(t, err, &parts)
			require.ErrorContains(t, err, tt.want)
			assert.NoFileExists(t, o.LockFile)
		})
	}
}

func TestNoNetworkNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	m := pipelinetest.New(t)
	o := request(t, m)
	o.Driver, o.Offline = "570", true
	_, err := Fetch(t.Context(), o)
	var off *fetch.OfflineError
	require.ErrorAs(t, err, &off)
	m.Golden(t, "offline.txt", filepath.Dir(o.LockFile), err.Error()+"\n")
	assert.Empty(t, m.Requests())
}
