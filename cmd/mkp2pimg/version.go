package main

import "runtime/debug"

// version returns the module version that this program was built from:
// "v1.2.3" when installed as a release, else "devel".
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
