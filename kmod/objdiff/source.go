package objdiff

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// Source is a source file that goes into the objects, before and after the edits.
type Source struct {
	// Path is the slash-separated path of the file.
	Path string
	// Stock and Patched are the file's text.
	Stock, Patched []byte
}

// ReadSources reads the named files from the stock and the patched tree. Those that don't go into
// nv-kernel.o, which is what lies outside of src, are left out.
func ReadSources(stock, patched fs.FS, names []string) ([]Source, error) {
	var sources []Source
	for _, name := range names {
		if !strings.HasPrefix(name, "src/") {
			continue
		}
		before, err := fs.ReadFile(stock, name)
		if err != nil {
			return nil, fmt.Errorf("stock tree: %w", err)
		}
		after, err := fs.ReadFile(patched, name)
		if err != nil {
			return nil, fmt.Errorf("patched tree: %w", err)
		}
		sources = append(sources, Source{name, before, after})
	}
	return sources, nil
}

// function is the definition of a function in a source file.
type function struct {
	name string
	text string // from its first line to its closing brace
}

// functions finds the functions that C source defines, in the driver's style: a line that begins
// in column 0 opens the body, and a brace in column 0 closes it.
func functions(source []byte) []function {
	var found []function
	lines := strings.SplitAfter(string(source), "\n")
	head := 0 // the first line after the last thing that ended
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case opens(line):
			end := i + 1
			for end < len(lines) && !strings.HasPrefix(lines[end], "}") {
				end++
			}
			if m := headName.FindStringSubmatch(strings.Join(lines[head:i+1], "")); m != nil {
				found = append(found, function{m[1], strings.Join(lines[head:min(end+1, len(lines))], "")})
			}
			i, head = end, end+1
		case ends(line):
			head = i + 1
		}
	}
	return found
}

// opens reports whether line opens something that a brace in column 0 closes.
func opens(line string) bool {
	return strings.HasPrefix(line, "{") || identifier.MatchString(line) && strings.HasSuffix(strings.TrimSpace(line), ") {")
}

// ends reports whether nothing before the end of line belongs to the head of a function.
func ends(line string) bool {
	text := strings.TrimSpace(line)
	return text == "" || strings.HasSuffix(text, ";") || strings.HasSuffix(text, "*/") || strings.HasPrefix(text, "}") ||
		strings.HasPrefix(text, "#") || strings.HasPrefix(text, "//")
}

// headName finds the name in the head of a function.
var headName = regexp.MustCompile(`(?s)^[^=(]*?\b(\w+)\s*\(`)

// outline is what a source file says about the differences between two objects.
type outline struct {
	path    string
	edited  map[string]bool            // functions whose text differs, by name
	defined map[string]bool            // all functions
	calls   map[string]map[string]bool // the other functions of the file that each one mentions
	lines   lineMap
}

func newOutline(s Source) *outline {
	o := &outline{
		path: s.Path, edited: map[string]bool{}, defined: map[string]bool{}, calls: map[string]map[string]bool{},
		lines: newLineMap(s.Stock, s.Patched),
	}
	stock, patched := functions(s.Stock), functions(s.Patched)
	// A name may have several definitions, one for each branch of an #if.
	text := [2]map[string]string{{}, {}}
	for i, list := range [][]function{stock, patched} {
		for _, f := range list {
			text[i][f.name] += f.text
			o.defined[f.name] = true
		}
	}
	for name := range o.defined {
		o.edited[name] = text[0][name] != text[1][name]
		o.calls[name] = map[string]bool{}
		for _, word := range words.FindAllString(text[0][name]+text[1][name], -1) {
			if o.defined[word] && word != name {
				o.calls[name][word] = true
			}
		}
	}
	return o
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_]`)
	words      = regexp.MustCompile(`[A-Za-z_]\w*`)
)

// holds reports whether a symbol can stem from the file: a local one names its file.
func (o *outline) holds(s *symbol) bool {
	file, _, _ := strings.Cut(s.file, "#")
	return o.defined[base(s.name)] && (!s.local || file == path.Base(o.path))
}

// lineMap says where the lines of a file went: the number after the edits by the number before,
// both 1-based. Lines that were edited themselves are not in it.
type lineMap map[uint32]uint32

func newLineMap(stock, patched []byte) lineMap {
	m := lineMap{}
	edits := udiff.Lines(string(stock), string(patched))
	offset, shift, number := 0, 0, 0
	for line := range bytes.Lines(stock) {
		number++
		for len(edits) > 0 && edits[0].End <= offset {
			e := edits[0]
			shift += strings.Count(e.New, "\n") - bytes.Count(stock[e.Start:e.End], []byte("\n"))
			edits = edits[1:]
		}
		if len(edits) == 0 || offset < edits[0].Start {
			m[uint32(number)] = uint32(number + shift)
		}
		offset += len(line)
	}
	return m
}

// explain reports whether two codes differ in nothing but 32-bit numbers of lines that moved,
// which the driver's assertions and messages (__LINE__) put into the code.
func (m lineMap) explain(stock, patched []byte) bool {
	if len(stock) != len(patched) {
		return false
	}
	done := 0
	for i := range stock {
		if i >= done && stock[i] != patched[i] {
			if done = m.number(stock, patched, done, i); done == 0 {
				return false
			}
		}
	}
	return true
}

// number returns the end of the line number that covers the byte at offset i and begins at from
// or later, or 0 if there is none.
func (m lineMap) number(stock, patched []byte, from, i int) int {
	for at := i; at >= from && at > i-4; at-- {
		if at+4 > len(stock) {
			continue
		}
		line, moved := m[order.Uint32(stock[at:])]
		if moved && line == order.Uint32(patched[at:]) {
			return at + 4
		}
	}
	return 0
}
