package ko

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Export is a symbol that the kernel or a module offers.
type Export struct {
	Symbol    string
	Module    string // "vmlinux" for the kernel itself, else a name as in [Module.Name]
	Namespace string // symbol namespace, "" for none
	GPL       bool   // for GPL-compatible modules only
	CRC       uint32 // checksum of the C type; 0 without CONFIG_MODVERSIONS
}

// Exports maps symbol names to what offers them.
type Exports map[string]Export

// ParseSymvers reads a Module.symvers file, the list of everything that a
// kernel build and its modules export: one line for each symbol with CRC, name,
// module, export type and namespace, separated by tabs (kernel:
// Documentation/kbuild/modules.rst, "Symbols and External Modules").
func ParseSymvers(r io.Reader) (Exports, error) {
	exports := Exports{}
	scanner := bufio.NewScanner(r)
	for n := 1; scanner.Scan(); n++ {
		f := strings.Split(scanner.Text(), "\t")
		if len(f) < 4 || f[1] == "" {
			return nil, fmt.Errorf("symvers line %d: %d fields, want CRC, symbol, module, export type", n, len(f))
		}
		crc, err := strconv.ParseUint(f[0], 0, 32)
		if err != nil {
			return nil, fmt.Errorf("symvers line %d: CRC: %w", n, err)
		}
		e := Export{Symbol: f[1], CRC: uint32(crc)}
		e.Module = strings.ReplaceAll(path.Base(f[2]), "-", "_")
		e.GPL = strings.HasPrefix(f[3], "EXPORT_SYMBOL_GPL")
		if len(f) > 4 {
			e.Namespace = f[4]
		}
		exports[e.Symbol] = e
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("symvers: %w", err)
	}
	return exports, nil
}

// Report tells how a module's imports are met.
type Report struct {
	Module   string         `json:"module"`
	Imports  int            `json:"imports"`  // symbols that must be resolved
	From     map[string]int `json:"from"`     // resolved symbols, by the module that offers them
	Problems []string       `json:"problems"` // why the kernel would refuse the module; empty if it would not
}

// Err returns nil if there are no problems, else one error that lists them.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("module %s does not fit: %s", r.Module, strings.Join(r.Problems, "; "))
}

// gplCompatible are the licences that may use GPL-only symbols (kernel:
// include/linux/license.h, license_is_gpl_compatible).
var gplCompatible = []string{
	"GPL", "GPL v2", "GPL and additional rights",
	"Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL",
}

// moduleLayout is the symbol whose CRC stands for struct module and others that
// kernel and module share without an import (kernel/module/version.c).
const moduleLayout = "module_layout"

// CheckImports decides, as the kernel would on insertion, whether m fits a
// kernel with the given vermagic when the providers are present: the kernel's
// Module.symvers, then the exports of further modules. Stricter than the
// kernel, it wants the whole vermagic to be equal, a CRC for each import, and
// each providing module listed in m.Depends.
func CheckImports(m *Module, vermagic string, providers ...Exports) *Report {
	required := m.Imports
	if _, ok := m.CRCs[moduleLayout]; ok {
		required = append(slices.Clone(required), moduleLayout)
	}
	r := &Report{Module: m.Name, Imports: len(required), From: map[string]int{}}
	problem := func(format string, args ...any) {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
	if m.Vermagic != strings.TrimSpace(vermagic) {
		problem("vermagic %q, the kernel has %q", m.Vermagic, strings.TrimSpace(vermagic))
	}
	gpl := slices.ContainsFunc(m.Licenses, func(l string) bool { return slices.Contains(gplCompatible, l) })
	for _, name := range slices.Concat(required, m.Weak) {
		e, ok := lookup(name, providers)
		if !ok {
			if _, weak := slices.BinarySearch(m.Weak, name); !weak {
				problem("symbol %s is exported by nothing", name)
			}
			continue
		}
		r.From[e.Module]++
		if m.CRCs != nil {
			switch crc, ok := m.CRCs[name]; {
			case !ok:
				problem("symbol %s has no CRC", name)
			case crc != e.CRC:
				problem("symbol %s of %s has CRC %#08x, the module was built for %#08x", name, e.Module, e.CRC, crc)
			}
		}
		if e.GPL && !gpl {
			problem("symbol %s of %s is for GPL-compatible modules, the licence is %q", name, e.Module, m.Licenses)
		}
		if e.Namespace != "" && !slices.Contains(m.Info["import_ns"], e.Namespace) {
			problem("symbol %s of %s is in namespace %s, which the module does not import", name, e.Module, e.Namespace)
		}
		if e.Module != "vmlinux" && !slices.Contains(m.Depends, e.Module) {
			problem("symbol %s is from %s, which the module does not depend on", name, e.Module)
		}
	}
	return r
}

func lookup(name string, providers []Exports) (Export, bool) {
	for _, p := range providers {
		if e, ok := p[name]; ok {
			return e, true
		}
	}
	return Export{}, false
}
