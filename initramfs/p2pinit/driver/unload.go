package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	checks "mkp2pimg/firmware-checks"
)

// UnloadFinding is the finding about a driver that has to make room for another.
const UnloadFinding = checks.DriverUnload

// core is the driver's module that the others of it depend on.
const core = "nvidia"

// LoadedModules returns the driver's modules that are in the kernel whose root
// is given, in the order in which they have to be removed: a module after those
// that hold it (sysfs: module/<name>/holders).
func LoadedModules(root fs.FS) []string {
	var order []string
	var visit func(module string, above []string)
	visit = func(module string, above []string) {
		dir := path.Join("sys/module", module)
		if _, err := fs.Stat(root, dir); err != nil || slices.Contains(above, module) || slices.Contains(order, module) {
			return
		}
		holders, _ := fs.ReadDir(root, path.Join(dir, "holders")) // a kernel that can't unload has none
		for _, h := range holders {
			visit(h.Name(), append(above, module))
		}
		order = append(order, module)
	}
	visit(core, nil)
	return order
}

// Users returns the processes that have a device of the driver open, as
// "p2pbw (process 93)".
func Users(root fs.FS) []string {
	files, _ := fs.Glob(root, "proc/[0-9]*/fd/*") // the pattern is well formed
	var users []string
	for _, file := range files {
		target, err := fs.ReadLink(root, file)
		if err != nil || !strings.HasPrefix(target, "/dev/nvidia") {
			continue // most often the process has ended since
		}
		process := path.Dir(path.Dir(file))
		name, _ := fs.ReadFile(root, path.Join(process, "comm"))
		user := fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), path.Base(process))
		if !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	return users
}

// Unloaded states what came of the removal of a module of the driver: a finding
// for one that stays, and why; nil for one that is gone.
func Unloaded(module string, err error, users, log []string) *checks.Finding {
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	f := &checks.Finding{
		ID: UnloadFinding, Status: checks.Unknown, Title: module + " could not be unloaded",
		Meaning: "Another build of the driver can't be loaded beside it, so what would have been measured with that one is not known.",
		Fix:     "Measure it in a boot of its own: p2p.driver=p2p or p2p.driver=stock.",
	}
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EBUSY) {
		f.Title = module + " is in use and was not unloaded"
	}
	f.Evidence = append(f.Evidence, checks.Evidence{What: "removal of " + module, Where: "delete_module(2)", Raw: err.Error()})
	for _, u := range users {
		f.Evidence = append(f.Evidence, checks.Evidence{What: "open devices of the driver", Where: "/proc/*/fd", Raw: u})
	}
	for _, line := range log {
		f.Evidence = append(f.Evidence, checks.Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: line})
	}
	return f
}
