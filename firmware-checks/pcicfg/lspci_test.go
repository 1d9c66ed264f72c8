package pcicfg_test

import (
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

// lspci and this decoder must read the same from every function of every kind
// of machine, and of those with everything that the kinds lack.
func TestAgreesWithLspci(t *testing.T) {
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		t.Skip("lspci (package pciutils) is not installed")
	}
	for _, m := range append(fixture.Kinds(), odd) {
		t.Run(m.Name, func(t *testing.T) {
			spaces := m.Spaces()
			said := ask(t, lspci, spaces)
			for _, s := range spaces {
				cfg, err := pcicfg.Decode(s.Bytes)
				if err != nil {
					require.ErrorIs(t, err, pcicfg.ErrNoResponse)
					continue
				}
				require.Contains(t, said, s.Address)
				for _, want := range asLspci(cfg) {
					if strings.Contains(said[s.Address], want.where) && !strings.Contains(said[s.Address], want.text) {
						t.Errorf("of %s lspci does not say %q", s.Address, want.text)
					}
				}
				for name, ours := range lspciNames(cfg) {
					assert.Equal(t, ours, strings.Contains(said[s.Address], name), "%s of %s", name, s.Address)
				}
			}
		})
	}
}

// ask returns what lspci -vvv says of each function, by address, with white
// space made single.
func ask(t *testing.T, lspci string, spaces []fixture.Space) map[string]string {
	t.Helper()
	said := map[string]string{}
	if len(spaces) == 0 {
		return said // lspci -F wants a dump that is not empty
	}
	name := filepath.Join(t.TempDir(), "dump")
	file, err := os.Create(name)
	require.NoError(t, err)
	for _, s := range spaces {
		require.NoError(t, s.Dump(file))
	}
	require.NoError(t, file.Close())
	out, err := exec.CommandContext(t.Context(), lspci, "-D", "-n", "-vvv", "-F", name).Output()
	require.NoError(t, err)
	for block := range strings.SplitSeq(string(out), "\n\n") {
		address, _, _ := strings.Cut(block, " ")
		said[address] = strings.Join(strings.Fields(block), " ")
	}
	return said
}

// odd holds values that no kind of machine has.
var odd = fixture.Kind{Name: "odd", Machine: fixture.Machine{Hosts: []fixture.Host{{Functions: []fixture.Function{
	{
		Slot: "01.0", Vendor: 0x1022, Device: 0x14db, Class: 0x060400, Port: pcicfg.RootPort,
		MaxGeneration: 5, Generation: 1, MaxWidth: 16, Width: 4, MaxPayload: 512,
		ACS: &pcicfg.ACS{
			Capable: 0x7f, Control: pcicfg.EgressControl | pcicfg.DirectTranslated, EgressBits: 40, Egress: []int{0, 9, 39},
			Enhanced: &pcicfg.ACSEnhanced{IOBlocking: true, DownstreamTargets: pcicfg.TargetRedirected, UpstreamTargets: pcicfg.TargetBlocked, UnclaimedRedirect: true},
		},
		AER: &pcicfg.AER{
			UncorrectableStatus: pcicfg.UncorrectableACSViolation | pcicfg.UncorrectableCompletionTimeout, CorrectableStatus: pcicfg.CorrectableReceiver,
			UncorrectableMask: pcicfg.UncorrectableCompletionTimeout, UncorrectableSeverity: pcicfg.UncorrectableMalformed, CorrectableMask: pcicfg.CorrectableAdvisory,
			FirstError: 21, HeaderLog: [4]pcicfg.Hex{0x60000040, 0x010000ff, 0x380, 0x10},
			Root: &pcicfg.AERRoot{Command: 7, Status: 5, CorrectableSource: 0x0100, UncorrectableSource: 0x0108},
		},
		Caps: fixture.Caps{
			SubsystemVendor: 0x1043, SubsystemDevice: 0x8877,
			MaxReadRequest: 4096, StrictOrdering: true, ShortTags: true, Snooped: true, MaxPayloadSupported: 1024,
			DeviceStatus:        pcicfg.DeviceCorrectable | pcicfg.DeviceUnsupportedRequest,
			DeviceCapabilities2: pcicfg.DeviceCapabilities2{AtomicRouting: true, CAS128: true, TimeoutRanges: 0xf, NoRelaxedPassing: true, ARIForwarding: true},
			DeviceControl2:      pcicfg.DeviceControl2{Timeout: 0xa, ARIForwarding: true, AtomicEgressBlock: true},
			Link:                pcicfg.Link{Port: 9, ASPMSupported: pcicfg.ASPML0s | pcicfg.ASPML1, ASPM: pcicfg.ASPML1, AutonomousWidthDisabled: true, BandwidthChanged: true},
			Link2:               &pcicfg.Link2{TargetSpeed: 3, AutonomousSpeedDisabled: true, Retimers: 2, Equalization: pcicfg.Equalization{Complete: true, Phase1: true}},
			Slot:                &pcicfg.Slot{Number: 37, PowerLimit: 300_000, HotPlug: true, Surprise: true, Present: true, PoweredOff: true},
			DPC:                 &pcicfg.DPC{Trigger: pcicfg.DPCAnyFailure, Triggered: true, Reason: 2, Source: 0x0100},
			Physical32:          &pcicfg.PhysicalLayer{Equalization: pcicfg.Equalization{Requested: true}},
			DataLinkFeature:     &pcicfg.DataLinkFeature{Exchange: true},
		},
		Below: []fixture.Function{{
			Slot: "00.0", Vendor: 0x10de, Device: 0x2684, Class: 0x030200, Port: pcicfg.Endpoint,
			MaxGeneration: 4, MaxWidth: 16, Width: 8, MaxPayload: 128,
			BARs:  []fixture.BAR{{Index: 2, Size: 64 << 30, Wide: true}},
			ReBAR: &fixture.ReBAR{BAR: 2, Min: 1 << 20, Max: 1 << 62},
			Caps: fixture.Caps{
				SubsystemVendor: 0x10de, SubsystemDevice: 0x1234, MultiFunction: true,
				ROM:                 &pcicfg.ROM{Address: 0x80000000, Enabled: true},
				FunctionReset:       true,
				DeviceCapabilities2: pcicfg.DeviceCapabilities2{Atomic32: true, Atomic64: true, Tag10Completer: true, Tag10Requester: true, LTR: true, TimeoutDisable: true},
				DeviceControl2:      pcicfg.DeviceControl2{AtomicRequester: true, TimeoutDisabled: true, LTR: true, IDORequests: true, IDOCompletions: true, Tag10Requester: true},
				ATS:                 &pcicfg.ATS{Enabled: true, SmallestUnit: 64 << 10, InvalidateQueue: 7, PageAligned: true, GlobalInvalidate: true, RelaxedOrdering: true},
				PRI:                 &pcicfg.PRI{Enabled: true, Stopped: true},
				PASID:               &pcicfg.PASID{Enabled: true, Width: 20},
				ARI:                 &pcicfg.ARI{NextFunction: 4},
				SRIOV:               &pcicfg.SRIOV{Enabled: true, Total: 32, Number: 8},
				VFResizableBARs:     []pcicfg.ResizableBAR{{BAR: 0, Sizes: 0x7, Size: 2 << 20}, {BAR: 2, Sizes: 1<<28 | 1<<43, Size: 1 << 63}},
				L1Substates:         &pcicfg.L1Substates{Supported: 0xf, Enabled: 0xa},
				Device3:             &pcicfg.Device3{Tag14Completer: true, Tag14RequesterSupported: true, Tag14Requester: true, DeferrableRouting: true, DeferrableRequester: true, DeferrableEgressBlock: true},
				IDE:                 true,
			},
		}},
	},
	{
		Slot: "02.0", Vendor: 0x8086, Device: 0x3c02, Class: 0x060400, Port: pcicfg.RootPort, MaxGeneration: 3, MaxWidth: 16,
		Caps: fixture.Caps{NoPrefetchable: true},
	},
	{
		Slot: "03.0", Vendor: 0x8086, Device: 0x3c04, Class: 0x060400, Port: pcicfg.RootPort, MaxGeneration: 5, MaxWidth: 16, Room: 256 << 20,
		Caps:  fixture.Caps{Prefetchable32: true, FlitModeSupported: true, Link2: &pcicfg.Link2{TargetSpeed: 4, Retimers: 1, FlitMode: true}, Physical64: &pcicfg.PhysicalLayer{Equalization: pcicfg.Equalization{Phase2: true, Phase3: true}}},
		Below: []fixture.Function{{Slot: "00.0", Vendor: 0x10de, Device: 0x2204, Class: 0x030000, Port: pcicfg.LegacyEndpoint, MaxGeneration: 4, MaxWidth: 16, BARs: []fixture.BAR{{Index: 1, Size: 256 << 20, Wide: true, Low: true}}}},
	},
	{Slot: "04.0", Vendor: 0x8086, Device: 0x0b25, Class: 0x088000, Port: pcicfg.IntegratedEndpoint, ATS: true},
}}}}}

// asLspci words what was decoded the way lspci does, versions 3.9 to 3.14.
func asLspci(c *pcicfg.Config) []phrase {
	var w words
	if c.SubsystemVendor != 0 {
		w.say("Subsystem: %04x:%04x", uint64(c.SubsystemVendor), uint64(c.SubsystemDevice))
	}
	if c.ROM != nil {
		w.say("Expansion ROM at %08x", uint64(c.ROM.Address))
	}
	w.bridge(c.Bridge)
	w.express(c.Express)
	w.capabilities(c)
	w.newer(c)
	return w.out
}

// phrase is what lspci must say if it says where at all.
type phrase struct{ where, text string }

// words collects what lspci must say.
type words struct{ out []phrase }

func (w *words) say(format string, args ...any) { w.sayAfter("", format, args...) }

// sayAfter is for what only newer versions decode, on the line that starts with
// where.
func (w *words) sayAfter(where, format string, args ...any) {
	w.out = append(w.out, phrase{where, where + fmt.Sprintf(format, args...)})
}

func flag(on bool) string {
	if on {
		return "+"
	}
	return "-"
}

func (w *words) bridge(b *pcicfg.Bridge) {
	if b == nil {
		return
	}
	w.say("primary=%02x, secondary=%02x, subordinate=%02x", b.Primary, b.Secondary, b.Subordinate)
	if b.Memory.Size() > 0 {
		w.say("Memory behind bridge: %08x-%08x", uint64(b.Memory.Base), uint64(b.Memory.Limit))
	}
	switch p := b.Prefetchable; {
	case b.NoPrefetchable: // lspci can't tell that from the first MiB
		w.say("Prefetchable memory behind bridge: 00000000-000fffff")
	case b.Prefetchable64:
		w.say("Prefetchable memory behind bridge: %016x-%016x", uint64(p.Base), uint64(p.Limit))
	default:
		w.say("Prefetchable memory behind bridge: %08x-%08x", uint64(p.Base), uint64(p.Limit))
	}
}

func (w *words) express(e *pcicfg.Express) {
	if e == nil {
		return
	}
	w.say("DevCap: MaxPayload %d bytes", e.MaxPayloadSupported)
	w.say("ExtTag%s", flag(e.ExtendedTagsSupported))
	w.say("RlxdOrd%s ExtTag%s", flag(e.RelaxedOrdering), flag(e.ExtendedTags))
	w.say("NoSnoop%s", flag(e.NoSnoop))
	w.say("MaxPayload %d bytes, MaxReadReq %d bytes", e.MaxPayload, e.MaxReadRequest)
	w.say("DevSta: CorrErr%s NonFatalErr%s FatalErr%s UnsupReq%s", flag(e.DeviceStatus&pcicfg.DeviceCorrectable != 0),
		flag(e.DeviceStatus&pcicfg.DeviceNonFatal != 0), flag(e.DeviceStatus&pcicfg.DeviceFatal != 0), flag(e.DeviceStatus&pcicfg.DeviceUnsupportedRequest != 0))
	if s := e.Slot; s != nil {
		w.say("HotPlug%s Surprise%s Slot #%d, PowerLimit %gW", flag(s.HotPlug), flag(s.Surprise), s.Number, float64(s.PowerLimit)/1000)
		w.say("PresDet%s Interlock", flag(s.Present))
	}
	if l := e.Link; l != nil {
		w.say("LnkCap: Port #%d, Speed %gGT/s, Width x%d, ASPM %s", l.Port, gts(l.MaxSpeed), l.MaxWidth,
			[]string{"not supported", "L0s", "L1", "L0s L1"}[l.ASPMSupported])
		w.say("LnkCtl: ASPM %s;", []string{"Disabled", "L0s Enabled", "L1 Enabled", "L0s L1 Enabled"}[l.ASPM])
		w.say("AutWidDis%s", flag(l.AutonomousWidthDisabled))
		w.say("LnkSta: Speed %gGT/s", gts(l.Speed))
		w.say("Width x%d", l.Width)
		w.say("DLActive%s BWMgmt%s ABWMgmt%s", flag(*l.Active), flag(l.BandwidthChanged), flag(l.AutonomousChange))
		w.say("Supported Link Speeds: 2.5-%gGT/s", gts(l.SupportedSpeeds[len(l.SupportedSpeeds)-1]))
		w.link2(e.Link2)
	}
	w.device2(e)
}

func (w *words) link2(l *pcicfg.Link2) {
	w.say("LnkCtl2: Target Link Speed: %gGT/s, EnterCompliance- SpeedDis%s", gts(l.TargetSpeed), flag(l.AutonomousSpeedDisabled))
	q := l.Equalization
	w.say("EqualizationComplete%s EqualizationPhase1%s EqualizationPhase2%s EqualizationPhase3%s LinkEqualizationRequest%s",
		flag(q.Complete), flag(q.Phase1), flag(q.Phase2), flag(q.Phase3), flag(q.Requested))
	w.say("Retimer%s 2Retimers%s CrosslinkRes", flag(l.Retimers == 1), flag(l.Retimers == 2))
}

func (w *words) device2(e *pcicfg.Express) {
	c, ctl := e.DeviceCapabilities2, e.DeviceControl2
	w.say("TimeoutDis%s NROPrPrP%s LTR%s", flag(c.TimeoutDisable), flag(c.NoRelaxedPassing), flag(c.LTR))
	w.say("10BitTagComp%s 10BitTagReq%s", flag(c.Tag10Completer), flag(c.Tag10Requester))
	if _, longest, ok := ctl.CompletionTimeout(); ok {
		w.say(" to %s, TimeoutDis-", longest)
	}
	w.say("10BitTagReq%s OBFF Disabled", flag(ctl.Tag10Requester))
	switch e.Port {
	case pcicfg.RootPort:
		w.say("AtomicOpsCap: Routing%s 32bit%s 64bit%s 128bitCAS%s", flag(c.AtomicRouting), flag(c.Atomic32), flag(c.Atomic64), flag(c.CAS128))
		w.say("AtomicOpsCtl: ReqEn%s EgressBlck%s", flag(ctl.AtomicRequester), flag(ctl.AtomicEgressBlock))
	case pcicfg.UpstreamPort, pcicfg.DownstreamPort:
		w.say("AtomicOpsCap: Routing%s", flag(c.AtomicRouting))
		w.say("AtomicOpsCtl: EgressBlck%s", flag(ctl.AtomicEgressBlock))
	default:
		w.say("AtomicOpsCtl: ReqEn%s", flag(ctl.AtomicRequester))
	}
	if e.Port == pcicfg.RootPort || e.Port == pcicfg.DownstreamPort {
		w.say("ARIFwd%s AtomicOpsCap", flag(c.ARIForwarding))
		w.say("ARIFwd%s AtomicOpsCtl", flag(ctl.ARIForwarding))
	}
}

func (w *words) capabilities(c *pcicfg.Config) {
	if a := c.ACS; a != nil {
		for name, bits := range map[string]pcicfg.ACSBits{"Cap": a.Capable, "Ctl": a.Control} {
			has := func(b pcicfg.ACSBits) string { return flag(bits&b != 0) }
			w.say("ACS%s: SrcValid%s TransBlk%s ReqRedir%s CmpltRedir%s UpstreamFwd%s EgressCtrl%s DirectTrans%s", name,
				has(pcicfg.SourceValidation), has(pcicfg.TranslationBlocking), has(pcicfg.RequestRedirect), has(pcicfg.CompletionRedirect),
				has(pcicfg.UpstreamForwarding), has(pcicfg.EgressControl), has(pcicfg.DirectTranslated))
		}
	}
	for _, r := range slices.Concat(c.ResizableBARs, c.VFResizableBARs) {
		var sizes []string
		for code := range 44 {
			if r.Sizes>>code&1 != 0 {
				sizes = append(sizes, lspciSize(pcicfg.SizeOfCode(code)))
			}
		}
		w.say("BAR %d: current size: %s, supported: %s", r.BAR, lspciSize(r.Size), strings.Join(sizes, " "))
	}
	if a := c.ATS; a != nil {
		w.say("ATSCap: Invalidate Queue Depth: %02x", a.InvalidateQueue%32)
		w.say("ATSCtl: Enable%s, Smallest Translation Unit: %02x", flag(a.Enabled), bits.TrailingZeros64(a.SmallestUnit/4096))
	}
	if r := c.PRI; r != nil {
		w.say("PRICtl: Enable%s", flag(r.Enabled))
		w.say("Stopped%s", flag(r.Stopped))
	}
	if r := c.PASID; r != nil {
		w.say("Max PASID Width: %02x PASIDCtl: Enable%s", r.Width, flag(r.Enabled))
	}
	if r := c.ARI; r != nil {
		w.say("Next Function: %d", r.NextFunction)
	}
	if r := c.SRIOV; r != nil {
		w.say("IOVCtl: Enable%s", flag(r.Enabled))
		w.say("Total VFs: %d, Number of VFs: %d", r.Total, r.Number)
	}
	if r := c.DPC; r != nil {
		w.say("DpcCtl: Trigger:%x", int(r.Trigger))
		w.say("DpcSta: Trigger%s Reason:%02x", flag(r.Triggered), r.Reason)
		w.say("Source: %04x", uint64(r.Source))
	}
	if r := c.L1Substates; r != nil {
		for name, bits := range map[string]pcicfg.Hex{"Cap": r.Supported, "Ctl1": r.Enabled} {
			w.say("L1Sub%s: PCI-PM_L1.2%s PCI-PM_L1.1%s ASPM_L1.2%s ASPM_L1.1%s", name, flag(bits&1 != 0), flag(bits&2 != 0), flag(bits&4 != 0), flag(bits&8 != 0))
		}
	}
	w.aer(c.AER)
}

// newer words the capabilities that lspci 3.9 only names.
func (w *words) newer(c *pcicfg.Config) {
	for where, l := range map[string]*pcicfg.PhysicalLayer{"Phy16Sta:": c.Physical16, "Phy32Sta:": c.Physical32, "Phy64Sta:": c.Physical64} {
		if l != nil {
			q := l.Equalization
			w.sayAfter(where, " EquComplete%s EquPhase1%s EquPhase2%s EquPhase3%s LinkEquRequest%s",
				flag(q.Complete), flag(q.Phase1), flag(q.Phase2), flag(q.Phase3), flag(q.Requested))
		}
	}
	if r := c.Device3; r != nil {
		w.sayAfter("DevCap3:", " DMWr Request Routing%s, 14-Bit Tag Completer%s, 14-Bit Tag Requester%s",
			flag(r.DeferrableRouting), flag(r.Tag14Completer), flag(r.Tag14RequesterSupported))
		w.sayAfter("DevCtl3:", " DMWr Requester%s, DMWr Egress Blocking%s, 14-Bit Tag Requester%s",
			flag(r.DeferrableRequester), flag(r.DeferrableEgressBlock), flag(r.Tag14Requester))
	}
	if e := c.Express; e != nil && e.Link2 != nil {
		w.sayAfter("CrosslinkRes: unsupported, FltMode", "%s", flag(e.Link2.FlitMode))
	}
}

func (w *words) aer(a *pcicfg.AER) {
	if a == nil {
		return
	}
	for name, v := range map[string]pcicfg.Hex{"UESta": a.UncorrectableStatus, "UEMsk": a.UncorrectableMask, "UESvrt": a.UncorrectableSeverity} {
		has := func(b pcicfg.Hex) string { return flag(v&b != 0) }
		w.say("%s: DLP%s SDES%s TLP%s FCP%s CmpltTO%s CmpltAbrt%s UnxCmplt%s RxOF%s MalfTLP%s ECRC%s UnsupReq%s ACSViol%s", name,
			has(pcicfg.UncorrectableDataLink), has(pcicfg.UncorrectableSurpriseDown), has(pcicfg.UncorrectablePoisoned), has(1<<13),
			has(pcicfg.UncorrectableCompletionTimeout), has(pcicfg.UncorrectableCompleterAbort), has(pcicfg.UncorrectableUnexpected), has(1<<17),
			has(pcicfg.UncorrectableMalformed), has(1<<19), has(pcicfg.UncorrectableUnsupportedRequest), has(pcicfg.UncorrectableACSViolation))
	}
	for name, v := range map[string]pcicfg.Hex{"CESta": a.CorrectableStatus, "CEMsk": a.CorrectableMask} {
		has := func(b pcicfg.Hex) string { return flag(v&b != 0) }
		w.say("%s: RxErr%s BadTLP%s BadDLLP%s Rollover%s Timeout%s AdvNonFatalErr%s", name,
			has(pcicfg.CorrectableReceiver), has(pcicfg.CorrectableBadTLP), has(pcicfg.CorrectableBadDLLP),
			has(pcicfg.CorrectableReplayRollover), has(pcicfg.CorrectableReplayTimeout), has(pcicfg.CorrectableAdvisory))
	}
	w.say("First Error Pointer: %02x", a.FirstError)
	w.say("HeaderLog: %08x %08x %08x %08x", uint64(a.HeaderLog[0]), uint64(a.HeaderLog[1]), uint64(a.HeaderLog[2]), uint64(a.HeaderLog[3]))
	if r := a.Root; r != nil {
		w.say("RootCmd: CERptEn%s NFERptEn%s FERptEn%s", flag(r.Command&1 != 0), flag(r.Command&2 != 0), flag(r.Command&4 != 0))
		w.say("ErrorSrc: ERR_COR: %04x ERR_FATAL/NONFATAL: %04x", uint64(r.CorrectableSource), uint64(r.UncorrectableSource))
	}
}

// lspciNames says, for the name lspci gives each capability, whether we found
// it.
func lspciNames(c *pcicfg.Config) map[string]bool {
	has := func(id pcicfg.Hex) bool {
		found, _ := c.HasExtended(id)
		return found
	}
	return map[string]bool{
		"Advanced Error Reporting":       c.AER != nil,
		"Access Control Services":        c.ACS != nil,
		"Physical Resizable BAR":         c.ResizableBARs != nil,
		"Virtual Resizable BAR":          c.VFResizableBARs != nil,
		"Address Translation Service":    c.ATS != nil,
		"Page Request Interface":         c.PRI != nil,
		"Process Address Space ID":       c.PASID != nil,
		"Alternative Routing-ID":         c.ARI != nil,
		"Single Root I/O Virtualization": c.SRIOV != nil,
		"Downstream Port Containment":    c.DPC != nil,
		"L1 PM Substates":                c.L1Substates != nil,
		"Data Link Feature":              c.DataLinkFeature != nil,
		"Physical Layer 16.0 GT/s":       c.Physical16 != nil,
		"Lane Margining at the Receiver": has(pcicfg.ExtCapMargining),
		"Expansion ROM":                  c.ROM != nil,
		"Device Serial Number":           has(pcicfg.ExtCapSerial),
	}
}

func lspciSize(n uint64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB", "EB"}
	u := 0
	for n >= 1024 {
		n, u = n/1024, u+1
	}
	return fmt.Sprintf("%d%s", n, units[u])
}

// gts returns the transfer rate of a PCI Express generation in GT/s.
func gts(generation int) float64 {
	return []float64{0, 2.5, 5, 8, 16, 32, 64}[generation]
}
