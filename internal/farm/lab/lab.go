// Package lab reads lab.yaml, the description of a lab: its machines, what they
// boot each night, and where the server keeps what they report.
//
// It is strict: a key that is unknown, a name that is there twice, an address that
// is none are errors with file and line, all of them at once, since a typing error
// must not cost a night.
package lab

import (
	"net/netip"
	"net/url"
	"strings"
	"time"
	_ "time/tzdata" // zones on hosts without their files

	"mkp2pimg/internal/farm"
)

// Lab is the description of a lab. Paths in it are absolute or relative to the
// working directory, no longer to the file.
type Lab struct {
	Path   string // of the file
	Server string // URL without a path that machines of the lab reach the boot service at: http://10.0.0.1:8080
	Listen string // address of the boot service: ":8080"
	TLS    TLS
	DHCP   DHCP

	Store          string // path of an SQLite file, or postgres://…
	AdminTokenFile string // made by the server when it first starts

	Images  map[string]string // directories of images, by name
	Loaders string            // directory of iPXE's programs; empty: those of the images
	Pixie   []netip.Addr      // of pixiecore servers that may ask what a machine boots
	Unknown Boot              // what machines do that are not in Nodes
	// Defaults are what Unknown machines boot. Those of Nodes are in each of them
	// already.
	Defaults Settings

	Clock     Clock
	Retention Retention
	Nodes     []Node
	Nightly   Nightly
}

// TLS is the encrypted part of the server: reports, page and administration. The
// boot service is always without, since firmware and loaders know no authority of
// the lab's. It is off where Listen is empty.
type TLS struct {
	Listen    string // ":8443"
	Server    string // URL that machines reach it at
	Cert, Key string // files in PEM; the server makes both if neither is there
}

// Mode is what the server does about DHCP.
type Mode string

// The modes.
const (
	Proxy Mode = "proxy" // adds what to boot to the answers of the lab's own DHCP server
	Full  Mode = "full"  // is the only DHCP server of an isolated net
	Off   Mode = "off"   // the lab's own DHCP server says what to boot
)

// DHCP is how machines learn what to boot.
type DHCP struct {
	Mode      Mode
	Interface string // of the lab's net; empty if Mode is Off
	TFTP      bool   // whether loaders are served by TFTP too, for firmware that knows nothing else

	// With mode Full: the first and last address to give, how long, and what the
	// machines are told. The net's mask is that of the interface.
	First, Last netip.Addr
	Lease       time.Duration
	Router      netip.Addr // invalid: none
	DNS         []netip.Addr
	LeaseFile   string // where leases are kept while the server does not run
}

// Boot is when a machine that starts from the network gets the image.
type Boot string

// When it does. At all other times it starts from its disk.
const (
	// WhenDue: it is armed, or it has no complete report of this night and attempts
	// are left.
	WhenDue   Boot = "nightly"
	WhenArmed Boot = "armed" // it is armed, with mkp2pimg farm run or on the page
	Always    Boot = "always"
	Never     Boot = "never" // its requests are not even answered where another DHCP server does
)

// Settings are what a machine runs.
type Settings struct {
	Image      string        // name in Images
	Plan       string        // p2p.plan
	Parameters []string      // further kernel parameters, those of the defaults first; the last of several counts
	After      string        // p2p.after: reboot or poweroff
	Deadline   time.Duration // from the offer to the end of the report
	Attempts   int           // starts in a night
	Boot       Boot
}

// Node is a machine. It is recognised by its MAC address, else its UUID, else its
// serial number.
type Node struct {
	Name   string
	MAC    string // lower case with colons
	UUID   string // SMBIOS system UUID, lower case
	Serial string // SMBIOS system serial number
	Group  string // what shares power, such as a rack
	Settings
	Power    *Power // nil: it is switched on by others
	Baseline []farm.Baseline
	Line     int // in the file
}

// Power is how a machine is made to start from the network. Exactly one field is set.
type Power struct {
	Redfish *Redfish
	IPMI    *IPMI
	WOL     *WOL
	Command []string // program and arguments
}

// Redfish is a BMC that speaks Redfish (DMTF DSP0266).
type Redfish struct {
	URL                *url.URL
	User, PasswordFile string
	System             string // Id of the computer system; empty: the only one
	Insecure           bool   // any certificate will do
	Pin                string // base64url SHA-256 of the public key (SPKI) of the certificate that will do
}

// IPMI is a BMC that ipmitool speaks to over the LAN.
type IPMI struct {
	Host, User, PasswordFile string
	Legacy                   bool // the machine's firmware is legacy BIOS, or in that mode
}

// WOL is the magic packet of Wake-on-LAN.
type WOL struct {
	MAC       string
	Broadcast string // host:port that it is sent to: "10.0.0.255:9"
}

// Clock says when a night begins. It lasts until the next one begins.
type Clock struct {
	Begins time.Duration // since midnight
	Zone   *time.Location
}

// Retention is how long things are kept; zero is for ever.
type Retention struct {
	Reports time.Duration // raw reports; what was found in them stays
	Runs    time.Duration // runs with all that was found
}

// Nightly is how many machines are started at once, and how long they have.
type Nightly struct {
	Concurrency int           // machines that run at the same time; 0: any number
	PerGroup    int           // of a group; 0: any number
	Deadline    time.Duration // for the whole night's run
	Attempts    int           // to start a machine that delivered nothing
}

// Night is the night that a moment belongs to, 2006-01-02: the day on which it
// began.
func (l *Lab) Night(t time.Time) string {
	local := t.In(l.Clock.Zone)
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
	if clock < l.Clock.Begins {
		local = local.AddDate(0, 0, -1)
	}
	return local.Format(time.DateOnly)
}

// Find is the node with one of these identities; empty ones are none. The first
// that fits counts, since two boards can have the same serial number, and many
// have the same UUID.
func (l *Lab) Find(mac, uuid, serial string) (*Node, bool) {
	for _, is := range []func(*Node) bool{
		func(n *Node) bool { return n.MAC != "" && strings.EqualFold(n.MAC, mac) },
		func(n *Node) bool { return n.UUID != "" && strings.EqualFold(n.UUID, uuid) },
		func(n *Node) bool { return n.Serial != "" && n.Serial == serial },
	} {
		for i := range l.Nodes {
			if is(&l.Nodes[i]) {
				return &l.Nodes[i], true
			}
		}
	}
	return nil, false
}

// Named is the node of a name.
func (l *Lab) Named(name string) (*Node, bool) {
	for i := range l.Nodes {
		if l.Nodes[i].Name == name {
			return &l.Nodes[i], true
		}
	}
	return nil, false
}

// API is the base URL of reports, page and administration.
func (l *Lab) API() string {
	if l.TLS.Listen != "" {
		return l.TLS.Server
	}
	return l.Server
}
