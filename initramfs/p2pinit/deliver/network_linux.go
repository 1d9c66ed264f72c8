package deliver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/dhclient"
	"github.com/vishvananda/netlink"
)

// linkUp is how long a port may take to get its link: training takes seconds, and
// a switch with spanning tree forwards nothing for up to 30 more, which the
// retries of DHCP cover.
const linkUp = 15 * time.Second

// Wired reports whether the network interface is a wired Ethernet port of this
// machine, by its directory below root/sys/class/net.
func Wired(root fs.FS, name string) bool {
	dir := path.Join("sys/class/net", name)
	kind, err := fs.ReadFile(root, path.Join(dir, "type"))
	if err != nil || strings.TrimSpace(string(kind)) != "1" { // ARPHRD_ETHER, linux/if_arp.h
		return false
	}
	exists := func(file string) bool {
		_, err := fs.Stat(root, path.Join(dir, file))
		return err == nil
	}
	return exists("device") && !exists("wireless") && !exists("phy80211")
}

// Up gets an IPv4 address by DHCP on the first wired port that is given one, and
// says which.
func Up(ctx context.Context) (string, error) {
	// The DHCP client polls getrandom(2) for a transaction id. On a machine without
	// a hardware generator only a call that blocks makes the kernel gather entropy
	// (drivers/char/random.c, wait_for_random_bytes).
	if _, err := rand.Read(make([]byte, 1)); err != nil {
		return "", fmt.Errorf("network: random numbers: %w", err)
	}
	all, err := netlink.LinkList()
	if err != nil {
		return "", fmt.Errorf("network: list of interfaces: %w", err)
	}
	var wired []netlink.Link
	var names []string
	for _, l := range all {
		if Wired(os.DirFS("/"), l.Attrs().Name) {
			wired = append(wired, l)
			names = append(names, l.Attrs().Name)
		}
	}
	if wired == nil {
		return "", errors.New("network: the kernel shows no wired port; the image may lack its driver (see stage modules), and has none if it was built with --profile minimal")
	}
	conf := dhclient.Config{Timeout: 3 * time.Second, Retries: 4} // each try takes twice as long as the one before: 45 s
	var errs []error
	for r := range dhclient.SendRequests(ctx, wired, true, false, conf, linkUp) {
		name := r.Interface.Attrs().Name
		if r.Err == nil {
			r.Err = r.Lease.Configure()
		}
		if r.Err == nil {
			return fmt.Sprintf("%s: %v", name, r.Lease), nil
		}
		errs = append(errs, fmt.Errorf("network: DHCP on %s: %w", name, r.Err))
	}
	if errs == nil {
		return "", fmt.Errorf("network: no link within %v on %s: is a cable plugged in?", linkUp, strings.Join(names, ", "))
	}
	return "", errors.Join(errs...)
}
