package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aymanbagabas/go-udiff"
	"github.com/google/renameio/v2"

	"mkp2pimg/internal/escape"
)

// Write brings the edits to the tree in dir, which must hold the files that were planned over.
// All changed files are written beside their targets before the first is put in place; if one
// can't be put in place, those before it are set back. Modes and owners stay as they are. Nothing is written if an edit was refused.
func (r *Result) Write(dir string) error {
	if err := r.refused(); err != nil {
		return err
	}
	return replace(dir, r.changes())
}

func (r *Result) changes() []change {
	var all []change
	for _, name := range r.Changed() {
		f := r.src.files[name]
		all = append(all, change{name, f.old.src, f.new.src})
	}
	return all
}

// change is a file's text before and after. A nil old text stands for no file.
type change struct {
	name     string
	old, new []byte
}

// replace carries out all changes to files below dir, or none.
func replace(dir string, changes []change) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	var pending []*renameio.PendingFile
	defer func() {
		for _, p := range pending {
			err = errors.Join(err, p.Cleanup())
		}
	}()
	for _, c := range changes {
		p, err := c.stage(root, dir)
		if err != nil {
			return fmt.Errorf("write %s: %w", c.name, err)
		}
		pending = append(pending, p)
	}
	for i, p := range pending {
		if err := p.CloseAtomicallyReplace(); err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", changes[i].name, err), restore(root, dir, changes[:i]))
		}
	}
	return nil
}

// stage writes the new text of a file beside it. The owner is that of the file, or of the directory of a
// new one: root may edit the tree of someone else.
func (c change) stage(root *os.Root, dir string) (*renameio.PendingFile, error) {
	now, err := fs.ReadFile(root.FS(), c.name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.old == nil:
	case escape.Is(err):
		return nil, outside(c.name)
	case err != nil:
		return nil, err
	case string(now) != string(c.old):
		return nil, errors.New("the file changed since it was read; run it again")
	}
	target := filepath.Join(dir, filepath.FromSlash(c.name))
	p, err := renameio.NewPendingFile(target, renameio.WithTempDir(filepath.Dir(target)),
		renameio.WithPermissions(0o644), renameio.WithExistingPermissions())
	if err != nil {
		return nil, err
	}
	owned := c.name
	if c.old == nil {
		owned = path.Dir(c.name)
	}
	if info, err := root.Stat(owned); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = p.Chown(int(stat.Uid), int(stat.Gid)) // who may not do so leaves files of their own, as with any editor
		}
	}
	if _, err := p.Write(c.new); err != nil {
		return nil, errors.Join(err, p.Cleanup())
	}
	return p, nil
}

// put carries out a single change.
func (c change) put(root *os.Root, dir string) error {
	p, err := c.stage(root, dir)
	if err != nil {
		return err
	}
	return errors.Join(p.CloseAtomicallyReplace(), p.Cleanup())
}

// restore takes changes back.
func restore(root *os.Root, dir string, changes []change) error {
	var errs []error
	for _, c := range changes {
		var err error
		if c.old == nil {
			err = root.Remove(c.name)
		} else {
			err = change{c.name, c.new, c.old}.put(root, dir)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set back %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Diff returns the changes as one unified diff with a/ and b/ prefixes, which patch -p1 and
// git apply take. It is empty if nothing changes.
func (r *Result) Diff() string {
	var b strings.Builder
	for _, c := range r.changes() {
		b.WriteString(unified(c.name, c.old, c.new))
	}
	return b.String()
}

func unified(name string, before, after []byte) string {
	return udiff.Unified("a/"+name, "b/"+name, string(before), string(after))
}
