package images

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// NodesDir is the directory beside that of an image in which [Script] looks for
// the parameters of single machines. It is not in the image's, whose files are
// all replaced when it is built again.
const NodesDir = "nodes"

// Script is the iPXE script that boots an image from the URL it came from.
//
// Before, it runs the script of the machine if there is one in [NodesDir], named
// by UUID, serial number or MAC address, or that for all others, default.ipxe:
// they set p2p to the kernel parameters to add, which win over the defaults. So can
// a script that chains to it, which can also set nodes to another place to look in.
func Script(m *Manifest) ([]byte, error) { return ipxeScript(m, InitrdName) }

func ipxeScript(m *Manifest, initrds ...string) ([]byte, error) {
	for _, arg := range m.CommandLine {
		if arg == "" || strings.ContainsAny(arg, " \t\r\n") {
			return nil, fmt.Errorf("kernel parameter %q: white space is not possible in an iPXE script", arg)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "#!ipxe\n# %s %s: NVIDIA driver %s, Linux %s\n", m.Product.Name, m.Product.Version, m.Driver, m.Kernel)
	fmt.Fprintf(&b, "# Kernel parameters to add: set p2p before chaining here, or in a script for\n"+
		"# one machine or for all others in %s beside this directory: set p2p p2p.plan=check\n", NodesDir)
	fmt.Fprintf(&b, "isset ${nodes} || set nodes ../%s/\n", NodesDir)
	for i, id := range []string{"${uuid}", "${serial:uristring}", "${mac:hexhyp}", "default"} {
		if i > 0 {
			b.WriteString(" || ")
		}
		fmt.Fprintf(&b, "chain --autofree ${nodes}%s.ipxe", id)
	}
	b.WriteString(" || echo No parameters for this machine alone\n")
	fmt.Fprintf(&b, "kernel %s || goto failed\n", KernelName)
	args := []string{KernelName}
	for _, name := range initrds {
		fmt.Fprintf(&b, "initrd %s || goto failed\n", name)
		args = append(args, "initrd="+name) // for kernels that are EFI programs
	}
	fmt.Fprintf(&b, "imgargs %s %s ${p2p}\n", strings.Join(args, " "), strings.Join(m.CommandLine, " "))
	fmt.Fprintf(&b, "boot || goto failed\n:failed\necho %s could not be booted\nsleep 10\nexit 1\n", m.Product.Name)
	return b.Bytes(), nil
}

// Initrds are the names of the archives to load as initramfs, in their order: the
// two parts if the directory has them, which a cache may keep, else the whole.
func Initrds(m *Manifest) []string {
	var parts []string
	for _, a := range m.Artifacts {
		if partName.MatchString(a.Name) {
			parts = append(parts, a.Name)
		}
	}
	slices.Sort(parts) // firmware, rest
	if len(parts) != 2 {
		return []string{InitrdName}
	}
	return parts
}

// partName matches the names of the two archives.
var partName = regexp.MustCompile(`^(firmware|rest)-[0-9a-f]{16}\.zst$`)

// script writes the script, and before it the archives that it loads if they are
// not one file.
func (n *Netboot) script(w *writer, m *Manifest) error {
	initrds := []string{InitrdName}
	if n.Split {
		var err error
		if initrds, err = n.split(w, m); err != nil {
			return err
		}
	}
	script, err := ipxeScript(m, initrds...)
	if err != nil {
		return err
	}
	w.bytes(ScriptName, script)
	return nil
}

// split writes the two archives of the initramfs as files. A cache may keep them
// for ever, since another content has another name; that of the firmware changes
// only with the driver.
func (n *Netboot) split(w *writer, m *Manifest) ([]string, error) {
	if w.err != nil {
		return nil, w.err
	}
	first, all := m.Initrd.First, m.Initrd.Packed
	if first <= 0 || first >= all {
		return nil, errors.New("the initramfs is in one archive and can't be split")
	}
	f, err := os.Open(filepath.Join(w.dir, InitrdName))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	for _, part := range []struct {
		kind     string
		from, to int64
	}{{"firmware", 0, first}, {"rest", first, all}} {
		r := io.NewSectionReader(f, part.from, part.to-part.from)
		sum, err := sumReader(w.ctx, r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", InitrdName, err)
		}
		name := fmt.Sprintf("%s-%.16s.zst", part.kind, sum)
		w.create(name, func(to io.Writer) error {
			_, err := io.Copy(to, io.NewSectionReader(f, part.from, part.to-part.from))
			return err
		})
		names = append(names, name)
	}
	return names, nil
}

// sumReader hashes what it reads.
func sumReader(ctx context.Context, r io.Reader) (string, error) {
	h := sha256.New()
	_, err := io.Copy(&summer{ctx: ctx, w: io.Discard, h: h}, r)
	return hex.EncodeToString(h.Sum(nil)), err
}
