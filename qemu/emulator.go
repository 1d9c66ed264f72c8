package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mkp2pimg/internal/sandbox"
)

// Packages are the Debian packages that hold the emulator and its firmware;
// their dependencies (SeaBIOS among them) come with them. Recommended packages
// aren't needed.
var Packages = []string{"qemu-system-x86", "ovmf"}

// Emulator is an installed QEMU: on this host, or in a root made of [Packages].
type Emulator struct {
	Root    sandbox.Root // the zero Root is the host
	Binary  string       // as seen inside the root
	Version Version
}

// inside is where the sandbox shows the files of the host that a run needs.
const inside = "/host"

// bind shows a host path to the emulator, and returns the path it has there.
func (e *Emulator) bind(host string, readOnly bool) (sandbox.Bind, string) {
	b := sandbox.Bind{Host: host, Guest: host, ReadOnly: readOnly}
	if !e.Root.Host() {
		b.Guest = inside + host
	}
	return b, b.Guest
}

// outside returns the host path of a file inside the emulator's root.
func (e *Emulator) outside(path string) string { return filepath.Join("/", e.Root.Dir, path) }

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

// Find looks for QEMU in a root, and asks its version.
func Find(ctx context.Context, root sandbox.Root) (*Emulator, error) {
	e := &Emulator{Root: root, Binary: filepath.Join("/usr/bin", program)}
	var err error
	if root.Host() {
		e.Binary, err = exec.LookPath(program)
	} else {
		_, err = os.Stat(e.outside(e.Binary))
	}
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrNoEmulator, err)
	}
	var out, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := sandbox.Cmd{Root: root, Argv: []string{e.Binary, "--version"}, Stdout: &out, Stderr: &stderr}
	if err := cmd.Run(ctx); err != nil {
		return nil, fmt.Errorf("%s --version: %w: %s", e.Binary, err, strings.TrimSpace(stderr.String()))
	}
	e.Version, err = ParseVersion(out.String())
	return e, err
}

// ErrNoVFIOUser is the error where there is no QEMU with the device vfio-user-pci.
var ErrNoVFIOUser = errors.New("machines with emulated GPUs need the device vfio-user-pci, which QEMU has from 10.1 on")

// NeedVFIOUser asks the emulator whether it has the device vfio-user-pci, which
// not every build does. The error wraps [ErrNoVFIOUser] where it has none.
func (e *Emulator) NeedVFIOUser(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var said bytes.Buffer
	cmd := sandbox.Cmd{Root: e.Root, Argv: []string{e.Binary, "-device", driver[GPU] + ",help"}, Stdout: &said, Stderr: &said}
	if err := cmd.Run(ctx); err != nil {
		return fmt.Errorf("%s: %w: %s", Quote(cmd.Argv), err, strings.TrimSpace(said.String()))
	}
	// It ends well for a device that it does not have, too.
	if !strings.Contains(said.String(), driver[GPU]+" options:") {
		return fmt.Errorf("%w; %s is version %s and says: %s", ErrNoVFIOUser, e.Binary, e.Version, lastLine(strings.TrimSpace(said.String())))
	}
	return nil
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

// ovmf finds OVMF: code as the emulator sees it, variables as this program does.
func (e *Emulator) ovmf() (code, vars string, err error) {
	for _, f := range flash {
		vars = e.outside(f[1])
		if _, err := os.Stat(e.outside(f[0])); err != nil {
			continue
		}
		if _, err := os.Stat(vars); err == nil {
			return f[0], vars, nil
		}
	}
	return "", "", errors.New("OVMF is not installed, and the machine starts with it: install the package ovmf (Debian, Ubuntu) or edk2-ovmf (Fedora, Arch)")
}
