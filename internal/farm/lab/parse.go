package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/farm"
)

// maxSize is the largest description that is read, in bytes: 100 for each of tens
// of thousands of nodes.
const maxSize = 8 << 20

// Load reads a file. The error joins an [Error] for each mistake in it.
func Load(path string) (*Lab, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// What the YAML package says about a mistake is in the text of its error only. It
// counts lines from 1 where it splits the text into tokens, from 0 where it parses
// those (decode.go, fail), and has no line for an alias.
var (
	yamlText    = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	yamlParsing = regexp.MustCompile(`^did not find expected (?:key$|node content|'-' indicator|',' or |<document start>)|^found undefined tag handle`)
	yamlAlias   = regexp.MustCompile(`^unknown anchor '(.+)' referenced`)
)

// yamlError returns the line and the text of an error in reading data.
func yamlError(err error, data []byte) (line int, text string) {
	said := yamlText.FindStringSubmatch(err.Error())
	if said == nil {
		return 1, err.Error()
	}
	text = said[2]
	line, _ = strconv.Atoi(said[1]) // 0: it has none
	if yamlParsing.MatchString(text) {
		line++
	}
	if alias := yamlAlias.FindStringSubmatch(text); alias != nil {
		before, _, _ := bytes.Cut(data, []byte("*"+alias[1]))
		line = 1 + bytes.Count(before, []byte("\n"))
	}
	return max(line, 1), text
}

// Parse reads a description that was, or will be, in the file path.
func Parse(path string, data []byte) (*Lab, error) {
	if len(data) > maxSize {
		return nil, &Error{path, 1, fmt.Sprintf("it has more than %d bytes", maxSize)}
	}
	var doc yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(data))
	err := in.Decode(&doc)
	if err == nil {
		if more := in.Decode(new(yaml.Node)); !errors.Is(more, io.EOF) {
			err = errors.New("yaml: there is a second document: a lab has one")
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, &Error{path, 1, "it is empty: write one with mkp2pimg serve --init"}
	case err != nil:
		line, text := yamlError(err, data)
		return nil, &Error{path, line, text}
	}
	d := &decoder{path: path, seen: map[string]int{}}
	l := d.lab(doc.Content[0])
	if err := d.err(); err != nil {
		return nil, err
	}
	return l, nil
}

// lab reads the whole.
func (d *decoder) lab(top *yaml.Node) *Lab {
	l := &Lab{
		Path: d.path, Listen: ":8080", Images: map[string]string{}, Unknown: Never,
		DHCP:     DHCP{Mode: Off, TFTP: true, Lease: time.Hour},
		Defaults: Settings{Plan: string(params.Full), After: string(params.Reboot), Deadline: 30 * time.Minute, Attempts: 2, Boot: WhenDue},
		Clock:    Clock{Begins: 18 * time.Hour, Zone: time.Local},
		Nightly:  Nightly{Deadline: 12 * time.Hour, Attempts: 2},
	}
	l.Store, _ = d.file("farm.db")
	l.AdminTokenFile, _ = d.file("admin-token")
	l.DHCP.LeaseFile, _ = d.file("leases.json")
	var nodes, defaults *yaml.Node
	named := false
	keep := func(dst **yaml.Node) func(*yaml.Node) { return func(n *yaml.Node) { *dst = follow(n) } }
	d.mapping(top, "the lab", fields{
		"server": func(n *yaml.Node) {
			named = true
			scalar(d, &l.Server, server("http"))(n)
		},
		"listen":           scalar(d, &l.Listen, listen),
		"tls":              func(n *yaml.Node) { d.tls(n, &l.TLS) },
		"dhcp":             func(n *yaml.Node) { d.dhcp(n, &l.DHCP) },
		"store":            scalar(d, &l.Store, d.store),
		"admin-token-file": scalar(d, &l.AdminTokenFile, d.file),
		"images":           func(n *yaml.Node) { d.images(n, l.Images) },
		"loaders":          scalar(d, &l.Loaders, d.file),
		"unknown":          scalar(d, &l.Unknown, oneOf(WhenDue, WhenArmed, Always, Never)),
		"pixiecore":        list(d, &l.Pixie, address),
		"defaults":         keep(&defaults),
		"night":            func(n *yaml.Node) { d.clock(n, &l.Clock) },
		"retention":        func(n *yaml.Node) { d.retention(n, &l.Retention) },
		"nodes":            keep(&nodes),
		"nightly":          func(n *yaml.Node) { d.nightly(n, &l.Nightly) },
	})
	if len(l.Images) == 1 {
		l.Defaults.Image = slices.Collect(maps.Keys(l.Images))[0]
	}
	if defaults != nil {
		d.mapping(defaults, "defaults", d.settings(&l.Defaults, l.Images))
	}
	if nodes != nil {
		d.nodes(nodes, l)
	}
	if top.Kind == yaml.MappingNode {
		d.whole(top, l, named)
	}
	return l
}

// whole checks what several keys say together; named says that server is one of
// them.
func (d *decoder) whole(top *yaml.Node, l *Lab, named bool) {
	if len(l.Images) == 0 {
		d.fail(top, "images is missing: the directories that mkp2pimg build made, by name (images: {p2p: out})")
	}
	if !named {
		d.fail(top, "server is missing: the URL that machines reach this server at (server: http://10.0.0.1:8080)")
	}
	if l.Server != "" && l.TLS.Listen != "" && l.TLS.Server == "" {
		l.TLS.Server = "https://" + net.JoinHostPort(hostOf(l.Server), portOf(l.TLS.Listen))
	}
	if l.Unknown != Never && l.Defaults.Image == "" && len(l.Images) > 0 {
		d.fail(top, "unknown machines are to boot an image, and defaults has no image: it is one of %v", slices.Sorted(maps.Keys(l.Images)))
	}
}

func hostOf(server string) string {
	host := server[strings.Index(server, "://")+3:]
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.Trim(host, "[]")
}

func portOf(listen string) string {
	_, port, _ := net.SplitHostPort(listen)
	return port
}

func (d *decoder) tls(n *yaml.Node, t *TLS) {
	t.Listen = ":8443"
	t.Cert, _ = d.file("cert.pem")
	t.Key, _ = d.file("key.pem")
	d.mapping(n, "tls", fields{
		"listen": scalar(d, &t.Listen, listen),
		"server": scalar(d, &t.Server, server("https")),
		"cert":   scalar(d, &t.Cert, d.file),
		"key":    scalar(d, &t.Key, d.file),
	})
}

func (d *decoder) dhcp(n *yaml.Node, c *DHCP) {
	var span string
	d.mapping(n, "dhcp", fields{
		"mode":       scalar(d, &c.Mode, oneOf(Proxy, Full, Off)),
		"interface":  scalar(d, &c.Interface, name),
		"tftp":       scalar(d, &c.TFTP, yes),
		"range":      scalar(d, &span, text),
		"lease":      scalar(d, &c.Lease, duration),
		"router":     scalar(d, &c.Router, address),
		"dns":        list(d, &c.DNS, address),
		"lease-file": scalar(d, &c.LeaseFile, d.file),
	})
	if c.Mode != Off && c.Interface == "" {
		d.fail(n, "dhcp: interface is missing: the network interface of the lab's net")
	}
	if c.Mode != Full {
		if span != "" {
			d.fail(n, "dhcp: range is for mode full")
		}
		return
	}
	first, last, _ := strings.Cut(span, "-")
	var err error
	if c.First, err = address(strings.TrimSpace(first)); err == nil {
		c.Last, err = address(strings.TrimSpace(last))
	}
	if err != nil || c.Last.Less(c.First) || c.First.As4()[0] != c.Last.As4()[0] || c.First.As4()[1] != c.Last.As4()[1] {
		d.fail(n, "dhcp: mode full takes a range of up to 65536 addresses such as 10.0.0.100-10.0.0.199, not %q", span)
	}
}

// store is the path of a file, or the URL of a database.
func (d *decoder) store(v string) (string, error) {
	if strings.HasPrefix(v, "postgres://") || strings.HasPrefix(v, "postgresql://") {
		return v, nil
	}
	path := strings.TrimPrefix(v, "sqlite://")
	if path == "" || strings.Contains(path, "://") {
		return "", fmt.Errorf("%q is no store: want the path of a file or postgres://…", v)
	}
	return d.file(path)
}

func (d *decoder) images(n *yaml.Node, images map[string]string) {
	entries, _ := d.entries(n, "images")
	for _, e := range entries {
		key, dir := "", ""
		scalar(d, &key, name)(e.key)
		scalar(d, &dir, text)(e.value)
		if key != "" && dir != "" {
			images[key], _ = d.file(dir)
		}
	}
}

func (d *decoder) clock(n *yaml.Node, c *Clock) {
	d.mapping(n, "night", fields{"begins": scalar(d, &c.Begins, clock), "zone": scalar(d, &c.Zone, zone)})
}

func (d *decoder) retention(n *yaml.Node, r *Retention) {
	d.mapping(n, "retention", fields{"reports": scalar(d, &r.Reports, duration), "runs": scalar(d, &r.Runs, duration)})
	if r.Runs > 0 && r.Reports > r.Runs {
		d.fail(n, "retention: reports can't be kept longer than their runs")
	}
}

func (d *decoder) nightly(n *yaml.Node, c *Nightly) {
	d.mapping(n, "nightly", fields{
		"concurrency": scalar(d, &c.Concurrency, count),
		"per-group":   scalar(d, &c.PerGroup, count),
		"deadline":    scalar(d, &c.Deadline, duration),
		"attempts":    scalar(d, &c.Attempts, count),
	})
}

// settings are the keys that defaults and nodes share.
func (d *decoder) settings(s *Settings, images map[string]string) fields {
	inherited := s.Parameters
	return fields{
		"image": scalar(d, &s.Image, func(v string) (string, error) {
			if _, ok := images[v]; !ok {
				return "", fmt.Errorf("there is no image %q%s", v, meant(v, slices.Collect(maps.Keys(images))))
			}
			return v, nil
		}),
		"plan": scalar(d, &s.Plan, oneOf(string(params.Full), string(params.Check))),
		"parameters": func(n *yaml.Node) {
			var own []string
			list(d, &own, parameter)(n)
			s.Parameters = slices.Clone(inherited)
			for _, p := range own {
				s.Parameters = append(s.Parameters, strings.Fields(p)...)
			}
		},
		"after":    scalar(d, &s.After, oneOf(string(params.Reboot), string(params.PowerOff))),
		"deadline": scalar(d, &s.Deadline, duration),
		"attempts": scalar(d, &s.Attempts, count),
		"boot":     scalar(d, &s.Boot, oneOf(WhenDue, WhenArmed, Always, Never)),
	}
}

func (d *decoder) nodes(n *yaml.Node, l *Lab) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, "nodes: want a list, each entry with - before it")
		return
	}
	for _, item := range n.Content {
		l.Nodes = append(l.Nodes, d.node(follow(item), l))
	}
}

func (d *decoder) node(n *yaml.Node, l *Lab) Node {
	v := Node{Settings: l.Defaults, Line: n.Line}
	v.Parameters = slices.Clone(v.Parameters)
	identity := func(kind string, dst *string, parse func(string) (string, error)) func(*yaml.Node) {
		return func(n *yaml.Node) {
			if scalar(d, dst, parse)(n); *dst != "" {
				d.once(n, kind, *dst)
			}
		}
	}
	known := d.settings(&v.Settings, l.Images)
	maps.Copy(known, fields{
		"name":   identity("name", &v.Name, name),
		"mac":    identity("mac", &v.MAC, mac),
		"uuid":   identity("uuid", &v.UUID, systemUUID),
		"serial": identity("serial", &v.Serial, serial),
		"group":  scalar(d, &v.Group, name),
		"power": func(n *yaml.Node) {
			v.Power = &Power{}
			d.power(n, v.Power)
		},
		"baseline": func(n *yaml.Node) { d.baseline(n, &v) },
	})
	before := len(d.errs)
	d.mapping(n, "a node", known)
	if len(d.errs) > before {
		return v
	}
	if v.Name == "" {
		d.fail(n, "the node has no name")
	}
	if v.MAC == "" && v.UUID == "" && v.Serial == "" {
		d.fail(n, "node %s has nothing to know it by: mac, uuid or serial", v.Name)
	}
	if v.Boot != Never && v.Image == "" && len(l.Images) > 0 {
		d.fail(n, "node %s has no image, and defaults has none: it is one of %v", v.Name, slices.Sorted(maps.Keys(l.Images)))
	}
	if v.Power != nil && v.Power.WOL != nil {
		v.Power.WOL.MAC = cmp.Or(v.Power.WOL.MAC, v.MAC)
		if v.Power.WOL.MAC == "" {
			d.fail(n, "node %s can't be woken without a MAC address", v.Name)
		}
	}
	for i := range v.Baseline {
		v.Baseline[i].Node = v.Name
	}
	return v
}

func (d *decoder) power(n *yaml.Node, p *Power) {
	d.mapping(n, "power", fields{
		"redfish": func(n *yaml.Node) {
			r := &Redfish{}
			p.Redfish = r
			d.mapping(n, "redfish", fields{
				"url": scalar(d, &r.URL, bmcURL), "user": scalar(d, &r.User, text), "password-file": scalar(d, &r.PasswordFile, d.file),
				"system": scalar(d, &r.System, text), "insecure": scalar(d, &r.Insecure, yes), "pin": scalar(d, &r.Pin, pin),
			})
			if r.URL == nil || r.User == "" || r.PasswordFile == "" {
				d.fail(n, "redfish takes url, user and password-file")
			}
			if r.Insecure && r.Pin != "" {
				d.fail(n, "redfish: either insecure or pin")
			}
		},
		"ipmi": func(n *yaml.Node) {
			p.IPMI = &IPMI{}
			d.mapping(n, "ipmi", fields{
				"host": scalar(d, &p.IPMI.Host, text), "user": scalar(d, &p.IPMI.User, text), "password-file": scalar(d, &p.IPMI.PasswordFile, d.file), "legacy": scalar(d, &p.IPMI.Legacy, yes),
			})
			if p.IPMI.Host == "" || p.IPMI.User == "" || p.IPMI.PasswordFile == "" {
				d.fail(n, "ipmi takes host, user and password-file")
			}
		},
		"wol": func(n *yaml.Node) {
			p.WOL = &WOL{Broadcast: "255.255.255.255:9"}
			d.mapping(n, "wol", fields{"mac": scalar(d, &p.WOL.MAC, mac), "broadcast": scalar(d, &p.WOL.Broadcast, hostPort)})
		},
		"command": list(d, &p.Command, text),
	})
	ways := 0
	for _, set := range []bool{p.Redfish != nil, p.IPMI != nil, p.WOL != nil, len(p.Command) > 0} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		d.fail(n, "power: want exactly one of redfish, ipmi, wol and command")
	}
}

// baseline reads pinned quantities: {KEY: 26.1 GB/s}.
func (d *decoder) baseline(n *yaml.Node, v *Node) {
	entries, _ := d.entries(n, "baseline")
	for _, e := range entries {
		b := farm.Baseline{Key: e.key.Value, Pinned: true}
		scalar(d, &b.Median, func(s string) (x float64, err error) {
			x, b.Unit, err = quantity(s)
			return x, err
		})(e.value)
		v.Baseline = append(v.Baseline, b)
	}
}
