package rm

import (
	"strconv"
	"strings"
)

// ParamsFile is where nvidia.ko shows the parameters that it was loaded with. The
// module's own file in sysfs, parameters/NVreg_RegistryDwords, reads as empty.
const ParamsFile = "/proc/driver/nvidia/params"

// Registry keys about the path of peer-to-peer traffic (nvrm_registry.h).
const (
	KeyForceP2P     = "ForceP2P"       // reads in bits 1:0, writes in 5:4; 0: off, 1: on
	KeyForceP2PType = "RMForceP2PType" // until release 570: 2 is BAR1
	KeyPCIeP2PType  = "RMPcieP2PType"  // since release 575: 0 is mailbox, 1 BAR1, 2 BAR1 where the GPU has it by default
)

// Keys are registry keys for all GPUs, by name.
type Keys map[string]uint32

// ParseKeys reads the registry keys from the text of [ParamsFile], as the driver
// reads them: blanks don't count, the last of several wins. perDevice says that
// some GPUs have keys of their own.
func ParseKeys(params string) (keys Keys, perDevice bool) {
	keys = Keys{}
	for line := range strings.Lines(params) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch name {
		case "RegistryDwords":
			for entry := range strings.SplitSeq(strings.ReplaceAll(value, " ", ""), ";") {
				if key, number, ok := strings.Cut(entry, "="); ok && key != "" && number != "" && !strings.Contains(number, "=") {
					keys[key] = number32(number)
				}
			}
		case "RegistryDwordsPerDevice":
			perDevice = value != ""
		}
	}
	return keys, perDevice
}

// number32 reads a number as the kernel's simple_strtoul does with base 0, up to
// the first character that is no digit, and cuts it to 32 bits.
func number32(s string) uint32 {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"), strings.HasPrefix(s, "0X"):
		s, base = s[2:], 16
	case strings.HasPrefix(s, "0"):
		base = 8
	}
	var n uint64
	for _, c := range s {
		digit, err := strconv.ParseUint(string(c), base, 8)
		if err != nil {
			break
		}
		n = n*uint64(base) + digit
	}
	return uint32(n)
}
