package remedy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Clear makes the changes of a plan on the machine whose file system is at
// root. All ports are opened and compared with the plan, and their registers
// saved in the file state, before the first is written; without a name nothing
// is saved. What an earlier Clear saved stays: it is what Restore has to go
// back to. When a write fails, what was written is undone.
//
// The error is a [ForbiddenError] without the right to write, and a
// [ChangedError] when a port is not as planned for.
func Clear(root, state string, changes []Port) ([]Change, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written to it
	return clearPorts(sysfs(r), state, changes)
}

func clearPorts(open opener, state string, changes []Port) (done []Change, err error) {
	var all edits
	defer func() { err = errors.Join(err, all.close()) }()
	for _, p := range changes {
		e, now, err := open.at(p)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		if now != p.Before {
			return nil, &ChangedError{p.Address, fmt.Sprintf("its ACS control was %s and is %s", p.Before, now)}
		}
		all[len(all)-1].From, all[len(all)-1].To = p.Before, p.After
	}
	if len(all) == 0 {
		return nil, nil
	}
	undoSave, err := save(state, changes)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if err := all.write(); err != nil {
		if all.restored() {
			err = errors.Join(err, undoSave())
		}
		return nil, err
	}
	return all.changes(), nil
}

// restored reports whether every register has its old value.
func (all edits) restored() bool {
	for _, e := range all {
		if now, err := e.get(); err != nil || now != e.From {
			return false
		}
	}
	return true
}

func (all edits) changes() []Change {
	var out []Change
	for _, e := range all {
		out = append(out, e.Change)
	}
	return out
}

// Restore writes the registers that Clear saved in the file state back to the
// machine at root, and removes the file. Registers that have their old value
// already, as after a reset of the port, are left alone. When a port is gone,
// is another one, or its register is neither as Clear left it nor as it was
// before, nothing is written and the error is a [ChangedError]; with force,
// ports that are gone or replaced are passed over, and registers that have
// changed are written all the same.
func Restore(root, state string, force bool) ([]Change, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written to it
	return restorePorts(sysfs(r), state, force)
}

func restorePorts(open opener, state string, force bool) (done []Change, err error) {
	saved, err := Load(state)
	if err != nil {
		return nil, err
	}
	var all edits
	defer func() { err = errors.Join(err, all.close()) }()
	for _, p := range saved {
		e, now, err := open.at(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = &ChangedError{p.Address, "it is gone from the bus"}
		case err == nil && now != p.Before && now != p.After && !force:
			err = errors.Join(&ChangedError{p.Address, fmt.Sprintf("its ACS control was left as %s and is %s", p.After, now)}, e.space.Close())
		}
		if force && is[*ChangedError](err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e.From, e.To = now, p.Before
		if now == p.Before {
			if err := e.space.Close(); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, e)
	}
	if err := all.write(); err != nil {
		return nil, err
	}
	if err := os.Remove(state); err != nil {
		return all.changes(), fmt.Errorf("everything is restored: %w", err)
	}
	return all.changes(), nil
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
