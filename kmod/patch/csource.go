package patch

import (
	"bytes"
	"fmt"
	"iter"
)

// span is a half-open byte range.
type span struct{ start, end int }

// blankComments returns src with the text of its comments replaced by spaces, newlines
// kept, so that offsets and line numbers stay those of src. With literals set, the
// contents of string and character literals are blanked too.
func blankComments(src []byte, literals bool) []byte {
	out := bytes.Clone(src)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	for i := 0; i < len(src); {
		switch src[i] {
		case '/':
			end := max(commentEnd(src, i), i)
			blank(i, end)
			i = max(end, i+1)
		case '"', '\'':
			end := literalEnd(src, i)
			if literals {
				blank(i+1, end-1)
			}
			i = max(end, i+1)
		default:
			i++
		}
	}
	return out
}

// commentEnd returns the offset after the comment that opens at i, or 0 if none does.
func commentEnd(src []byte, i int) int {
	var closing string
	switch {
	case bytes.HasPrefix(src[i:], []byte("//")):
		closing = "\n"
	case bytes.HasPrefix(src[i:], []byte("/*")):
		closing = "*/"
	default:
		return 0
	}
	n := bytes.Index(src[i+2:], []byte(closing))
	switch {
	case n < 0:
		return len(src)
	case closing == "\n":
		return i + 2 + n
	}
	return i + 2 + n + len(closing)
}

// literalEnd returns the offset after the literal that opens at i, or 0 if it does not end on
// its line: an apostrophe in an #error line opens none.
func literalEnd(src []byte, i int) int {
	quote := src[i]
	for j := i + 1; j < len(src); j++ {
		switch src[j] {
		case '\\':
			j++
		case quote:
			return j + 1
		case '\n':
			return 0
		}
	}
	return 0
}

// cText is C source with what was found out about it.
type cText struct {
	src []byte

	code, skeleton []byte // see the functions
}

// withoutComments is the source with its comments blanked.
func (t *cText) withoutComments() []byte {
	if t.code == nil {
		t.code = blankComments(t.src, false)
	}
	return t.code
}

// withoutLiterals is the source with its comments and the contents of its literals blanked.
func (t *cText) withoutLiterals() []byte {
	if t.skeleton == nil {
		t.skeleton = blankComments(t.src, true)
	}
	return t.skeleton
}

// findBody returns the body of the one definition of the C function name, from the opening brace to
// the closing brace in column 0 or on the same line. Prototypes, calls and macros of that name are
// not definitions.
func (t *cText) findBody(name string) (span, error) {
	code := t.withoutLiterals()
	var found []span
	for at := range words(code, name) {
		open := skipSpace(code, at+len(name))
		if open >= len(code) || code[open] != '(' {
			continue
		}
		end := closeParen(code, open)
		if end < 0 {
			continue
		}
		brace := skipSpace(code, end)
		if brace >= len(code) || code[brace] != '{' {
			continue
		}
		if end := bodyEnd(code, brace); end > 0 {
			found = append(found, span{brace, end})
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return span{}, fmt.Errorf("function %s is not defined here", name)
	default:
		return span{}, fmt.Errorf("function %s is defined %d times here", name, len(found))
	}
}

// words yields the offsets at which name stands as a word of its own.
func words(code []byte, name string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; ; i++ {
			n := bytes.Index(code[i:], []byte(name))
			if n < 0 {
				return
			}
			i += n
			end := i + len(name)
			whole := (i == 0 || !wordByte(code[i-1])) && (end == len(code) || !wordByte(code[end]))
			if whole && !yield(i) {
				return
			}
		}
	}
}

func wordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// bodyEnd returns the offset after the body that opens at brace, or 0 if it does not end. Braces
// are not counted beyond the first line: the branches of an #if may each open one.
func bodyEnd(code []byte, brace int) int {
	line, _, _ := bytes.Cut(code[brace:], []byte("\n"))
	if bytes.Count(line, []byte("{")) == bytes.Count(line, []byte("}")) {
		return brace + bytes.LastIndexByte(line, '}') + 1
	}
	n := bytes.Index(code[brace:], []byte("\n}"))
	if n < 0 {
		return 0
	}
	return brace + n + 2
}

func skipSpace(code []byte, i int) int {
	for i < len(code) && (code[i] == ' ' || code[i] == '\t' || code[i] == '\n' || code[i] == '\r') {
		i++
	}
	return i
}

// closeParen returns the offset after the parenthesis that closes the one at open, or -1.
func closeParen(code []byte, open int) int {
	depth := 0
	for i := open; i < len(code); i++ {
		switch code[i] {
		case '(':
			depth++
		case ')':
			depth--
			if depth == 0 {
				return i + 1
			}
		case '{', '}', ';':
			return -1
		}
	}
	return -1
}

// lineOf returns the 1-based line of offset in src.
func lineOf(src []byte, offset int) int {
	return bytes.Count(src[:offset], []byte("\n")) + 1
}
