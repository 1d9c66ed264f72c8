package facts

import (
	"slices"

	"mkp2pimg/firmware-checks/acpi"
)

// acpi reads and decodes the tables that the machine has. Only root can read
// them.
func (g *gatherer) acpi() {
	g.facts.ACPI = &ACPI{
		DMAR: decodeTable(g, "DMAR", acpi.ParseDMAR),
		IVRS: decodeTable(g, "IVRS", acpi.ParseIVRS),
		MCFG: decodeTable(g, "MCFG", acpi.ParseMCFG),
		SRAT: decodeTable(g, "SRAT", acpi.ParseSRAT),
	}
}

// decodeTable returns nil when there is no such table or it can't be told what
// is in it.
func decodeTable[T any](g *gatherer, signature string, parse func([]byte) (*T, error)) *T {
	if !slices.Contains(g.facts.Firmware.ACPITables, signature) {
		return nil
	}
	name := "sys/firmware/acpi/tables/" + signature
	b, err := g.readRaw(name)
	if err == nil {
		var t *T
		if t, err = parse(b); err == nil {
			return t
		}
	}
	g.unknown("ACPI table "+signature, name, err)
	return nil
}
