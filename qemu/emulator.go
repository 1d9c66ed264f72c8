package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Packages are the Debian packages that hold the emulator and its firmware;
// their dependencies (SeaBIOS among them) come with them. Recommended packages
// aren't needed.
var Packages = []string{"qemu-system-x86", "ovmf"}

// A Runner runs the emulator: on this host, or inside an unpacked root.
type Runner interface {
	// Root is the host path of the directory that is / to the command.
	Root() string
	// Path returns the path under which the command sees a host path that is
	// among its Binds, or below one of them.
	Path(host string) string
	// Run runs the command to its end. When ctx ends, the command and all its
	// children are killed.
	Run(ctx context.Context, c Command) error
}

// Command is one run of a program.
type Command struct {
	Argv           []string
	Binds          []Bind
	Stdout, Stderr io.Writer
}

// Bind is a host file or directory that a command needs.
type Bind struct {
	Host     string // absolute
	ReadOnly bool
}

// Host runs commands as they are installed on this host.
type Host struct{}

// Root returns the root directory.
func (Host) Root() string { return "/" }

// Path returns the path unchanged.
func (Host) Path(host string) string { return host }

// Run runs the command in a process group of its own, which is killed when ctx
// ends; the kernel kills the command if this program dies first.
func (Host) Run(ctx context.Context, c Command) error {
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	// The signal comes when the starting thread dies, so that one is kept.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// Emulator is an installed QEMU.
type Emulator struct {
	Runner  Runner
	Binary  string // as the runner sees it
	Version Version
}

// Version is a version of QEMU.
type Version struct{ Major, Minor, Micro int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// MarshalText gives the version as [Version.String] does.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a version as [Version.String] gives it.
func (v *Version) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "%d.%d.%d", &v.Major, &v.Minor, &v.Micro)
	return err
}

// ErrNoEmulator is the error of [Find] where there is no QEMU.
var ErrNoEmulator = errors.New("qemu-system-x86_64 is not installed: install the package qemu-system-x86 (Debian, Ubuntu), qemu-system-x86-core (Fedora) or qemu-base (Arch)")

const program = "qemu-system-x86_64"

// Find looks for QEMU where the runner runs commands, and asks its version.
func Find(ctx context.Context, r Runner) (*Emulator, error) {
	e := &Emulator{Runner: r, Binary: filepath.Join("/usr/bin", program)}
	if r.Root() == "/" {
		var err error
		if e.Binary, err = exec.LookPath(program); err != nil {
			return nil, ErrNoEmulator
		}
	} else if _, err := os.Stat(filepath.Join(r.Root(), e.Binary)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoEmulator, err)
	}
	var out, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := r.Run(ctx, Command{Argv: []string{e.Binary, "--version"}, Stdout: &out, Stderr: &stderr})
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w: %s", e.Binary, err, strings.TrimSpace(stderr.String()))
	}
	e.Version, err = ParseVersion(out.String())
	return e, err
}

var versionRE = regexp.MustCompile(`^QEMU emulator version (\d{1,4})\.(\d{1,4})\.(\d{1,4})`)

// ParseVersion reads the output of qemu --version.
func ParseVersion(out string) (Version, error) {
	g := versionRE.FindStringSubmatch(out)
	if g == nil {
		line, _, _ := strings.Cut(out, "\n")
		return Version{}, fmt.Errorf("%q is not the version of a QEMU emulator", line)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(g[i+1]) // the pattern admits digits only
	}
	return Version{n[0], n[1], n[2]}, nil
}

// flash lists where distributions keep OVMF: code and variables, raw, without
// Secure Boot keys.
var flash = [][2]string{
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},                   // Debian, Ubuntu
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},               // Fedora
	{"/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"},           // Arch
	{"/usr/share/qemu/edk2-x86_64-code.fd", "/usr/share/qemu/edk2-i386-vars.fd"},             // QEMU's own
	{"/usr/local/share/qemu/edk2-x86_64-code.fd", "/usr/local/share/qemu/edk2-i386-vars.fd"}, // built from source
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},                         // 2 MB builds
}

// ovmf finds OVMF: code as the runner sees it, and variables on this host.
func (e *Emulator) ovmf() (code, vars string, err error) {
	root := e.Runner.Root()
	for _, f := range flash {
		vars = filepath.Join(root, f[1])
		if _, err := os.Stat(filepath.Join(root, f[0])); err != nil {
			continue
		}
		if _, err := os.Stat(vars); err == nil {
			return f[0], vars, nil
		}
	}
	return "", "", errors.New("OVMF is not installed, and the machine starts with it: install the package ovmf (Debian, Ubuntu) or edk2-ovmf (Fedora, Arch)")
}
