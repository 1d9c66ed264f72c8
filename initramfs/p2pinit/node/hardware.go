package node

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"mkp2pimg/initramfs/p2pinit/modules"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/initramfs/p2pinit/watchdog"
	"mkp2pimg/internal/report"
)

// always are modules that no device asks for by a modalias, or only after another
// one was loaded.
var always = []string{
	"virtio_pci", "virtio_console", "virtio_net", "nvme", "ahci", "sd_mod",
	"xhci_pci", "usb_storage", "uas", "usbhid", "hid_generic",
	"vfat", "nls_cp437", "nls_iso8859_1", "nls_ascii", "nls_utf8",
}

// hardware arms a watchdog and loads the modules for the hardware that is present.
// On an installed system the kernel and its watchdog are not the image's.
func (n *Node) hardware(ctx context.Context, t *stage.Task) error {
	release, err := n.release()
	if err != nil {
		return err
	}
	if n.params.Driver == params.Loaded {
		t.Summary("none, kernel %s has its own", release)
		return nil
	}
	t.Doing("reading the index of the modules")
	index, err := modules.ReadIndex(n.fs(), "lib/modules/"+release)
	if err != nil {
		if n.image != nil && n.image.Kernel != release {
			return fmt.Errorf("the kernel is %s, the image's modules are for %s: boot vmlinuz and initrd of the same build: %w", release, n.image.Kernel, err)
		}
		return err
	}
	insert := func(file, options string) error {
		t.Doing("inserting %s", file)
		return n.System.Insert(file, options)
	}
	l := modules.NewLoader(index, insert)
	n.mu.Lock()
	n.loader = l
	n.mu.Unlock()

	n.arm(ctx, t, l) // first, since a driver may hang the kernel
	results, err := l.LoadHardware(n.fs(), always...)
	text, failed := modules.Summary(results)
	t.Log(report.Info, "%s", text)
	for _, f := range failed {
		t.Log(report.Warning, "module %s: %v", f.Name, f.Err)
	}
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	t.Summary("%d modules for the hardware, %d of them failed", len(results), len(failed))
	return nil
}

func (n *Node) release() (string, error) {
	text, err := os.ReadFile(n.path("proc/sys/kernel/osrelease"))
	if err != nil {
		return "", fmt.Errorf("kernel release: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// arm arms the first watchdog there is, unless a person is to have a shell at once.
func (n *Node) arm(ctx context.Context, t *stage.Task, l *modules.Loader) {
	if n.params.Plan == params.Shell {
		return
	}
	const dev = watchdog.Path
	for _, m := range l.Present(watchdog.Modules) {
		if _, err := os.Stat(n.path(dev)); err == nil {
			break
		}
		if err := l.Load(m); err != nil {
			t.Log(report.Debug, "watchdog: module %s: %v", m, err)
		}
	}
	if _, err := os.Stat(n.path(dev)); err != nil {
		t.Log(report.Warning, "no watchdog: a kernel that hangs stays hung")
		return
	}
	end, _ := ctx.Deadline() // a stage has one
	if ctx.Err() != nil {
		return // the run has gone on, and may have stopped the watchdog for good
	}
	t.Doing("arming the watchdog")
	d, err := n.System.Watchdog(n.path(dev), watchdog.Timeout)
	if err != nil {
		t.Log(report.Warning, "no watchdog: %v", err)
		return
	}
	t.Log(report.Info, "watchdog armed: %s", d.Name())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.guard = watchdog.NewGuard(d, end.Add(dogGrace))
}

// disarm stops the watchdog, if one is armed.
func (n *Node) disarm() error {
	n.mu.Lock()
	g := n.guard
	n.guard = nil
	n.mu.Unlock()
	if g == nil {
		return nil
	}
	return g.Disarm()
}

// lateLimit is the time for the modules of devices that appeared late.
const lateLimit = 20 * time.Second

// late loads modules for devices that appeared after the modules stage: a USB
// keyboard or network adapter takes seconds to be found. It goes on without them
// after lateLimit: a module that hung that stage hangs whoever asks for it again.
func (n *Node) late(ctx context.Context) {
	n.mu.Lock()
	l := n.loader
	n.mu.Unlock()
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lateLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := l.LoadHardware(n.fs())
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			n.warn("devices: %v", err)
		}
	case <-ctx.Done():
		n.warn("modules for devices that appeared late are still loading, one may hang")
	}
}
