// Package archive writes what a store holds as lines of JSON and reads it back, to
// keep it elsewhere or to move it to another database. A line holds a node, a
// pinned baseline, or a run that is over with its report:
//
//	{"version": 1, "node": {…}}       farm.Node
//	{"version": 1, "baseline": {…}}   farm.Baseline
//	{"version": 1, "run": {…}, "report": "…"}   farm.Run; the report as it arrived
//
// A report that is no UTF-8, as the log of a serial port may be, is in
// "report_base64" instead. One that was removed after its time of retention is left
// out.
package archive

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
)

// Version is the version of the lines.
const Version = 1

// line is one line of an archive.
type line struct {
	Version  int            `json:"version"`
	Node     *farm.Node     `json:"node,omitempty"`
	Baseline *farm.Baseline `json:"baseline,omitempty"`
	Run      *farm.Run      `json:"run,omitempty"`
	Report   string         `json:"report,omitempty"`
	Raw      []byte         `json:"report_base64,omitempty"`
}

// Counts says how much was written or read.
type Counts struct {
	Nodes, Baselines, Runs int
	Present                int // runs that were there already, of Runs
	// Damaged are the IDs of runs whose reports could not be read from the store: they
	// were written without.
	Damaged []string
}

// Write writes the runs that a query selects, the oldest night first, after the
// nodes and their pinned baselines. Runs that are not over are left out.
func Write(ctx context.Context, s *store.Store, w io.Writer, q store.Query) (n Counts, err error) {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	put := func(count *int, l line) error {
		*count++
		l.Version = Version
		return enc.Encode(l)
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return n, err
	}
	for _, node := range nodes {
		if q.Node != "" && q.Node != node.Name {
			continue
		}
		if err := put(&n.Nodes, line{Node: &node}); err != nil {
			return n, err
		}
		pinned, err := s.Pinned(ctx, node.Name)
		if err != nil {
			return n, err
		}
		for _, b := range pinned {
			if err := put(&n.Baselines, line{Baseline: &b}); err != nil {
				return n, err
			}
		}
	}
	const all = 1 << 30
	nights, err := s.Nights(ctx, all)
	if err != nil {
		return n, err
	}
	q.Whole = true
	wanted := q.Night
	for _, night := range slices.Backward(nights) {
		if wanted != "" && night.Night != wanted || night.Night < q.Since {
			continue
		}
		q.Night = night.Night
		runs, err := s.Runs(ctx, q)
		if err != nil {
			return n, err
		}
		for _, r := range runs {
			if !r.State.Over() {
				continue
			}
			l := line{Run: &r}
			switch err := l.read(ctx, s); {
			case errors.Is(err, store.ErrDamaged):
				n.Damaged = append(n.Damaged, r.ID)
			case err != nil:
				return n, err
			}
			if err := put(&n.Runs, l); err != nil {
				return n, err
			}
		}
	}
	return n, out.Flush()
}

// read takes the report of the line's run, if it is there.
func (l *line) read(ctx context.Context, s *store.Store) error {
	from, err := s.Report(ctx, l.Run.ID)
	if errors.Is(err, store.ErrRemoved) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if utf8.Valid(text) {
		l.Report = string(text)
	} else {
		l.Raw = text
	}
	return nil
}

// Is tells whether text begins as an archive does.
func Is(text []byte) bool {
	first, _, _ := bytes.Cut(text[:min(len(text), 1<<20)], []byte("\n"))
	return regexp.MustCompile(`^\s*\{"version":\s*\d+,\s*"(node|baseline|run)":\s*\{`).Match(first)
}

// LineError says what is wrong with a line of an archive.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// maxLine bounds a line: a report of quotation marks takes twice its size in JSON,
// one of control characters six times.
const maxLine = 6*store.MaxReport + 16<<20

// Read records what an archive holds. What is there already stays as it is, so that
// one can be read twice, or again after a mistake in it: the error is a
// [*LineError], or one of reading or of the store.
func Read(ctx context.Context, r io.Reader, s *store.Store) (n Counts, err error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	number := 0
	for in.Scan() {
		number++
		text := bytes.TrimSpace(in.Bytes())
		if len(text) == 0 {
			continue
		}
		l, err := parse(text)
		if err != nil {
			return n, &LineError{number, err}
		}
		if err := l.record(ctx, s, &n); err != nil {
			return n, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return n, &LineError{number + 1, fmt.Errorf("longer than %d MiB", maxLine>>20)}
	}
	return n, in.Err()
}

// name is what a node may be called, as in lab.yaml.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// parse reads a line and checks what the store relies on.
func parse(text []byte) (l line, err error) {
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("no JSON of an archive: %w", err)
	}
	switch {
	case l.Version < 1:
		return l, errors.New("no line of an archive: it has no version")
	case l.Version > Version:
		return l, fmt.Errorf("version %d: this program reads up to %d", l.Version, Version)
	}
	switch {
	case l.Run != nil && l.Node == nil && l.Baseline == nil:
		return l, l.checkRun()
	case l.Node != nil && l.Baseline == nil && l.Run == nil:
		return l, CheckName(l.Node.Name)
	case l.Baseline != nil && l.Node == nil && l.Run == nil:
		if l.Baseline.Key == "" {
			return l, errors.New("a baseline without a key")
		}
		return l, CheckName(l.Baseline.Node)
	}
	return l, errors.New("a line holds one of node, baseline and run")
}

// CheckName tells whether a node may have a name.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return fmt.Errorf("%q is no name of a node", s)
	}
	return nil
}

func (l *line) checkRun() error {
	r := l.Run
	if _, err := uuid.Parse(r.ID); err != nil {
		return fmt.Errorf("run ID %q: %w", r.ID, err)
	}
	if _, err := time.Parse(time.DateOnly, r.Night); err != nil {
		return fmt.Errorf("run %s: night: %w", r.ID, err)
	}
	if !r.State.Over() {
		return fmt.Errorf("run %s is %q: only complete and lost ones can be read", r.ID, r.State)
	}
	if r.Source != farm.Network && r.Source != farm.Stick && r.Source != farm.Serial {
		return fmt.Errorf("run %s: %q is no source of a report", r.ID, r.Source)
	}
	if len(l.Report)+len(l.Raw) > store.MaxReport {
		return fmt.Errorf("run %s: %w", r.ID, store.ErrTooLarge)
	}
	return CheckName(r.Node)
}

// record records a line.
func (l *line) record(ctx context.Context, s *store.Store, n *Counts) error {
	switch {
	case l.Node != nil:
		n.Nodes++
		return s.Touch(ctx, *l.Node)
	case l.Baseline != nil:
		n.Baselines++
		return s.Pin(ctx, *l.Baseline)
	}
	n.Runs++
	text := l.Raw
	if text == nil {
		text = []byte(l.Report)
	}
	var chunks []store.Chunk
	for part := range slices.Chunk(text, 1<<20) {
		chunks = append(chunks, store.Chunk{Data: part})
	}
	fresh, err := s.Import(ctx, *l.Run, chunks)
	if !fresh && err == nil {
		n.Present++
	}
	return err
}
