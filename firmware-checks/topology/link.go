package topology

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// GBps is a rate in 10^9 bytes per second; 0 is a rate that is not known.
type GBps float64

// Rate is the speed of a link: a PCI Express generation and a number of lanes.
// Either is 0 when it is not known.
type Rate struct {
	Generation int `json:"generation"`
	Width      int `json:"width"`
}

// generations are the rates per lane and their line codes: 8b/10b at 2.5 and
// 5 GT/s, 128b/130b from 8 GT/s on, 1b/1b in FLIT mode at 64 GT/s (PCI Express
// Base Specification 6.0, sections 4.2.1, 4.2.2 and 4.2.3).
var generations = []struct {
	transfers float64 // GT/s per lane
	code      float64 // bits of data by bits on the wire
}{
	1: {2.5, 8. / 10},
	2: {5, 8. / 10},
	3: {8, 128. / 130},
	4: {16, 128. / 130},
	5: {32, 128. / 130},
	6: {64, 1},
}

// flitGeneration is the first that sends all packets in flits.
const flitGeneration = 6

// GBps returns what the lanes carry after the line code, before any packet
// overhead: transfers × width ÷ 8 × code.
func (r Rate) GBps() GBps {
	if r.Generation < 1 || r.Generation >= len(generations) {
		return 0
	}
	g := generations[r.Generation]
	return GBps(g.transfers * float64(r.Width) / 8 * g.code)
}

// Known reports whether both the speed and the width are known.
func (r Rate) Known() bool { return r.GBps() > 0 }

// String returns "Gen4 x16", with a question mark for what is not known.
func (r Rate) String() string {
	number := func(n int) string {
		if n == 0 {
			return "?"
		}
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("Gen%s x%s", number(r.Generation), number(r.Width))
}

// lesser takes the lesser of what is known.
func lesser(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func (r Rate) lesser(other Rate) Rate {
	return Rate{lesser(r.Generation, other.Generation), lesser(r.Width, other.Width)}
}

// Link is a PCI Express link between a port and the function below it.
type Link struct {
	Port     string `json:"port"`     // address of the upper end
	Function string `json:"function"` // address of the lower end
	// Capable is the most that both ends can do.
	Capable Rate `json:"capable"`
	// Current is the state of the link when it was read.
	Current Rate `json:"current"`
	// Loaded is what to expect under load, the rate that ceilings are computed
	// from: the width that was trained, with the speed as trained too, except
	// on the link of a GPU, which lowers it when idle; there it is the speed
	// that both ends can do. What is not known is taken from Capable.
	Loaded Rate `json:"loaded"`
	// Basis says in words where Loaded comes from.
	Basis string `json:"basis"`
	// MaxPayload is the smaller Max Payload Size of the ends, in bytes; 0: not
	// known.
	MaxPayload int `json:"max_payload,omitempty"`
}

// linkBetween returns the link between two nodes, nil when there is none.
func linkBetween(parent, n *Node) *Link {
	switch parent.Kind {
	case RootPort, DownstreamPort:
	default:
		return nil
	}
	if n.Kind == Bridge && portType(n.Device) < 0 {
		return nil // a conventional bridge
	}
	l := &Link{Port: parent.Name, Function: n.Name}
	for _, d := range []*facts.Device{parent.Device, n.Device} {
		if d == nil {
			continue
		}
		capable, current := rates(d)
		l.Capable = l.Capable.lesser(capable)
		l.Current = l.Current.lesser(current)
		if d.Config != nil && d.Config.Express != nil {
			l.MaxPayload = lesser(l.MaxPayload, d.Config.Express.MaxPayload)
		}
	}
	l.expect(n.Kind == GPU)
	return l
}

// expect fills in Loaded and Basis.
func (l *Link) expect(gpu bool) {
	l.Loaded, l.Basis = l.Current, "as trained"
	if l.Loaded.Width == 0 || l.Loaded.Generation == 0 {
		l.Loaded, l.Basis = l.Capable, "as capable, its state is not known"
		if !l.Loaded.Known() {
			l.Basis = "not known"
		}
		return
	}
	if gpu && l.Current.Generation < l.Capable.Generation {
		l.Loaded.Generation, l.Basis = l.Capable.Generation, "speed as capable, idle GPUs lower it; width as trained"
	}
}

// rates returns the rates of the link that d is an end of, from configuration
// space or else from sysfs.
func rates(d *facts.Device) (capable, current Rate) {
	if d.Config != nil && d.Config.Express != nil && d.Config.Express.Link != nil {
		l := d.Config.Express.Link
		return Rate{l.MaxSpeed, l.MaxWidth}, Rate{l.Speed, l.Width}
	}
	return Rate{Generation(d.MaxLinkSpeed), width(d.MaxLinkWidth)}, Rate{Generation(d.LinkSpeed), width(d.LinkWidth)}
}

// Generation returns the generation of a speed as sysfs words it, such as
// "16.0 GT/s PCIe" or, in kernels before 5.7, "16 GT/s"; 0 for any other text.
func Generation(speed string) int {
	var transfers float64
	if _, err := fmt.Sscanf(speed, "%g GT/s", &transfers); err != nil {
		return 0
	}
	for n, g := range generations {
		if n > 0 && g.transfers == transfers {
			return n
		}
	}
	return 0
}

// width returns the lanes of a width as sysfs words it; 0 for any other text,
// and for 255, which it prints when the link is down.
func width(lanes string) int {
	var n int
	if _, err := fmt.Sscanf(strings.TrimSpace(lanes), "%d", &n); err != nil || n < 1 || n > 32 {
		return 0
	}
	return n
}

// Overhead of a packet in bytes. At 2.5 and 5 GT/s it is a start and an end
// symbol, a sequence number of two bytes and an LCRC of four; from 8 GT/s on a
// token of four bytes that holds the sequence number, and the LCRC: eight
// either way (PCI Express Base Specification 6.0, sections 3.6.2.1, 4.2.1.2 and
// 4.2.2.3). The header has three or, with a 64-bit address, four words of four
// bytes (section 2.2.1). Flits have no framing and no LCRC for each packet;
// of 256 bytes they give 236 to packets (section 4.2.3.4).
const (
	framing       = 8
	header3       = 12
	header4       = 16
	flitSize      = 256
	flitForPacket = 236
)

// efficiency returns the share of the lanes' rate that payload gets, in packets
// of payload bytes after a header of some bytes. Acknowledgements, flow control
// and skip symbols cost one or two per cent more.
func efficiency(generation, payload, header int) float64 {
	share, overhead := 1., header+framing
	if generation >= flitGeneration {
		share, overhead = float64(flitForPacket)/flitSize, header
	}
	if payload == 0 {
		return share // not known: an upper bound
	}
	return share * float64(payload) / float64(payload+overhead)
}

// addressBytes returns the size of the header of a write to the framebuffer of
// d: that of a 64-bit address unless its BARs are known to lie below 4 GiB.
func addressBytes(d *facts.Device) int {
	low := false
	for _, r := range d.Resources {
		if r.Size() == 0 || !r.Prefetchable64() {
			continue
		}
		if r.Start >= pcicfg.Hex(1)<<32 {
			return header4
		}
		low = true
	}
	if low {
		return header3
	}
	return header4
}
