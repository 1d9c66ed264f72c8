package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// ForbiddenError says what on this host keeps a sandbox from being made.
type ForbiddenError struct {
	Cause string // the setting or program that forbids it
	Fix   string // what the user can do about it
	Err   error  // what the system answered
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("the host forbids a sandbox in namespaces: %s (%v); %s, or run as root, "+
		"or use --toolchain=host to build with what the host has installed", e.Cause, e.Err, e.Fix)
}

func (e *ForbiddenError) Unwrap() error { return e.Err }

// forbidden finds out why namespaces or mounts were refused. An error that is
// no refusal is returned as it is, as the sandbox's.
func forbidden(err error) error {
	return diagnose(err, func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	})
}

// diagnose is forbidden with the files of the host read by read.
func diagnose(err error, read func(path string) string) error {
	f := &ForbiddenError{Err: err}
	sysctl := func(key, blocks, wanted string) bool {
		if read("/proc/sys/"+strings.ReplaceAll(key, ".", "/")) != blocks {
			return false
		}
		f.Cause = key + " is " + blocks
		f.Fix = fmt.Sprintf("set it with `sysctl -w %s=%s` (and in /etc/sysctl.d to keep it)", key, wanted)
		return true
	}
	switch {
	case errors.Is(err, syscall.ENOSPC) && sysctl("user.max_user_namespaces", "0", "15000"):
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) &&
		!errors.Is(err, syscall.ENOSYS) && !errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("sandbox: %w", err)
	case sysctl("kernel.unprivileged_userns_clone", "0", "1"):
	case sysctl("kernel.apparmor_restrict_unprivileged_userns", "1", "0"):
	case strings.Contains(read("/proc/self/status"), "\nSeccomp:\t2"):
		f.Cause = "a seccomp filter is set, as container runtimes do"
		f.Fix = "start the container with `--security-opt seccomp=unconfined`"
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
		f.Cause = "the kernel has no such namespaces (CONFIG_USER_NS)"
		f.Fix = "use another kernel"
	default:
		f.Cause = "a security module or a chroot"
		f.Fix = "allow user namespaces and mounts for this program"
	}
	return f
}
