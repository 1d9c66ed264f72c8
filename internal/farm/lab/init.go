package lab

import (
	"net/netip"
	"strconv"
	"strings"
	"text/template"
)

// First is what a first lab.yaml is made of.
type First struct {
	Image     string       // directory, as it is to be in the file
	Interface string       // of the lab's net; empty: none was found
	Address   netip.Prefix // of the interface
	Others    []string     // interfaces that may be meant as well, with their addresses
	Zone      string       // of the host; empty: not known
}

// Text is the file.
func (f First) Text() ([]byte, error) {
	var b strings.Builder
	err := first.Execute(&b, f)
	return []byte(b.String()), err
}

// host is the server's address, or that of an example.
func (f First) host() string {
	if f.Interface == "" {
		return "10.0.0.1"
	}
	return f.Address.Addr().String()
}

var first = template.Must(template.New("").Funcs(template.FuncMap{
	"host": First.host, "quote": strconv.Quote, "join": func(s []string) string { return strings.Join(s, ", ") },
}).Parse(`# The lab: what mkp2pimg serve and mkp2pimg farm run read. docs/farm.md has all keys.
# After a change: systemctl reload, or kill -HUP.

# How machines of the lab reach this server.
server: http://{{host .}}:8080

dhcp:
{{- if .Interface}}
  # proxy: the lab's own DHCP server gives addresses, this one adds what to boot.
  # full: this is the only DHCP server of an isolated net; takes a range as well.
  # off: the lab's own DHCP server says what to boot.
  mode: proxy
  interface: {{.Interface}} # {{.Address}}
{{- if .Others}}; this machine also has {{join .Others}}{{end}}
  # range: 10.0.0.100-10.0.0.199
{{- else}}
  # No interface with a private address was found. Set the mode to proxy or full,
  # and interface to that of the lab's net.
  mode: off
{{- end}}

images:
  p2p: {{quote .Image}} # mkp2pimg build --format pxe

# ANY machine that starts from this net gets the image, once in a night. List your
# machines below and set this to never as soon as others may start from it too.
unknown: nightly

defaults:
  plan: full    # check: without driver and measurement
  after: reboot # then it starts from its disk; or poweroff
  deadline: 30m # for a run
  attempts: 2   # starts in a night until a report is complete
  boot: nightly # armed: only after mkp2pimg farm run; always; never

night:
  begins: "18:00"
{{- if .Zone}}
  zone: {{.Zone}}
{{- end}}

# nodes:
#   - name: rack1-1
#     mac: 52:54:00:12:34:56 # or uuid, or serial
#     group: rack1           # what shares power
#     power:                 # for mkp2pimg farm run: redfish, ipmi, wol or command
#       redfish: {url: "https://10.0.1.7", user: admin, password-file: bmc-password}
`))
