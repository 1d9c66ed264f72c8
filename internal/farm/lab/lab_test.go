package lab

import (
	"errors"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

// small is the least that a lab needs.
const small = "server: http://10.0.0.1:8080\nimages: {p2p: out}\n"

func TestDefaults(t *testing.T) {
	l, err := Parse("etc/lab.yaml", []byte(small+"nodes:\n  - {name: a, mac: 52-54-00-12-34-56}\n"))
	require.NoError(t, err)
	assert.Equal(t, Lab{
		Path: "etc/lab.yaml", Server: "http://10.0.0.1:8080", Listen: ":8080",
		DHCP:  DHCP{Mode: Off, TFTP: true, Lease: time.Hour, LeaseFile: "etc/leases.json"},
		Store: "etc/farm.db", AdminTokenFile: "etc/admin-token", Images: map[string]string{"p2p": "etc/out"}, Unknown: Never,
		Defaults: Settings{Image: "p2p", Plan: "full", After: "reboot", Deadline: 30 * time.Minute, Attempts: 2, Boot: WhenDue},
		Clock:    Clock{Begins: 18 * time.Hour, Zone: time.Local},
		Nightly:  Nightly{Deadline: 12 * time.Hour, Attempts: 2},
		Nodes: []Node{{
			Name: "a", MAC: "52:54:00:12:34:56", Line: 4,
			Settings: Settings{Image: "p2p", Plan: "full", After: "reboot", Deadline: 30 * time.Minute, Attempts: 2, Boot: WhenDue},
		}},
	}, *l)
	assert.Equal(t, "http://10.0.0.1:8080", l.API())
}

func TestWhole(t *testing.T) {
	l, err := Load("testdata/whole.yaml")
	require.NoError(t, err)
	assert.Equal(t, "https://10.0.0.1:8443", l.API())
	assert.Equal(t, "10.0.0.100", l.DHCP.First.String())
	assert.Equal(t, 90*24*time.Hour, l.Retention.Reports)
	n, ok := l.Named("rack1-1")
	require.True(t, ok)
	assert.Equal(t, []string{"console=ttyS1,115200", "p2p.driver=stock", "p2p.driver=ab"}, n.Parameters, "a node's come last, and the last counts")
	assert.Equal(t, "big", n.Image)
	assert.Equal(t, "admin", n.Power.Redfish.User, "merged")
	assert.Equal(t, "testdata/bmc-password", n.Power.Redfish.PasswordFile)
	assert.Equal(t, "https://10.0.1.7", n.Power.Redfish.URL.String())
	require.Len(t, n.Baseline, 1)
	assert.InDelta(t, 26.1, n.Baseline[0].Median, 0)
	assert.Equal(t, "GB/s", n.Baseline[0].Unit)
	assert.Equal(t, "rack1-1", n.Baseline[0].Node)
	n, _ = l.Named("rack1-2")
	assert.Equal(t, []string{"console=ttyS1,115200", "p2p.driver=stock"}, n.Parameters)
	assert.Equal(t, WOL{MAC: "52:54:00:12:34:57", Broadcast: "10.0.0.255:9"}, *n.Power.WOL)
	n, _ = l.Named("rack1-3")
	assert.Equal(t, []string{"pdu", "cycle", "3"}, n.Power.Command)
	assert.Equal(t, time.Hour, n.Deadline)
}

// TestErrors has a file with a mistake in most of its lines.
func TestErrors(t *testing.T) {
	_, err := Load("testdata/wrong.yaml")
	require.Error(t, err)
	golden.Equal(t, "testdata/wrong.txt", err.Error()+"\n")
	var first *Error
	require.ErrorAs(t, err, &first)
	assert.Equal(t, "testdata/wrong.yaml", first.Path)
}

func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"empty":               {"", "l.yaml:1: it is empty"},
		"only a comment":      {"# nothing\n", "l.yaml:1: it is empty"},
		"no YAML":             {"server: [\n", "l.yaml:2: did not find expected node content"},
		"bracket":             {small + "nodes:\n  - {name: a\n  - {name: b}\n", "l.yaml:4: did not find expected ',' or '}'"},
		"indentation":         {small + "nodes:\n  - name: a\n   serial: b\n", "l.yaml:4: did not find expected '-' indicator"},
		"tab":                 {small + "nodes:\n  - name: a\n\tserial: b\n", "l.yaml:4: found a tab character"},
		"colons":              {small + "store: a: b\n", "l.yaml:3: mapping values are not allowed"},
		"no such anchor":      {small + "nodes:\n  - *rack1\n", "l.yaml:4: unknown anchor 'rack1' referenced"},
		"nothing in it":       {"{}\n", "l.yaml:1: images is missing"},
		"two documents":       {small + "---\n" + small, "second document"},
		"merged twice":        {"x-a: &a {plan: full}\n" + small + "defaults: {<<: [*a, *a]}\n", "l.yaml:4: << takes one mapping"},
		"strangers, no image": {"server: http://a\nimages: {a: a, b: b}\nunknown: always\n", "defaults has no image: it is one of [a b]"},
		"long":                {strings.Repeat("#", maxSize+1), "more than 8388608 bytes"},
		"two ways":            {small + "nodes: [{name: a, serial: x, power: {wol: {mac: 52:54:00:12:34:57}, command: a}}]\n", "exactly one of"},
		"woken without MAC":   {small + "nodes: [{name: a, serial: x, power: {wol: {}}}]\n", "can't be woken without a MAC address"},
		"range in proxy":      {small + "dhcp: {mode: proxy, interface: eth0, range: 10.0.0.1-10.0.0.9}\n", "range is for mode full"},
		"no range":            {small + "dhcp: {mode: full, interface: eth0}\n", "takes a range"},
		"retention":           {small + "retention: {reports: 9d, runs: 8d}\n", "can't be kept longer than their runs"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("l.yaml", []byte(tt.text))
			require.ErrorContains(t, err, tt.want)
			assert.True(t, errors.As(err, new(*Error)))
		})
	}
}

// TestSaidOnce has mistakes that more than one look at the file comes across.
func TestSaidOnce(t *testing.T) {
	for text, want := range map[string]string{
		"- a\n": "l.yaml:1: the lab: want keys with values",
		small + "unknown: never\nunknown: always\n": `l.yaml:4: the lab: key "unknown" is already in line 3`,
		"server: nowhere\nimages: {a: a}\n":         `l.yaml:1: "nowhere" is no URL of a server such as http://10.0.0.1:8080`,
	} {
		_, err := Parse("l.yaml", []byte(text))
		assert.EqualError(t, err, want)
	}
}

func TestNight(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	evening, midnight := Lab{Clock: Clock{18 * time.Hour, berlin}}, Lab{Clock: Clock{0, time.UTC}}
	for at, want := range map[string]string{
		"2026-11-30T17:59:59+01:00": "2026-11-29",
		"2026-11-30T18:00:00+01:00": "2026-11-30",
		"2026-12-01T03:00:00+01:00": "2026-11-30",
		"2026-11-30T17:00:00Z":      "2026-11-30",
		"2027-01-01T00:30:00+01:00": "2026-12-31",
		"2026-03-29T03:30:00+02:00": "2026-03-28", // the clock went forward
		"2026-10-25T17:30:00+01:00": "2026-10-24", // it went back
	} {
		moment, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		assert.Equal(t, want, evening.Night(moment), at)
		assert.Equal(t, moment.UTC().Format(time.DateOnly), midnight.Night(moment), at)
	}
}

func TestFind(t *testing.T) {
	l, err := Parse("l.yaml", []byte(small+`nodes:
  - {name: a, mac: 52:54:00:00:00:0a, serial: S1}
  - {name: b, uuid: 4C4C4544-0034-4D10-8051-B4C04F333232}
  - {name: c, serial: "007"}
`))
	require.NoError(t, err)
	for _, tt := range []struct{ mac, uuid, serial, want string }{
		{"52:54:00:00:00:0A", "", "", "a"},
		{"", "4c4c4544-0034-4d10-8051-b4c04f333232", "", "b"},
		{"52:54:00:00:00:0b", "", "007", "c"},
		{"52:54:00:00:00:0a", "4c4c4544-0034-4d10-8051-b4c04f333232", "007", "a"}, // the MAC address counts first
		{"", "", "", ""},
		{"52:54:00:00:00:0b", "00000000-0000-0000-0000-000000000000", "s1", ""},
	} {
		n, ok := l.Find(tt.mac, tt.uuid, tt.serial)
		assert.Equal(t, tt.want != "", ok, tt)
		if ok {
			assert.Equal(t, tt.want, n.Name)
		}
	}
}

// TestManual reads the example of the manual, which is to have all keys.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/farm.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(manual), "```yaml\n")
	require.True(t, ok)
	text, _, ok = strings.Cut(text, "```")
	require.True(t, ok)
	l, err := Parse("lab.yaml", []byte(text))
	require.NoError(t, err)
	defaults, err := Parse("lab.yaml", []byte(small))
	require.NoError(t, err)
	for name, pair := range map[string][2]any{
		"listen": {l.Listen, defaults.Listen}, "store": {l.Store, defaults.Store}, "admin-token-file": {l.AdminTokenFile, defaults.AdminTokenFile},
		"lease": {l.DHCP.Lease, defaults.DHCP.Lease}, "lease-file": {l.DHCP.LeaseFile, defaults.DHCP.LeaseFile}, "tftp": {l.DHCP.TFTP, defaults.DHCP.TFTP},
		"unknown": {l.Unknown, defaults.Unknown}, "plan": {l.Defaults.Plan, defaults.Defaults.Plan}, "after": {l.Defaults.After, defaults.Defaults.After},
		"deadline": {l.Defaults.Deadline, defaults.Defaults.Deadline}, "attempts": {l.Defaults.Attempts, defaults.Defaults.Attempts},
		"boot": {l.Defaults.Boot, defaults.Defaults.Boot}, "begins": {l.Clock.Begins, defaults.Clock.Begins},
		"nightly.deadline": {l.Nightly.Deadline, defaults.Nightly.Deadline}, "nightly.attempts": {l.Nightly.Attempts, defaults.Nightly.Attempts},
	} {
		assert.Equal(t, pair[1], pair[0], "the manual has another default of "+name)
	}
	whole, err := os.ReadFile("testdata/whole.yaml")
	require.NoError(t, err)
	for _, key := range regexp.MustCompile(`[a-z-]+:`).FindAllString(string(whole), -1) {
		if key != "x-bmc:" && key != "bandwidth:" && key != "big:" && key != "postgres:" && key != "https:" && key != "http:" {
			assert.Contains(t, text, key)
		}
	}
}

func TestFirst(t *testing.T) {
	for name, f := range map[string]First{
		"proxy": {Image: "out", Interface: "enp3s0", Address: netip.MustParsePrefix("10.7.0.1/24"), Others: []string{"eno1 (192.168.1.4/24)"}, Zone: "Europe/Berlin"},
		"none":  {Image: `/srv/"odd" #1`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := f.Text()
			require.NoError(t, err)
			golden.Equal(t, "testdata/first-"+name+".yaml", text)
			l, err := Parse("lab.yaml", text)
			require.NoError(t, err)
			assert.Equal(t, f.Image, l.Images["p2p"])
			assert.Equal(t, f.Interface, l.DHCP.Interface)
			assert.Equal(t, WhenDue, l.Unknown)

			// The example is right as well, with its marks taken away.
			example := strings.ReplaceAll(string(text), "# nodes:", "nodes:")
			example = strings.ReplaceAll(example, "#   ", "  ")
			l, err = Parse("lab.yaml", []byte(example))
			require.NoError(t, err)
			assert.Len(t, l.Nodes, 1)
		})
	}
}

// FuzzParse looks for texts that make the parser panic, and for values in a lab
// that could break out of a script or a URL.
func FuzzParse(f *testing.F) {
	for _, path := range []string{"testdata/whole.yaml", "testdata/wrong.yaml", "testdata/first-proxy.yaml"} {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte("x-a: &a {<<: *a}\n" + small + "defaults: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := Parse("lab.yaml", text)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			return
		}
		for _, n := range l.Nodes {
			for _, v := range append([]string{n.Name, n.Image, n.Plan, n.After, l.Server, l.API()}, n.Parameters...) {
				assert.NotContains(t, v, "$")
				assert.False(t, strings.ContainsAny(v, " \t\r\n|\"'\\{}#"), v)
			}
		}
	})
}
