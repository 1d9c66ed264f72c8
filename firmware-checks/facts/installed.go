package facts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	wholeReleaseRE = regexp.MustCompile(`^\d{3}\.\d+(?:\.\d+)?$`)
	libraryRE      = regexp.MustCompile(`^(libcuda\.so|libnvidia-ml\.so)\.(\d{3}\.\d+(?:\.\d+)?)$`)
)

// libraryDirectories are where distributions, NVIDIA's own installer, container
// tools, NixOS and WSL put the driver's libraries, as patterns.
var libraryDirectories = []string{
	"usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/*",
	"usr/lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu/nvidia/*",
	"usr/lib64", "usr/lib64/nvidia", "usr/lib", "usr/lib/nvidia*", "lib64", "lib",
	"usr/local/lib", "usr/local/nvidia/lib64", "run/opengl-driver/lib", "usr/lib/wsl/lib",
}

// installed looks for the driver's firmware and libraries.
func (g *gatherer) installed() {
	g.facts.Installed = &Installed{Firmware: g.gspFirmware(), Libraries: g.libraries()}
}

// gspFirmware lists what the kernel would find when the driver asks for
// nvidia/<release>/<file> (fw_path in linux/drivers/base/firmware_loader/main.c).
func (g *gatherer) gspFirmware() map[string][]string {
	release := g.facts.Kernel.Release
	directories := []string{"lib/firmware/updates/" + release, "lib/firmware/updates", "lib/firmware/" + release, "lib/firmware"}
	if custom := g.may("firmware search path", "sys/module/firmware_class/parameters/path"); custom != "" {
		directories = append([]string{strings.TrimPrefix(custom, "/")}, directories...)
	}
	var found map[string][]string
	for _, directory := range directories {
		releases, _ := g.list("firmware of the NVIDIA driver", directory+"/nvidia")
		for _, r := range releases {
			if !wholeReleaseRE.MatchString(r) {
				continue // of nouveau, by chip
			}
			files, _ := g.list("firmware of the NVIDIA driver", directory+"/nvidia/"+r)
			if found == nil {
				found = map[string][]string{}
			}
			found[r] = slices.Compact(slices.Sorted(slices.Values(append(found[r], files...))))
		}
	}
	return found
}

// libraries lists each file once, whatever links lead to it.
func (g *gatherer) libraries() []Library {
	var found []Library
	var infos []fs.FileInfo
	for _, pattern := range libraryDirectories {
		directories, _ := filepath.Glob(g.path(pattern)) // the patterns are well formed
		for _, directory := range directories {
			entries, err := os.ReadDir(directory)
			name, _ := filepath.Rel(g.root, directory) // Glob found it below root
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					g.unknown("libraries of the NVIDIA driver", name, err)
				}
				continue
			}
			for _, e := range entries {
				m := libraryRE.FindStringSubmatch(e.Name())
				if m == nil {
					continue
				}
				info, err := os.Stat(filepath.Join(directory, e.Name()))
				if err != nil || slices.ContainsFunc(infos, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
					continue // a link to nowhere, or seen before
				}
				infos = append(infos, info)
				found = append(found, Library{Name: m[1], Release: m[2], Path: "/" + filepath.ToSlash(filepath.Join(name, e.Name()))})
			}
		}
	}
	return found
}
