package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mkp2pimg/internal/pipeline"
)

// addInputFlags defines the flags that say which inputs a build takes and
// where they come from.
func addInputFlags(c *cobra.Command, o *pipeline.Options) {
	f := c.Flags()
	f.StringVar(&o.Driver, "driver", "", "NVIDIA driver release, or a branch for its newest release\n"+
		"(default that of the lock file, or "+pipeline.DefaultDriver+")")
	f.StringVar(&o.Kernel, "kernel", "", "Debian kernel: a series (6.1, 6.12) or an exact release\n"+
		"(default that of the lock file, or "+pipeline.DefaultKernel+")")
	f.StringVar(&o.LockFile, "lock", "mkp2pimg.lock", "lock file: read if it exists, else written")
	f.BoolVar(&o.Update, "update", false, "look for newer inputs and write the lock file anew")
	f.StringVar(&o.Mirror, "mirror", "", "Debian mirror (default "+pipeline.DefaultMirror+")")
	f.StringVar(&o.SecurityMirror, "security-mirror", "", "Debian security mirror (default "+pipeline.DefaultSecurityMirror+")")
	f.StringVar(&o.DriverSource, "source", "", "the driver's source: a tarball, a directory, or a git repository (PATH#REF, URL#REF),\n"+
		"instead of the published one")
	f.StringArrayVar(&o.Userspace, "userspace", nil, "firmware and libraries of the driver: NVIDIA's .run archive, a directory\n"+
		"or a .deb package, instead of the published ones; may be repeated")
	f.StringVar(&o.SourceMirror, "source-mirror", "", "base URL of archive/COMMIT.tar.gz of the driver's source\n"+
		"(default that of NVIDIA's repository)")
	f.StringVar(&o.UserspaceMirror, "userspace-mirror", "", "base URL of VERSION/NVIDIA-Linux-x86_64-VERSION.run\n"+
		"(default NVIDIA's download server)")
	f.StringVar(&o.Keyring, "keyring", "", "file of the OpenPGP keys that may sign the mirrors' indexes, armoured or binary,\n"+
		"as of a mirror made with aptly (default Debian's own keys)")
	f.BoolVar(&o.Offline, "offline", false, "use only what is in the cache")
	f.StringVar(&o.Cache, "cache", defaultCache(), "cache directory")
}

// defaultCache is the directory mkp2pimg below the user's cache directory, or
// below the temporary directory for a user without a home.
func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "mkp2pimg")
}
