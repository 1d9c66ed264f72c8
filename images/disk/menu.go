package disk

import (
	"fmt"
	"strings"

	"mkp2pimg/images"
)

// Places in the boot partition.
const (
	kernelPath  = "/mkp2pimg/" + images.KernelName
	initrdPath  = "/mkp2pimg/" + images.InitrdName
	syslinuxDir = "/syslinux"
)

// loaderFiles are the boot menus by path: one for systemd-boot (systemd-boot(7),
// loader.conf(5), the UAPI group's Boot Loader Specification), one for syslinux.
func loaderFiles(m *images.Manifest) map[string][]byte {
	files := map[string][]byte{
		"/loader/loader.conf":         loaderConf(),
		syslinuxDir + "/syslinux.cfg": syslinuxConf(m),
	}
	for i, p := range images.Plans {
		// Entries are sorted by sort-key.
		files["/loader/entries/"+p.ID+".conf"] = fmt.Appendf(nil, "title    %s\nsort-key %d\nlinux    %s\ninitrd   %s\noptions  %s\n",
			title(m, p), i+1, kernelPath, initrdPath, parameters(m, p))
	}
	return files
}

func loaderConf() []byte {
	return fmt.Appendf(nil, "timeout %d\ndefault %s.conf\nconsole-mode keep\n", images.MenuSeconds, images.Plans[0].ID)
}

// syslinuxConf shows the menu on the screen and on the first serial port; menu.c32
// is text, so it does on both.
func syslinuxConf(m *images.Manifest) []byte {
	b := fmt.Appendf(nil, "SERIAL 0 115200\nUI menu.c32\nMENU TITLE %s %s\nTIMEOUT %d\nDEFAULT %s\n",
		m.Product.Name, m.Product.Version, images.MenuSeconds*10, images.Plans[0].ID) // tenths of a second
	for _, p := range images.Plans {
		b = fmt.Appendf(b, "\nLABEL %s\n  MENU LABEL %s\n  LINUX %s\n  INITRD %s\n  APPEND %s\n",
			p.ID, p.Title, kernelPath, initrdPath, parameters(m, p))
	}
	return b
}

func title(m *images.Manifest, p images.Plan) string {
	return fmt.Sprintf("%s %s: %s", m.Product.Name, m.Product.Version, p.Title)
}

func parameters(m *images.Manifest, p images.Plan) string {
	return strings.Join(p.CommandLine(m.CommandLine), " ")
}
