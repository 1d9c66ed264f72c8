package debian

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// maxCopyright bounds a copyright file; the largest in Debian are below 5 MB.
const maxCopyright = 16 << 20

// Licence returns the licences that the package's copyright file names, such
// as "GPL-2, LGPL-2.1+", or says where to read them.
func Licence(deb string) (string, error) {
	licence := ""
	err := Walk(deb, func(hdr *tar.Header, r io.Reader) error {
		dir, base := path.Split(hdr.Name)
		switch {
		case base == "copyright" && path.Dir(path.Clean(dir)) == docDir && hdr.Typeflag == tar.TypeReg:
			data, err := io.ReadAll(io.LimitReader(r, maxCopyright))
			if err != nil {
				return err
			}
			if names := licences(data); names != nil {
				licence = strings.Join(names, ", ")
			} else {
				licence = "see copyright file"
			}
			return fs.SkipAll
		case dir == docDir+"/" && hdr.Typeflag == tar.TypeSymlink:
			// The documentation is another package's, of the same source.
			licence = "see copyright file of " + path.Base(hdr.Linkname)
		}
		return nil
	})
	if err == nil && licence == "" {
		err = &DamagedError{deb, errors.New("it has no copyright file below " + docDir)}
	}
	return licence, err
}

const docDir = "usr/share/doc"

// licences returns the short names in a machine-readable copyright file
// (DEP-5), in their order there; nil if it isn't one.
func licences(copyright []byte) []string {
	var names []string
	first := true
	err := readParagraphs(bytes.NewReader(copyright), []string{"Format", "License"}, func(p paragraph) error {
		if first && !strings.Contains(p["Format"], "copyright-format") {
			return errOnce
		}
		first = false
		name, _, _ := strings.Cut(p["License"], "\n")
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return names
}
