package checks

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/kmod/catalog"
)

var driverMatchDoc = Doc{
	ID:       DriverMatch,
	Question: "Are the driver's libraries of the release of its module?",
	Meaning:  "The module refuses libraries of any other release: nvidia-smi says \"Driver/library version mismatch\", and CUDA finds no GPU. It happens after an update without a reboot, and when DKMS left an old module behind.",
	Fix:      "Reboot, or unload the modules and load those of the libraries' release; install libraries and modules of one release.",
	Outcomes: []Outcome{
		{Pass, "libcuda and libnvidia-ml of the module's release are installed"},
		{Fail, "only those of other releases are"},
		{Skip, "no driver is loaded"},
		{Unknown, "none were found in the usual directories"},
	},
}

var driverOpenDoc = Doc{
	ID:       DriverOpen,
	Question: "Is the loaded module NVIDIA's open one?",
	Meaning:  "Blackwell runs with the open module only, and the edits that give GeForce, Turing, Ampere and Ada peer-to-peer over BAR1 can be made to the source of the open one only.",
	Fix:      "Install the open flavor of the same release (nvidia-open, or the installer's --kernel-module-type=open).",
	Outcomes: []Outcome{
		{Pass, "the open module is loaded, or the proprietary one with GPUs that need no edits"},
		{Warn, "the proprietary one is, with a GPU to which the driver as published denies peer-to-peer"},
		{Fail, "the proprietary one is, with a Blackwell GPU"},
		{Skip, "no driver is loaded"},
	},
}

var gspFirmwareDoc = Doc{
	ID:       GSPFirmware,
	Question: "Is the firmware of the GPU System Processor there for the loaded release?",
	Meaning:  "The open module runs most of the driver on that processor and asks for its firmware under its own release: /lib/firmware/nvidia/<release>/gsp_*.bin. Without it no GPU starts (RmInitAdapter failed).",
	Fix:      "Install the firmware of the same release as the module; if the module is loaded from an initial RAM disk, rebuild that with the firmware in it.",
	Outcomes: []Outcome{
		{Pass, "the processor runs firmware of the release, or the file is installed"},
		{Fail, "the file is missing for a GPU"},
		{Skip, "no open module is loaded"},
		{Unknown, "the folder of firmware could not be read, or the GPU is not in the catalog"},
	},
}

// releaseOf finds the release in the first line of /proc/driver/nvidia/version.
var releaseOf = regexp.MustCompile(`\b\d{3}\.\d+(?:\.\d+)?\b`)

// loaded returns the release of the loaded driver and whether its module is the
// open one; release is empty when no driver is loaded.
func loaded(f *facts.Facts) (release string, open bool) {
	if f.NVIDIA == nil {
		return "", false
	}
	// A document of version 1 has only the line.
	return releaseOf.FindString(f.NVIDIA.Version), f.NVIDIA.Open || strings.Contains(f.NVIDIA.Version, "Open Kernel Module")
}

func versionEvidence(f *facts.Facts) Evidence {
	return Evidence{What: "loaded driver", Where: "/proc/driver/nvidia/version", Raw: f.NVIDIA.Version}
}

// notLoaded is the answer of a family that needs a loaded driver.
func notLoaded(id ID) []Finding {
	return []Finding{{ID: id, Status: Skip, Title: "no NVIDIA driver is loaded", Meaning: "The question is about the loaded driver."}}
}

// driverMatch asks whether the driver's libraries have the release of its module.
func driverMatch(f *facts.Facts) []Finding {
	release, _ := loaded(f)
	if release == "" {
		return notLoaded(DriverMatch)
	}
	found := Finding{ID: DriverMatch, Evidence: []Evidence{versionEvidence(f)}}
	if f.Installed == nil {
		found.Status, found.Title = Unknown, "which libraries are installed is not known"
		found.Meaning = "The module refuses libraries of any other release."
		found.Fix = "Gather the facts again with this program."
		return []Finding{found}
	}
	var others []string
	right := map[string]bool{}
	for _, l := range f.Installed.Libraries {
		found.Evidence = append(found.Evidence, Evidence{What: l.Name, Where: l.Path, Raw: l.Release})
		if l.Release == release {
			right[l.Name] = true
		} else if !slices.Contains(others, l.Release) {
			others = append(others, l.Release)
		}
	}
	switch {
	case right["libcuda.so"] && right["libnvidia-ml.so"]:
		found.Status, found.Title = Pass, "module and libraries are of release "+release
		found.Meaning = "The module answers the libraries."
	case others != nil:
		found.Status, found.Title = Fail, fmt.Sprintf("the module is of release %s, the libraries of %s", release, strings.Join(others, ", "))
		found.Meaning = "The module refuses them: CUDA finds no GPU, nvidia-smi reports a version mismatch."
		found.Fix = "Reboot, or unload the modules (modprobe -r nvidia_drm nvidia_modeset nvidia_uvm nvidia) and load those of the libraries' release; if that loads the old module again, remove what DKMS left (dkms status)."
	default:
		found.Status, found.Title = Unknown, "no library of the driver in the usual directories"
		found.Meaning = "Programs that load libcuda from elsewhere need it of release " + release + "."
		found.Fix = "Install libcuda and libnvidia-ml of release " + release + "."
	}
	return []Finding{found}
}

// driverOpen asks which of NVIDIA's two modules is loaded.
func driverOpen(f *facts.Facts) []Finding {
	release, open := loaded(f)
	if release == "" {
		return notLoaded(DriverOpen)
	}
	found := Finding{ID: DriverOpen, Status: Pass, Title: "the open module of release " + release, Evidence: []Evidence{versionEvidence(f)}}
	found.Meaning = "It runs Turing and newer, and its source can be edited."
	if open {
		return []Finding{found}
	}
	found.Title = "the proprietary module of release " + release
	found.Meaning = "Registry keys are all that it can be told, and these GPUs need no more."
	for _, d := range f.GPUs() {
		m := models(d)
		switch {
		case m == nil:
			continue
		case m[0].Family == "blackwell":
			if found.Status != Fail {
				found.Devices, found.Evidence = nil, found.Evidence[:1]
			}
			found.Status, found.Title = Fail, "the proprietary module with a Blackwell GPU"
			found.Meaning = "Blackwell runs with the open module only; this one leaves the GPU alone."
		case m[0].Stock == catalog.Refused && found.Status != Fail:
			found.Status = Warn
			found.Meaning = "The driver as published denies these GPUs peer-to-peer over PCIe, and only the source of the open module can be edited."
		default:
			continue
		}
		found.Fix = "Install the open flavor of the same release (nvidia-open, or the installer's --kernel-module-type=open)."
		found.Devices = append(found.Devices, d.Address)
		found.Evidence = append(found.Evidence, modelEvidence(d))
	}
	return []Finding{found}
}

// gspFirmware asks whether the firmware that the open module asks for is there.
func gspFirmware(f *facts.Facts) []Finding {
	release, open := loaded(f)
	if release == "" {
		return notLoaded(GSPFirmware)
	}
	if !open {
		return []Finding{{
			ID: GSPFirmware, Status: Skip, Title: "the proprietary module runs without it", Evidence: []Evidence{versionEvidence(f)},
			Meaning: "The proprietary module falls back to running everything on the CPU.",
		}}
	}
	var found []Finding
	for _, d := range f.GPUs() {
		if d.Vendor == vendorNVIDIA {
			found = append(found, gspFirmwareOf(f, d, release))
		}
	}
	return merge(found)
}

func gspFirmwareOf(f *facts.Facts, d *facts.Device, release string) Finding {
	found := Finding{ID: GSPFirmware, Devices: []string{d.Address}}
	for _, g := range f.NVIDIA.GPUs {
		if g.Address == d.Address && g.Firmware == release {
			found.Status, found.Title = Pass, "firmware of release "+release+" runs"
			found.Meaning = "The GPU System Processor has started."
			found.Evidence = []Evidence{{What: "GPU Firmware", Where: "/proc/driver/nvidia/gpus/" + d.Address + "/information", Raw: g.Firmware}}
			return found
		}
	}
	dir := "/lib/firmware/nvidia/" + release
	file := gspFile(d)
	if f.Installed == nil || file == "" || unreadable(f, "/lib/firmware/nvidia") != "" {
		found.Status, found.Title = Unknown, "whether its firmware is installed is not known"
		found.Meaning = "Without gsp_*.bin of release " + release + " the GPU does not start."
		found.Fix = "See that " + dir + " has gsp_ga10x.bin and gsp_tu10x.bin."
		found.Evidence = []Evidence{modelEvidence(d)}
		return found
	}
	files := f.Installed.Firmware[release]
	found.Evidence = []Evidence{{What: "firmware of release " + release, Where: dir, Raw: orNone(files)}}
	if slices.Contains(files, file) {
		found.Status, found.Title = Pass, "firmware of release "+release+" is installed"
		found.Meaning = "The driver finds " + file + " when it starts the GPU."
		return found
	}
	found.Status, found.Title = Fail, dir+"/"+file+" is missing"
	found.Meaning = "The driver cannot start the GPU: RmInitAdapter fails."
	found.Fix = "Install the firmware of release " + release + "; if the module is loaded from an initial RAM disk, rebuild that with the firmware in it."
	if len(files) > 0 {
		found.Meaning = "What is there is for GPUs of other chips, as in an image that was built for some GPUs only. " + found.Meaning
		found.Fix = "Build the image for all GPUs (mkp2pimg build --gpu all) or for this one too; on an installed system, install the whole firmware of release " + release + "."
	}
	for _, other := range slices.Sorted(maps.Keys(f.Installed.Firmware)) {
		if other != release {
			found.Evidence = append(found.Evidence, Evidence{What: "firmware of another release", Where: "/lib/firmware/nvidia/" + other, Raw: orNone(f.Installed.Firmware[other])})
		}
	}
	return found
}

// gspFile names the firmware for a GPU, "" for one that the catalog does not
// have.
func gspFile(d *facts.Device) string {
	m := models(d)
	if m == nil {
		return ""
	}
	return "gsp_" + m[0].Firmware() + ".bin"
}
