package rm

import (
	"encoding/binary"
	"fmt"
)

// Escapes: the numbers of the ioctls (nv_escape.h, nv-ioctl-numbers.h).
const (
	escRMFree       = 0x29 // NV_ESC_RM_FREE
	escRMControl    = 0x2a // NV_ESC_RM_CONTROL
	escRMAlloc      = 0x2b // NV_ESC_RM_ALLOC
	escCardInfo     = 200  // NV_ESC_CARD_INFO
	escCheckVersion = 210  // NV_ESC_CHECK_VERSION_STR
)

// Classes of objects (nvos.h, cl0080.h, cl2080.h).
const (
	classRoot      = 0x41   // NV01_ROOT_CLIENT
	classDevice    = 0x80   // NV01_DEVICE_0
	classSubdevice = 0x2080 // NV20_SUBDEVICE_0
)

// Commands of NV_ESC_RM_CONTROL (ctrl0000gpu.h, ctrl0000system.h, ctrl2080fb.h).
const (
	cmdAttachedIDs = 0x201      // NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS
	cmdIDInfo      = 0x205      // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
	cmdP2PCaps     = 0x12b      // NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2
	cmdFBInfo      = 0x20801301 // NV2080_CTRL_CMD_FB_GET_INFO
	cmdStaticBAR1  = 0x20801354 // NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO, since release 565
)

// The blank fields are the padding that a C compiler inserts on 64-bit machines.
type (
	// allocParams is NVOS21_PARAMETERS.
	allocParams struct {
		Root, Parent, New, Class uint32
		Params                   uint64 // address
		ParamsSize, Status       uint32
	}

	// controlParams is NVOS54_PARAMETERS.
	controlParams struct {
		Client, Object, Cmd, Flags uint32
		Params                     uint64 // address
		ParamsSize, Status         uint32
	}

	// freeParams is NVOS00_PARAMETERS.
	freeParams struct{ Root, Parent, Old, Status uint32 }

	// versionParams is nv_ioctl_rm_api_version_t.
	versionParams struct {
		Cmd, Reply uint32
		Version    [64]byte
	}

	// cardInfo is nv_ioctl_card_info_t. FBSize is the size of BAR1 in bytes.
	cardInfo struct {
		Valid               uint8
		_                   [3]byte
		Domain              uint32
		Bus, Slot, Function uint8
		_                   uint8
		Vendor, Device      uint16
		GPUID               uint32
		Interrupt           uint16
		_                   [2]byte
		RegAddress, RegSize uint64
		FBAddress, FBSize   uint64
		Minor               uint32
		Name                [10]byte
		_                   [2]byte
	}

	// attachedIDs is NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS; what is left of the
	// table has invalidID.
	attachedIDs struct{ IDs [maxGPUs]uint32 }

	// idInfo is NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS.
	idInfo struct {
		ID, Flags, DeviceInstance, SubdeviceInstance uint32
		SLIStatus, BoardID, Instance                 uint32
		NUMANode                                     int32
	}

	// deviceParams is NV0080_ALLOC_PARAMETERS.
	deviceParams struct {
		Device, ClientShare, TargetClient, TargetDevice, Flags uint32
		_                                                      [4]byte
		VASize, VAStart, VALimit                               uint64
		VAMode                                                 uint32
		_                                                      [4]byte
	}

	// subdeviceParams is NV2080_ALLOC_PARAMETERS.
	subdeviceParams struct{ Subdevice uint32 }

	// p2pCaps is NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS until release 545. The
	// peer tables are Count by Count: entry x*Count+y is the ID of GPU y on GPU x.
	p2pCaps struct {
		IDs                       [maxGPUs]uint32
		Count                     uint32
		Caps                      Caps
		ReadEngines, WriteEngines uint32
		Status                    Statuses
		_                         [3]byte
		PeerIDs                   [maxGPUs * maxGPUs]uint32
	}

	// p2pCapsEGM is the same since release 550.
	p2pCapsEGM struct {
		P2P        p2pCaps
		EGMPeerIDs [maxGPUs * maxGPUs]uint32
	}

	// staticBAR1 is NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS since release 570;
	// from 580 on there is a second flag where the padding begins.
	staticBAR1 struct {
		Enabled     uint8
		_           [7]byte
		Start, Size uint64
	}

	// staticBAR1At0 is the same in release 565, where the mapping starts at 0.
	staticBAR1At0 struct {
		Enabled uint8
		_       [7]byte
		Size    uint64
	}

	// fbInfoParams is NV2080_CTRL_FB_GET_INFO_PARAMS. Its successor
	// NV2080_CTRL_CMD_FB_GET_INFO_V2 has no address in it, but a size that changes
	// from release to release.
	fbInfoParams struct {
		Count uint32
		_     [4]byte
		List  uint64 // address
	}

	// fbInfo is NV2080_CTRL_FB_INFO.
	fbInfo struct{ Index, Data uint32 }
)

const (
	maxGPUs   = 32         // NV_MAX_DEVICES, NV0000_CTRL_SYSTEM_MAX_ATTACHED_GPUS
	invalidID = 0xffffffff // NV0000_CTRL_GPU_INVALID_ID
	capCount  = 9          // NV0000_CTRL_P2P_CAPS_INDEX_TABLE_SIZE

	versionQuery = '2' // NV_RM_API_VERSION_CMD_QUERY: tell, don't compare
	fbRAMSize    = 7   // NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE, in KiB
)

// Offsets of the addresses in the structures above.
const (
	allocPointer   = 16
	controlPointer = 16
	fbListPointer  = 8
)

// encode returns the bytes of a structure as the driver reads them.
func encode(v any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(fmt.Sprintf("rm: %T has no fixed size: %v", v, err))
	}
	return b
}

// decode reads a structure from as many bytes as [encode] made of it.
func decode(b []byte, v any) error {
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		return fmt.Errorf("%d bytes for %T: %w", len(b), v, err)
	}
	return nil
}
