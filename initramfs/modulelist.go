package initramfs

import "slices"

// Profile says what an image is for, and so which kernel modules it has.
type Profile string

// Profiles of images.
const (
	Lab     Profile = "lab"     // nodes of any kind, which may deliver reports by the network
	Minimal Profile = "minimal" // a machine at hand: all of Lab but the network
)

// Profiles are all of them.
var Profiles = []Profile{Lab, Minimal}

// modules are the kernel modules of an image, by module name. What they depend on
// comes along by itself. A name that the kernel at hand lacks is no error: the
// lists serve kernels from 6.1 on.
func (p Profile) modules() []string {
	if p == Minimal {
		return local
	}
	return slices.Concat(network, local)
}

// network are the modules that a node needs to deliver a report by the network.
var network = []string{
	// Wired network. The VF and paravirtual drivers are for nodes that are virtual
	// machines.
	"e1000", "e1000e", "igb", "igbvf", "igc", "ixgbe", "ixgbevf", "i40e", "iavf", "ice", "idpf",
	"tg3", "bnx2", "bnx2x", "bnxt_en", "mlx4_en", "mlx5_core", "r8169", "8139cp", "8139too",
	"atlantic", "alx", "atl1c", "sky2", "qede", "be2net", "enic", "cxgb4", "sfc", "ionic", "amd_xgbe", "ena", "gve", "virtio_net", "vmxnet3", "hv_netvsc",
	// PHYs that the kernel asks for by id once a MAC driver is bound.
	"realtek", "broadcom", "marvell", "marvell10g", "aquantia", "smsc",
	// USB network adapters, for boards whose own port is not on the lab's net.
	"r8152", "ax88179_178a", "asix", "cdc_ether", "cdc_ncm", "smsc95xx", "lan78xx",
	// Tagged and bonded networks.
	"8021q", "bonding", "af_packet",
}

// local are the modules that a node needs to show its PCIe topology, to run the
// driver and to write a report to a stick.
var local = []string{
	// Disks: to find the stick and to write a report. vmd hides NVMe drives,
	// and whole root ports, behind an Intel controller.
	"nvme", "ahci", "ata_piix", "ata_generic", "sd_mod", "sr_mod", "sg", "vmd",
	"megaraid_sas", "mpt3sas", "mpi3mr", "smartpqi", "hpsa", "aacraid",
	"virtio_blk", "virtio_scsi", "loop",

	// USB host controllers, storage and keyboards.
	"xhci_pci", "ehci_pci", "ohci_pci", "uhci_hcd", "usb_storage", "uas",
	"usbhid", "hid_generic", "hid_apple", "hid_cherry", "hid_logitech_dj", "hid_logitech_hidpp", "hid_microsoft",
	"i8042", "atkbd", "evdev",

	// File systems and what mounting them asks for by name.
	"vfat", "nls_ascii", "nls_cp437", "nls_iso8859_1", "nls_utf8", "exfat", "isofs",
	"ext4", "squashfs", "overlay", "efivarfs", "9p", "crc32c_generic", "crc32c_intel",

	// Consoles and report streams.
	"virtio_pci", "virtio_console", "virtio_rng", "8250_pci", "8250_exar", "ftdi_sio", "pl2303", "cp210x", "usb_debug",
	"simpledrm", "ast", "mgag200", "bochs", "virtio_gpu",

	// PCIe and what firmware-checks reads: ACPI, MSRs, SMBus, board management.
	"msr", "cpuid", "virtio_iommu", "acpi_ipmi", "ipmi_si", "ipmi_ssif", "ipmi_devintf",
	"i2c_i801", "i2c_piix4", "i2c_dev", "dmi_sysfs", "button", "wmi",
	"coretemp", "k10temp", "amd64_edac", "skx_edac", "i10nm_edac",

	// Watchdogs, so that a hung node resets itself.
	"lpc_ich", "iTCO_wdt", "sp5100_tco", "wdat_wdt", "i6300esb", "ipmi_watchdog", "hpwdt", "mei_wdt", "softdog",

	// What nvidia.ko and nvidia-uvm.ko of the releases in the catalog import.
	"drm", "drm_kms_helper", "drm_ttm_helper", "video", "i2c_core", "backlight",
}
