package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runnerEnv makes the test program a caller of Run that is about to be killed.
const runnerEnv = "SANDBOX_TEST_RUNNER_ROOT"

func TestMain(m *testing.M) {
	MaybeChild()
	if root := os.Getenv(runnerEnv); root != "" {
		c := command(Root{root}, "echo started; sleep 1000")
		c.Stdout = os.Stdout
		_ = c.Run(context.Background())
		return
	}
	os.Exit(m.Run())
}

// testRoot returns a root whose tools are the host's: only /usr of the host is
// shown in it.
func testRoot(t *testing.T) Root {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"usr", "etc", "dev", "proc", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	for _, d := range []string{"bin", "lib", "lib64"} {
		require.NoError(t, os.Symlink("usr/"+d, filepath.Join(dir, d)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etc/marker"), []byte("here\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tmp/leftover"), nil, 0o644))

	err := command(Root{dir}, "true").Run(t.Context())
	if _, no := errors.AsType[*ForbiddenError](err); no {
		t.Skipf("no sandbox on this host: %v", err)
	}
	require.NoError(t, err)
	return Root{dir}
}

func command(root Root, script string) *Cmd {
	return &Cmd{
		Root:  root,
		Binds: []Bind{{Host: "/usr", Guest: "/usr", ReadOnly: true}},
		Argv:  []string{"sh", "-c", script},
	}
}

func output(t *testing.T, c *Cmd) string {
	t.Helper()
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	require.NoError(t, c.Run(t.Context()), errOut.String())
	return out.String()
}

func TestRun(t *testing.T) {
	root := testRoot(t)
	for name, tc := range map[string]struct{ script, want string }{
		"packages":         {"cat /etc/marker", "here\n"},
		"no host files":    {"ls /etc; ls -A /", "marker\nbin\ndev\netc\nlib\nlib64\nproc\nsys\ntmp\nusr\n"},
		"packages fixed":   {"(: >/etc/new) 2>/dev/null || echo read-only", "read-only\n"},
		"empty /tmp":       {"ls /tmp; : >/tmp/new && ls /tmp", "new\n"},
		"devices":          {"echo x >/dev/null && head -c 2 /dev/zero | wc -c; ls /dev", "2\nfd\nfull\nnull\nrandom\nstderr\nstdin\nstdout\nurandom\nzero\n"},
		"host name":        {"uname -n", "mkp2pimg\n"},
		"root inside":      {"id -u", "0\n"},
		"first process":    {"echo $$", "1\n"},
		"own processes":    {"ls /proc | grep -c '^[0-9]'", "3\n"}, // sh, ls, grep
		"no network":       {"grep -c : /proc/net/dev", "1\n"},     // lo
		"environment":      {"env | grep -v -e ^PWD= -e ^_= -e ^OLDPWD= -e ^SHLVL= | sort", "HOME=/\nLC_ALL=C\nPATH=" + fixedEnv["PATH"] + "\nTZ=UTC\n"},
		"umask":            {"umask", "0022\n"},
		"descriptors":      {"ls /proc/self/fd", "0\n1\n2\n3\n"}, // 3 is ls's
		"working in the /": {"pwd", "/\n"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, output(t, command(root, tc.script)))
		})
	}
}

func TestRunOptions(t *testing.T) {
	root := testRoot(t)
	host := t.TempDir()
	file := filepath.Join(host, "file")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o644))

	c := command(root, `cat file; cat; echo $A $HOME; cp file copy; cat /etc/marker /opt/one; (: >/ro/new) 2>/dev/null || echo no`)
	c.Binds = append(c.Binds, Bind{Host: host, Guest: "/build/deep"},
		Bind{Host: host, Guest: "/ro", ReadOnly: true}, Bind{Host: file, Guest: "/opt/one"})
	c.Dir = "/build/deep"
	c.Env = []string{"A=b=c", "HOME=/build"}
	c.Stdin = strings.NewReader("input\n")
	assert.Equal(t, "textinput\nb=c /build\nhere\ntextno\n", output(t, c))
	assert.FileExists(t, filepath.Join(host, "copy"))
	assert.Positive(t, c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)

	c = command(root, "grep -c : /proc/net/dev")
	c.Network = true
	hostNet, err := os.ReadFile("/proc/net/dev")
	require.NoError(t, err)
	if bytes.Count(hostNet, []byte(":")) > 1 {
		assert.NotEqual(t, "1\n", output(t, c))
	}
}

func TestRunErrors(t *testing.T) {
	root := testRoot(t)
	for name, tc := range map[string]struct {
		edit func(*Cmd)
		want string
	}{
		"no command":     {func(c *Cmd) { c.Argv = nil }, "no command"},
		"no root":        {func(c *Cmd) { c.Root.Dir = "/none/at/all" }, "root: lstat /none: no such file"},
		"no bind":        {func(c *Cmd) { c.Binds[0].Host = "/none" }, "bind /usr: lstat /none: no such file"},
		"relative bind":  {func(c *Cmd) { c.Binds[0].Guest = "usr" }, `"usr" is not an absolute path`},
		"bind over all":  {func(c *Cmd) { c.Binds[0].Guest = "/." }, `"/." is not an absolute path below /`},
		"bind in roots":  {func(c *Cmd) { c.Binds[0].Guest = "/etc/new" }, "mkdir /etc/new: "},
		"unknown tool":   {func(c *Cmd) { c.Argv = []string{"no-such-tool"} }, `exec no-such-tool: exec: "no-such-tool": executable file not found`},
		"not a program":  {func(c *Cmd) { c.Argv = []string{"/etc/marker"} }, "exec /etc/marker: "},
		"no working dir": {func(c *Cmd) { c.Dir = "/none" }, "exec sh: chdir /none: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := command(root, "true")
			tc.edit(c)
			err := c.Run(t.Context())
			assert.ErrorContains(t, err, "sandbox: ")
			assert.ErrorContains(t, err, tc.want)
		})
	}

	t.Run("exit status", func(t *testing.T) {
		err := command(root, "exit 3").Run(t.Context())
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Equal(t, 3, exit.ExitCode())
		assert.EqualError(t, err, "sh: exit status 3")
	})
	t.Run("child not recognised", func(t *testing.T) {
		enabled = false
		defer func() { enabled = true }()
		assert.ErrorContains(t, command(root, "true").Run(t.Context()), "MaybeChild was not called")
	})
}

// A cancelled command must take its background processes along: each holds the
// write end of the pipe, whose reader sees the end of file when all are gone.
func TestRunCancel(t *testing.T) {
	for name, root := range map[string]Root{"sandbox": testRoot(t), "host": {}} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			require.NoError(t, err)
			defer r.Close()
			ctx, cancel := context.WithCancel(t.Context())
			c := command(root, "(trap '' TERM INT; sleep 1000) & echo started; sleep 1000")
			if root.Host() {
				c.Binds = nil
			}
			c.Stdout = w
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()

			_, err = io.ReadFull(r, make([]byte, len("started\n")))
			require.NoError(t, err)
			cancel()
			assert.ErrorIs(t, <-done, context.Canceled)
			require.NoError(t, w.Close())
			rest, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Empty(t, rest)

			assert.ErrorIs(t, c.Run(ctx), context.Canceled)
		})
	}
}

func TestRunDiesWithCaller(t *testing.T) {
	root := testRoot(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	caller := exec.CommandContext(t.Context(), "/proc/self/exe")
	caller.Env = append(os.Environ(), runnerEnv+"="+root.Dir)
	caller.Stdout = w
	require.NoError(t, caller.Start())
	require.NoError(t, w.Close())
	_, err = io.ReadFull(r, make([]byte, len("started\n")))
	require.NoError(t, err)
	require.NoError(t, caller.Process.Kill())
	_, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Error(t, caller.Wait())
}

// As root no user namespace is needed; here the other way is tried.
func TestRunWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: the other tests ran without root already")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "sandbox-nobody-")
	require.NoError(t, err)
	defer func() { assert.NoError(t, os.RemoveAll(dir)) }()
	require.NoError(t, os.Chown(dir, nobody, nobody))
	again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^(TestRun|TestRunOptions|TestRunCancel)$", "-test.v")
	again.Args[0] = os.Args[0]
	again.Dir = dir
	again.Env = append(os.Environ(), "TMPDIR="+dir)
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := again.CombinedOutput()
	require.NoError(t, err, string(out))
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip(string(out))
	}
}

func TestRunOnHost(t *testing.T) {
	dir := t.TempDir()
	c := &Cmd{
		Binds: []Bind{{Host: dir, Guest: dir}},
		Dir:   dir,
		Env:   []string{"A=b"},
		Argv:  []string{"sh", "-c", `pwd; echo "$A $HOME $TZ"; echo "$PATH"`},
	}
	assert.Equal(t, dir+"\nb / UTC\n"+os.Getenv("PATH")+"\n", output(t, c))

	c.Binds[0].Guest = "/build"
	assert.ErrorContains(t, c.Run(t.Context()), "can't be shown as /build on the host itself")
}
