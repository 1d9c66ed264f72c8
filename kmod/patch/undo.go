package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"mkp2pimg/internal/escape"
)

// UndoFile is the file at the top of an edited tree that [Revert] reads: what each edit replaced.
const UndoFile = ".mkp2pimg-undo.json"

// undoVersion is the version of the layout of [UndoFile].
const undoVersion = 1

// undo is what UndoFile holds.
type undo struct {
	Version int    `json:"version"`
	Driver  string `json:"driver"`
	// Files are the SHA-256 of the files as they were before the first edit, by path.
	Files map[string]string `json:"files"`
	// Edits are in the order in which they were made.
	Edits []undoEdit `json:"edits"`
}

// undoEdit is an edit's lines before and after it was made, in base64: source need not be UTF-8.
type undoEdit struct {
	ID   string `json:"id"`
	File string `json:"file"`
	Old  []byte `json:"old"`
	New  []byte `json:"new"`
}

// RevertError says why edits can't be taken back. Nothing was changed.
type RevertError struct{ Reason string }

func (e *RevertError) Error() string { return "the edits can't be taken back: " + e.Reason }

// WriteUndo is [Result.Write], and leaves [UndoFile] in the tree.
func (r *Result) WriteUndo(dir string) error {
	if err := r.refused(); err != nil {
		return err
	}
	changes := r.changes()
	if len(changes) == 0 {
		return nil
	}
	before, record, err := readUndo(os.DirFS(dir))
	if err != nil {
		return err
	}
	after, err := json.MarshalIndent(r.undo(record), "", " ")
	if err != nil {
		return err
	}
	// The record comes first: edits without it could not be taken back.
	return replace(dir, append([]change{{UndoFile, before, append(after, '\n')}}, changes...))
}

// undo adds the edits to the record of earlier ones that are still in the tree.
func (r *Result) undo(earlier undo) undo {
	u := undo{Version: undoVersion, Driver: r.Driver, Files: map[string]string{}, Edits: []undoEdit{}}
	for _, e := range earlier.Edits {
		if f := r.src.files[e.File]; f != nil && bytes.Count(f.old.src, e.New) == 1 {
			u.Edits = append(u.Edits, e)
			u.Files[e.File] = earlier.Files[e.File]
		}
	}
	for _, o := range r.Edits {
		if o.Status != Applied {
			continue
		}
		name := o.Edit.File
		grown := len(o.after) - len(o.before)
		u.Edits = append(u.Edits, undoEdit{
			ID: o.Edit.ID, File: name,
			Old: o.before[o.lines.start:o.lines.end],
			New: o.after[o.lines.start : o.lines.end+grown],
		})
		if _, ok := u.Files[name]; !ok {
			u.Files[name] = digest(r.src.files[name].old.src)
		}
	}
	return u
}

// readUndo returns the record of a tree and its text, which is nil if there is none.
func readUndo(tree fs.FS) (text []byte, u undo, err error) {
	text, err = fs.ReadFile(tree, UndoFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, undo{}, nil
	}
	if err != nil {
		return nil, undo{}, err
	}
	if err := json.Unmarshal(text, &u); err != nil {
		return nil, undo{}, &RevertError{fmt.Sprintf("%s is damaged: %v", UndoFile, err)}
	}
	if u.Version != undoVersion {
		return nil, undo{}, &RevertError{fmt.Sprintf("%s has version %d, this program knows %d", UndoFile, u.Version, undoVersion)}
	}
	return text, u, nil
}

// Reverted tells what [Revert] did.
type Reverted struct {
	// Edits are the IDs of the edits that were taken back, last made first.
	Edits []string `json:"edits"`
	// Files are the files that were restored, sorted by path.
	Files []RevertedFile `json:"files"`
}

// RevertedFile is a file from which edits were taken back.
type RevertedFile struct {
	Path string `json:"path"`
	// Stock says that the file is, byte for byte, what it was before the first edit. It is false
	// where someone changed other lines of the file, which are kept.
	Stock bool `json:"stock"`
}

// Revert takes the edits out of the tree in dir that [Result.WriteUndo] made, all or none, and
// removes [UndoFile]. Lines that the edits did not touch stay as they are. If edited lines were
// changed since, or the record is missing or of no use, the error is a [*RevertError].
// A tree without edits is left alone. Edits that came as patches have no record: they stay, which is
// a [*RevertError] as well, beside the account of what was taken back.
func Revert(dir string) (done *Reverted, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	tree := root.FS()
	text, record, err := readUndo(tree)
	if err != nil {
		return nil, err
	}
	if text == nil {
		return &Reverted{Edits: []string{}, Files: []RevertedFile{}}, unrecorded(tree)
	}
	changes, done, err := record.takeBack(tree)
	if err != nil {
		return nil, err
	}
	if err := replace(dir, changes); err != nil {
		return nil, err
	}
	return done, errors.Join(root.Remove(UndoFile), unrecorded(tree))
}

// takeBack works out the files without the edits.
func (u undo) takeBack(tree fs.FS) ([]change, *Reverted, error) {
	src := newSource(tree)
	now := map[string][]byte{}
	done := &Reverted{Edits: []string{}, Files: []RevertedFile{}}
	for _, e := range slices.Backward(u.Edits) {
		f, err := src.file(e.File)
		if _, elsewhere := errors.AsType[*TreeError](err); elsewhere {
			return nil, nil, &RevertError{fmt.Sprintf("%s names %s, which lies outside of the tree", UndoFile, e.File)}
		}
		if err != nil {
			return nil, nil, err
		}
		if f.missing {
			return nil, nil, &RevertError{e.File + " is gone"}
		}
		if digest(f.old.src) == u.Files[e.File] {
			continue // someone has put the stock file back
		}
		text, ok := now[e.File]
		if !ok {
			text = f.old.src
		}
		if n := bytes.Count(text, e.New); n != 1 {
			return nil, nil, &RevertError{fmt.Sprintf("%s: the lines of edit %s were changed since (found %d times, want once); "+
				"take them back by hand, or start from NVIDIA's source of %s", e.File, e.ID, n, u.Driver)}
		}
		now[e.File] = bytes.Replace(text, e.New, e.Old, 1)
		done.Edits = append(done.Edits, e.ID)
	}
	var changes []change
	for name, text := range now {
		changes = append(changes, change{name, src.files[name].old.src, text})
		done.Files = append(done.Files, RevertedFile{name, digest(text) == u.Files[name]})
	}
	slices.SortFunc(done.Files, func(a, b RevertedFile) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	return changes, done, nil
}

// unrecorded returns an error if the tree has edits without a record.
func unrecorded(tree fs.FS) error {
	for _, name := range files(append(P2P(All), Compat(nil)...)) {
		text, err := fs.ReadFile(tree, name)
		if errors.Is(err, fs.ErrNotExist) || escape.Is(err) {
			continue
		}
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(markPrefix)) {
			return &RevertError{fmt.Sprintf("%s has edits, but the tree has no %s: "+
				"if they came as patches, take them back the same way (quilt pop -a, git revert, patch -R)", name, UndoFile)}
		}
	}
	return nil
}

// files are the files that edits change, sorted.
func files(edits []Edit) []string {
	var names []string
	for _, e := range edits {
		names = append(names, e.File)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
