package node

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/report"
)

// dut describes the machine as far as it can be told before any stage: its name,
// kernel, firmware, driver release and GPUs. What identifies this one machine is left
// out, unless the report goes to a farm's server, which knows the machine by it.
func dut(root fs.FS, p params.Params, img *layout.Image) report.DUT {
	read := func(name string) string {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	const dmi = "sys/class/dmi/id/"
	board := strings.TrimSpace(read(dmi+"board_vendor") + " " + read(dmi+"board_name"))
	d := report.DUT{
		ID:   cmp.Or(p.Node, "unnamed"),
		Name: board,
		Software: []report.SoftwareInfo{
			{ID: "kernel", Name: "linux", Version: read("proc/sys/kernel/osrelease"), Type: "SYSTEM"},
		},
	}
	if img != nil && p.Driver != params.None && p.Driver != params.Loaded {
		d.Software = append(d.Software, report.SoftwareInfo{ID: "driver", Name: "nvidia", Version: img.Driver, Revision: string(p.Driver), Type: "SYSTEM"})
	}
	if bios := read(dmi + "bios_version"); bios != "" {
		d.Software = append(d.Software, report.SoftwareInfo{ID: "firmware", Name: cmp.Or(read(dmi+"bios_vendor"), "firmware"), Version: bios, Type: "FIRMWARE"})
	}
	if product := read(dmi + "product_name"); product != "" {
		d.Platforms = []report.PlatformInfo{{Info: product}}
	}
	if p.Collect != nil {
		d.Metadata = map[string]any{}
		for key, file := range map[string]string{report.MetaUUID: "product_uuid", report.MetaSerial: "product_serial", report.MetaBoardSerial: "board_serial"} {
			if s := read(dmi + file); s != "" {
				d.Metadata[key] = s
			}
		}
	}
	const devices = "sys/bus/pci/devices"
	all, err := fs.ReadDir(root, devices)
	if err != nil {
		return d
	}
	for _, e := range all {
		id := func(file string) string {
			return strings.TrimPrefix(read(path.Join(devices, e.Name(), file)), "0x")
		}
		name := fmt.Sprintf("%s:%s", id("vendor"), id("device"))
		// Vendor NVIDIA, class display controller (PCI ID repository).
		if nvidia := id("vendor") == "10de" && strings.HasPrefix(id("class"), "03"); nvidia || name == p.GPU {
			kind := "GPU"
			if !nvidia {
				kind = "stand-in for a GPU"
			}
			d.Hardware = append(d.Hardware, report.HardwareInfo{ID: e.Name(), Name: name, Location: e.Name(), PartType: kind})
		}
	}
	slices.SortFunc(d.Hardware, func(a, b report.HardwareInfo) int { return cmp.Compare(a.ID, b.ID) })
	return d
}
