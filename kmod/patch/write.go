package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/google/renameio/v2"
)

// Write brings the edits to the tree in dir, which must hold the files that were planned over.
// All changed files are written beside their targets before the first is put in place; if one
// can't be put in place, those before it are set back. Nothing is written if an edit was refused.
func (r *Result) Write(dir string) (err error) {
	if err := r.refused(); err != nil {
		return err
	}
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
	names := r.Changed()
	for _, name := range names {
		p, err := r.stage(root, dir, name)
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		pending = append(pending, p)
	}
	for i, p := range pending {
		if err := p.CloseAtomicallyReplace(); err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", names[i], err), r.restore(dir, names[:i]))
		}
	}
	return nil
}

// stage writes the new text of a file beside it.
func (r *Result) stage(root *os.Root, dir, name string) (*renameio.PendingFile, error) {
	now, err := fs.ReadFile(root.FS(), name)
	if err != nil {
		return nil, err
	}
	f := r.src.files[name]
	if string(now) != string(f.old) {
		return nil, errors.New("the file changed since the edits were planned; run it again")
	}
	p, err := renameio.NewPendingFile(filepath.Join(dir, filepath.FromSlash(name)), renameio.WithExistingPermissions())
	if err != nil {
		return nil, err
	}
	if _, err := p.Write(f.new); err != nil {
		return nil, errors.Join(err, p.Cleanup())
	}
	return p, nil
}

func (r *Result) restore(dir string, names []string) error {
	var errs []error
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := renameio.WriteFile(path, r.src.files[name].old, 0, renameio.WithExistingPermissions()); err != nil {
			errs = append(errs, fmt.Errorf("set back %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Diff returns the changes as one unified diff with a/ and b/ prefixes, which patch -p1 and
// git apply take. It is empty if nothing changes.
func (r *Result) Diff() string {
	var b strings.Builder
	for _, name := range r.Changed() {
		f := r.src.files[name]
		b.WriteString(udiff.Unified("a/"+name, "b/"+name, string(f.old), string(f.new)))
	}
	return b.String()
}
