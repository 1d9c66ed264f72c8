package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/remedy"
	"mkp2pimg/images"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/nightly"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/build"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/patch"
)

func TestExitCode(t *testing.T) {
	some := errors.New("some reason")
	tests := []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{some, exitFailed},
		{quietError{exitFailed}, exitFailed},
		{quietError{exitData}, exitData},
		{usageError{some}, exitUsage},
		{&pipeline.RequestError{Reason: "no"}, exitUsage},
		{&pipeline.RequestError{Reason: "keyring", Err: fs.ErrNotExist}, exitUsage},
		{&catalog.UnknownError{}, exitUsage},
		{&fetch.ChecksumError{}, exitData},
		{&fetch.DownloadError{Errs: []error{some, &fetch.ChecksumError{}}}, exitData},
		{&debian.DamagedError{Err: some}, exitData},
		{&lock.FileError{Err: some}, exitData},
		{&images.DirError{Err: &fs.PathError{Err: fs.ErrNotExist}}, exitData},
		{&patch.RefusedError{}, exitData},
		{&patch.TreeError{}, exitData},
		{&patch.ForkError{}, exitData},
		{&patch.RevertError{}, exitData},
		{&patch.OutputError{}, exitUsage},
		{&patch.HeadersError{}, exitUsage},
		{debian.ErrUnsigned, exitData},
		{debian.ErrUnknownKey, exitData},
		{debian.ErrBadSignature, exitData},
		{debian.ErrKeyExpired, exitData},
		{debian.ErrExpired, exitData},
		{debian.ErrWrongSuite, exitData},
		{&fetch.OfflineError{}, exitUnavailable},
		{&fetch.DownloadError{Errs: []error{some}}, exitUnavailable},
		{&fetch.DownloadError{Errs: []error{&os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}}}, exitUnavailable},
		{&build.CompileError{}, exitSoftware},
		{&sandbox.ForbiddenError{}, exitOS},
		{&remedy.ForbiddenError{Err: &fs.PathError{Op: "open", Path: "config", Err: syscall.EACCES}}, exitOS},
		{&remedy.StateError{Err: some}, exitData},
		{&remedy.ChangedError{}, exitFailed},
		{dataError{some}, exitData},
		{&lab.Error{}, exitData},
		{&nightly.ServerError{Err: some}, exitUnavailable},
		{&fetch.NoSpaceError{}, exitIO},
		{&fetch.CacheError{Err: some}, exitIO},
		{syscall.ENOSPC, exitIO},
		{&fs.PathError{Op: "mkdir", Path: "cache", Err: syscall.EACCES}, exitIO},
		{&os.LinkError{Op: "rename", Err: syscall.EXDEV}, exitIO},
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range tests {
		name := fmt.Sprintf("%T %+v", tt.err, tt.err)
		assert.Equal(t, tt.want, exitCode(t.Context(), tt.err), name)
		if tt.err == nil {
			assert.Equal(t, exitOK, exitCode(ended, nil), "done before the signal came")
			continue
		}
		assert.Equal(t, tt.want, exitCode(t.Context(), fmt.Errorf("step: %w", errors.Join(tt.err))), "wrapped %s", name)
		assert.Equal(t, exitInterrupted, exitCode(ended, tt.err), "interrupted %s", name)
	}
}

// TestExitCodesAreDocumented compares the constants with the help.
func TestExitCodesAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "exit.go", nil, 0)
	require.NoError(t, err)
	var want []int
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "exit") {
			code, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			want = append(want, code)
		}
		return true
	})
	require.Contains(t, want, exitInterrupted)

	var stdout, stderr bytes.Buffer
	assert.Equal(t, exitOK, run(t.Context(), []string{"exit-codes"}, &stdout, &stderr))
	assert.Empty(t, stderr.String())
	var have []int
	for _, line := range regexp.MustCompile(`(?m)^ *(\d+)  \w`).FindAllStringSubmatch(stdout.String(), -1) {
		code, err := strconv.Atoi(line[1])
		require.NoError(t, err)
		have = append(have, code)
	}
	assert.Equal(t, want, have)
}

// TestPanic: the code that says "blocked" is not that of a crash.
func TestPanic(t *testing.T) {
	var stderr bytes.Buffer
	root := &cobra.Command{Use: "mkp2pimg", Run: func(*cobra.Command, []string) { panic("no such port") }}
	assert.Equal(t, exitSoftware, execute(t.Context(), root, nil, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "please report it: no such port")
}
