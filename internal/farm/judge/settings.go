package judge

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
)

// The settings of a summary, by name. What a report does not tell is left out, so
// that what is not known never counts as changed.
const (
	BoardVendor   = "board.vendor"
	BoardName     = "board.name"
	BoardSerial   = "board.serial" // this and the next two only in a report that tells them
	SystemSerial  = "system.serial"
	SystemUUID    = "system.uuid" // lower case
	SystemVendor  = "system.vendor"
	SystemProduct = "system.product"
	BIOSVendor    = "bios.vendor"
	BIOSVersion   = "bios.version"
	BIOSDate      = "bios.date"
	BootMode      = "boot.mode"        // UEFI or BIOS
	SecureBoot    = "boot.secure"      // on or off
	Hypervisor    = "hypervisor"       // none, or its name
	KernelRelease = "kernel.release"   // uname -r
	KernelParams  = "kernel.params"    // those that bear on peer-to-peer, sorted, or none
	DriverRelease = "driver.release"   // of nvidia.ko
	DriverModules = "driver.modules"   // the module set that was asked for, p2p or stock
	DriverKind    = "driver.kind"      // open or proprietary
	DriverKeys    = "driver.keys"      // registry keys that nvidia.ko was loaded with, or none
	DriverPaths   = "driver.paths"     // granted by the driver, "bar1 12, none 2" (ordered pairs)
	CopySize      = "measure.size"     // profile and bytes per copy, "quick 64 MiB"
	RunACS        = "run.acs"          // access controls between GPUs: as they are, or cleared for the run
	IOMMUMode     = "iommu.mode"       // off, passthrough, translating
	ACSRedirect   = "acs.redirect"     // ports between GPUs that redirect, or none
	Above4G       = "bar.above4g"      // whether all framebuffer BARs lie above 4 GiB: yes or no
	GPUCount      = "gpu.count"        // display controllers of NVIDIA
	GPUModels     = "gpu.models"       // "4 × NVIDIA GeForce RTX 4090"
	GPUNature     = "gpu.nature"       // real, emulated, stand-in; of no GPU, none
	MaxPayload    = "payload.smallest" // Max Payload Size, the smallest of the links between GPUs
)

// Settings of a device or link have its address between the parts of their name.
const (
	acsPrefix   = "acs."   // acs.0000:02:08.0: controls that are on, "SV RR CR UF"
	gpuPrefix   = "gpu."   // gpu.0000:41:00.0: vendor and device, "10de:2684"; .uuid, .vbios
	rebarPrefix = "rebar." // rebar.0000:41:00.0: "32 GiB of 32 GiB"
	linkPrefix  = "link."  // see below

	uuidSuffix  = ".uuid"
	vbiosSuffix = ".vbios"

	// A link is named by its lower end. The speed of a GPU's link is the highest
	// that was seen under load, since an idle GPU lowers it.
	widthSuffix   = ".width"   // "x16"
	speedSuffix   = ".speed"   // "Gen4"
	capableSuffix = ".capable" // of both ends, "Gen4 x16"
)

// settings returns what firmware, kernel and driver of a machine are set to.
func settings(r *report.Run) map[string]string {
	s := settingsMap{}
	s.start(r.Start)
	s.result(r.Result)
	if r.Facts != nil {
		// What is no facts document says nothing.
		if f, err := facts.Load(bytes.NewReader(r.Facts)); err == nil {
			s.machine(f)
			s.kernel(f)
			s.driver(f.NVIDIA)
			s.gpus(f)
			s.fabric(f, r.Result)
		}
	}
	if len(s) == 0 {
		return nil
	}
	return s
}

type settingsMap map[string]string

// set keeps a setting that is known.
func (s settingsMap) set(name, value string) {
	if value = clean(value); value != "" {
		s[clean(name)] = value
	}
}

// start takes what the first line of a report says of the machine.
func (s settingsMap) start(start *report.RunStart) {
	if start == nil {
		return
	}
	for _, sw := range start.DUT.Software {
		switch sw.ID {
		case "kernel":
			s.set(KernelRelease, sw.Version)
		case "driver":
			s.set(DriverRelease, sw.Version)
			s.set(DriverModules, sw.Revision)
		case "firmware":
			s.set(BIOSVendor, sw.Name)
			s.set(BIOSVersion, sw.Version)
		}
	}
	if acs, ok := start.Parameters["p2p.acs"].(string); ok {
		s.set(RunACS, word(acs == string(params.Clear), "cleared", "as they are"))
	}
	// A node tells a farm's server which machine it is.
	for key, name := range map[string]string{report.MetaUUID: SystemUUID, report.MetaSerial: SystemSerial, report.MetaBoardSerial: BoardSerial} {
		told, _ := start.DUT.Metadata[key].(string)
		s.set(name, told)
	}
}

// result takes what the measurement says of its settings and the GPUs.
func (s settingsMap) result(r *measure.Result) {
	if r == nil {
		return
	}
	s.set(CopySize, fmt.Sprintf("%s %s", r.Settings.Profile, humanize.IBytes(uint64(max(r.Settings.Size, 0)))))
	if r.Inventory == nil || len(r.Inventory.GPUs) > maxGPUs {
		return
	}
	s.set(DriverRelease, r.Inventory.DriverVersion)
	for _, g := range r.Inventory.GPUs {
		s.set(gpuPrefix+g.BDF+uuidSuffix, strings.ToLower(g.UUID))
	}
}

func (s settingsMap) machine(f *facts.Facts) {
	fw := f.Firmware
	s.set(BoardVendor, fw.BoardVendor)
	s.set(BoardName, fw.BoardName)
	s.set(BoardSerial, fw.BoardSerial)
	s.set(SystemVendor, fw.SystemVendor)
	s.set(SystemProduct, fw.Product)
	s.set(SystemSerial, fw.ProductSerial)
	s.set(SystemUUID, strings.ToLower(fw.ProductUUID))
	s.set(BIOSVendor, fw.BIOSVendor)
	s.set(BIOSVersion, fw.BIOSVersion)
	s.set(BIOSDate, fw.BIOSDate)
	s.set(BootMode, word(fw.UEFI, "UEFI", "BIOS"))
	if fw.SecureBoot != nil {
		s.set(SecureBoot, word(*fw.SecureBoot, "on", "off"))
	}
	s.set(Hypervisor, word(f.CPU.Hypervisor, cmp.Or(f.CPU.HypervisorKind, "unknown"), "none"))
}

func word(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}

// kernelParams are the parameters of the kernel that bear on peer-to-peer
// (Documentation/admin-guide/kernel-parameters.txt), and prefixes of those that do
// by their module.
var kernelParams = []string{
	"iommu", "iommu.passthrough", "iommu.strict", "intel_iommu", "amd_iommu", "pci", "pcie_ports", "pcie_aspm", "pcie_acs_override",
	"module.sig_enforce", "lockdown", "mem_encrypt", "modprobe.blacklist", "module_blacklist", "nvidia.", "nouveau.", "vfio-pci.", "vfio_iommu_type1.",
}

func (s settingsMap) kernel(f *facts.Facts) {
	s.set(KernelRelease, f.Kernel.Release)
	if f.Kernel.CommandLine != "" {
		var params []string
		for param := range strings.FieldsSeq(f.Kernel.CommandLine) {
			if param == "--" {
				break // the rest is for init
			}
			name, _, _ := strings.Cut(param, "=")
			if slices.ContainsFunc(kernelParams, func(p string) bool { return name == p || strings.HasSuffix(p, ".") && strings.HasPrefix(name, p) }) {
				params = append(params, param)
			}
		}
		s.set(KernelParams, orNone(params, " "))
	}
	var modes []string
	for _, d := range f.GPUs() {
		switch g := f.Group(d); {
		case g == nil:
		case g.Type == "identity":
			modes = append(modes, passthrough)
		case strings.HasPrefix(g.Type, "DMA"):
			modes = append(modes, translating)
		}
	}
	switch {
	case slices.Contains(modes, translating):
		s.set(IOMMUMode, translating)
	case modes != nil:
		s.set(IOMMUMode, passthrough)
	case f.IOMMU.Known && len(f.IOMMU.Units) == 0 && len(f.IOMMU.Groups) == 0:
		s.set(IOMMUMode, "off")
	}
}

// Values of [IOMMUMode].
const (
	passthrough = "passthrough"
	translating = "translating"
)

// orNone joins words, sorted.
func orNone(words []string, separator string) string {
	if words == nil {
		return none
	}
	slices.Sort(words)
	return strings.Join(words, separator)
}

const none = "none"

func (s settingsMap) driver(n *facts.NVIDIA) {
	if n == nil {
		return
	}
	s.set(DriverRelease, n.Release)
	if n.Release != "" {
		s.set(DriverKind, word(n.Open, "open", "proprietary"))
	}
	if n.Params != "" {
		keys, _ := rm.ParseKeys(n.Params)
		var words []string
		for name, value := range keys {
			words = append(words, fmt.Sprintf("%s=%#x", name, value))
		}
		s.set(DriverKeys, orNone(words, " "))
	}
	if n.Survey != nil {
		count := map[rm.Path]int{}
		for _, p := range n.Survey.Pairs {
			count[cmp.Or(p.Path, "unknown")]++
		}
		var words []string
		for _, p := range slices.Sorted(maps.Keys(count)) {
			words = append(words, fmt.Sprintf("%s %d", p, count[p]))
		}
		s.set(DriverPaths, strings.Join(words, ", "))
	}
	for _, g := range n.GPUs[:min(len(n.GPUs), maxGPUs)] {
		s.set(gpuPrefix+g.Address+vbiosSuffix, g.VBIOS)
		s.set(gpuPrefix+g.Address+uuidSuffix, strings.ToLower(strings.TrimPrefix(g.UUID, "GPU-")))
	}
}

func (s settingsMap) gpus(f *facts.Facts) {
	gpus := f.GPUs()
	s.set(GPUCount, fmt.Sprint(len(gpus)))
	if len(gpus) > maxGPUs {
		return
	}
	models := map[string]int{}
	nature, low, high := none, 0, 0
	for _, d := range gpus {
		id := fmt.Sprintf("%04x:%04x", uint64(d.Vendor), uint64(d.Device))
		models[model(id)]++
		s.set(gpuPrefix+d.Address, id)
		switch {
		case d.StandIn:
			nature = "stand-in"
		case nature == none:
			nature = realGPUs
		}
		fb, ok := d.Framebuffer()
		if !ok || fb.Size == 0 {
			continue
		}
		if fb.Assigned && fb.Start >= 1<<32 {
			high++
		} else {
			low++
		}
		s.set(rebarPrefix+d.Address, humanize.IBytes(fb.Size)+" of "+humanize.IBytes(fb.Largest()))
	}
	if checks.HasEmulated(f) {
		nature = "emulated"
	}
	s.set(GPUNature, nature)
	var words []string
	for _, m := range slices.Sorted(maps.Keys(models)) {
		words = append(words, fmt.Sprintf("%d × %s", models[m], m))
	}
	s.set(GPUModels, strings.Join(words, ", "))
	switch {
	case low > 0:
		s.set(Above4G, "no")
	case high > 0 && high == len(gpus):
		s.set(Above4G, "yes")
	}
}

// model returns the names of the GPUs with an ID, or the ID. They come from the
// catalog since a driver that does not load tells none.
func model(id string) string {
	models, err := catalog.Load().LookupGPU(id)
	if err != nil {
		return id
	}
	return models[0].Name
}

// realGPUs is the value of [GPUNature] for GPUs that compute.
const realGPUs = "real"

// fabric takes ports and links between the GPUs.
func (s settingsMap) fabric(f *facts.Facts, r *measure.Result) {
	gpus := f.GPUs()
	if len(gpus) > maxGPUs {
		return
	}
	g := topology.New(f)
	seen := underLoad(r)
	for _, d := range gpus {
		for n := g.Node(d.Address); n != nil; n = n.Parent {
			if n.Link != nil {
				s.link(n.Link, n.Kind == topology.GPU, seen[n.Link.Function])
			}
		}
	}
	redirecting, unknown, payload := map[string]bool{}, false, 0
	pairs := g.Pairs()
	for _, p := range pairs {
		for _, address := range p.Ports {
			d := f.Device(address)
			if d == nil || d.Config == nil || d.Config.ACS == nil {
				unknown = unknown || d == nil || d.Config == nil || !d.Config.ExtendedRead
				continue
			}
			s.set(acsPrefix+address, d.Config.ACS.Control.String())
		}
		for _, address := range p.Redirecting {
			redirecting[address] = true
		}
		if m := p.Ceiling.MaxPayload; m > 0 && (payload == 0 || m < payload) {
			payload = m
		}
	}
	if len(pairs) > 0 && (!unknown || len(redirecting) > 0) {
		s.set(ACSRedirect, orNone(slices.Collect(maps.Keys(redirecting)), ", "))
	}
	if payload > 0 {
		s.set(MaxPayload, fmt.Sprintf("%d bytes", payload))
	}
}

func (s settingsMap) link(l *topology.Link, gpu bool, loaded int) {
	name := linkPrefix + l.Function
	if l.Current.Width > 0 {
		s.set(name+widthSuffix, fmt.Sprintf("x%d", l.Current.Width))
	}
	if !gpu {
		loaded = max(loaded, l.Current.Generation)
	}
	if loaded > 0 {
		s.set(name+speedSuffix, fmt.Sprintf("Gen%d", loaded))
	}
	if l.Capable.Known() {
		s.set(name+capableSuffix, l.Capable.String())
	}
}

// underLoad returns the highest generation at which each link was seen while
// something was measured.
func underLoad(r *measure.Result) map[string]int {
	seen := map[string]int{}
	take := func(w *measure.Watch) {
		if w == nil {
			return
		}
		for _, l := range w.Links {
			for _, state := range l.Seen {
				seen[l.BDF] = max(seen[l.BDF], topology.Generation(state.Speed))
			}
		}
	}
	if r != nil {
		for _, d := range r.Devices {
			take(d.Watch)
		}
		for _, p := range r.Pairs {
			take(p.Watch)
		}
		for _, t := range r.Traffic {
			take(t.Watch)
		}
	}
	return seen
}
