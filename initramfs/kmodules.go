package initramfs

// ModuleReport says what became of the list of wanted kernel modules.
type ModuleReport struct {
	Chosen          []string `json:"chosen"`           // modules in the image, wanted or needed by a wanted one
	Builtin         []string `json:"builtin"`          // wanted, but part of the kernel itself
	Absent          []string `json:"absent"`           // wanted, but neither a module nor built in
	MissingFirmware []string `json:"missing_firmware"` // firmware files named by chosen modules and not in the image
}
