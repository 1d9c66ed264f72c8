// Package pcicfg decodes a dump of a PCI function's configuration space, as
// sysfs (/sys/bus/pci/devices/*/config) and lspci -xxxx give it.
//
// The decoder is pure: bytes in, plain values out. Register layouts and masks
// are those of the PCI Express Base Specification, revision 6.0, named by its
// section ("PCIe 6.0 §7.5.3.4"); headers made before a field grew are not
// trusted. A dump may be shorter than the space: Linux gives 64 bytes to a
// reader without CAP_SYS_ADMIN and 256 bytes for conventional PCI devices.
// What a short or broken dump hides is listed in [Config.Unknown]; a value that
// could not be read is a nil pointer, never a zero that looks like an answer.
package pcicfg
