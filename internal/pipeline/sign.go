package pipeline

import (
	"os"
	"path/filepath"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
	"mkp2pimg/internal/signing"
)

// sign writes the driver's modules with a signature below a directory and takes
// those in their place; the manifest says so.
func (m *modules) sign(sets []initramfs.ModuleSet, key *signing.Key, work string) error {
	for _, set := range sets {
		dir := filepath.Join(work, "signed", set.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for i, file := range set.Files {
			module, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			signed, err := key.Module(module)
			if err != nil {
				return err
			}
			set.Files[i] = filepath.Join(dir, filepath.Base(file))
			if err := os.WriteFile(set.Files[i], signed, 0o644); err != nil {
				return err
			}
		}
	}
	for _, set := range m.manifest {
		for i := range set.Modules {
			set.Modules[i].Checks = append(set.Modules[i].Checks, images.Check{
				Name: "signature", Status: "pass", Detail: "RSA with SHA-256, certificate " + key.ID(),
			})
		}
	}
	return nil
}
