package rm

import (
	"errors"
	"fmt"
	"slices"
)

// Status is what the resource manager answers to a call (nvstatuscodes.h).
type Status uint32

// The statuses that this package treats apart.
const (
	OK                 Status = 0x00 // NV_OK
	InvalidCommand     Status = 0x24 // NV_ERR_INVALID_COMMAND
	InvalidParamStruct Status = 0x3a // NV_ERR_INVALID_PARAM_STRUCT, for one: of a size that is not this release's
	NotSupported       Status = 0x56 // NV_ERR_NOT_SUPPORTED
)

// statuses are those that an allocation or a question can end with.
var statuses = map[Status]struct{ name, fix string }{
	OK:                 {"NV_OK", ""},
	0x03:               {"NV_ERR_BUSY_RETRY", "try again"},
	0x05:               {"NV_ERR_CARD_NOT_PRESENT", resetFix},
	0x0f:               {"NV_ERR_GPU_IS_LOST", resetFix},
	0x10:               {"NV_ERR_GPU_IN_FULLCHIP_RESET", "try again when the reset is over"},
	0x11:               {"NV_ERR_GPU_NOT_FULL_POWER", "wake the GPU up, for one with nvidia-smi -pm 1"},
	0x17:               {"NV_ERR_IN_USE", "try again"},
	0x1a:               {"NV_ERR_INSUFFICIENT_RESOURCES", ""},
	0x1b:               {"NV_ERR_INSUFFICIENT_PERMISSIONS", "run as root"},
	0x1e:               {"NV_ERR_INVALID_ADDRESS", ""},
	0x1f:               {"NV_ERR_INVALID_ARGUMENT", ""},
	0x22:               {"NV_ERR_INVALID_CLASS", ""},
	0x23:               {"NV_ERR_INVALID_CLIENT", ""},
	InvalidCommand:     {"NV_ERR_INVALID_COMMAND", ""},
	0x26:               {"NV_ERR_INVALID_DEVICE", ""},
	0x2f:               {"NV_ERR_INVALID_LOCK_STATE", ""},
	0x31:               {"NV_ERR_INVALID_OBJECT", ""},
	0x33:               {"NV_ERR_INVALID_OBJECT_HANDLE", ""},
	0x36:               {"NV_ERR_INVALID_OBJECT_PARENT", ""},
	InvalidParamStruct: {"NV_ERR_INVALID_PARAM_STRUCT", "the driver is of a release that this program does not know"},
	0x3b:               {"NV_ERR_INVALID_PARAMETER", ""},
	0x3d:               {"NV_ERR_INVALID_POINTER", ""},
	0x40:               {"NV_ERR_INVALID_STATE", ""},
	0x51:               {"NV_ERR_NO_MEMORY", "free some memory"},
	0x55:               {"NV_ERR_NOT_READY", "try again"},
	NotSupported:       {"NV_ERR_NOT_SUPPORTED", ""},
	0x57:               {"NV_ERR_OBJECT_NOT_FOUND", ""},
	0x59:               {"NV_ERR_OPERATING_SYSTEM", "see the kernel's log (dmesg)"},
	0x62:               {"NV_ERR_RESET_REQUIRED", resetFix},
	0x65:               {"NV_ERR_TIMEOUT", "see the kernel's log (dmesg) for links that did not train"},
	0x66:               {"NV_ERR_TIMEOUT_RETRY", "try again"},
	0x6e:               {"NV_ERR_RESOURCE_LOST", ""},
	0x77:               {"NV_ERR_NVLINK_TRAINING_ERROR", "see the kernel's log (dmesg) for the link"},
	0x7a:               {"NV_ERR_FABRIC_MANAGER_NOT_PRESENT", "start nvidia-fabricmanager of the driver's release"},
	0x81:               {"NV_ERR_NVLINK_FABRIC_NOT_READY", "wait for the fabric manager and try again"},
	0x82:               {"NV_ERR_NVLINK_FABRIC_FAILURE", "see the log of nvidia-fabricmanager"},
	0xffff:             {"NV_ERR_GENERIC", "see the kernel's log (dmesg)"},
}

const resetFix = "power the machine off, then on"

// String returns the status as the header names it.
func (s Status) String() string {
	if known, ok := statuses[s]; ok {
		return known.name
	}
	return fmt.Sprintf("NV_STATUS 0x%x", uint32(s))
}

// Error says which call the driver refused.
type Error struct {
	Op     string // the call, as the headers name it
	GPU    string // BDF of the GPU or GPUs that it was about, if any
	Status Status // the resource manager's answer; OK if the kernel refused the call before
	Err    error  // the kernel's answer
}

func (e *Error) Error() string {
	text := e.Op
	if e.GPU != "" {
		text += " for " + e.GPU
	}
	if e.Err != nil {
		return fmt.Sprintf("nvidia driver refuses %s: %v", text, e.Err)
	}
	text = fmt.Sprintf("resource manager answers %s with %v", text, e.Status)
	if fix := statuses[e.Status].fix; fix != "" {
		text += ": " + fix
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// answered says whether an error is one of these answers of the resource manager.
func answered(err error, statuses ...Status) bool {
	var e *Error
	return errors.As(err, &e) && e.Err == nil && slices.Contains(statuses, e.Status)
}
