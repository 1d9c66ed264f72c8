// Package sandbox runs a command inside a file system made of unpacked
// packages, so that a build sees the same tools on every host.
//
// The command lives in mount, PID, UTS, IPC and network namespaces of its own,
// without root inside a user namespace as well. It sees the packages read-only,
// an empty /tmp, a minimal /dev, the directories bound for it, a fixed
// environment and the host name "mkp2pimg". Nothing of it outlives [Cmd.Run],
// nor the program that called it.
//
// This is for equal results, not for security: the kernel is the host's.
package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Root is a directory of unpacked packages that [Prepare] completed. The zero
// Root is the host itself: commands run on it directly, without namespaces, and
// their results depend on what is installed there.
type Root struct{ Dir string }

// Host reports whether r is the host itself.
func (r Root) Host() bool { return r.Dir == "" }

// Bind shows a file or directory of the host inside the sandbox. Where the
// packages have no such path, it is made; its parent must not lie in a
// directory of the packages then, for these are read-only.
type Bind struct {
	Host, Guest string // absolute paths
	ReadOnly    bool
}

// Cmd is a command to run. On the host itself (zero Root) each Bind must have
// equal paths, and Network is ignored: the command has the host's.
type Cmd struct {
	Root  Root
	Binds []Bind
	Dir   string   // working directory in the sandbox; "" is /
	Env   []string // "KEY=value", added to the fixed environment or replacing its values
	Argv  []string // a name without slash is looked up in PATH

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Network bool // use the host's network; without it there is none

	// ProcessState is set by Run once the command has ended. Its SysUsage
	// covers all processes of the command that were waited for.
	ProcessState *os.ProcessState
}

// Environment of every command. On the host PATH is the caller's.
var fixedEnv = map[string]string{
	"HOME":   "/",
	"LC_ALL": "C",
	"PATH":   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"TZ":     "UTC",
}

// Run starts the command and waits for it. If ctx ends, the command and all of
// its descendants are killed and the error is the context's. A failed command
// gives an error that wraps [*exec.ExitError], a host that forbids namespaces a
// [*ForbiddenError].
func (c *Cmd) Run(ctx context.Context) error {
	if len(c.Argv) == 0 {
		return errors.New("sandbox: no command")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	run := c.runInRoot
	if c.Root.Host() {
		run = c.runOnHost
	}
	err := run(ctx)
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return fmt.Errorf("%s: %w", c.Argv[0], ctxErr)
	}
	return err
}

// env returns the fixed environment with the command's own values, sorted.
func (c *Cmd) env() []string {
	env := maps.Clone(fixedEnv)
	if c.Root.Host() {
		env["PATH"] = os.Getenv("PATH")
	}
	for _, kv := range c.Env {
		key, value, _ := strings.Cut(kv, "=")
		env[key] = value
	}
	list := make([]string, 0, len(env))
	for key, value := range env {
		list = append(list, key+"="+value)
	}
	slices.Sort(list)
	return list
}

func (c *Cmd) runOnHost(ctx context.Context) error {
	for _, b := range c.Binds {
		if b.Host != b.Guest {
			return fmt.Errorf("sandbox: %s can't be shown as %s on the host itself", b.Host, b.Guest)
		}
	}
	cmd := c.command(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = c.env()
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	return c.wait(cmd, cmd.Start())
}

// command fills in what the command on the host and the child of a sandbox
// have in common: a session of its own, so that an interrupt from the terminal
// reaches the caller alone, and death with the caller.
func (c *Cmd) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (c *Cmd) wait(cmd *exec.Cmd, err error) error {
	if err == nil {
		err = cmd.Wait()
		c.ProcessState = cmd.ProcessState
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Argv[0], err)
	}
	return nil
}

// spec is what the child has to know.
type spec struct {
	Root  string
	Binds []Bind
	Dir   string
	Env   []string
	Argv  []string
}

func (c *Cmd) spec() (*spec, error) {
	s := &spec{Dir: c.Dir, Env: c.env(), Argv: c.Argv}
	var err error
	if s.Root, err = resolve(c.Root.Dir); err != nil {
		return nil, fmt.Errorf("sandbox: root: %w", err)
	}
	for _, b := range c.Binds {
		if !filepath.IsAbs(b.Guest) || filepath.Clean(b.Guest) == "/" {
			return nil, fmt.Errorf("sandbox: bind %s: %q is not an absolute path below /", b.Host, b.Guest)
		}
		if b.Host, err = resolve(b.Host); err != nil {
			return nil, fmt.Errorf("sandbox: bind %s: %w", b.Guest, err)
		}
		s.Binds = append(s.Binds, b)
	}
	if s.Dir == "" {
		s.Dir = "/"
	}
	return s, nil
}

// resolve follows the links of a path while the host's are what counts.
func resolve(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

func (c *Cmd) runInRoot(ctx context.Context) error {
	if !enabled {
		return errors.New("sandbox: MaybeChild was not called at the start of main")
	}
	s, err := c.spec()
	if err != nil {
		return err
	}
	arg, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	status, childStatus, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	defer status.Close()
	defer childStatus.Close()

	// Pdeathsig is sent when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := c.command(ctx, "/proc/self/exe")
	cmd.Args = []string{childName, string(arg)}
	cmd.ExtraFiles = []*os.File{childStatus}
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if !c.Network {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNET
	}
	if !canMount() {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return forbidden(err)
	}
	_ = childStatus.Close() // else status would have no end
	var failed failure
	decodeErr := json.NewDecoder(status).Decode(&failed) // ends when the child execs or exits
	err = c.wait(cmd, nil)
	switch {
	case decodeErr != nil: // nothing came: the command itself ran
		return err
	case failed.Op == "mount" && errors.Is(&failed, fs.ErrPermission):
		return forbidden(&failed)
	}
	return fmt.Errorf("sandbox: %w", &failed)
}

// canMount reports whether the process may mount file systems without a user
// namespace: it has CAP_SYS_ADMIN.
func canMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	return err == nil && os.Geteuid() == 0 && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
