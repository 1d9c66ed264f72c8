package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// childName is the name under which Run starts this program again as the first
// process of a sandbox.
const childName = "mkp2pimg-sandbox"

// hostname is what the sandbox answers to uname.
const hostname = "mkp2pimg"

// enabled is set where MaybeChild was called: elsewhere the child of a sandbox
// would run the program's main a second time.
var enabled bool

// MaybeChild must be the first call of main, and of TestMain, in a program that
// uses [Cmd.Run]. In the first process of a sandbox, which is this program
// started once more, it becomes the command and does not return.
func MaybeChild() {
	if len(os.Args) != 2 || os.Args[0] != childName {
		enabled = true
		return
	}
	runtime.LockOSThread()
	// What the caller itself inherited must not reach the command. Kernels
	// before 5.11 can't say so for all descriptors at once.
	if unix.CloseRange(statusFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil {
		unix.CloseOnExec(statusFD)
	}
	err := child(os.Args[1])
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{Op: "start", Text: err.Error()}
	}
	// Without a reader there is nobody to tell.
	_ = json.NewEncoder(os.NewFile(statusFD, "status")).Encode(f)
	os.Exit(1)
}

// statusFD is the pipe on which the child says why the command did not start:
// the first of exec.Cmd.ExtraFiles.
const statusFD = 3

// failure is why a command did not start.
type failure struct {
	Op    string // what was tried: "mount", "pivot_root", "exec" …
	Path  string
	Text  string
	Errno unix.Errno
}

func (f *failure) Error() string {
	if f.Path == "" {
		return f.Op + ": " + f.Text
	}
	return f.Op + " " + f.Path + ": " + f.Text
}

// Unwrap gives the system's error number, if there was one.
func (f *failure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

func fail(op, path string, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{Op: op, Path: path, Text: err.Error()}
	errors.As(err, &f.Errno)
	return f
}

// oldRoot is where the host's file system stays reachable, inside the new root,
// while the binds are made.
const oldRoot = "/.host"

// child builds the sandbox around itself and becomes the command.
func child(arg string) error {
	var s spec
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	unix.Umask(0o022)
	if err := fail("set the host name", hostname, unix.Sethostname([]byte(hostname))); err != nil {
		return err
	}
	for _, step := range []func(*spec) error{enterRoot, mountSystem, mountBinds, leaveHost} {
		if err := step(&s); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Dir); err != nil {
		return fail("exec", s.Argv[0], err)
	}
	os.Clearenv()
	for _, kv := range s.Env {
		key, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(key, value); err != nil {
			return fail("set", kv, err)
		}
	}
	path, err := exec.LookPath(s.Argv[0])
	if err != nil {
		return fail("exec", s.Argv[0], err)
	}
	return fail("exec", path, unix.Exec(path, s.Argv, s.Env))
}

// enterRoot makes the packages the root file system: a tmpfs laid over their
// directory, into which each of its entries is bound, read-only. So the
// packages stay as they are, and any other path can still be made. The working
// directory is what still reaches the entries below the tmpfs.
func enterRoot(s *spec) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := os.Chdir(s.Root); err != nil {
		return fail("open root", s.Root, err)
	}
	if err := mount("tmpfs", s.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		return fail("read root", s.Root, err)
	}
	for _, e := range entries {
		target := filepath.Join(s.Root, e.Name())
		switch e.Name() {
		case "dev", "proc", "sys", "tmp":
			continue
		}
		switch {
		case e.IsDir():
			err = bind(e.Name(), target, true)
		case e.Type()&os.ModeSymlink != 0:
			err = copyLink(e.Name(), target)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Mkdir(s.Root+oldRoot, 0o755); err != nil {
		return fail("mkdir", s.Root+oldRoot, err)
	}
	if err := unix.PivotRoot(s.Root, s.Root+oldRoot); err != nil {
		return fail("pivot_root", s.Root, err)
	}
	return fail("chdir", "/", os.Chdir("/"))
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return fail("read link", from, err)
	}
	return fail("link", to, os.Symlink(target, to))
}

// mountSystem makes /proc, /tmp and the parts of /dev that compilers and
// emulators need.
func mountSystem(*spec) error {
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fail("mkdir", dir, err)
		}
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return fail("chmod", "/tmp", err)
	}
	err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if errors.Is(err, unix.EPERM) {
		// A container that hides parts of its /proc gets no new one.
		err = bind(oldRoot+"/proc", "/proc", false)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := bind(oldRoot+"/dev/"+name, "/dev/"+name, false); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		if err := os.Symlink("/proc/self/fd"+target, "/dev/"+name); err != nil {
			return fail("link", "/dev/"+name, err)
		}
	}
	return nil
}

func mountBinds(s *spec) error {
	for _, b := range s.Binds {
		if err := bind(oldRoot+b.Host, b.Guest, b.ReadOnly); err != nil {
			return err
		}
	}
	return nil
}

func leaveHost(*spec) error {
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return fail("unmount", oldRoot, err)
	}
	return fail("remove", oldRoot, os.Remove(oldRoot))
}

// bind shows from at to, which it makes if it isn't there.
func bind(from, to string, readOnly bool) error {
	info, err := os.Stat(from)
	if err != nil {
		return fail("open", from, err)
	}
	if err := makeTarget(to, info.IsDir()); err != nil {
		return err
	}
	if err := mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		return fail("statfs", to, err)
	}
	return mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|lockedFlags(st.Flags), "")
}

func makeTarget(path string, dir bool) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if dir {
		return fail("mkdir", path, os.MkdirAll(path, 0o755))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fail("mkdir", path, err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fail("create", path, err)
	}
	return fail("create", path, f.Close())
}

// lockedFlags translates the flags of statfs(2) to those of mount(2) that a
// remount must keep inside a user namespace (mount_namespaces(7)).
func lockedFlags(statfs int64) (flags uintptr) {
	for st, ms := range map[int64]uintptr{
		unix.ST_NOSUID:     unix.MS_NOSUID,
		unix.ST_NODEV:      unix.MS_NODEV,
		unix.ST_NOEXEC:     unix.MS_NOEXEC,
		unix.ST_NOATIME:    unix.MS_NOATIME,
		unix.ST_NODIRATIME: unix.MS_NODIRATIME,
		unix.ST_RELATIME:   unix.MS_RELATIME,
	} {
		if statfs&st != 0 {
			flags |= ms
		}
	}
	return flags
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	return fail("mount", target, unix.Mount(source, target, fstype, flags, data))
}
