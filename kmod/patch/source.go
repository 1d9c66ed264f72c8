package patch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"mkp2pimg/internal/escape"
)

// source is a tree whose files are read once and edited in memory.
type source struct {
	tree    fs.FS
	files   map[string]*file
	answers map[question]answer
}

// file is a file as it was and as it became.
type file struct {
	old, new *cText
	missing  bool
}

func newSource(tree fs.FS) *source {
	return &source{tree: tree, files: map[string]*file{}, answers: map[question]answer{}}
}

// file returns the named file, with missing set if the tree does not have it.
func (s *source) file(name string) (*file, error) {
	if f := s.files[name]; f != nil {
		return f, nil
	}
	text, err := fs.ReadFile(s.tree, name)
	if escape.Is(err) || !fs.ValidPath(name) {
		return nil, outside(name)
	}
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	t := &cText{src: text}
	if ext := path.Ext(name); ext != ".c" && ext != ".h" {
		t.code = text // a shell script has "/*" without any comment
	}
	f := &file{old: t, new: t, missing: missing}
	s.files[name] = f
	return f, nil
}

// question is what several tests may ask.
type question struct{ file, function, pattern string }

// answer says whether the pattern is there, and the line that shows it.
type answer struct {
	found    bool
	evidence string
}

// ask answers t from the source as it was and says which line gave the answer.
func (s *source) ask(t Test) (holds bool, evidence string, err error) {
	asked := s
	if t.In != nil {
		asked = newSource(t.In)
	}
	q := question{t.File, t.Func, t.Pattern.String()}
	a, ok := asked.answers[q]
	if !ok {
		if a, err = asked.search(t); err != nil {
			return false, "", err
		}
		asked.answers[q] = a
	}
	return a.found != t.Absent, a.evidence, nil
}

func (s *source) search(t Test) (answer, error) {
	f, err := s.file(t.File)
	if err != nil {
		return answer{}, err
	}
	if f.missing {
		return answer{false, t.File + " does not exist"}, nil
	}
	body, where := span{0, len(f.old.src)}, t.File
	if t.Func != "" {
		where += ": function " + t.Func
		if body, err = f.old.findBody(t.Func); err != nil {
			return answer{false, fmt.Sprintf("%s: %v", t.File, err)}, nil
		}
	}
	m := t.Pattern.FindIndex(f.old.withoutComments()[body.start:body.end])
	if m == nil {
		return answer{false, fmt.Sprintf("%s: nothing matches %q", where, t.Pattern)}, nil
	}
	// The last line of a match says more than its first, which may be a mere brace.
	last := body.start + max(m[0], m[1]-1)
	line := wholeLines(f.old.src, span{last, last})
	return answer{true, fmt.Sprintf("%s:%d: %s", t.File, lineOf(f.old.src, last),
		bytes.TrimSpace(f.old.src[line.start:line.end]))}, nil
}
