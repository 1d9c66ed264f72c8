package remedy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Change is a register that was written.
type Change struct {
	Port string `json:"port"`
	From Word   `json:"from"`
	To   Word   `json:"to"`
}

// String returns "0000:02:00.0: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)".
func (c Change) String() string { return fmt.Sprintf("%s: %s -> %s", c.Port, c.From, c.To) }

// ChangedError says that a port is not as it was when the plan was made or its
// registers were saved.
type ChangedError struct {
	Port string
	What string // what is different
}

func (e *ChangedError) Error() string { return fmt.Sprintf("port %s has changed: %s", e.Port, e.What) }

// ForbiddenError says that the system does not let this process read or write
// configuration space.
type ForbiddenError struct{ Err error }

func (e *ForbiddenError) Error() string {
	// Opening asks the file's mode, writing asks the kernel (pci_write_config in
	// drivers/pci/pci-sysfs.c).
	if errors.Is(e.Err, fs.ErrPermission) && !errors.Is(e.Err, errLocked) {
		return e.Err.Error() + ": run as root"
	}
	return e.Err.Error() + ": the kernel is locked down, as it is under Secure Boot: switch that off in the firmware setup, or set the bits there or with pci=disable_acs_redir="
}

func (e *ForbiddenError) Unwrap() error { return e.Err }

// errLocked is that of the kernel when it refuses a write to a file that it let
// be opened for writing.
var errLocked = errors.New("refused")

// space is the configuration space of one function.
type space interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// opener opens the configuration space of the function at an address for
// reading and writing.
type opener func(address string) (space, error)

// sysfs opens configuration space below a root directory.
func sysfs(root *os.Root) opener {
	return func(address string) (space, error) {
		f, err := root.OpenFile("sys/bus/pci/devices/"+address+"/config", os.O_RDWR, 0)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return nil, &ForbiddenError{err}
		case err != nil:
			return nil, err
		}
		return f, nil
	}
}

// edit is one register about to be written.
type edit struct {
	Change
	register int
	space    space
}

// edits are registers of opened functions.
type edits []edit

func (all edits) close() error {
	var errs []error
	for _, e := range all {
		errs = append(errs, e.space.Close())
	}
	return errors.Join(errs...)
}

// write writes all registers and reads them back. When one fails, those before
// it get their old value again; so does the one that failed, which may have
// taken the new one.
func (all edits) write() error {
	for i, e := range all {
		err := e.set(e.To)
		if err == nil {
			continue
		}
		err = fmt.Errorf("port %s: %w", e.Port, err)
		for _, done := range slices.Backward(all[:i+1]) {
			if word, undo := done.get(); undo == nil && word == done.From {
				continue
			}
			if undo := done.set(done.From); undo != nil {
				err = errors.Join(err, fmt.Errorf("port %s keeps its new value: %w", done.Port, undo))
			}
		}
		return err
	}
	return nil
}

func (e edit) get() (Word, error) {
	var b [2]byte
	if _, err := e.space.ReadAt(b[:], int64(e.register)); err != nil {
		return 0, fmt.Errorf("read ACS control at %#x: %w", e.register, err)
	}
	return Word(binary.LittleEndian.Uint16(b[:])), nil
}

func (e edit) set(w Word) error {
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], uint16(w))
	if _, err := e.space.WriteAt(b[:], int64(e.register)); err != nil {
		err = fmt.Errorf("write ACS control at %#x: %w", e.register, err)
		if errors.Is(err, fs.ErrPermission) {
			return &ForbiddenError{fmt.Errorf("%w (%w)", err, errLocked)}
		}
		return err
	}
	have, err := e.get()
	if err == nil && have != w {
		err = fmt.Errorf("ACS control at %#x was written as %s and reads %s: the port does not take it", e.register, w, have)
	}
	return err
}

// at opens a port, makes sure that it is the one that was planned for or saved,
// with its register where it was, and returns the register's value.
func (open opener) at(p Port) (e edit, now Word, err error) {
	e = edit{Change: Change{Port: p.Address}, register: p.Register}
	e.space, err = open(p.Address)
	if err != nil {
		return e, 0, fmt.Errorf("open configuration space of %s: %w", p.Address, err)
	}
	now, err = e.verify(p)
	if err != nil {
		return e, 0, errors.Join(err, e.space.Close())
	}
	return e, now, nil
}

func (e edit) verify(p Port) (Word, error) {
	raw, err := io.ReadAll(io.NewSectionReader(e.space, 0, pcicfg.ExtendedSize))
	if err != nil {
		return 0, fmt.Errorf("read configuration space of %s: %w", p.Address, err)
	}
	cfg, err := pcicfg.Decode(raw)
	switch {
	case errors.Is(err, pcicfg.ErrNoResponse):
		return 0, &ChangedError{p.Address, "it no longer answers"}
	case err != nil:
		return 0, fmt.Errorf("configuration space of %s: %w", p.Address, err)
	case cfg.Vendor != p.Vendor || cfg.Device != p.Device:
		return 0, &ChangedError{p.Address, fmt.Sprintf("it was %04x:%04x and is %04x:%04x", uint64(p.Vendor), uint64(p.Device), uint64(cfg.Vendor), uint64(cfg.Device))}
	case cfg.ACS == nil || cfg.ACS.Offset+control != p.Register:
		return 0, &ChangedError{p.Address, fmt.Sprintf("its ACS control is no longer at %#x", p.Register)}
	}
	return e.get()
}
