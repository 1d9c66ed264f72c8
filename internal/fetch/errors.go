package fetch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

// ChecksumError says that a download or a cached file isn't what was pinned.
// The bad content has been removed.
type ChecksumError struct {
	File File
	From string // the URL, or the path in the cache, that gave the content
	Want string // SHA-256
	Got  string // SHA-256
}

func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s from %s: wrong content: expected SHA-256 %s, got %s (removed; "+
		"if it comes again, the mirror or a proxy changes files: try another mirror)",
		e.File.Name, e.From, e.Want, e.Got)
}

// OfflineError says that a file is neither in the cache nor local, and that
// the network may not be used.
type OfflineError struct {
	File File
	Path string // where the file belongs in the cache; empty if it isn't kept there
}

func (e *OfflineError) Error() string {
	from := e.from()
	switch {
	case e.Path == "":
		return fmt.Sprintf("%s is needed from %s, but the network is off: build from a lock file, "+
			"or allow the network", e.File.Name, from)
	case len(e.File.URLs) == 0:
		return fmt.Sprintf("%s, is not in the cache any more: give it again, or put it at %s (SHA-256 %s)",
			from, e.Path, e.File.SHA256)
	}
	return fmt.Sprintf("%s is not in the cache and the network is off: run \"mkp2pimg fetch\" with a network, "+
		"or download %s and put it at %s (SHA-256 %s)", e.File.Name, from, e.Path, e.File.SHA256)
}

// from says where the file can be had.
func (e *OfflineError) from() string {
	if len(e.File.URLs) == 0 {
		return e.File.Name + ", which was given as a local file before"
	}
	return strings.Join(e.File.URLs, " or ")
}

// MissingError lists all files that are needed and can't be had: they are not
// in the cache, and the network may not be used or no URL is known for them.
type MissingError struct{ Files []*OfflineError }

func (e *MissingError) Error() string {
	if len(e.Files) == 1 {
		return e.Files[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d files are not in the cache and can't be downloaded now: run \"mkp2pimg fetch\" with a network, "+
		"or put each at the place below:", len(e.Files))
	for _, m := range e.Files {
		fmt.Fprintf(&b, "\n  %s\n    to %s (SHA-256 %s)", m.from(), m.Path, m.File.SHA256)
	}
	return b.String()
}

// NoSpaceError says that the cache's file system is too full.
type NoSpaceError struct {
	Name string // the file, or a word for several
	Dir  string
	Need int64 // bytes; 0 if not known
	Free int64 // bytes
}

func (e *NoSpaceError) Error() string {
	need := "more space"
	if e.Need > 0 {
		need = humanize.IBytes(uint64(e.Need))
	}
	return fmt.Sprintf("no space for %s: need %s in %s, which has %s free: "+
		"make room, or use another cache directory", e.Name, need, e.Dir, humanize.IBytes(uint64(e.Free)))
}

// CacheError says that the cache directory can't be used.
type CacheError struct {
	Dir string
	Err error
}

func (e *CacheError) Error() string {
	return fmt.Sprintf("cache directory %s can't be used: %v: check its owner and mode, "+
		"or use another cache directory", e.Dir, e.Err)
}

func (e *CacheError) Unwrap() error { return e.Err }

// DownloadError says that none of a file's URLs gave it. It unwraps to the
// error of each URL.
type DownloadError struct {
	File File
	Errs []error // in the order of File.URLs
}

func (e *DownloadError) Error() string {
	if len(e.Errs) == 1 {
		return "download " + e.File.Name + ": " + e.Errs[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "download %s: none of %d places gave it:", e.File.Name, len(e.Errs))
	for _, err := range e.Errs {
		b.WriteString("\n  " + err.Error())
	}
	return b.String()
}

func (e *DownloadError) Unwrap() []error { return e.Errs }

// writeError explains a failed write into the cache. missing is how many
// bytes were still to be written, 0 if not known.
func (c *Client) writeError(name string, missing int64, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		free, _ := freeSpace(c.Dir)
		return &NoSpaceError{Name: name, Dir: c.Dir, Need: missing, Free: free}
	}
	return &CacheError{c.Dir, err}
}
