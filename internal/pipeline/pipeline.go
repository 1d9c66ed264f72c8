// Package pipeline runs a build from request to image:
// inputs → modules → rootfs → image. Each part is another package's work; here
// is only their order, what passes between them, and what is kept for the next
// build.
package pipeline

import (
	"io"
	"time"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/signing"
)

// Defaults of Options.
const (
	DefaultDriver         = "535.261.03"
	DefaultKernel         = "6.12"
	DefaultMirror         = debian.DefaultMirror
	DefaultSecurityMirror = debian.DefaultSecurityMirror
)

// codename is the Debian release that kernel, compiler, libc and emulator
// come from.
const codename = "bookworm"

// Toolchains of Options.
const (
	ToolchainSandbox = "sandbox" // a root made of Debian packages
	ToolchainHost    = "host"    // what the host has installed; not reproducible elsewhere
)

// Options is a request for an image. Log must be set; the paths have no default
// here.
type Options struct {
	// Driver is a release or a branch, Kernel a series or an exact release.
	// Empty: that of the lock file, or the default if there is none.
	Driver, Kernel string

	Cache    string // directory; made when needed
	LockFile string // read if it exists, unless Update
	Update   bool
	Offline  bool
	// Mirror and SecurityMirror override the base URLs of the archives, also
	// of those named by a lock file. Empty keeps them.
	Mirror, SecurityMirror string
	// SourceMirror and UserspaceMirror override the base URLs of what NVIDIA
	// publishes: the repository of the driver's source (with archive/COMMIT.tar.gz
	// below) and its .run archives (with VERSION/NVIDIA-Linux-x86_64-VERSION.run).
	SourceMirror, UserspaceMirror string
	// DriverSource is the driver's source, in a place that source.Find knows, to be
	// taken instead of the published one. A driver that is not asked for by name is
	// then the one that it is of.
	DriverSource string
	// Userspace is where the driver's firmware and libraries are, in places that
	// userspace.Find knows, to be taken instead of the published ones.
	Userspace []string
	// Keyring is a file with the OpenPGP keys that may sign the archives'
	// indexes. Empty: Debian's own.
	Keyring string

	Out string // directory of the image
	// Formats are the forms of the image besides the netboot directory, which is
	// always made.
	Formats []string
	// GPUs are the families and models of GPUs that the image has firmware for, or
	// AllGPUs.
	GPUs    []string
	gpus    gpus // made of them
	Profile initramfs.Profile
	// SignKey and SignCert are files with the key, and its certificate, that signs
	// the unified kernel image; if SignModules, the driver's modules as well. Empty:
	// nothing is signed.
	SignKey, SignCert string
	SignModules       bool
	key               *signing.Key // read from them
	Source            string       // root of this Go module
	Toolchain         string
	Edits             string // patch.Mode
	Jobs              int    // 0: one for each CPU
	Version           string // of this program, for the manifest

	Log      io.Writer
	Progress fetch.Progress
	// Doing, if set, is called now and then with the step that runs and for how
	// long it has, and with no step when one ends.
	Doing func(step string, since time.Duration)
}

func (o *Options) fetcher() *fetch.Client {
	return &fetch.Client{Dir: o.Cache, Offline: o.Offline, Progress: o.Progress}
}
