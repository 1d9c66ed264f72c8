package params

import (
	"crypto/sha256"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/arms"
)

func TestParse(t *testing.T) {
	defaults := func(change func(*Params)) Params {
		p := Params{Plan: Full, Driver: P2P, ACS: Keep, After: StartShell, Signals: NoSignals, Deadlines: map[string]time.Duration{}}
		if change != nil {
			change(&p)
		}
		return p
	}
	lab := &url.URL{Scheme: "http", Host: "lab:8080", Path: "/reports/n7"}
	run := &url.URL{Scheme: "https", Host: "lab", Path: "/v1/runs/1"}
	const key = "abcdefghijklmnopqrstuvwxyz-_0123456789ABCDE"
	// SHA-256 of nothing, in base64 of both alphabets.
	const pin, pinURL = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	nothing := Pin(sha256.Sum256(nil))
	tests := map[string]struct {
		in       string
		want     Params
		warnings []string
	}{
		"empty":       {"", defaults(nil), nil},
		"not ours":    {"root=/dev/sda1 quiet p2pfoo=1", defaults(nil), nil},
		"plan":        {"quiet p2p.plan=check\n", defaults(func(p *Params) { p.Plan = Check }), nil},
		"last counts": {"p2p.plan=check p2p.plan=shell", defaults(func(p *Params) { p.Plan = Shell }), nil},
		"report changes what comes after": {"p2p.report=http://lab:8080/reports/n7",
			defaults(func(p *Params) { p.Report, p.After = lab, PowerOff }), nil},
		"unless it is said": {"p2p.after=hold p2p.report=http://lab:8080/reports/n7",
			defaults(func(p *Params) { p.Report, p.After = lab, Hold }), nil},
		"farm": {"p2p.collect=https://lab/v1/runs/1 p2p.token=" + key,
			defaults(func(p *Params) { p.Collect, p.Token, p.After = run, key, PowerOff }), nil},
		"farm and report": {"p2p.collect=https://lab/v1/runs/1 p2p.report=http://lab:8080/reports/n7 p2p.after=reboot p2p.token=" + key,
			defaults(func(p *Params) { p.Collect, p.Token, p.Report, p.After = run, key, lab, Reboot }), nil},
		"pins": {"p2p.collect=https://lab/v1/runs/1 p2p.pin=" + pin + " p2p.pin=" + pinURL + " p2p.token=" + key,
			defaults(func(p *Params) { p.Collect, p.Token, p.Pins, p.After = run, key, []Pin{nothing, nothing}, PowerOff }), nil},
		"access controls": {"p2p.acs=show p2p.acs=clear", defaults(func(p *Params) { p.ACS = Clear }), nil},
		"quoted value":    {`p2p.node="n7" x`, defaults(func(p *Params) { p.Node = "n7" }), nil},
		"quoted argument": {`"p2p.node=n7" x`, defaults(func(p *Params) { p.Node = "n7" }), nil},
		"streams": {"p2p.stream=ttyS1 p2p.stream=ttyS2,57600",
			defaults(func(p *Params) { p.Stream = []Serial{{"ttyS1", 0}, {"ttyS2", 57600}} }), nil},
		"deadline": {"p2p.deadline.driver=90s",
			defaults(func(p *Params) { p.Deadlines["driver"] = 90 * time.Second }), nil},
		"signals":  {"p2p.signals=lava", defaults(func(p *Params) { p.Signals = LAVA }), nil},
		"stand-in": {"p2p.gpu=1B36:0005", defaults(func(p *Params) { p.GPU = "1b36:0005" }), nil},

		"arms": {"p2p.arms=stock,p2p-mailbox-noacs",
			defaults(func(p *Params) { p.Arms = []arms.Arm{{Set: arms.Stock}, {Set: arms.P2P, Mailbox: true, NoACS: true}} }), nil},

		"farm without token": {"p2p.collect=https://lab/v1/runs/1", defaults(func(p *Params) { p.Collect, p.After = run, PowerOff }),
			[]string{"p2p.collect without p2p.token: a farm's server takes nothing without it"}},
		"token without farm": {"p2p.token=" + key, defaults(func(p *Params) { p.Token = key }), []string{"p2p.token without p2p.collect says nothing"}},
		"pin without TLS": {"p2p.report=http://lab:8080/reports/n7 p2p.pin=" + pin, defaults(func(p *Params) { p.Report, p.After, p.Pins = lab, PowerOff, []Pin{nothing} }),
			[]string{"p2p.pin says nothing: neither p2p.collect nor p2p.report is an https URL"}},
		"bad farm": {"p2p.collect=lab", defaults(nil), []string{"kernel parameter p2p.collect=lab ignored: want a URL such as http://lab:8080/v1/runs/1"}},
		"bad farm after a good one": {"p2p.collect=https://lab/v1/runs/1 p2p.collect=lab p2p.token=" + key, defaults(func(p *Params) { p.Collect, p.Token, p.After = run, key, PowerOff }),
			[]string{"kernel parameter p2p.collect=lab ignored: want a URL such as http://lab:8080/v1/runs/1"}},
		"bad token":       {"p2p.token=" + key + "=", defaults(nil), []string{"kernel parameter p2p.token=… ignored: want 32 to 128 letters, digits and - _"}},
		"bad pin":         {"p2p.pin=abcd", defaults(nil), []string{"kernel parameter p2p.pin=abcd ignored: want base64 of the 32 bytes of a SHA-256"}},
		"bad arm":         {"p2p.arms=stock,p2p-bar1", defaults(nil), []string{`kernel parameter p2p.arms=stock,p2p-bar1 ignored: no arm "p2p-bar1": want p2p or stock, with -mailbox or -noacs behind it, or both`}},
		"typing error":    {"p2p.drivr=none", defaults(nil), []string{"unknown kernel parameter p2p.drivr ignored (did you mean p2p.driver?)"}},
		"nothing near":    {"p2p.frobnicate", defaults(nil), []string{"unknown kernel parameter p2p.frobnicate ignored"}},
		"underscore":      {"p2p_plan=check", defaults(nil), []string{"unknown kernel parameter p2p_plan ignored (did you mean p2p.plan?)"}},
		"bad value":       {"p2p.driver=nvidia", defaults(nil), []string{"kernel parameter p2p.driver=nvidia ignored: want one of [p2p stock ab loaded none]"}},
		"bad control":     {"p2p.acs=off", defaults(nil), []string{"kernel parameter p2p.acs=off ignored: want one of [keep show clear ab]"}},
		"no value":        {"p2p.after", defaults(nil), []string{"kernel parameter p2p.after= ignored: want one of [poweroff reboot hold shell]"}},
		"bad URL":         {"p2p.report=lab/x", defaults(nil), []string{"kernel parameter p2p.report=lab/x ignored: want a URL such as http://lab:8080/reports/node7"}},
		"bad escape":      {"p2p.report=http://%zz/", defaults(nil), []string{`kernel parameter p2p.report=http://%zz/ ignored: parse "http://%zz/": invalid URL escape "%zz"`}},
		"bad node":        {`p2p.node="a b"`, defaults(nil), []string{"kernel parameter p2p.node=a b ignored: want up to 128 letters, digits and . _ : -"}},
		"path as stream":  {"p2p.stream=../mem", defaults(nil), []string{"kernel parameter p2p.stream=../mem ignored: want a serial port such as ttyS1 or ttyS1,115200"}},
		"unknown stage":   {"p2p.deadline.drivers=9s", defaults(nil), []string{`kernel parameter p2p.deadline.drivers=9s ignored: no stage "drivers" (did you mean driver?)`}},
		"no unit":         {"p2p.deadline.driver=90", defaults(nil), []string{"kernel parameter p2p.deadline.driver=90 ignored: want a time such as 90s or 5m"}},
		"negative":        {"p2p.deadline.driver=-1s", defaults(nil), []string{"kernel parameter p2p.deadline.driver=-1s ignored: want a time such as 90s or 5m"}},
		"bad id":          {"p2p.gpu=10de", defaults(nil), []string{"kernel parameter p2p.gpu=10de ignored: want vendor and device id such as 1b36:0005"}},
		"warnings add up": {"p2p.x p2p.y", defaults(nil), []string{"unknown kernel parameter p2p.x ignored (did you mean p2p.acs?)", "unknown kernel parameter p2p.y ignored (did you mean p2p.acs?)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, warnings := Parse(tt.in)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.warnings, warnings)
		})
	}
}

func TestWish(t *testing.T) {
	for cmdline, want := range map[string]arms.Wish{
		"":                            {Set: arms.P2P},
		"p2p.driver=stock":            {Set: arms.Stock},
		"p2p.driver=none":             {Set: arms.P2P},
		"p2p.driver=ab":               {Set: arms.P2P, Drivers: true},
		"p2p.driver=stock p2p.acs=ab": {Set: arms.Stock, ACS: true},
		"p2p.arms=p2p,stock":          {Set: arms.Stock, Arms: []arms.Arm{{Set: arms.P2P}, {Set: arms.Stock}}},
	} {
		p, warnings := Parse(cmdline)
		assert.Empty(t, warnings)
		assert.Equal(t, want, p.Wish(), cmdline)
	}
}

func TestSplit(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []string
	}{
		"empty":         {"", nil},
		"spaces":        {" \t\n", nil},
		"plain":         {"a b=c\n", []string{"a", "b=c"}},
		"quoted value":  {`a="b c" d`, []string{"a=b c", "d"}},
		"quoted whole":  {`"a=b c" d`, []string{"a=b c", "d"}},
		"inner quote":   {`a=b"c d"e f`, []string{`a=b"c d"e`, "f"}},
		"open quote":    {`a="b c`, []string{"a=b c"}},
		"lone quote":    {`"`, []string{""}},
		"bytes":         {"a\xa0b\xffc", []string{"a", "b\xffc"}},
		"dyndbg inside": {`dyndbg="file a.c +p; func b" x=1`, []string{"dyndbg=file a.c +p; func b", "x=1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, Split(tt.in)) })
	}
}

func TestDistance(t *testing.T) {
	assert.Equal(t, 0, distance("plan", "plan"))
	assert.Equal(t, 4, distance("", "plan"))
	assert.Equal(t, 3, distance("kitten", "sitting"))
	assert.Equal(t, 1, distance("plan", "plans"))
}

// TestDocIsComplete holds the table to what it promises: each documented
// parameter is accepted with its own default where that is a value.
func TestDocIsComplete(t *testing.T) {
	require.NotEmpty(t, Doc())
	for _, d := range Doc() {
		assert.NotEmpty(t, d.Text, d.Name)
		assert.NotEmpty(t, d.Values, d.Name)
		name := strings.ReplaceAll(d.Name, "<stage>", "mount")
		_, warnings := Parse(name + "=\x01")
		require.Len(t, warnings, 1)
		assert.Contains(t, warnings[0], "kernel parameter "+name, "known, with a bad value")
	}
}

func TestPinString(t *testing.T) {
	assert.Equal(t, "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU", Pin(sha256.Sum256(nil)).String())
}

func TestHide(t *testing.T) {
	const key = "abcdefghijklmnopqrstuvwxyz-_0123456789ABCDE"
	p, _ := Parse("p2p.token=" + key)
	for in, want := range map[string]string{
		"":                                   "",
		"p2p.token":                          "p2p.token",
		"p2p.token=":                         "p2p.token=",
		"a p2p.token=" + key + " b":          "a p2p.token=… b",
		"a p2p.token=" + key[:9]:             "a p2p.token=…",
		`{"a":"p2p.token=` + key + `"}`:      `{"a":"p2p.token=…"}`,
		`{"a":"p2p.token=\"other\" b"}`:      `{"a":"p2p.token=\"…\" b"}`,
		`{"a":"Bearer ` + key + `\n"}`:       `{"a":"Bearer …\n"}`,
		"p2p.token=one p2p.token=two " + key: "p2p.token=… p2p.token=… …",
		"xp2p.token=one":                     "xp2p.token=one",
		key[1:]:                              key[1:],
	} {
		assert.Equal(t, want, string(p.Hide([]byte(in))), in)
		assert.Equal(t, want, string(p.Hide([]byte(want))), "hidden before")
	}
	assert.Equal(t, "a p2p.token=… "+key, string(Params{}.Hide([]byte("a p2p.token=x "+key))))
}

func FuzzParse(f *testing.F) {
	f.Add(`a="b c" p2p.plan=check p2p.deadline.x=1s "p2p.node`)
	f.Add("p2p.report=http://[::1]:80/%41 p2p.stream=ttyS1,9600")
	f.Fuzz(func(t *testing.T, in string) {
		p, _ := Parse(in)
		assert.Contains(t, []Plan{Full, Check, Shell}, p.Plan)
		assert.Contains(t, []After{PowerOff, Reboot, Hold, StartShell}, p.After)
		if p.Token != "" {
			assert.NotContains(t, string(p.Hide([]byte(in))), p.Token)
		}
		for _, s := range p.Stream {
			assert.NotContains(t, s.Device, "/")
		}
	})
}
