package main

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mkp2pimg/images"
	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/pipeline"
	"mkp2pimg/internal/pipeline/pipelinetest"
)

// nothing is broken at the archive: the command line asks for the wrong thing.
func nothing(*testing.T, *bench) func() { return func() {} }

// file breaks one file of the archive.
func file(name func(*bench) string, change func([]byte) []byte) func(*testing.T, *bench) func() {
	return func(t *testing.T, b *bench) func() {
		good := b.Files[name(b)]
		require.NotNil(t, good)
		delete(b.Files, name(b))
		if change != nil {
			b.Put(name(b), change(bytes.Clone(good.Data)))
		}
		return func() { b.Files[name(b)] = good }
	}
}

func firmware(b *bench) string { return b.Firmware }
func inRelease(*bench) string  { return "dists/bookworm/InRelease" }

// local writes a file on this side.
func local(name func(*bench) string, text string) func(*testing.T, *bench) func() {
	return func(t *testing.T, b *bench) func() {
		before, err := os.ReadFile(name(b))
		require.NoError(t, os.WriteFile(name(b), []byte(text), 0o644))
		return func() {
			require.NoError(t, os.Remove(name(b)))
			if err == nil {
				require.NoError(t, os.WriteFile(name(b), before, 0o644))
			}
		}
	}
}

func lockFile(b *bench) string { return b.lock }
func keyring(b *bench) string  { return b.Keyring }

// published writes the indexes of the main suite anew after a change.
func published(change func(*testing.T, *bench), fields ...string) func(*testing.T, *bench) func() {
	return func(t *testing.T, b *bench) func() {
		change(t, b)
		b.Publish(t, pipelinetest.Main, pipelinetest.Components, fields...)
		return func() {
			for _, suite := range []string{pipelinetest.Main, pipelinetest.Security} {
				b.Withdraw(suite)
			}
			b.Fill(t)
		}
	}
}

// cutPackage adds a newer kernel whose .deb was cut off before it was indexed.
func cutPackage(t *testing.T, b *bench) {
	const release = "6.12.118+deb12-amd64"
	p := debiantest.Package{Name: "linux-image-" + release, Version: "6.12.118-1"}
	deb := debiantest.Deb(t, "gz", debiantest.Entry{Name: "boot/vmlinuz", Content: strings.Repeat("kernel", 99)})
	b.AddDeb(pipelinetest.Main, "main", "pool/main/cut.deb", p, deb[:len(deb)-30])
	b.Add(t, pipelinetest.Main, "main", debiantest.Package{Name: "linux-headers-" + release, Version: "6.12.118-1"})
}

func TestBadInputs(t *testing.T) {
	past := time.Now().AddDate(0, 0, -2)
	tests := map[string]struct {
		args  []string
		spoil func(*testing.T, *bench) (repair func()) // nil: the mistake touches no cache
		code  int
		want  string // regular expression, in the message
	}{
		// The archive.
		"wrong content of a package": {
			[]string{"fetch"}, file(firmware, bytes.ToUpper), exitData,
			`firmware-nvidia-gsp_\S+\.deb from http://\S+: wrong content: expected SHA-256 [0-9a-f]{64}, got`,
		},
		"truncated package": {
			[]string{"fetch"}, file(firmware, func(data []byte) []byte { return data[:len(data)/2] }), exitData,
			`firmware-nvidia-gsp_\S+\.deb from http://\S+: wrong content`,
		},
		"package that was indexed truncated": {
			[]string{"fetch"}, published(cutPackage), exitData,
			`linux-image-6\.12\.118\+deb12-amd64 6\.12\.118-1: \S+ is damaged: .*the file is cut off.*bookworm has it so`,
		},
		"tampered index": {
			[]string{"fetch"}, file(inRelease, func(data []byte) []byte {
				return bytes.Replace(data, []byte("Origin: Test"), []byte("Origin: Evil"), 1)
			}), exitData,
			`http://\S+/dists/bookworm/InRelease: its signature doesn't match`,
		},
		"login page in place of the index": {
			[]string{"fetch"}, file(inRelease, func([]byte) []byte { return []byte("<html>") }), exitData,
			`dists/bookworm/InRelease: not a signed index: another page came`,
		},
		"index signed by a key that Debian's built-in ones lack": {
			[]string{"fetch"}, func(_ *testing.T, b *bench) func() {
				own := b.Keyring
				b.Keyring = ""
				return func() { b.Keyring = own }
			}, exitData,
			`dists/bookworm/InRelease: signed by no key that is trusted here: signed by [0-9A-F]{16} \(if the mirror has a key of its own, name its file with --keyring\)`,
		},
		"index signed by a key that the keyring lacks": {
			[]string{"fetch"}, local(keyring, string(debiantest.Keyring(t, debiantest.NewKey(t, past, debiantest.Decade)))), exitData,
			`dists/bookworm/InRelease: signed by no key that is trusted here`,
		},
		"expired index": {
			[]string{"fetch"}, published(func(*testing.T, *bench) {}, "Valid-Until: "+debiantest.Date(past)), exitData,
			`dists/bookworm/InRelease: the index is too old: valid until .*: use a mirror that is up to date, or correct the clock`,
		},
		"no index at the mirror": {
			[]string{"fetch"}, file(inRelease, nil), exitUnavailable,
			`download InRelease: http://\S+/dists/bookworm/InRelease: 404 Not Found`,
		},
		"no package at the mirror": {
			[]string{"fetch"}, file(firmware, nil), exitUnavailable,
			`(?s)firmware-nvidia-gsp_\S+: none of 3 places.*http://127\S+: 404 Not Found.*snapshot\.debian\.org.*no such host`,
		},
		"driver that Debian lacks, no network": {
			[]string{"fetch", "--driver", "580"}, nothing, exitUnavailable,
			`(?s)driver 580\.\S+: parts of it could not be had.* with --source FILE.* with --userspace FILE`,
		},
		"unreachable mirror": {
			[]string{"fetch", "--mirror", "http://mirror.invalid/debian"}, nothing, exitUnavailable,
			`http://mirror\.invalid/debian/dists/bookworm/InRelease.*no such host`,
		},
		"nothing in the cache, offline": {
			[]string{"build", "--source-root", "../..", "--offline"}, nothing, exitUnavailable,
			`InRelease is needed from http://\S+, but the network is off`,
		},

		// The request.
		"unknown driver":             {[]string{"fetch", "--driver", "999"}, nil, exitUsage, `driver "999" is not known; near it are`},
		"unknown driver release":     {[]string{"fetch", "--driver", "535.1.1"}, nil, exitUsage, `driver "535.1.1" .*535\.`},
		"source that is not there":   {[]string{"fetch", "--source", "none"}, nil, exitUsage, `--source: driver source: .*none: no such file.*want a directory, a tarball or a git repository`},
		"source of nothing":          {[]string{"fetch", "--source", "../../cmd"}, nil, exitUsage, `--source: driver source \S+/cmd: .*neither version\.mk nor a git repository`},
		"source that never ends":     {[]string{"patch", "--check", "/dev/zero"}, nil, exitUsage, `/dev/zero is neither a directory nor a file`},
		"user space of a device":     {[]string{"fetch", "--userspace", "/dev/zero"}, nil, exitUsage, `/dev/zero: is neither a file nor a directory`},
		"user space not there":       {[]string{"fetch", "--userspace", "none.run"}, nil, exitUsage, `--userspace: .*none\.run: no such file.*want a \.run archive`},
		"user space of nothing":      {[]string{"fetch", "--userspace", "bad_test.go"}, nil, exitUsage, `bad_test\.go: is neither a \.run archive nor a \.deb package`},
		"mirror of NVIDIA no URL":    {[]string{"fetch", "--userspace-mirror", "lab"}, nil, exitUsage, `mirror "lab": want an http, https or file URL`},
		"empty name of a source":     {[]string{"fetch", "--source", ""}, nil, exitUsage, `the value of --source is empty: give one, or leave the flag out`},
		"one empty user space":       {[]string{"fetch", "--userspace", "a", "--userspace="}, nil, exitUsage, `the value of --userspace is empty`},
		"empty name of a driver":     {[]string{"build", "--driver", ""}, nil, exitUsage, `the value of --driver is empty`},
		"empty name of a GPU":        {[]string{"drivers", "--gpu", ""}, nil, exitUsage, `the value of --gpu is empty`},
		"an option for an empty GPU": {[]string{"options", "--gpu", "4090", "--gpu", ""}, nil, exitUsage, `the value of --gpu is empty`},
		"edits for an empty GPU":     {[]string{"patch", "--gpu", "", "."}, nil, exitUsage, `the value of --gpu is empty`},
		"unknown kernel":             {[]string{"fetch", "--kernel", "5.10"}, nil, exitUsage, `no generic kernel "5.10" in the archive: it has 6\.1\.0`},
		"mirror that is no URL":      {[]string{"fetch", "--mirror", "mirror.lab/debian"}, nil, exitUsage, `mirror "mirror.lab/debian": want an http, https or file URL`},
		"missing keyring":            {[]string{"fetch", "--keyring", "none.asc"}, nil, exitUsage, `keyring: .*none\.asc: no such file`},
		"empty keyring":              {[]string{"fetch"}, local(keyring, ""), exitUsage, `keyring: \S+lab\.asc: not a keyring.*gpg --export.*holds none`},
		"keyring that is a keybox":   {[]string{"fetch"}, local(keyring, "\x00\x00\x00\x20\x01\x01\x00\x02KBXf"), exitUsage, `keyring: .*gpg --export`},
		"lock file in no directory":  {[]string{"fetch", "--lock", "none/a.lock"}, nil, exitUsage, `lock file none/a\.lock: there is no directory none`},
		"no name for the lock file":  {[]string{"fetch", "--lock", ""}, nil, exitUsage, `the value of --lock is empty`},
		"lock file is a directory":   {[]string{"fetch", "--lock", "."}, nothing, exitUsage, `lock file \.: is a directory`},
		"no name for the cache":      {[]string{"fetch", "--cache", ""}, nil, exitUsage, `the value of --cache is empty`},
		"unknown toolchain":          {[]string{"build", "--source-root", "../..", "--toolchain", "clang"}, nil, exitUsage, `toolchain "clang": want sandbox or host`},
		"unknown edits":              {[]string{"build", "--source-root", "../..", "--edits", "some"}, nil, exitUsage, `edits "some": want one of \[auto`},
		"negative number of jobs":    {[]string{"build", "--source-root", "../..", "--jobs", "-1"}, nil, exitUsage, `jobs -1: want`},
		"GPU of no known family":     {[]string{"build", "--gpu", "volta"}, nil, exitUsage, `GPUs: want all, a family \(turing, .*blackwell\) or a model: GPU "volta" is not known`},
		"unknown profile":            {[]string{"build", "--profile", "tiny"}, nil, exitUsage, `profile "tiny": want one of \[lab minimal\]`},
		"jobs that are no number":    {[]string{"build", "--jobs", "many"}, nil, exitUsage, `"many" for "-j, --jobs" flag.*mkp2pimg build --help`},
		"source that is no clone":    {[]string{"build", "--source-root", ".."}, nil, exitUsage, `\.\. is not the source of mkp2pimg.*--source-root`},
		"unknown flag":               {[]string{"fetch", "--fast"}, nil, exitUsage, `unknown flag: --fast \(see "mkp2pimg fetch --help"\)`},
		"unknown command":            {[]string{"biuld"}, nil, exitUsage, `unknown command "biuld"`},
		"argument that is not taken": {[]string{"fetch", "all"}, nil, exitUsage, `unknown command "all" for "mkp2pimg fetch"`},
		"directory of someone else": {
			[]string{"build", "--source-root", "../.."},
			func(t *testing.T, b *bench) func() {
				require.NoError(t, os.Mkdir(b.out, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(b.out, "thesis.tex"), nil, 0o644))
				return func() {}
			}, exitUsage, `image: \S+/out is not empty and holds no manifest\.json`,
		},
		"lock file for another driver": {
			[]string{"fetch", "--driver", "580"},
			func(t *testing.T, b *bench) func() { b.requireGoodRun(t); return func() {} },
			exitUsage, `mkp2pimg\.lock is for driver 535\.261\.03 and kernel 6\.12\.117\S+, not for driver 580\S+ and kernel 6\.12\.117\S+: use --update`,
		},

		// Files of this side.
		"damaged lock file": {
			[]string{"fetch"}, local(lockFile, `{"version": 1, "dri`), exitData,
			`lock file \S+mkp2pimg\.lock: not a lock file: .*\(--update writes it anew\)`,
		},
		"incomplete lock file": {
			[]string{"fetch"}, local(lockFile, `{"version": 1, "driver": "535.261.03"}`), exitData,
			`lock file \S+mkp2pimg\.lock: lock: kernel is empty`,
		},
		"lock file without inputs": {
			[]string{"build", "--source-root", "../.."},
			local(lockFile, `{"version": 1, "driver": "535.261.03", "kernel": "6.12.117+deb12-amd64", "archives": [], "inputs": []}`),
			exitData, `lock file \S+mkp2pimg\.lock: it has no input with role toolchain \(--update writes it anew\)`,
		},
		"lock file of a newer format": {
			[]string{"fetch"}, local(lockFile, `{"version": 9, "new": true}`), exitData,
			`lock file \S+: lock format 9 is newer than the 2 that this mkp2pimg knows`,
		},
		"cache that is a file": {
			[]string{"fetch"}, local(func(b *bench) string { return b.cache }, "text"), exitIO,
			`cache directory \S+/cache can't be used: .*not a directory: check its owner and mode`,
		},
		"cache without permission": {
			[]string{"fetch"},
			func(t *testing.T, b *bench) func() {
				if os.Geteuid() == 0 {
					t.Skip("root may read everything")
				}
				require.NoError(t, os.Mkdir(b.cache, 0))
				return func() { require.NoError(t, os.Chmod(b.cache, 0o755)) }
			}, exitIO, `cache directory \S+/cache can't be used: .*permission denied`,
		},
		"no space": {
			[]string{"fetch"},
			func(t *testing.T, b *bench) func() {
				require.NoError(t, os.Mkdir(b.cache, 0o755))
				if err := unix.Mount("tmpfs", b.cache, "tmpfs", 0, "size=32k"); err != nil {
					t.Skipf("needs a small tmpfs: mount: %v", err)
				}
				t.Cleanup(func() { require.NoError(t, unix.Unmount(b.cache, 0)) })
				return func() { require.NoError(t, unix.Mount("", b.cache, "", unix.MS_REMOUNT, "size=16m")) }
			}, exitIO, `no space for \S+.*: need .* in \S+/cache, which has .* free: make room`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			repair := func() {}
			if tt.spoil != nil {
				repair = tt.spoil(t, b)
			}
			before := b.left(t)
			code, stdout, stderr := b.run(t.Context(), tt.args...)
			assert.Equal(t, tt.code, code)
			assert.Regexp(t, tt.want, stderr)
			assert.Regexp(t, `(?m)^mkp2pimg: `, stderr)
			assert.Empty(t, stdout)
			assert.Equal(t, before, b.left(t), "no output")
			b.requireCacheWhole(t)
			if tt.spoil != nil {
				repair()
				b.requireGoodRun(t)
			}
		})
	}
}

// TestBuildOfAnotherSource builds from an archive whose driver source lacks
// what the edits are for.
func TestBuildOfAnotherSource(t *testing.T) {
	b := newBench(t)
	code, stdout, stderr := b.run(t.Context(), "build", "--source-root", "../..")
	assert.Equal(t, exitData, code)
	assert.Empty(t, stdout)
	b.Golden(t, "build.txt", filepath.Dir(b.cache), stderr)
	assert.NoDirExists(t, b.out)
	scratch, err := filepath.Glob(filepath.Join(b.cache, "scratch-*"))
	require.NoError(t, err)
	assert.Empty(t, scratch)
}

func TestBadImages(t *testing.T) {
	dir := t.TempDir()
	image := func(name string, change func(dir string)) string {
		path := filepath.Join(dir, name)
		pipelinetest.WriteImage(t, path, "535.261.03", map[string][]byte{pipeline.LockName: []byte("{}")})
		change(path)
		return path
	}
	spoil := func(name, text string) func(string) {
		return func(dir string) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	}
	whole := image("whole", func(string) {})
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"no directory":        {[]string{filepath.Join(dir, "none")}, exitData, `not a netboot directory of mkp2pimg: .*no such file`},
		"another directory":   {[]string{dir}, exitData, `not a netboot directory of mkp2pimg`},
		"damaged initrd":      {[]string{image("initrd", spoil(images.InitrdName, "x"))}, exitData, `(?s)is damaged; build it again:.*initrd\.zst: sha256 is`},
		"damaged checksums":   {[]string{image("sums", spoil(images.SumsName, "x"))}, exitData, `SHA256SUMS: line 1 is not`},
		"no image":            {nil, exitUsage, `accepts 1 arg\(s\), received 0`},
		"unknown machine":     {[]string{whole, "--machine", "laptop"}, exitUsage, `laptop`},
		"words of a line":     {[]string{whole, "--append", "a b"}, exitUsage, `--append: "a b" is not one word`},
		"no boot":             {[]string{whole, "--repeat", "0"}, exitUsage, `--repeat 0: want at least 1`},
		"unknown accel":       {[]string{whole, "--accel", "hvf"}, exitUsage, `hvf`},
		"lock of the image":   {[]string{whole, "--sandbox"}, exitData, `lock file \S+mkp2pimg\.lock: lock: version is 0`},
		"no name for cache":   {[]string{whole, "--sandbox", "--cache", ""}, exitUsage, `the value of --cache is empty`},
		"two kinds of output": {[]string{whole, "--json", "--times"}, exitUsage, `--json and --times: want one`},
		"flag without value":  {[]string{whole, "--machine"}, exitUsage, `flag needs an argument: --machine`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append([]string{"smoke", "--cache", filepath.Join(dir, "cache")}, tt.args...)
			assert.Equal(t, tt.code, run(t.Context(), args, &stdout, &stderr))
			assert.Regexp(t, tt.want, stderr.String())
			assert.Empty(t, stdout.String())
			assert.NoDirExists(t, filepath.Join(dir, "cache"))
		})
	}
}

// TestInterruptedDownload runs the program itself: signals go to processes.
func TestInterruptedDownload(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			b := newBench(t)
			started := make(chan *os.Process, 1)
			b.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, b.Firmware) {
					return false
				}
				data := b.Files[b.Firmware].Data
				_, _ = w.Write(data[:len(data)/2])
				_ = http.NewResponseController(w).Flush()
				_ = (<-started).Signal(sig)
				<-r.Context().Done()
				return true
			})
			before := b.left(t)
			var stderr bytes.Buffer
			c := exec.CommandContext(t.Context(), os.Args[0], b.args("fetch")...)
			c.Env = append(os.Environ(), asProgram+"=1")
			c.Stderr = &stderr
			require.NoError(t, c.Start())
			started <- c.Process
			_ = c.Wait() // its exit code says it
			assert.Equal(t, exitInterrupted, c.ProcessState.ExitCode(), c.ProcessState)
			assert.Regexp(t, `(?m)^mkp2pimg: interrupted \(fetch: download \S+: .*\); nothing half-done is left`, stderr.String())
			assert.Equal(t, before, b.left(t))
			b.requireCacheWhole(t)
			b.Intercept(nil)
			b.requireGoodRun(t)
		})
	}
}
