package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"mkp2pimg/images"
	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/farm/lab"
)

// initLab writes a first lab.yaml. One that is there stays as it is.
func initLab(out io.Writer, path, image string) error {
	first := lab.First{Image: image, Zone: zoneName()}
	if rel, err := filepath.Rel(filepath.Dir(path), image); err == nil && !filepath.IsAbs(image) {
		first.Image = rel
	}
	ifcs, err := net.Interfaces()
	if err != nil {
		return err
	}
	var found []candidate
	for _, i := range ifcs {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		found = append(found, candidates(i.Name, i.Flags, addrs)...)
	}
	if len(found) > 0 {
		first.Interface, first.Address = found[0].name, found[0].address
		for _, c := range found[1:] {
			first.Others = append(first.Others, fmt.Sprintf("%s (%s)", c.name, c.address))
		}
	}
	text, err := first.Text()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return usageError{fmt.Errorf("%s is there already and stays as it is: remove it, or name another with --lab", path)}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	fmt.Fprintf(out, "%s written: look through it, then start \"mkp2pimg serve --lab %s\"\n", path, path)
	for _, name := range []string{images.ManifestName, pxe.BIOS} {
		if _, err := os.Stat(filepath.Join(image, name)); err != nil {
			fmt.Fprintf(out, "%s has no %s yet: make it with \"mkp2pimg build --format pxe --out %s\"\n", image, name, image)
			break
		}
	}
	return nil
}

// candidate is an interface that the lab may be at, with its address.
type candidate struct {
	name    string
	address netip.Prefix
}

// candidates are the private IPv4 addresses of an interface of a network, and not
// of containers or virtual machines of this host.
func candidates(name string, flags net.Flags, addrs []net.Addr) []candidate {
	if flags&net.FlagUp == 0 || flags&net.FlagLoopback != 0 || flags&net.FlagBroadcast == 0 {
		return nil
	}
	for _, virtual := range []string{"docker", "br-", "virbr", "cni", "flannel", "cali", "vxlan"} {
		if strings.HasPrefix(name, virtual) {
			return nil
		}
	}
	var list []candidate
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && p.Addr().IsPrivate() {
			list = append(list, candidate{name, p})
		}
	}
	return list
}
