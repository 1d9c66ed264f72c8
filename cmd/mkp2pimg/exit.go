package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"mkp2pimg/firmware-checks/remedy"
	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/images/flash"
	"mkp2pimg/images/oci"
	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/nightly"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline"
	"mkp2pimg/internal/runfile"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/build"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/patch"
)

// Exit codes. From 64 on they are those of sysexits.h, so that codes below are
// free for what a command found out.
const (
	exitOK          = 0
	exitFailed      = 1   // what the command tested did not hold, a degraded or worse machine, or an error without a code of its own
	exitBlocked     = 2   // check: something blocks peer-to-peer
	exitUnknown     = 3   // check, farm run: it could not be told, or there are no two GPUs
	exitUsage       = 64  // EX_USAGE: unknown command, flag, driver, kernel or machine
	exitData        = 65  // EX_DATAERR: a wrong checksum or signature, a damaged file, a tree the edits do not fit, a mistake in lab.yaml
	exitUnavailable = 69  // EX_UNAVAILABLE: a download or upload failed, or is needed but not allowed; the farm's server does not answer
	exitSoftware    = 70  // EX_SOFTWARE: the compiler failed, or this program has a mistake
	exitOS          = 71  // EX_OSERR: the host forbids what is needed, such as user namespaces or a port
	exitIO          = 74  // EX_IOERR: no space, or the cache or a file can't be read or written
	exitInterrupted = 130 // 128 + SIGINT
)

// quietError ends the program with a code, after its command said why.
type quietError struct{ code int }

func (e quietError) Error() string { return "failed" }

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// dataError is an input that makes no sense.
type dataError struct{ error }

func (e dataError) Unwrap() error { return e.error }

// hostError is something that the host does not let this program have, such as a port.
type hostError struct{ error }

func (e hostError) Unwrap() error { return e.error }

// exitCode chooses the code for what a command returned.
func exitCode(ctx context.Context, err error) int {
	var quiet quietError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &quiet):
		return quiet.code
	case is[*runfile.ChecksumError](err), is[*runfile.VersionError](err), is[*runfile.MemberError](err), is[*runfile.MissingError](err),
		anyOf(err, runfile.ErrFormat, runfile.ErrTruncated):
		return exitData
	case is[usageError](err), is[*pipeline.RequestError](err), is[*catalog.UnknownError](err),
		is[*patch.OutputError](err), is[*patch.HeadersError](err), is[*flash.RefusedError](err), is[*oci.ReferenceError](err):
		return exitUsage
	case is[*fetch.ChecksumError](err), is[*debian.DamagedError](err), is[*lock.FileError](err), is[*images.DirError](err), is[*images.DamagedError](err),
		is[*patch.RefusedError](err), is[*patch.TreeError](err), is[*patch.ForkError](err), is[*patch.RevertError](err),
		is[*pipeline.TreeMismatchError](err), is[*initramfs.VersionError](err), is[dataError](err), is[*remedy.StateError](err), is[*lab.Error](err),
		anyOf(err, debian.ErrUnsigned, debian.ErrUnknownKey, debian.ErrBadSignature, debian.ErrKeyExpired,
			debian.ErrExpired, debian.ErrWrongSuite, images.ErrOtherFormat):
		return exitData
	case is[*fetch.OfflineError](err), is[*fetch.MissingError](err), is[*fetch.DownloadError](err), is[*oci.PushError](err), is[*nightly.ServerError](err):
		return exitUnavailable
	case is[*build.CompileError](err):
		return exitSoftware
	case is[*sandbox.ForbiddenError](err), is[*remedy.ForbiddenError](err), is[hostError](err):
		return exitOS
	case is[*fetch.NoSpaceError](err), is[*fetch.CacheError](err), errors.Is(err, syscall.ENOSPC),
		is[*fs.PathError](err), is[*os.LinkError](err), is[*disk.TooSmallError](err),
		is[*flash.DeviceError](err), is[*flash.VerifyError](err):
		return exitIO
	}
	return exitFailed
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func anyOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(t error) bool { return errors.Is(err, t) })
}
