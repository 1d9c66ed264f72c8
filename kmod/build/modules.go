package build

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// manifest is the file beside the modules that tells what they must be.
const manifest = "modules.json"

// writeModules writes the manifest of the modules in dir.
func writeModules(dir string) error {
	var list []Module
	for _, name := range moduleNames {
		m, err := measure(dir, name)
		if err != nil {
			return err
		}
		list = append(list, m)
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifest), append(data, '\n'), 0o644)
}

// readModules reads the modules of a cache entry and makes sure that they are
// as they were written.
func readModules(entry string) ([]Module, error) {
	dir := filepath.Join(entry, modulesDir)
	data, err := os.ReadFile(filepath.Join(dir, manifest))
	if err != nil {
		return nil, damaged(entry, err)
	}
	var list []Module
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, damaged(entry, err)
	}
	for i, want := range list {
		got, err := measure(dir, want.Name)
		if err != nil {
			return nil, damaged(entry, err)
		}
		if got.SHA256 != want.SHA256 {
			return nil, damaged(entry, fmt.Errorf("%s has SHA-256 %s, was built with %s", got.Path, got.SHA256, want.SHA256))
		}
		list[i] = got
	}
	return list, nil
}

func damaged(entry string, err error) error {
	return fmt.Errorf("cached modules are damaged (%w): remove %s to build them again", err, entry)
}

func measure(dir, name string) (Module, error) {
	m := Module{Name: name, Path: filepath.Join(dir, name+".ko")}
	f, err := os.Open(m.Path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	h := sha256.New()
	if m.Size, err = io.Copy(h, f); err != nil {
		return m, err
	}
	m.SHA256 = hex.EncodeToString(h.Sum(nil))
	return m, nil
}
