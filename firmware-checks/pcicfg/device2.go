package pcicfg

import "time"

// Fields of Device Capabilities 2 and Device Control 2 (PCIe 6.0 §7.5.3.15 and
// §7.5.3.16).
const (
	dev2TimeoutMask = 0xf // bits 3:0 of both
	dev2TimeoutOff  = 1 << 4
	dev2ARI         = 1 << 5

	devCap2AtomicRouting = 1 << 6
	devCap2Atomic32      = 1 << 7
	devCap2Atomic64      = 1 << 8
	devCap2CAS128        = 1 << 9
	devCap2NoROPassing   = 1 << 10
	devCap2LTR           = 1 << 11
	devCap2Tag10Complete = 1 << 16
	devCap2Tag10Request  = 1 << 17

	devCtl2AtomicRequest = 1 << 6
	devCtl2AtomicBlock   = 1 << 7
	devCtl2IDORequest    = 1 << 8
	devCtl2IDOCompletion = 1 << 9
	devCtl2LTR           = 1 << 10
	devCtl2Tag10Request  = 1 << 12
)

// DeviceCapabilities2 are the parts of that register that bear on peer to peer
// traffic.
type DeviceCapabilities2 struct {
	Raw Hex `json:"raw"`
	// AtomicRouting says that a port forwards AtomicOps; the completers say
	// which of them the function itself carries out.
	AtomicRouting  bool `json:"atomic_routing"`
	Atomic32       bool `json:"atomic_32_completer"`
	Atomic64       bool `json:"atomic_64_completer"`
	CAS128         bool `json:"cas_128_completer"`
	Tag10Completer bool `json:"tag10_completer"`
	Tag10Requester bool `json:"tag10_requester"`
	// TimeoutRanges has bit 0 set for completion timeouts of range A (50 µs to
	// 10 ms), bit 1 for B (to 250 ms), bit 2 for C (to 4 s) and bit 3 for D (to
	// 64 s); 0 means that the timeout cannot be programmed.
	TimeoutRanges  int  `json:"completion_timeout_ranges"`
	TimeoutDisable bool `json:"completion_timeout_disable"`
	ARIForwarding  bool `json:"ari_forwarding"`
	// NoRelaxedPassing says that the port never lets a posted request with
	// relaxed ordering pass another: that attribute gains writes nothing here.
	NoRelaxedPassing bool `json:"no_relaxed_passing"`
	LTR              bool `json:"ltr"`
}

// DeviceControl2 are the parts of that register that bear on peer to peer
// traffic.
type DeviceControl2 struct {
	Raw Hex `json:"raw"`
	// Timeout is the code of the completion timeout; CompletionTimeout
	// translates it.
	Timeout         int  `json:"completion_timeout"`
	TimeoutDisabled bool `json:"completion_timeout_disabled"`
	ARIForwarding   bool `json:"ari_forwarding"`
	// AtomicRequester lets the function send AtomicOps, AtomicEgressBlock makes
	// a port refuse to send any out of it.
	AtomicRequester   bool `json:"atomic_requester"`
	AtomicEgressBlock bool `json:"atomic_egress_block"`
	// IDO lets the function mark packets as ordered by ID only.
	IDORequests    bool `json:"ido_requests"`
	IDOCompletions bool `json:"ido_completions"`
	LTR            bool `json:"ltr"`
	Tag10Requester bool `json:"tag10_requester"`
}

// CompletionTimeout returns the range in which the function gives up waiting
// for a completion, false when it never does or when the code is reserved.
func (c DeviceControl2) CompletionTimeout() (shortest, longest time.Duration, ok bool) {
	if c.TimeoutDisabled {
		return 0, 0, false
	}
	const us, ms = time.Microsecond, time.Millisecond
	switch c.Timeout {
	case 0x0:
		return 50 * us, 50 * ms, true
	case 0x1:
		return 50 * us, 100 * us, true
	case 0x2:
		return 1 * ms, 10 * ms, true
	case 0x5:
		return 16 * ms, 55 * ms, true
	case 0x6:
		return 65 * ms, 210 * ms, true
	case 0x9:
		return 260 * ms, 900 * ms, true
	case 0xa:
		return 1000 * ms, 3500 * ms, true
	case 0xd:
		return 4 * time.Second, 13 * time.Second, true
	case 0xe:
		return 17 * time.Second, 64 * time.Second, true
	}
	return 0, 0, false
}

func deviceCapabilities2(v uint32) *DeviceCapabilities2 {
	return &DeviceCapabilities2{
		Raw:              Hex(v),
		AtomicRouting:    v&devCap2AtomicRouting != 0,
		Atomic32:         v&devCap2Atomic32 != 0,
		Atomic64:         v&devCap2Atomic64 != 0,
		CAS128:           v&devCap2CAS128 != 0,
		Tag10Completer:   v&devCap2Tag10Complete != 0,
		Tag10Requester:   v&devCap2Tag10Request != 0,
		TimeoutRanges:    int(v & dev2TimeoutMask),
		TimeoutDisable:   v&dev2TimeoutOff != 0,
		ARIForwarding:    v&dev2ARI != 0,
		NoRelaxedPassing: v&devCap2NoROPassing != 0,
		LTR:              v&devCap2LTR != 0,
	}
}

func deviceControl2(v uint16) *DeviceControl2 {
	return &DeviceControl2{
		Raw:               Hex(v),
		Timeout:           int(v & dev2TimeoutMask),
		TimeoutDisabled:   v&dev2TimeoutOff != 0,
		ARIForwarding:     v&dev2ARI != 0,
		AtomicRequester:   v&devCtl2AtomicRequest != 0,
		AtomicEgressBlock: v&devCtl2AtomicBlock != 0,
		IDORequests:       v&devCtl2IDORequest != 0,
		IDOCompletions:    v&devCtl2IDOCompletion != 0,
		LTR:               v&devCtl2LTR != 0,
		Tag10Requester:    v&devCtl2Tag10Request != 0,
	}
}
