package build

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"syscall"
)

// CompileError says which step of a build failed and what it complained about.
type CompileError struct {
	Step  string   // such as "p2p: nv-kernel.o"
	Lines []string // the first complaints, as printed
	Log   string   // file with all that was printed
	Err   error
}

func (e *CompileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", e.Step, e.Err)
	for _, line := range e.Lines {
		b.WriteString("\n\t" + line)
	}
	fmt.Fprintf(&b, "\nthe whole log is %s", e.Log)
	return b.String()
}

func (e *CompileError) Unwrap() error { return e.Err }

// complaint is how compiler, linker, shell, objtool, modpost and make report
// what stops them.
var complaint = regexp.MustCompile(`: (fatal )?error: |^ERROR: | \*\*\* |: undefined reference |not found$|No such file |^Killed|` + noSpace)

// noSpace is ENOSPC in the C locale.
const noSpace = "No space left on device"

// Bounds of what errorLines keeps.
const (
	maxErrorLines = 5
	maxLine       = 300
)

// errorLines is a writer that keeps the first complaints of a build's output,
// and its last line.
type errorLines struct {
	lines   []string
	last    string
	full    bool // the disk is
	partial []byte
}

func (e *errorLines) Write(p []byte) (int, error) {
	e.partial = append(e.partial, p...)
	for {
		line, rest, found := bytes.Cut(e.partial, []byte("\n"))
		if !found {
			break
		}
		e.add(strings.TrimSpace(string(line)))
		e.partial = append(e.partial[:0], rest...)
	}
	return len(p), nil
}

func (e *errorLines) add(line string) {
	if len(line) > maxLine {
		line = line[:maxLine] + "…"
	}
	if line == "" {
		return
	}
	e.last = line
	if complaint.MatchString(line) {
		e.full = e.full || strings.Contains(line, noSpace)
		if len(e.lines) < maxErrorLines {
			e.lines = append(e.lines, line)
		}
	}
}

// explain adds to err what was printed.
func (e *errorLines) explain(err *CompileError) *CompileError {
	e.add(strings.TrimSpace(string(e.partial)))
	err.Lines = e.lines
	if len(e.lines) == 0 && e.last != "" {
		err.Lines = []string{e.last}
	}
	if e.full {
		err.Err = fmt.Errorf("%w: %w", err.Err, syscall.ENOSPC)
	}
	return err
}
