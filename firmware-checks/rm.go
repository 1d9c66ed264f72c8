package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/loadopt"
)

// The findings about the answers of the driver's resource manager. Like
// [Measured] they come from the loaded driver; [Run] doesn't make them.
const (
	// RMPath is about the path that the driver grants to pairs of GPUs.
	RMPath ID = "P2P-RM-PATH"
	// MailboxFallthrough is about pairs to which the driver grants a mailbox that
	// it has not set up: everything says that they reach each other, and their data
	// goes astray without an error.
	MailboxFallthrough ID = "P2P-MAILBOX-FALLTHROUGH"
)

var rmPathDoc = Doc{
	ID:       RMPath,
	Question: "Over which path does the loaded driver let two GPUs reach each other?",
	Meaning:  "The driver chooses NVLink-C2C, NVLink, PCIe BAR1 or a PCIe mailbox, or grants none, in which case programs stage their data through host memory.",
	Fix:      "Depends on the reason the driver gives: its table of chipsets (CNS), the GPU (GNS), the topology (TNS), a registry key (DR), or none (NS).",
	Outcomes: []Outcome{
		{Pass, "the driver grants a path in both directions"},
		{Warn, "it grants one direction, the mailbox in place of BAR1, or a mailbox that was forced"},
		{Fail, "it grants none, or one that it cannot map"},
		{Skip, "it has fewer than two GPUs"},
		{Unknown, "it does not tell"},
	},
}

var mailboxDoc = Doc{
	ID:       MailboxFallthrough,
	Question: "Was a mailbox granted that the driver has not set up?",
	Meaning:  "A driver that was told to use BAR1 and cannot sets no mailbox up and grants it all the same: programs are told that the GPUs reach each other, and what they write goes astray without an error.",
	Fix:      "Let the driver map all memory in BAR1: see P2P-REBAR; take displays off these GPUs. Or do not ask for BAR1.",
	Outcomes: []Outcome{
		{Fail, "BAR1 was asked for, and the mailbox is what the driver grants"},
		{Unknown, "the same, if the driver was told or edited to ask for BAR1"},
	},
}

// Request is what the loaded driver was told about peer-to-peer.
type Request struct {
	Keys rm.Keys // registry keys that it was loaded with; nil: not known
	// PerDevice says that some GPUs have keys of their own, which are not in Keys.
	PerDevice bool
	// Stock says that the module is as NVIDIA published it, so that nothing but
	// keys can ask for BAR1.
	Stock bool
}

// answer is yes, no, or not known.
type answer int

const (
	no answer = iota
	maybe
	yes
)

// Releases in which the driver's ways change, by their first number.
const (
	majorOverride = 545 // ForceP2P is heeded before static BAR1 is looked at, until majorPCIeKey
	majorStatic   = 565 // static BAR1 on all GPUs and told; no mailbox at all if BAR1 is asked for
	majorPCIeKey  = 575 // RMPcieP2PType chooses between BAR1 and mailbox
)

// major returns the first number of a driver's release, 0 if it has none.
func major(release string) int {
	var n int
	if _, err := fmt.Sscanf(release, "%d.", &n); err != nil {
		return 0
	}
	return n
}

// key returns the registry key that asks for BAR1, with the value that does.
func key(major int) (string, uint32) {
	if major < majorPCIeKey {
		return rm.KeyForceP2PType, 2
	}
	return rm.KeyPCIeP2PType, 1
}

// asksBAR1 says whether the driver was told to prefer BAR1 to the mailbox.
func (r Request) asksBAR1(major int) answer {
	name, bar1 := key(major)
	value, set := r.Keys[name]
	switch {
	case major == 0, r.Keys == nil, r.PerDevice:
		return maybe
	case set && value == bar1:
		return yes
	case set, r.Stock:
		return no
	}
	return maybe // an edit may have changed the default
}

// forced says whether ForceP2P answers in place of the driver's tables.
func (r Request) forced() bool {
	read, write := forces(r.Keys)
	return read || write
}

func (r Request) evidence(major int) Evidence {
	name, _ := key(major)
	var words []string
	for _, k := range []string{rm.KeyForceP2P, name} {
		if v, ok := r.Keys[k]; ok {
			words = append(words, fmt.Sprintf("%s=0x%x", k, v))
		} else {
			words = append(words, k+" not set")
		}
	}
	switch {
	case r.Keys == nil:
		words = []string{"not known"}
	case r.PerDevice:
		words = append(words, "and keys for single GPUs")
	}
	return Evidence{What: "registry keys of the driver", Where: rm.ParamsFile, Raw: strings.Join(words, ", ")}
}

// rmView is a survey with what the driver was told, to judge it.
type rmView struct {
	*rm.Survey
	req   Request
	major int
}

// RM judges what the driver's resource manager answered.
func RM(s *rm.Survey, req Request) []Finding {
	v := rmView{s, req, major(s.Driver)}
	var found []Finding
	if len(s.Pairs) == 0 {
		return []Finding{{
			ID: RMPath, Status: Skip, Title: fmt.Sprintf("the driver has %s, no pair to ask about", count(len(s.GPUs), "GPU")),
			Meaning: "Peer-to-peer needs two GPUs.",
		}}
	}
	for _, p := range s.Pairs {
		found = v.collect(found, v.path(p), p)
		if f, ok := v.fallthroughOf(p); ok {
			found = v.collect(found, f, p)
		}
	}
	for i := range found {
		v.tell(&found[i])
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		if a.ID != b.ID {
			return slices.Index([]ID{MailboxFallthrough, RMPath}, a.ID) - slices.Index([]ID{MailboxFallthrough, RMPath}, b.ID)
		}
		return severity(b.Status) - severity(a.Status)
	})
	return found
}

// collect adds the pair to the finding that says the same, or f to the findings.
// The driver answers for both directions at once, so a pair counts once.
func (v rmView) collect(found []Finding, f Finding, p rm.Pair) []Finding {
	i := slices.IndexFunc(found, func(o Finding) bool { return o.ID == f.ID && o.Title == f.Title })
	if i < 0 {
		found = append(found, f)
		i = len(found) - 1
	}
	same := &found[i]
	if !slices.Contains(same.Pairs, [2]string{p.B, p.A}) {
		same.Pairs = append(same.Pairs, [2]string{p.A, p.B})
		same.Evidence = append(same.Evidence, v.asked(p))
	}
	return found
}

// tell completes a finding: the number of its pairs, and what was read about
// their GPUs.
func (v rmView) tell(f *Finding) {
	f.Title = fmt.Sprintf("%s (%s)", f.Title, count(len(f.Pairs), "GPU pair"))
	for _, g := range v.GPUs {
		if slices.ContainsFunc(f.Pairs, func(p [2]string) bool { return p[0] == g.BDF || p[1] == g.BDF }) {
			f.Evidence = append(f.Evidence, gpuEvidence(g)...)
		}
	}
	f.Evidence = append(f.Evidence, v.req.evidence(v.major))
}

// asked is the answer about a pair as it was read.
func (v rmView) asked(p rm.Pair) Evidence {
	raw := fmt.Sprintf("%v; %v", p.Caps, p.Status)
	if p.Error != "" {
		raw = p.Error
	}
	return Evidence{
		What:  fmt.Sprintf("capabilities of %s (GPU ID 0x%x) and %s (GPU ID 0x%x)", p.A, v.gpu(p.A).ID, p.B, v.gpu(p.B).ID),
		Where: "NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2 of driver " + v.Driver, Raw: raw,
	}
}

func gpuEvidence(g rm.Surveyed) []Evidence {
	static := "this release does not tell"
	switch sb := g.StaticBAR1; {
	case len(g.Errors) > 0:
		static = strings.Join(g.Errors, "; ")
	case sb != nil && sb.Enabled:
		static = fmt.Sprintf("on, %d bytes from 0x%x", sb.Size, sb.Start)
	case sb != nil:
		static = "off"
	}
	memory := "not known"
	if g.Memory > 0 {
		memory = fmt.Sprintf("%d bytes", g.Memory)
	}
	return []Evidence{
		{What: "static BAR1 of " + g.BDF, Where: "NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO", Raw: static},
		{What: "BAR1 and memory of " + g.BDF, Where: "NV_ESC_CARD_INFO, NV2080_CTRL_CMD_FB_GET_INFO", Raw: fmt.Sprintf("%d bytes, %s", g.BAR1, memory)},
	}
}

func (v rmView) gpu(bdf string) rm.Surveyed {
	for _, g := range v.GPUs {
		if g.BDF == bdf {
			return g
		}
	}
	return rm.Surveyed{}
}

// fits says whether the driver can map all memory of a GPU in its BAR1. Until
// release 560 it does so if BAR1 has 128 KiB more than the memory it uses, which
// is a little less than what is there; near the limit only the driver knows.
func fits(g rm.Surveyed) answer {
	switch {
	case g.Memory == 0 || g.BAR1 == 0:
		return maybe
	case g.BAR1 >= g.Memory+2<<20:
		return yes
	case g.BAR1 < g.Memory-g.Memory/8:
		return no
	}
	return maybe
}

// mappable says whether BAR1 peer-to-peer that the driver grants to a pair works:
// it needs static BAR1 on both GPUs.
func (v rmView) mappable(p rm.Pair) answer {
	worst := yes
	for _, g := range []rm.Surveyed{v.gpu(p.A), v.gpu(p.B)} {
		a := yes // the driver looked before it granted
		switch {
		case g.StaticBAR1 != nil && !g.StaticBAR1.Enabled:
			a = no
		case g.StaticBAR1 != nil:
		case v.major == 0:
			a = maybe
		case v.major >= majorOverride && v.major < majorStatic:
			a = fits(g)
		case v.major >= majorStatic && v.major < majorPCIeKey:
			a = maybe
		}
		worst = min(worst, a)
	}
	return worst
}

// fallsThrough says whether a mailbox that the driver grants to a pair is missing,
// given that BAR1 was asked for. Since 565 the driver sets up none in that case;
// before, it does on GPUs without static BAR1, which only Hopper has unless edited.
func (v rmView) fallsThrough(p rm.Pair) answer {
	switch {
	case v.major == 0:
		return maybe
	case v.major >= majorStatic:
		return yes
	}
	worst := no
	for _, g := range []rm.Surveyed{v.gpu(p.A), v.gpu(p.B)} {
		hopper := g.Device>>8 == 0x23 // GH100 has the device IDs 23xx
		if !v.req.Stock || hopper {
			worst = max(worst, fits(g))
		}
	}
	return worst
}

// fallthroughOf judges a mailbox that is granted to a pair.
func (v rmView) fallthroughOf(p rm.Pair) (Finding, bool) {
	if p.Error != "" || p.Path != rm.Mailbox {
		return Finding{}, false
	}
	name, bar1 := key(v.major)
	f := Finding{
		ID: MailboxFallthrough,
		Fix: fmt.Sprintf("Let the driver map all memory in BAR1: see P2P-REBAR, take displays off these GPUs, and boot with p2p.driver=p2p, without which only Hopper and newer GPUs have BAR1 peer-to-peer.\n"+
			"Or load nvidia.ko without %s=%d, so that it sets the mailbox up.", name, bar1),
	}
	switch min(v.req.asksBAR1(v.major), v.fallsThrough(p)) {
	case yes:
		f.Status = Fail
		f.Title = "mailbox granted that was not set up"
		f.Meaning = "BAR1 was asked for, so the driver set no mailbox up; it could not give BAR1 and grants the mailbox all the same. CUDA says that these GPUs reach each other, and what they write is lost or lands elsewhere, without an error."
	case maybe:
		f.Status = Unknown
		f.Title = "mailbox granted, not known whether it was set up"
		f.Meaning = "If this driver was told or edited to prefer BAR1, it set no mailbox up, and data goes astray without an error. Measured data that was verified shows that it was."
	default:
		return Finding{}, false
	}
	return f, true
}

// pathNames are the paths for a person.
var pathNames = map[rm.Path]string{
	rm.C2C: "NVLink-C2C", rm.NVLink: "NVLink", rm.NVLinkIndirect: "NVLink by way of a CPU", rm.BAR1: "PCIe BAR1", rm.Mailbox: "the PCIe mailbox",
}

// pathMeanings say what follows from a path.
var pathMeanings = map[rm.Path]string{
	rm.C2C:            "These GPUs reach each other over their own link; BAR1, ACS and the IOMMU do not matter between them.",
	rm.NVLink:         "These GPUs reach each other over NVLink; BAR1, ACS and the IOMMU do not matter between them.",
	rm.NVLinkIndirect: "These GPUs reach each other over NVLink and through a CPU.",
	rm.BAR1:           "Each GPU reads and writes the other's memory as its BAR1 shows it, straight over PCIe.",
	rm.Mailbox:        "Each GPU writes to the other through a window in its BAR1 and reads through its registers, as the driver set them up.",
}

// path judges the path that is granted to a pair.
func (v rmView) path(p rm.Pair) Finding {
	f := Finding{ID: RMPath, Status: Pass, Title: "the driver grants " + pathNames[p.Path], Meaning: pathMeanings[p.Path]}
	const kernelLog = "See the driver's lines in the kernel's log (dmesg)."
	read, write := p.Status[rm.IndexRead], p.Status[rm.IndexWrite]
	switch {
	case p.Error != "":
		f.Status, f.Title = Unknown, "the driver does not tell the path"
		f.Meaning, f.Fix = "Over what these GPUs reach each other, if they do, is not known.", kernelLog
	case p.Path == rm.NoPath:
		f.Status, f.Title = Fail, "the driver grants no path: "+refusal(read, write)
		f.Meaning = "Programs stage their data through host memory."
		f.Fix = v.refusalFix(read, write)
	case read != rm.P2POK || write != rm.P2POK:
		f.Status, f.Title = Warn, fmt.Sprintf("the driver grants %s for one direction: read %s, write %s", pathNames[p.Path], words(read), words(write))
		f.Fix = v.refusalFix(read, write)
	case p.Path == rm.BAR1 && v.mappable(p) == no:
		f.Status, f.Title = Fail, "the driver grants PCIe BAR1 and can't map it"
		f.Meaning = "ForceP2P made the driver promise BAR1 without a look at static BAR1, which is off: a program is told that it can reach the peer and fails when it tries."
		f.Fix = "See P2P-REBAR: BAR1 has to be larger than the GPU's memory. Take displays off these GPUs."
	case p.Path == rm.BAR1 && v.mappable(p) == maybe:
		f.Status, f.Title = Unknown, "the driver grants PCIe BAR1, not known whether it can map it"
		f.Meaning = "With ForceP2P this release promises BAR1 without a look at static BAR1, and it does not tell about that."
		f.Fix = "Rely on measured bandwidth with verified data, or use release 575 or newer."
	case p.Path == rm.Mailbox && v.req.asksBAR1(v.major) == yes:
		f.Status, f.Title = Warn, "the driver grants the PCIe mailbox in place of BAR1"
		f.Meaning = "BAR1 was asked for and at least one of the GPUs does not map all its memory there."
		f.Fix = "See P2P-REBAR: BAR1 has to be larger than the GPU's memory. Take displays off these GPUs."
	case p.Path == rm.Mailbox && v.req.forced():
		f.Status, f.Title = Warn, "the driver grants the PCIe mailbox because ForceP2P says so"
		f.Meaning = "Neither the driver's table of chipsets nor the GPU was asked whether it works."
		f.Fix = "Rely on measured bandwidth with verified data, or load nvidia.ko without ForceP2P to see what it would say."
	}
	return f
}

// words say what a status means.
func words(s rm.P2PStatus) string {
	switch s {
	case rm.P2POK:
		return "possible"
	case rm.ChipsetUnsupported:
		return "denied for the chipset (CNS)"
	case rm.GPUUnsupported:
		return "denied for the GPU (GNS)"
	case rm.TopologyUnfit:
		return "denied for the topology (TNS)"
	case rm.Disabled:
		return "denied by a registry key (DR)"
	case rm.P2PUnsupported:
		return "not supported (NS)"
	}
	return "denied for a reason unknown here (" + s.String() + ")"
}

// refusal says why reads and writes are denied, once if for the same reason.
func refusal(read, write rm.P2PStatus) string {
	if read == write {
		return words(read)
	}
	return fmt.Sprintf("read %s, write %s", words(read), words(write))
}

// refusalFix says what to do about the first status that is not OK.
func (v rmView) refusalFix(read, write rm.P2PStatus) string {
	s := read
	if s == rm.P2POK {
		s = write
	}
	switch s {
	case rm.ChipsetUnsupported:
		return "Boot with p2p.driver=p2p, or " + withForceP2P + ": the driver does not know that this chipset forwards peer traffic, which only the measurement tells."
	case rm.GPUUnsupported:
		return "Boot with p2p.driver=p2p: as published the driver keeps peer-to-peer over PCIe from this GPU."
	case rm.TopologyUnfit:
		return "Put the GPUs into slots of one CPU: they hang on I/O hubs that do not forward to each other."
	case rm.Disabled:
		return "Load nvidia.ko without the registry key ForceP2P, or with ForceP2P=" + loadopt.ForceP2P + "."
	}
	lines := []string{"Turn MIG off; on a machine with NVSwitch start nvidia-fabricmanager of the driver's release; on others see P2P-GPU-PAIR."}
	if v.req.asksBAR1(v.major) != no {
		lines = append([]string{"If BAR1 was asked for: see P2P-REBAR, BAR1 has to be larger than the GPU's memory, and take displays off these GPUs."}, lines...)
	}
	return strings.Join(lines, "\n")
}
