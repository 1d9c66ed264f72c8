package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
)

var (
	digest  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	gitTree = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Validate reports every fault of the lock, by the entry that has it.
func (l *Lock) Validate() error {
	var e errs
	if l.Version != Version {
		e.add("lock: version is %d, not %d", l.Version, Version)
	}
	if l.Driver == "" && !l.emulatorOnly() {
		e.add("lock: driver is empty")
	}
	if l.Kernel == "" && !l.emulatorOnly() {
		e.add("lock: kernel is empty")
	}
	suites := map[string]bool{Local: true}
	for i, a := range l.Archives {
		switch {
		case a.Suite == "":
			e.add("lock: archive %d: suite is empty", i)
		case a.Suite == Local:
			e.add("lock: archive %d: suite %q is kept for files that have no archive", i, Local)
		case suites[a.Suite]:
			e.add("lock: archive %q occurs twice", a.Suite)
		}
		suites[a.Suite] = true
		a.validate(&e)
	}
	seen := make(map[string]bool)
	for i, in := range l.Inputs {
		if in.Name == "" {
			e.add("lock: input %d: name is empty", i)
		} else if seen[in.name()] {
			e.add("lock: %s occurs twice", in.name())
		}
		seen[in.name()] = true
		if !suites[in.Suite] {
			e.add("lock: %s: its suite %q is not among the archives", in.name(), in.Suite)
		}
		in.validate(&e)
	}
	return e.join()
}

// emulatorOnly says whether the lock is that of an emulator, and of no build.
func (l *Lock) emulatorOnly() bool {
	return len(l.Inputs) > 0 && len(l.ByRole(Emulator)) == len(l.Inputs)
}

func (a Archive) validate(e *errs) {
	if !isURL(a.Mirror) {
		e.add("lock: archive %q: mirror %q is no http, https or file URL", a.Suite, a.Mirror)
	}
	if a.Snapshot != "" && !isURL(a.Snapshot) {
		e.add("lock: archive %q: snapshot %q is no http, https or file URL", a.Suite, a.Snapshot)
	}
	if a.Date.IsZero() && a.InRelease != "" {
		e.add("lock: archive %q: date of its index is missing", a.Suite)
	}
	if a.InRelease != "" && !digest.MatchString(a.InRelease) {
		e.add("lock: archive %q: inrelease %q is no SHA-256", a.Suite, a.InRelease)
	}
}

func (in Input) validate(e *errs) {
	if !slices.Contains(Roles, in.Role) {
		e.add("lock: %s: unknown role; the roles are %v", in.name(), Roles)
	}
	if in.Version == "" {
		e.add("lock: %s: version is empty", in.name())
	}
	if !fs.ValidPath(in.Path) || in.Path == "." {
		e.add("lock: %s: path %q is not relative and clean", in.name(), in.Path)
	}
	if !digest.MatchString(in.SHA256) {
		e.add("lock: %s: sha256 %q is no SHA-256 in lower-case hex", in.name(), in.SHA256)
	}
	if in.Tree != "" && !gitTree.MatchString(in.Tree) {
		e.add("lock: %s: tree %q is no git tree in lower-case hex", in.name(), in.Tree)
	}
	if in.Size <= 0 {
		e.add("lock: %s: size is %d bytes", in.name(), in.Size)
	}
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && slices.Contains([]string{"http", "https", "file"}, u.Scheme)
}

// errs is errors.Join that keeps adding.
type errs struct{ all []error }

func (e *errs) add(format string, args ...any) { e.all = append(e.all, fmt.Errorf(format, args...)) }

func (e *errs) join() error { return errors.Join(e.all...) }
