package sandbox

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDiagnose(t *testing.T) {
	const sys = "/proc/sys/"
	for name, tc := range map[string]struct {
		err        error
		files      map[string]string
		cause, fix string
	}{
		"limit": {syscall.ENOSPC, map[string]string{sys + "user/max_user_namespaces": "0"},
			"user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		"Debian 10": {syscall.EPERM, map[string]string{sys + "kernel/unprivileged_userns_clone": "0"},
			"kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		"Ubuntu 24.04": {&failure{Op: "mount", Path: "/", Text: "permission denied", Errno: syscall.EACCES},
			map[string]string{sys + "kernel/unprivileged_userns_clone": "1", sys + "kernel/apparmor_restrict_unprivileged_userns": "1"},
			"kernel.apparmor_restrict_unprivileged_userns is 1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"container": {&os.PathError{Op: "fork/exec", Path: "/proc/self/exe", Err: syscall.EPERM},
			map[string]string{"/proc/self/status": "Name:\tx\nSeccomp:\t2\n"}, "a seccomp filter", "seccomp=unconfined"},
		"no support": {syscall.ENOSYS, nil, "CONFIG_USER_NS", "another kernel"},
		"unknown":    {syscall.EPERM, nil, "a security module or a chroot", "allow user namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			err := diagnose(tc.err, func(path string) string { return tc.files[path] })
			f, ok := errors.AsType[*ForbiddenError](err)
			require.True(t, ok, "%v", err)
			assert.Contains(t, f.Cause, tc.cause)
			assert.Contains(t, f.Fix, tc.fix)
			assert.ErrorIs(t, err, tc.err)
			for _, want := range []string{tc.cause, tc.fix, "--toolchain=host", tc.err.Error()} {
				assert.Contains(t, err.Error(), want)
			}
		})
	}
	for _, other := range []error{syscall.EMFILE, syscall.ENOSPC, os.ErrNotExist} {
		err := diagnose(other, func(string) string { return "" })
		assert.ErrorIs(t, err, other)
		assert.True(t, strings.HasPrefix(err.Error(), "sandbox: "), err)
	}
}
