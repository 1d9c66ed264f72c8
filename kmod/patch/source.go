package patch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
)

// source is a tree whose files are read once and edited in memory.
type source struct {
	tree  fs.FS
	files map[string]*file
}

type file struct {
	old, new []byte
	missing  bool
}

func newSource(tree fs.FS) *source {
	return &source{tree: tree, files: map[string]*file{}}
}

// file returns the named file, with missing set if the tree does not have it.
func (s *source) file(name string) (*file, error) {
	if f := s.files[name]; f != nil {
		return f, nil
	}
	text, err := fs.ReadFile(s.tree, name)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	f := &file{old: text, new: text, missing: missing}
	s.files[name] = f
	return f, nil
}

// ask answers t from the source as it was and says which line gave the answer.
func (s *source) ask(t Test) (holds bool, evidence string, err error) {
	asked := s
	if t.In != nil {
		asked = newSource(t.In)
	}
	f, err := asked.file(t.File)
	if err != nil {
		return false, "", err
	}
	if f.missing {
		return t.Absent, t.File + " does not exist", nil
	}
	body, where := span{0, len(f.old)}, t.File
	if t.Func != "" {
		where += ": function " + t.Func
		if body, err = findBody(f.old, t.Func); err != nil {
			return t.Absent, fmt.Sprintf("%s: %v", t.File, err), nil
		}
	}
	m := t.Pattern.FindIndex(blankComments(f.old, false)[body.start:body.end])
	if m == nil {
		return t.Absent, fmt.Sprintf("%s: nothing matches %q", where, t.Pattern), nil
	}
	at := body.start + m[0]
	line, _, _ := bytes.Cut(f.old[at:], []byte("\n"))
	return !t.Absent, fmt.Sprintf("%s:%d: %s", t.File, lineOf(f.old, at), bytes.TrimSpace(line)), nil
}
