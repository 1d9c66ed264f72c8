package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Load reads a facts document, of this version or an older one. Decoded
// configuration space is decoded anew from the raw bytes, so that an old
// document profits from a newer decoder. Control characters are replaced, since a
// document may come from anyone.
func Load(r io.Reader) (*Facts, error) {
	var f Facts
	doc := json.NewDecoder(r)
	switch err := doc.Decode(&f); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("reading facts: the document is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("reading facts: the document is cut off")
	case err != nil:
		return nil, fmt.Errorf("reading facts: no document of mkp2pimg facts: %w", err)
	}
	if _, err := doc.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading facts: there is more after the document, at byte %d", doc.InputOffset())
	}
	switch {
	case f.Version == 0:
		return nil, errors.New("reading facts: no document of mkp2pimg facts: it has no version")
	case f.Version < 0 || f.Version > Version:
		return nil, fmt.Errorf("reading facts: document has version %d, this program reads 1 to %d", f.Version, Version)
	}
	if err := f.placed(); err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		if len(d.RawConfig) == 0 {
			continue
		}
		cfg, err := pcicfg.Decode(d.RawConfig)
		if err != nil {
			return nil, fmt.Errorf("reading facts: raw_config of %s: %w", d.Address, err)
		}
		d.Config = cfg
	}
	f.clean()
	return &f, nil
}

// placed checks the addresses that the tree of functions is built from.
func (f *Facts) placed() error {
	seen := map[string]bool{}
	for i := range f.Devices {
		d := &f.Devices[i]
		for _, address := range append([]string{d.Address}, d.Path...) {
			if !addressRE.MatchString(address) {
				return fmt.Errorf("device %d: %q is no address of a PCI function", i, address)
			}
		}
		switch {
		case d.Root != "" && !rootBusRE.MatchString(d.Root):
			return fmt.Errorf("device %d: %q is no name of a host bridge", i, d.Root)
		case seen[d.Address]:
			return fmt.Errorf("device %d: there are two with the address %s", i, d.Address)
		}
		seen[d.Address] = true
	}
	return nil
}

// LoadFile reads the facts document at path.
func LoadFile(path string) (*Facts, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	defer file.Close() // only read
	f, err := Load(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Save writes f as indented JSON.
func (f *Facts) Save(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		return fmt.Errorf("writing facts: %w", err)
	}
	return nil
}
