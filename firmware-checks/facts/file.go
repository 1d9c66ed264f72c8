package facts

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Load reads a facts document, of this version or an older one. Decoded
// configuration space is decoded anew from the raw bytes, so that an old
// document profits from a newer decoder.
func Load(r io.Reader) (*Facts, error) {
	var f Facts
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	if f.Version < 1 || f.Version > Version {
		return nil, fmt.Errorf("reading facts: document has version %d, this program reads 1 to %d", f.Version, Version)
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
	return &f, nil
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
