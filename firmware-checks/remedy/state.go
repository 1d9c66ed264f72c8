package remedy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// state is the file that [Clear] leaves for [Restore].
type state struct {
	Version int    `json:"version"`
	Ports   []Port `json:"ports"`
}

// ErrNoState says that nothing was saved: either nothing was cleared since the
// machine was started, or it is restored already.
var ErrNoState = errors.New("no saved state")

// StateError is a state file that cannot be used.
type StateError struct {
	File string
	Err  error
}

func (e *StateError) Error() string { return fmt.Sprintf("saved state %s: %v", e.File, e.Err) }

func (e *StateError) Unwrap() error { return e.Err }

// Load returns the ports as Clear saved them in a file. The error wraps
// [ErrNoState] when there is none, and is a [StateError] when it makes no sense.
func Load(file string) ([]Port, error) {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w in %s", ErrNoState, file)
	case err != nil:
		return nil, fmt.Errorf("saved state: %w", err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, &StateError{file, err}
	}
	if s.Version != stateVersion {
		return nil, &StateError{file, fmt.Errorf("version %d, this program reads %d", s.Version, stateVersion)}
	}
	for i, p := range s.Ports {
		if !filepath.IsLocal(p.Address) || filepath.Base(p.Address) != p.Address {
			return nil, &StateError{file, fmt.Errorf("port %d: %q is no address", i, p.Address)}
		}
	}
	return s.Ports, nil
}

// save writes the ports that are about to be changed to a file, whole or not at
// all, and returns what takes that back. Ports that are in the file already
// keep the value they had first.
func save(file string, changes []Port) (undo func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	before, err := Load(file)
	if err != nil && !errors.Is(err, ErrNoState) {
		return nil, err
	}
	undo = func() error { return os.Remove(file) }
	if err == nil {
		undo = func() error { return write(file, before) }
	}
	return undo, write(file, merge(before, changes))
}

// merge adds changes to what was saved.
func merge(saved, changes []Port) []Port {
	out := slices.Clone(saved)
	for _, p := range changes {
		i := slices.IndexFunc(out, func(s Port) bool { return s.Address == p.Address })
		switch {
		case i < 0:
			out = append(out, p)
		case out[i].Vendor != p.Vendor || out[i].Device != p.Device || out[i].Register != p.Register:
			out[i] = p // another device has taken its place
		default:
			out[i].After = p.After
		}
	}
	return out
}

// write writes a state file by way of a temporary one. It need not outlive a
// crash of the machine, which the registers do not either.
func write(file string, ports []Port) error {
	text, err := json.MarshalIndent(state{stateVersion, ports}, "", "  ")
	if err != nil {
		return fmt.Errorf("saving the state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("saving the state: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("saving the state: %w", err)
	}
	_, err = tmp.Write(append(text, '\n'))
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("saving the state: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
