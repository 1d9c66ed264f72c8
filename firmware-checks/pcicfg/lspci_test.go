package pcicfg_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

// lspci and this decoder must read the same from every function of every kind
// of machine, and of one with everything that the kinds lack.
func TestAgreesWithLspci(t *testing.T) {
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		t.Skip("lspci (package pciutils) is not installed")
	}
	machines := []fixture.Machine{oddities}
	for _, k := range fixture.Kinds() {
		machines = append(machines, k.Machine)
	}
	for _, m := range machines {
		name := filepath.Join(t.TempDir(), "dump")
		file, err := os.Create(name)
		require.NoError(t, err)
		for _, s := range m.Spaces() {
			require.NoError(t, s.Dump(file))
		}
		require.NoError(t, file.Close())
		if len(m.Spaces()) == 0 {
			continue
		}
		out, err := exec.CommandContext(t.Context(), lspci, "-D", "-n", "-vvv", "-F", name).Output()
		require.NoError(t, err)
		said := map[string]string{}
		for block := range strings.SplitSeq(string(out), "\n\n") {
			address, _, _ := strings.Cut(block, " ")
			said[address] = strings.Join(strings.Fields(block), " ")
		}
		for _, s := range m.Spaces() {
			cfg, err := pcicfg.Decode(s.Bytes)
			if err != nil {
				require.ErrorIs(t, err, pcicfg.ErrNoResponse)
				continue
			}
			require.Contains(t, said, s.Address)
			for _, want := range asLspci(cfg) {
				assert.Contains(t, said[s.Address], want, s.Address)
			}
			if cfg.ACS == nil {
				assert.NotContains(t, said[s.Address], "ACSCtl", s.Address)
			}
			if cfg.ResizableBARs == nil {
				assert.NotContains(t, said[s.Address], "Resizable BAR", s.Address)
			}
		}
	}
}

// oddities are values that no kind of machine has.
var oddities = fixture.Machine{Hosts: []fixture.Host{{Functions: []fixture.Function{{
	Slot: "01.0", Vendor: 0x1022, Device: 0x14db, Class: 0x060400, Port: pcicfg.RootPort,
	MaxGeneration: 5, Generation: 1, MaxWidth: 16, Width: 4, MaxPayload: 512,
	ACS: &pcicfg.ACS{Capable: 0x7f, Control: pcicfg.EgressControl | pcicfg.DirectTranslated},
	AER: &pcicfg.AER{UncorrectableStatus: pcicfg.UncorrectableACSViolation | pcicfg.UncorrectableCompletionTimeout, CorrectableStatus: 1},
	Below: []fixture.Function{{
		Slot: "00.0", Vendor: 0x10de, Device: 0x2684, Class: 0x030200, Port: pcicfg.Endpoint, ATS: true,
		MaxGeneration: 4, MaxWidth: 16, Width: 8, MaxPayload: 128,
		BARs:  []fixture.BAR{{Index: 2, Size: 64 << 30, Wide: true}},
		ReBAR: &fixture.ReBAR{BAR: 2, Min: 1 << 20, Max: 1 << 62},
	}},
}}}}}

// asLspci words what was decoded the way lspci 3.9 does.
func asLspci(c *pcicfg.Config) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	flag := func(on bool) string {
		if on {
			return "+"
		}
		return "-"
	}
	if b := c.Bridge; b != nil {
		say("primary=%02x, secondary=%02x, subordinate=%02x", b.Primary, b.Secondary, b.Subordinate)
		if b.Prefetchable.Size() > 0 {
			say("Prefetchable memory behind bridge: %016x-%016x", uint64(b.Prefetchable.Base), uint64(b.Prefetchable.Limit))
		}
		if b.Memory.Size() > 0 {
			say("Memory behind bridge: %08x-%08x", uint64(b.Memory.Base), uint64(b.Memory.Limit))
		}
	}
	if e := c.Express; e != nil {
		say("DevCap: MaxPayload %d bytes", e.MaxPayloadSupported)
		say("RlxdOrd%s ExtTag%s", flag(e.RelaxedOrdering), flag(e.ExtendedTags))
		say("MaxPayload %d bytes, MaxReadReq %d bytes", e.MaxPayload, e.MaxReadRequest)
		say("Speed %gGT/s, Width x%d, ASPM", gts(e.Link.MaxSpeed), e.Link.MaxWidth)
		say("LnkSta: Speed %gGT/s", gts(e.Link.Speed))
		say("Width x%d", e.Link.Width)
		say("10BitTagComp%s 10BitTagReq%s", flag(e.DeviceCapabilities2.Tag10Completer), flag(e.DeviceCapabilities2.Tag10Requester))
		last := e.Link.SupportedSpeeds[len(e.Link.SupportedSpeeds)-1]
		say("Supported Link Speeds: 2.5-%gGT/s", gts(last))
	}
	if a := c.ACS; a != nil {
		for name, bits := range map[string]pcicfg.ACSBits{"Cap": a.Capable, "Ctl": a.Control} {
			has := func(b pcicfg.ACSBits) string { return flag(bits&b != 0) }
			say("ACS%s: SrcValid%s TransBlk%s ReqRedir%s CmpltRedir%s UpstreamFwd%s EgressCtrl%s DirectTrans%s", name,
				has(pcicfg.SourceValidation), has(pcicfg.TranslationBlocking), has(pcicfg.RequestRedirect), has(pcicfg.CompletionRedirect),
				has(pcicfg.UpstreamForwarding), has(pcicfg.EgressControl), has(pcicfg.DirectTranslated))
		}
	}
	for _, r := range c.ResizableBARs {
		var sizes []string
		for code := range 44 {
			if r.Sizes>>code&1 != 0 {
				sizes = append(sizes, lspciSize(pcicfg.SizeOfCode(code)))
			}
		}
		say("BAR %d: current size: %s, supported: %s", r.BAR, lspciSize(r.Size), strings.Join(sizes, " "))
	}
	if a := c.ATS; a != nil {
		say("ATSCtl: Enable%s, Smallest Translation Unit: 00", flag(a.Enabled))
	}
	if a := c.AER; a != nil {
		say("CmpltTO%s", flag(a.UncorrectableStatus&pcicfg.UncorrectableCompletionTimeout != 0))
		say("ACSViol%s UEMsk", flag(a.UncorrectableStatus&pcicfg.UncorrectableACSViolation != 0))
		say("CESta: RxErr%s", flag(a.CorrectableStatus&1 != 0))
	}
	return out
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
