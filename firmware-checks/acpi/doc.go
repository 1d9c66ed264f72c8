// Package acpi decodes the ACPI tables that bear on PCIe peer-to-peer traffic:
// DMAR and IVRS, which describe the IOMMUs of Intel and AMD; MCFG, which says
// where configuration space is mapped; and SRAT, which assigns processors,
// memory and devices to NUMA nodes.
//
// Each decoder takes a whole table with its header, as Linux shows it below
// /sys/firmware/acpi/tables, verifies length and checksum, and never reads past
// either the table or the structure it is in. Structures of a type it doesn't
// know are skipped; one whose length can't be right ends the decoding with an
// error, since everything after it would be guessed.
//
// Layouts: Intel Virtualization Technology for Directed I/O, chapter "BIOS
// Considerations"; AMD I/O Virtualization Technology (IOMMU) Specification,
// chapter "I/O Virtualization ACPI Table"; PCI Firmware Specification, "MCFG
// Table Description"; ACPI Specification, "System Resource Affinity Table".
package acpi
