package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/pcicfg"
)

const (
	pciDevices = "sys/bus/pci/devices"

	vendorNVIDIA = 0x10de
	classVGA     = 0x0300 // VGA compatible controller
	class3D      = 0x0302 // 3D controller
	barCount     = 6
)

var (
	// Domains above ffff exist: VMD makes them.
	addressRE = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	rootBusRE = regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
)

func (g *gatherer) devices() {
	g.facts.Devices = []Device{}
	entries, err := os.ReadDir(g.path(pciDevices))
	if err != nil {
		g.unknown("PCI devices", pciDevices, err)
		return
	}
	for _, e := range entries {
		if addressRE.MatchString(e.Name()) {
			g.facts.Devices = append(g.facts.Devices, g.device(e.Name()))
		}
	}
	slices.SortFunc(g.facts.Devices, func(a, b Device) int { return compareAddress(a.Address, b.Address) })

	judged := map[string]bool{}
	for _, gpu := range g.facts.GPUs() {
		judged[gpu.Address] = true
		for _, bridge := range gpu.Path {
			judged[bridge] = true
		}
	}
	for i := range g.facts.Devices {
		if d := &g.facts.Devices[i]; judged[d.Address] {
			g.config(d)
		}
	}
}

// compareAddress orders addresses by domain first, whose width varies.
func compareAddress(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

func (g *gatherer) device(address string) Device {
	dir := pciDevices + "/" + address
	d := Device{Address: address}
	d.Vendor = g.hex("vendor ID of "+address, dir+"/vendor")
	d.Device = g.hex("device ID of "+address, dir+"/device")
	d.Class = g.hex("class of "+address, dir+"/class")
	d.StandIn = g.standIn != nil && d.Vendor == g.standIn.vendor && d.Device == g.standIn.device
	base := d.Class >> 8
	d.GPU = d.StandIn || d.Vendor == vendorNVIDIA && (base == classVGA || base == class3D)

	d.Root, d.Path = g.place(address)
	d.NUMANode = -1
	if n, err := strconv.Atoi(g.may("NUMA node of "+address, dir+"/numa_node")); err == nil {
		d.NUMANode = n
	}
	d.IOMMUGroup = g.link(dir + "/iommu_group")
	d.Driver = g.link(dir + "/driver")
	d.Enabled = !slices.Contains([]string{"", "0"}, g.may("enable state of "+address, dir+"/enable"))
	d.PowerState = g.may("power state of "+address, dir+"/power_state")

	d.D3ColdAllowed = g.flag("whether "+address+" may lose power", dir+"/d3cold_allowed")
	if methods := g.may("reset methods of "+address, dir+"/reset_method"); methods != "" {
		d.ResetMethods = strings.Fields(methods)
	}
	d.BootVGA = g.may("whether "+address+" is the console", dir+"/boot_vga") == "1"
	d.AER = g.aer(address, dir)
	d.PhysicalFunction = g.link(dir + "/physfn")
	d.VirtualFunctions = g.count("virtual functions of "+address, dir+"/sriov_numvfs")
	d.MaxVirtualFunctions = g.count("virtual functions of "+address, dir+"/sriov_totalvfs")
	g.linkState(&d)

	var err error
	if d.Resources, err = parseResources(g.want("BARs of "+address, dir+"/resource")); err != nil {
		g.unknown("BARs of "+address, dir+"/resource", err)
	}
	if d.GPU {
		d.Resizable = g.resizable(dir)
	}
	return d
}

// hex reads a file that holds a number such as 0x10de.
func (g *gatherer) hex(what, name string) pcicfg.Hex {
	s, err := g.read(name)
	if err != nil {
		g.unknown(what, name, err)
		return 0
	}
	var h pcicfg.Hex
	if err := h.UnmarshalText([]byte(s)); err != nil {
		g.unknown(what, name, err)
	}
	return h
}

// flag reads a file that holds 0 or 1, nil when there is none.
func (g *gatherer) flag(what, name string) *bool {
	s := g.may(what, name)
	if s == "" {
		return nil
	}
	on := s == "1"
	return &on
}

// count reads a file that holds a decimal number, 0 when there is none.
func (g *gatherer) count(what, name string) int {
	s := g.may(what, name)
	if s == "" {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		g.unknown(what, name, err)
	}
	return n
}

// link returns the last element of the target of a symbolic link, or "".
func (g *gatherer) link(name string) string {
	target, err := os.Readlink(g.path(name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// place finds the host bridge of a device and the bridges between them in the
// target of its sysfs link:
// ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0. A controller that
// makes a PCI domain of its own (VMD) has another root bus below it; the path
// starts anew there.
func (g *gatherer) place(address string) (root string, path []string) {
	name := pciDevices + "/" + address
	target, err := os.Readlink(g.path(name))
	if err != nil {
		g.unknown("place of "+address+" in the PCI tree", name, err)
		return "", nil
	}
	for elem := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		switch {
		case rootBusRE.MatchString(elem):
			root, path = elem, nil
		case addressRE.MatchString(elem) && elem != address:
			path = append(path, elem)
		}
	}
	return root, path
}

// parseResources reads the first lines of the sysfs file resource: start, end
// and flags of each BAR. Lines past the BARs are the ROM, SR-IOV BARs and
// bridge windows, whose numbering depends on the kernel's configuration.
func parseResources(s string) ([]Resource, error) {
	var rs []Resource
	index := -1
	for line := range strings.Lines(s) {
		if index++; index == barCount {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d has %d fields, want start, end and flags", index+1, len(fields))
		}
		r := Resource{Index: index}
		for i, v := range []*pcicfg.Hex{&r.Start, &r.End, &r.Flags} {
			if err := v.UnmarshalText([]byte(fields[i])); err != nil {
				return nil, fmt.Errorf("line %d: %w", index+1, err)
			}
		}
		if r.Flags != 0 {
			rs = append(rs, r)
		}
	}
	return rs, nil
}

// resizable reads resourceN_resize, which exists where the kernel can resize
// and holds a hexadecimal mask without prefix.
func (g *gatherer) resizable(dir string) map[int]pcicfg.Hex {
	var masks map[int]pcicfg.Hex
	for i := range barCount {
		name := fmt.Sprintf("%s/resource%d_resize", dir, i)
		s, err := g.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var mask uint64
		if err == nil {
			mask, err = strconv.ParseUint(s, 16, 64)
		}
		if err != nil {
			g.unknown("sizes the kernel offers for a BAR", name, err)
			continue
		}
		if masks == nil {
			masks = map[int]pcicfg.Hex{}
		}
		masks[i] = pcicfg.Hex(mask)
	}
	return masks
}

// linkState reads the link of d. Ports without a link answer with an error or
// with "Unknown".
func (g *gatherer) linkState(d *Device) {
	dir := pciDevices + "/" + d.Address
	d.LinkSpeed, _ = g.read(dir + "/current_link_speed")
	d.LinkWidth, _ = g.read(dir + "/current_link_width")
	d.MaxLinkSpeed, _ = g.read(dir + "/max_link_speed")
	d.MaxLinkWidth, _ = g.read(dir + "/max_link_width")
}

// config reads and decodes the configuration space of d.
func (g *gatherer) config(d *Device) {
	name := pciDevices + "/" + d.Address + "/config"
	what := "configuration space of " + d.Address
	raw, err := g.readRaw(name)
	if err != nil {
		g.unknown(what, name, err)
		return
	}
	cfg, err := pcicfg.Decode(raw)
	if errors.Is(err, pcicfg.ErrNoResponse) {
		d.NoResponse = true
	}
	if err != nil {
		g.unknown(what, name, err)
		return
	}
	if !g.private {
		pcicfg.BlankSerial(raw)
	}
	d.RawConfig, d.Config = raw, cfg
	for _, u := range cfg.Unknown {
		g.unknown(what, name, errors.New(u))
	}
}
