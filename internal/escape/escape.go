// Package escape tells paths that lead out of a directory from other errors.
package escape

import (
	"errors"
	"io/fs"
	"os"
)

// escapes is the text of the error that package os keeps to itself (errPathEscapes).
const escapes = "path escapes from parent"

// Is reports whether err, of a method of [os.Root] or of its file system, says that a path leads out
// of the directory, by its name or by a link on its way.
func Is(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err // which may be another of its kind
	case errors.As(err, &link):
		err = link.Err
	default:
		return false
	}
	return err.Error() == escapes || Is(err)
}
