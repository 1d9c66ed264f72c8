package pcicfg

import "slices"

// Route is what a downstream port does with a packet from below that is meant
// for a function below another port.
type Route int

// Routes, from the fastest to none.
const (
	// Direct is the way the address or the ID leads: through a switch from one
	// downstream port to the other.
	Direct Route = iota
	// Redirected is up to the root complex and from there back down. A root
	// port hands the packet to the validation logic of the root complex, which
	// is where an IOMMU translates; the packet crosses the root complex in any
	// case.
	Redirected
	// Blocked is an ACS violation: the request is dropped or completed with an
	// abort, and logged in AER.
	Blocked
)

// String returns "direct", "redirected" or "blocked".
func (r Route) String() string {
	switch r {
	case Redirected:
		return "redirected"
	case Blocked:
		return "blocked"
	}
	return "direct"
}

// MarshalText writes r as String does.
func (r Route) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// PeerTraffic is how a downstream port routes what comes up its link for one
// peer. What comes down towards its link is never touched: both ports of a pair
// must be looked at, each for what its own device sends.
type PeerTraffic struct {
	// Requests are memory reads, writes and AtomicOps with an untranslated
	// address, Translated those whose address the device translated through
	// ATS.
	Requests   Route `json:"requests"`
	Translated Route `json:"translated"`
	// Completions answer the peer's reads. Those with the relaxed ordering
	// attribute always go directly and are not meant here.
	Completions Route `json:"completions"`
}

// Toward returns how a port with the controls b on routes packets to a peer
// port, whose bit in the egress control vector is in listed (PCIe 6.0 §6.12.1.1
// and table 6-11 in §6.12.3).
func (b ACSBits) Toward(listed bool) PeerTraffic {
	var t PeerTraffic
	redirect := b&RequestRedirect != 0
	switch {
	case b&EgressControl != 0 && !listed:
		// An open bit in the vector exempts the pair from RR too.
	case redirect:
		t.Requests = Redirected
	case b&EgressControl != 0:
		t.Requests = Blocked
	}
	switch {
	case b&TranslationBlocking != 0: // takes precedence over all others
		t.Translated = Blocked
	case b&DirectTranslated == 0:
		t.Translated = t.Requests
	}
	if b&CompletionRedirect != 0 {
		t.Completions = Redirected
	}
	return t
}

// Toward returns how the port routes packets to the port numbered peer of the
// same component. A nil ACS routes all directly. known is false when the egress
// control vector decides and could not be read.
func (a *ACS) Toward(peer int) (t PeerTraffic, known bool) {
	if a == nil {
		return PeerTraffic{}, true
	}
	return a.Control.Toward(slices.Contains(a.Egress, peer)), a.Control&EgressControl == 0 || a.EgressBits > 0
}

// Effect is what one access control means for peer to peer traffic.
type Effect struct {
	Bit ACSBits `json:"bit"`
	// Route is the worst that the control by itself does to peer traffic that is
	// in order.
	Route Route `json:"route"`
	// Meaning says so in words.
	Meaning string `json:"meaning"`
	// Source names the section that defines it.
	Source string `json:"source"`
}

const (
	downstreamRules = "PCIe 6.0 §6.12.1.1"
	controlRules    = "PCIe 6.0 §6.12.3"
)

// effects holds what the controls mean in a switch, in the order of their bits.
var effects = []Effect{
	{SourceValidation, Direct, "requests that claim to come from a bus which is not below the port are refused; real ones pass", downstreamRules},
	{TranslationBlocking, Blocked, "requests with an address translated through ATS are refused, and so are requests for a translation; others pass", downstreamRules},
	{RequestRedirect, Redirected, "requests to a function below another port of the switch go up to the root complex and back down", downstreamRules},
	{CompletionRedirect, Redirected, "answers to a peer's reads go up to the root complex and back down, unless they carry relaxed ordering", downstreamRules},
	{UpstreamForwarding, Direct, "what a switch below redirects and what belongs below this very port goes on up to the root complex; nothing else does", downstreamRules},
	{EgressControl, Blocked, "requests to ports in the egress control vector are refused or, with RR, redirected; to other ports they go directly, even with RR", controlRules},
	{DirectTranslated, Direct, "requests with an address translated through ATS go directly, whatever RR and EC say", controlRules},
}

// inRootPort words those that mean something else in a root port.
var inRootPort = map[ACSBits]string{
	RequestRedirect:    "requests to a function below another root port go through the root complex's validation, where a translating IOMMU acts on them; the way is the same without",
	CompletionRedirect: "answers to a peer's reads wait behind redirected requests, unless they carry relaxed ordering; the way is the same without",
	UpstreamForwarding: "what a switch below redirects and what belongs below this very port goes through the root complex's validation; nothing else does",
}

// Effects returns what each control in b means in a port of the given type, in
// the order of the bits.
func (b ACSBits) Effects(port PortType) []Effect {
	var out []Effect
	for _, e := range effects {
		if b&e.Bit == 0 {
			continue
		}
		if words := inRootPort[e.Bit]; words != "" && port == RootPort {
			e.Meaning = words
		}
		out = append(out, e)
	}
	return out
}
