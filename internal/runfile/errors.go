package runfile

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of a file that can't be used whatever is wanted of it.
var (
	ErrFormat    = errors.New("not a .run file that can be read")
	ErrTruncated = errors.New("the file is cut off, download it again")
)

// ChecksumError says that a file is not what its checksum was made of.
type ChecksumError struct {
	Kind      string // "CRC", "MD5" or "SHA-256"
	Got, Want string
	Err       error // what unpacking the payload stumbled over; nil if nothing
}

func (e *ChecksumError) Error() string {
	text := fmt.Sprintf("the file is damaged, download it again: its %s is %s, but should be %s", e.Kind, e.Got, e.Want)
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

func (e *ChecksumError) Unwrap() error { return e.Err }

// VersionError says that a file is the installer of something else than the
// driver release that is wanted.
type VersionError struct {
	Version  string // driver release of the file; "" if it names none
	Platform string // of the file, "Linux-x86_64"
	Want     string // driver release
}

func (e *VersionError) Error() string {
	got := "the installer of no driver release"
	if e.Version != "" {
		got = fmt.Sprintf("the installer of driver release %s for %s", e.Version, e.Platform)
	}
	return fmt.Sprintf("the file is %s, but release %s for Linux-x86_64 is wanted: get NVIDIA-Linux-x86_64-%s.run", got, e.Want, e.Want)
}

// MemberError says why a member of the payload is refused.
type MemberError struct {
	Name   string // as the payload has it
	Offset int64  // of the member's content in the unpacked payload, in bytes
	Reason string
}

func (e *MemberError) Error() string {
	return fmt.Sprintf("member %q, at byte %d of the unpacked payload, is refused: %s", e.Name, e.Offset, e.Reason)
}

// MissingError lists members that the payload lacks.
type MissingError struct {
	Members []string // patterns of path.Match
}

func (e *MissingError) Error() string {
	return "the payload lacks " + strings.Join(e.Members, ", ")
}
