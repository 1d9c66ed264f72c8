// Package ko reads Linux kernel modules (.ko files) and proves, without
// inserting them, that a module fits the kernel and the modules it is meant
// for.
//
// A kernel accepts a module when its vermagic matches, each symbol that the
// module imports is exported by the kernel or by a module loaded before it, and,
// with CONFIG_MODVERSIONS, the checksum (CRC) of the symbol's C type is the one
// that the module was compiled against. All three are written in the files:
// [Parse] reads them, [CheckImports] compares them.
package ko

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Module is what a .ko file says about itself.
type Module struct {
	// Name is the module's name as the kernel knows it ("nvidia_uvm").
	// Files of 4.x kernels and older do not carry it.
	Name     string
	Version  string // MODULE_VERSION, "" if the source gives none
	Vermagic string // kernel release and build options the module asks for

	Depends  []string // modules that must be loaded first, named as in Name
	Aliases  []string // modalias patterns, e.g. "pci:v000010DEd*sv*sd*bc03sc02i00*"
	Softdeps []string // lines like "pre: crc32c"
	Firmware []string // paths below /lib/firmware
	Licenses []string // one for each MODULE_LICENSE

	// Info holds every key of .modinfo, the above included, with its values
	// in file order.
	Info map[string][]string

	Imports []string          // symbols that must be resolved, sorted
	Weak    []string          // symbols that may stay unresolved, sorted
	CRCs    map[string]uint32 // CRC expected of each import; nil without CONFIG_MODVERSIONS
	Exports Exports           // symbols offered to other modules
}

// Open reads the uncompressed module at path.
func Open(path string) (*Module, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Parse reads a module: a 64-bit relocatable ELF object with a .modinfo
// section and a symbol table. It returns an error for anything else, also for
// a module whose symbol table was stripped, which no kernel could load.
func Parse(r io.ReaderAt) (*Module, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("not a kernel module: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Type != elf.ET_REL {
		return nil, fmt.Errorf("not a kernel module: %v %v, want a 64-bit relocatable object", f.Class, f.Type)
	}
	m := &Module{}
	if err := m.readInfo(f); err != nil {
		return nil, err
	}
	if err := m.readCRCs(f); err != nil {
		return nil, err
	}
	if err := m.readSymbols(f); err != nil {
		return nil, err
	}
	return m, nil
}

// readInfo reads .modinfo: NUL-terminated "key=value" strings, padded with
// NULs (kernel: include/linux/moduleparam.h, __MODULE_INFO).
func (m *Module) readInfo(f *elf.File) error {
	s := f.Section(".modinfo")
	if s == nil {
		return errors.New("not a kernel module: no .modinfo section")
	}
	data, err := s.Data()
	if err != nil {
		return fmt.Errorf("section .modinfo: %w", err)
	}
	m.Info = map[string][]string{}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if key, value, ok := strings.Cut(string(entry), "="); ok {
			m.Info[key] = append(m.Info[key], value)
		}
	}
	first := func(key string) string {
		if v := m.Info[key]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	m.Name = first("name")
	m.Version = first("version")
	m.Vermagic = strings.TrimSpace(first("vermagic"))
	m.Depends = strings.FieldsFunc(first("depends"), func(r rune) bool { return r == ',' })
	m.Aliases = m.Info["alias"]
	m.Softdeps = m.Info["softdep"]
	m.Firmware = m.Info["firmware"]
	m.Licenses = m.Info["license"]
	return nil
}

// versionEntry is the size of struct modversion_info on a 64-bit kernel: an
// unsigned long CRC and a name that fills 64 bytes (include/linux/module.h).
const versionEntry = 64

// readCRCs reads __versions and, from Linux 6.14 on, the pair
// __version_ext_crcs and __version_ext_names, which has no limit on the length
// of a name. A module may carry both for the same symbols.
func (m *Module) readCRCs(f *elf.File) error {
	data, ok, err := sectionData(f, "__versions")
	if err != nil {
		return err
	}
	if ok {
		if len(data)%versionEntry != 0 {
			return fmt.Errorf("section __versions: %d bytes, not a multiple of %d", len(data), versionEntry)
		}
		m.CRCs = map[string]uint32{}
		for e := range slices.Chunk(data, versionEntry) {
			name, _, _ := bytes.Cut(e[8:], []byte{0})
			m.CRCs[string(name)] = uint32(f.ByteOrder.Uint64(e))
		}
	}

	crcs, ok, err := sectionData(f, "__version_ext_crcs")
	if err != nil || !ok {
		return err
	}
	names, _, err := sectionData(f, "__version_ext_names")
	if err != nil {
		return err
	}
	if m.CRCs == nil {
		m.CRCs = map[string]uint32{}
	}
	for len(crcs) >= 4 {
		name, rest, ok := bytes.Cut(names, []byte{0})
		if !ok || len(name) == 0 {
			return fmt.Errorf("section __version_ext_names: fewer names than CRCs (%d left)", len(crcs)/4)
		}
		m.CRCs[string(name)] = f.ByteOrder.Uint32(crcs)
		crcs, names = crcs[4:], rest
	}
	return nil
}

// Prefixes that EXPORT_SYMBOL gives to the symbols that describe an export
// (include/linux/export-internal.h).
const (
	ksymtabPrefix   = "__ksymtab_"
	namespacePrefix = "__kstrtabns_"
	crcPrefix       = "__crc_"
)

func (m *Module) readSymbols(f *elf.File) error {
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("symbol table: %w", err)
	}
	m.Exports = Exports{}
	describe := map[string]elf.Symbol{}
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF && s.Name != "" && s.Name != "_GLOBAL_OFFSET_TABLE_":
			if elf.ST_BIND(s.Info) == elf.STB_WEAK {
				m.Weak = append(m.Weak, s.Name)
			} else {
				m.Imports = append(m.Imports, s.Name)
			}
		case strings.HasPrefix(s.Name, ksymtabPrefix):
			name := s.Name[len(ksymtabPrefix):]
			m.Exports[name] = Export{Symbol: name, Module: m.Name, GPL: strings.Contains(sectionName(f, s.Section), "_gpl")}
		case strings.HasPrefix(s.Name, namespacePrefix), strings.HasPrefix(s.Name, crcPrefix):
			describe[s.Name] = s
		}
	}
	slices.Sort(m.Imports)
	slices.Sort(m.Weak)

	contents := map[elf.SectionIndex][]byte{}
	at := func(s elf.Symbol) ([]byte, error) {
		data, ok := contents[s.Section]
		if !ok {
			if int(s.Section) >= len(f.Sections) {
				return nil, fmt.Errorf("symbol %s: no section %d", s.Name, s.Section)
			}
			var err error
			if data, err = f.Sections[s.Section].Data(); err != nil {
				return nil, fmt.Errorf("section %s: %w", sectionName(f, s.Section), err)
			}
			contents[s.Section] = data
		}
		if s.Value > uint64(len(data)) {
			return nil, fmt.Errorf("symbol %s: offset %#x lies outside section %s", s.Name, s.Value, sectionName(f, s.Section))
		}
		return data[s.Value:], nil
	}
	for name, e := range m.Exports {
		if s, ok := describe[namespacePrefix+name]; ok {
			b, err := at(s)
			if err != nil {
				return err
			}
			ns, _, _ := bytes.Cut(b, []byte{0})
			e.Namespace = string(ns)
		}
		if s, ok := describe[crcPrefix+name]; ok {
			if s.Section == elf.SHN_ABS { // before Linux 5.19
				e.CRC = uint32(s.Value)
			} else {
				b, err := at(s)
				if err != nil {
					return err
				}
				if len(b) < 4 {
					return fmt.Errorf("symbol %s: no room for a CRC in section %s", s.Name, sectionName(f, s.Section))
				}
				e.CRC = f.ByteOrder.Uint32(b)
			}
		}
		m.Exports[name] = e
	}
	return nil
}

func sectionData(f *elf.File, name string) (data []byte, ok bool, err error) {
	s := f.Section(name)
	if s == nil {
		return nil, false, nil
	}
	if data, err = s.Data(); err != nil {
		return nil, false, fmt.Errorf("section %s: %w", name, err)
	}
	return data, true, nil
}

func sectionName(f *elf.File, i elf.SectionIndex) string {
	if int(i) < len(f.Sections) {
		return f.Sections[i].Name
	}
	return fmt.Sprintf("%d", i)
}
