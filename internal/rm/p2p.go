package rm

import (
	"fmt"
	"strings"
)

// Caps is the word p2pCaps: what a pair of GPUs can do, and over what
// (NV0000_CTRL_SYSTEM_GET_P2P_CAPS_* in ctrl0000system.h).
type Caps uint32

// The bits of [Caps].
const (
	CapWrite          Caps = 1 << 0
	CapRead           Caps = 1 << 1
	CapProp           Caps = 1 << 2 // "proprietary": the mailbox; until release 535 also set with CapBAR1
	CapNVLink         Caps = 1 << 3
	CapAtomics        Caps = 1 << 4
	CapLoopback       Caps = 1 << 5
	CapPCI            Caps = 1 << 6 // over PCIe, until release 535 the mailbox only
	CapIndirectWrite  Caps = 1 << 7
	CapIndirectRead   Caps = 1 << 8
	CapIndirectAtomic Caps = 1 << 9
	CapIndirectNVLink Caps = 1 << 10
	CapC2C            Caps = 1 << 12
	CapBAR1           Caps = 1 << 13
)

var capNames = []struct {
	bit  Caps
	name string
}{
	{CapWrite, "write"}, {CapRead, "read"}, {CapProp, "prop"}, {CapNVLink, "nvlink"}, {CapAtomics, "atomics"},
	{CapLoopback, "loopback"}, {CapPCI, "pci"}, {CapIndirectWrite, "indirect-write"}, {CapIndirectRead, "indirect-read"},
	{CapIndirectAtomic, "indirect-atomics"}, {CapIndirectNVLink, "indirect-nvlink"}, {CapC2C, "c2c"}, {CapBAR1, "bar1"},
}

// String returns the word and the names of its bits: "0x2043 write read pci bar1".
func (c Caps) String() string {
	words := []string{fmt.Sprintf("0x%x", uint32(c))}
	for _, n := range capNames {
		if c&n.bit != 0 {
			words = append(words, n.name)
		}
	}
	return strings.Join(words, " ")
}

// Path is the way by which the resource manager lets one GPU reach another.
type Path string

// The paths, in the order in which the driver tries them.
const (
	C2C            Path = "c2c"
	NVLink         Path = "nvlink"
	NVLinkIndirect Path = "nvlink-indirect" // over NVLink to a CPU and from there
	BAR1           Path = "bar1"            // PCIe; the peer's memory as its BAR1 shows it
	Mailbox        Path = "mailbox"         // PCIe; a window of the peer for writes, registers for reads
	NoPath         Path = "none"
)

// Path returns the path that the word grants. The driver asks the bits in the
// same order before it sets a path up (p2papiConstruct in p2p_api.c).
func (c Caps) Path() Path {
	switch {
	case c&CapC2C != 0:
		return C2C
	case c&CapNVLink != 0:
		return NVLink
	case c&CapIndirectNVLink != 0:
		return NVLinkIndirect
	case c&CapBAR1 != 0:
		return BAR1
	case c&(CapProp|CapPCI) != 0:
		return Mailbox
	}
	return NoPath
}

// P2PStatus says why a capability is there or not (NV0000_P2P_CAPS_STATUS_*).
type P2PStatus uint8

// The values of [P2PStatus], with the letters that nvidia-smi topo -p2p prints.
const (
	P2POK              P2PStatus = 0
	ChipsetUnsupported P2PStatus = 1 // CNS
	GPUUnsupported     P2PStatus = 2 // GNS
	TopologyUnfit      P2PStatus = 3 // TNS
	Disabled           P2PStatus = 4 // DR, by a registry key
	P2PUnsupported     P2PStatus = 5 // NS
	NVLinkSetupFailed  P2PStatus = 6 // named in the header, in no release's code
)

var p2pStatusNames = []string{"OK", "CNS", "GNS", "TNS", "DR", "NS", "NVLINK-FAILED"}

// String returns the status as nvidia-smi abbreviates it.
func (s P2PStatus) String() string {
	if int(s) < len(p2pStatusNames) {
		return p2pStatusNames[s]
	}
	return fmt.Sprint(uint8(s))
}

// Indices of [Statuses] (NV0000_CTRL_P2P_CAPS_INDEX_*).
const (
	IndexRead = iota
	IndexWrite
	IndexNVLink
	IndexAtomics
	IndexProp
	IndexLoopback
	IndexPCI
	IndexC2C
	IndexBAR1
)

var indexNames = [capCount]string{"read", "write", "nvlink", "atomics", "prop", "loopback", "pci", "c2c", "bar1"}

// Statuses is the table p2pCapsStatus, one status per capability.
type Statuses [capCount]P2PStatus

// String names every entry: "read=OK write=OK nvlink=NS …".
func (s Statuses) String() string {
	words := make([]string, len(s))
	for i, status := range s {
		words[i] = fmt.Sprintf("%s=%v", indexNames[i], status)
	}
	return strings.Join(words, " ")
}
