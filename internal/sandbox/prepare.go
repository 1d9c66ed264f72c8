package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/internal/cachedir"
)

// alternatives are the links below /usr/bin that maintainer scripts would make.
// The first target present wins, and a link that is there stays.
var alternatives = []struct {
	link    string
	targets []string
}{
	{"awk", []string{"mawk", "gawk"}},
	{"gcc", []string{"gcc-12", "gcc-13", "gcc-14"}},
	{"cc", []string{"gcc"}},
	{"which", []string{"which.debianutils"}},
}

// Make returns the root at dir, a path that names its contents (a digest of the
// packages). If it isn't there yet, unpack fills an empty directory with the
// packages, which is then prepared and moved to dir.
func Make(ctx context.Context, dir string, unpack func(dir string) error) (Root, error) {
	err := cachedir.Make(ctx, dir, func(partial string) error {
		if err := unpack(partial); err != nil {
			return err
		}
		return Prepare(partial)
	})
	if err != nil {
		return Root{}, err
	}
	return Root{Dir: dir}, nil
}

// Prepare makes the links of the alternatives system that compilers need in a
// directory of unpacked packages.
func Prepare(dir string) error {
	bin := filepath.Join(dir, "usr/bin")
	for _, a := range alternatives {
		if err := linkFirst(bin, a.link, a.targets); err != nil {
			return fmt.Errorf("prepare %s: %w", dir, err)
		}
	}
	return nil
}

func linkFirst(dir, link string, targets []string) error {
	for _, target := range targets {
		if _, err := os.Lstat(filepath.Join(dir, target)); err != nil {
			continue
		}
		err := os.Symlink(target, filepath.Join(dir, link))
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return nil
}
