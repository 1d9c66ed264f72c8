package debian

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// paragraph is one stanza of a deb822 file: the asked-for fields by name. A
// value of several lines keeps its line breaks without the leading space.
type paragraph map[string]string

// maxLine bounds a line of a deb822 file. The longest in Debian's indexes,
// the Provides of a few packages, are below 100 kB.
const maxLine = 4 << 20

// readParagraphs calls fn for each paragraph of r, with only the given
// fields (as Debian spells them). The paragraph is reused for the next call.
func readParagraphs(r io.Reader, fields []string, fn func(paragraph) error) error {
	names := make(map[string]string, len(fields))
	for _, f := range fields {
		names[f] = f
	}
	p := make(paragraph, len(fields))
	some := false    // the paragraph has fields, perhaps unwanted
	field := ""      // the wanted field that a continuation line belongs to
	var value []byte // of field
	flush := func() {
		if field != "" {
			p[field] = string(value)
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimRight(lines.Bytes(), " \t\r")
		switch {
		case len(line) == 0:
			flush()
			field = ""
			if some {
				if err := fn(p); err != nil {
					return fmt.Errorf("paragraph before line %d: %w", n, err)
				}
			}
			clear(p)
			some = false
		case line[0] == ' ' || line[0] == '\t':
			if !some {
				return fmt.Errorf("line %d: continues no field", n)
			}
			if field != "" {
				value = append(append(value, '\n'), line[1:]...)
			}
		default:
			name, rest, ok := bytes.Cut(line, []byte{':'})
			if !ok || len(name) == 0 {
				return fmt.Errorf("line %d: is no \"Field: value\": %.40q", n, line)
			}
			flush()
			some = true
			field = names[string(name)]
			if field != "" {
				if _, twice := p[field]; twice {
					return fmt.Errorf("line %d: field %s occurs twice", n, field)
				}
				value = append(value[:0], bytes.TrimLeft(rest, " \t")...)
			}
		}
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes", maxLine)
		}
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	flush()
	if some {
		if err := fn(p); err != nil {
			return fmt.Errorf("last paragraph: %w", err)
		}
	}
	return nil
}

// fileSum is one line of a checksum field.
type fileSum struct {
	name   string
	sha256 string
	size   int64
}

// sums parses a field of lines "digest size name".
func sums(value string) ([]fileSum, error) {
	var all []fileSum
	for line := range strings.Lines(value) {
		part := strings.Fields(line)
		if len(part) == 0 {
			continue
		}
		if len(part) != 3 {
			return nil, fmt.Errorf("%.80q is not \"digest size name\"", line)
		}
		size, err := strconv.ParseInt(part[1], 10, 64)
		if err != nil || size < 0 || !isDigest(part[0]) {
			return nil, fmt.Errorf("%.120q is not \"digest size name\"", line)
		}
		all = append(all, fileSum{name: part[2], sha256: part[0], size: size})
	}
	return all, nil
}

// isDigest reports whether s is a SHA-256 in lower-case hex.
func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
