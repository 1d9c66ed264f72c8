package power

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/lab"
)

// noPause is a pause that takes no time, unless the context has ended.
func noPause(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func passwordFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// client is a redfish for a server, which accepts its certificate.
func client(t *testing.T, server *httptest.Server) redfish {
	t.Helper()
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	return redfish{
		Redfish: lab.Redfish{URL: u, User: bmcUser, PasswordFile: passwordFile(t, bmcPassword+"\n"), Insecure: true},
		node:    "a1", serial: "serial-of-1", pause: noPause,
	}
}

const (
	toPXE   = `PATCH /Systems/1 {"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}}`
	resetTo = `POST /Systems/1/Actions/ComputerSystem.Reset {"ResetType":"`
)

func TestRedfish(t *testing.T) {
	noMode := patched("Enabled", "Once", "Target", "Pxe")
	tests := []struct {
		name  string
		bmc   func(*bmc)
		node  func(*redfish)
		asked []string
		note  string
	}{
		{name: "off", asked: []string{toPXE, resetTo + `On"}`}},
		{name: "on", bmc: func(b *bmc) { b.power = "On" }, asked: []string{toPXE, resetTo + `ForceRestart"}`}},
		{
			name: "no forced restart", bmc: func(b *bmc) { b.power, b.resets = "On", []string{"On", "PowerCycle"} },
			asked: []string{toPXE, resetTo + `PowerCycle"}`},
		},
		{
			name: "no restart at all", bmc: func(b *bmc) { b.power, b.resets = "On", []string{"On", "ForceOff"} },
			asked: []string{toPXE, resetTo + `ForceOff"}`, resetTo + `On"}`},
		},
		{
			name: "a button in place of a switch", bmc: func(b *bmc) { b.resets = []string{"PushPowerButton"} },
			asked: []string{toPXE, resetTo + `PushPowerButton"}`},
		},
		{name: "slow power supply", bmc: func(b *bmc) { b.wakes = 7 }, asked: []string{toPXE, resetTo + `On"}`}},
		{name: "no sessions", bmc: func(b *bmc) { b.basicOnly = true }, asked: []string{toPXE, resetTo + `On"}`}},
		{
			name: "UEFI HTTP only", bmc: func(b *bmc) { b.targets = []string{"Hdd", "UefiHttp"} },
			asked: []string{patched("Enabled", "Once", "Mode", "UEFI", "Target", "UefiHttp"), resetTo + `On"}`},
		},
		{name: "tag wanted", bmc: func(b *bmc) { b.tag, b.match = `"7"`, `"7"` }, asked: []string{toPXE, resetTo + `On"}`}},
		{
			name: "weak tag sent, strong one wanted", bmc: func(b *bmc) { b.tag, b.match = `W/"7"`, `"7"` },
			asked: []string{toPXE, toPXE, resetTo + `On"}`},
		},
		{
			name: "tag sent, none wanted", bmc: func(b *bmc) { b.tag, b.match = `W/"7"`, "never" },
			asked: []string{toPXE, toPXE, toPXE, resetTo + `On"}`},
		},
		{name: "mode refused", bmc: func(b *bmc) { b.modeless = true }, asked: []string{toPXE, noMode, resetTo + `On"}`}},
		{
			name: "settings resource", bmc: func(b *bmc) { b.settingsOnly = true },
			asked: []string{toPXE, noMode, strings.Replace(toPXE, "/1", "/1/Settings", 1), resetTo + `On"}`},
		},
		{
			name: "accepted and not shown", bmc: func(b *bmc) { b.forgets = true }, asked: []string{toPXE, resetTo + `On"}`},
			note: `the BMC accepted the boot source but shows "Disabled" for "None": its firmware may start from disk`,
		},
		{
			name: "busy", bmc: func(b *bmc) { b.busy = 4 }, asked: []string{toPXE, resetTo + `On"}`},
		},
		{
			name: "system by its serial number", bmc: func(b *bmc) { b.systems = []string{"2"} },
			asked: []string{toPXE, resetTo + `On"}`},
		},
		{
			name: "system by name", bmc: func(b *bmc) { b.systems = []string{"2"} }, node: func(r *redfish) { r.System, r.serial = "1", "" },
			asked: []string{toPXE, resetTo + `On"}`},
		},
		{
			name: "another machine", node: func(r *redfish) { r.serial = "other" }, asked: []string{toPXE, resetTo + `On"}`},
			note: `the BMC is that of a machine with serial number "serial-of-1", and node a1 has "other": is it the right BMC?`,
		},
		{name: "URL of the service", node: func(r *redfish) { r.URL.Path = "/redfish/v1/" }, asked: []string{toPXE, resetTo + `On"}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBMC()
			if tt.bmc != nil {
				tt.bmc(b)
			}
			r := client(t, b.serve(t))
			if tt.node != nil {
				tt.node(&r)
			}
			note, err := r.NetworkBoot(t.Context())
			require.NoError(t, err)
			assert.Equal(t, tt.note, note)
			assert.Equal(t, tt.asked, b.asked())
			assert.Equal(t, "On", b.power)
			assert.Zero(t, b.sessions, "sessions left open")
		})
	}
}

func TestRedfishErrors(t *testing.T) {
	forget := patched("Enabled", "Disabled")
	tests := []struct {
		name  string
		bmc   func(*bmc)
		node  func(*testing.T, *redfish)
		want  string // after "BMC host:port"
		final bool
		asked []string
	}{
		{
			name: "wrong password", node: func(t *testing.T, r *redfish) { r.PasswordFile = passwordFile(t, "other") },
			want:  ": POST /redfish/v1/SessionService/Sessions: 401 Unauthorized: A general error has occurred.; Access denied. (Ensure that the credentials are right.); check user and password-file",
			final: true,
		},
		{
			name: "no password", node: func(t *testing.T, r *redfish) { r.PasswordFile = passwordFile(t, "\n") },
			want: ": read the password: PASSWORD: its first line is empty: it is to be the password", final: true,
		},
		{
			name: "boot source refused", bmc: func(b *bmc) { b.refuses = true },
			want:  ": PATCH /redfish/v1/Systems/1: 400 Bad Request: A general error has occurred.; The property Boot is a read only property. (Remove the property from the request body.)",
			asked: []string{toPXE, patched("Enabled", "Once", "Target", "Pxe")},
		},
		{
			name: "restart refused", bmc: func(b *bmc) { b.resetStatus = 500 },
			want:  ": POST /redfish/v1/Systems/1/Actions/ComputerSystem.Reset: 500 Internal Server Error: A general error has occurred.; The power supply of slot 2 is missing. (Insert a power supply.)",
			asked: []string{toPXE, resetTo + `On"}`, forget},
		},
		{
			name: "does not switch on", bmc: func(b *bmc) { b.wakes = 1000 },
			want:  `: GET /redfish/v1/Systems/1: the BMC accepted everything, and the machine is still "Off" after 1m30s; look at the machine's power supply and at the log of its BMC`,
			asked: []string{toPXE, resetTo + `On"}`, forget},
		},
		{
			name: "no reset that helps", bmc: func(b *bmc) { b.power, b.resets = "On", []string{"Nmi"} },
			want: ": reset of type ForceOff: reset type 'ForceOff' is not supported by this service", final: true,
			asked: []string{toPXE, forget},
		},
		{
			name: "busy for good", bmc: func(b *bmc) { b.busy = 1000 },
			want: ": GET /redfish/v1/: 503 Service Unavailable: A general error has occurred.; The service is temporarily unavailable.",
		},
		{
			name: "several systems", bmc: func(b *bmc) { b.systems = []string{"2"} }, node: func(_ *testing.T, r *redfish) { r.serial = "" },
			want:  ": GET SYSTEM: it has 2 computer systems: 1, 2; say which is node a1 with system in the lab's description",
			final: true,
		},
		{
			name: "no such system", node: func(_ *testing.T, r *redfish) { r.System = "blade7" },
			want:  `: GET /redfish/v1/Systems/1: it has no computer system "blade7", but 1; correct system in the lab's description`,
			final: true,
		},
		{
			name: "another key", node: func(_ *testing.T, r *redfish) { r.Insecure, r.Pin = false, strings.Repeat("A", 43) },
			want:  ": GET /redfish/v1/: it has another key than the pinned one: its pin is PIN; if the BMC got a new certificate, change pin; if not, somebody else answers",
			final: true,
		},
		{
			name: "certificate that nobody signed", node: func(_ *testing.T, r *redfish) { r.Insecure = false },
			want:  ": GET /redfish/v1/: tls: failed to verify certificate: x509: certificate signed by unknown authority; compare with the BMC's own display of its certificate, then add pin: PIN",
			final: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBMC()
			if tt.bmc != nil {
				tt.bmc(b)
			}
			server := b.serve(t)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			r := client(t, server)
			if tt.node != nil {
				tt.node(t, &r)
			}
			_, err := r.NetworkBoot(t.Context())
			var e *Error
			require.ErrorAs(t, err, &e)
			got := strings.NewReplacer(r.PasswordFile, "PASSWORD", Pin(server.Certificate()), "PIN",
				"/redfish/v1/Systems/1: it has 2", "SYSTEM: it has 2", "/redfish/v1/Systems/2: it has 2", "SYSTEM: it has 2").Replace(err.Error())
			assert.Equal(t, "BMC "+r.URL.Host+tt.want, got)
			assert.Equal(t, tt.final, e.Final)
			assert.Equal(t, tt.asked, b.asked())
			assert.Zero(t, b.sessions, "sessions left open")
			assert.NotContains(t, err.Error(), bmcPassword)
		})
	}
}

func TestRedfishPinned(t *testing.T) {
	b := newBMC()
	server := b.serve(t)
	r := client(t, server)
	r.Insecure, r.Pin = false, Pin(server.Certificate())
	_, err := r.NetworkBoot(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "On", b.power)
}

// A password must not go to whoever a BMC, or something in its place, names.
func TestRedfishRedirects(t *testing.T) {
	tests := []struct {
		name, to, want string
	}{
		{"same host", "", ""},
		{"other host", "https://192.0.2.1/redfish/v1/", "it redirects to another host, 192.0.2.1, which is not to get the password"},
		{"no encryption", "http://127.0.0.1:1/redfish/v1/", "it redirects from https to http, where the password can be read by others"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBMC()
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/redfish/v1/" && tt.to != "":
					http.Redirect(w, r, tt.to, http.StatusTemporaryRedirect)
				case r.URL.Path == "/redfish/v1/":
					http.Redirect(w, r, "/redfish/v1", http.StatusPermanentRedirect)
				default:
					b.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(server.Close)
			_, err := client(t, server).NetworkBoot(t.Context())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// What was set is taken back when time is up, though no time is left.
func TestRedfishInterrupted(t *testing.T) {
	b := newBMC()
	b.wakes = 1000
	ctx, cancel := context.WithCancel(t.Context())
	r := client(t, b.serve(t))
	r.pause = func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	}
	_, err := r.NetworkBoot(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{toPXE, resetTo + `On"}`, patched("Enabled", "Disabled")}, b.asked())
	assert.Zero(t, b.sessions, "sessions left open")
}

func TestRedfishUnreachable(t *testing.T) {
	server := httptest.NewTLSServer(newBMC())
	r := client(t, server)
	server.Close()
	_, err := r.NetworkBoot(t.Context())
	require.ErrorContains(t, err, "connection refused; check url, and that the BMC is reachable from here")
}

// FuzzRedfish answers everything with the same bytes: a BMC is foreign.
func FuzzRedfish(f *testing.F) {
	f.Add(200, []byte(`{"Systems":{"@odata.id":"/x"},"Members":[{"@odata.id":"/x"}],"Id":"1","PowerState":"Off"}`))
	f.Add(200, []byte(`{"Links":{"Sessions":{"@odata.id":"/s"}},"Systems":{"@odata.id":"/x"}}`))
	f.Add(400, []byte(`{"error":{"@Message.ExtendedInfo":[{"Message":"a\nb","Resolution":"c"}]}}`))
	f.Add(204, []byte(nil))
	f.Add(200, []byte(`<html>`))
	file := filepath.Join(f.TempDir(), "password")
	require.NoError(f, os.WriteFile(file, []byte(bmcPassword), 0o600))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		if code < 200 || code > 599 {
			return
		}
		requests := 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests > 200 {
				cancel() // pages that name themselves as the next one
			}
			w.WriteHeader(code)
			_, _ = w.Write(body)
		}))
		defer server.Close()
		u, err := url.Parse(server.URL)
		require.NoError(t, err)
		r := redfish{Redfish: lab.Redfish{URL: u, User: bmcUser, PasswordFile: file}, pause: noPause}
		if _, err = r.NetworkBoot(ctx); err != nil {
			var e *Error
			require.True(t, errors.As(err, &e), "%T", err)
			assert.NotContains(t, err.Error(), "\n")
			assert.NotContains(t, err.Error(), bmcPassword)
		}
	})
}

// TestRedfishEmulator runs against an emulator that others made, such as
// sushy-emulator or DMTF's Redfish-Mockup-Server.
func TestRedfishEmulator(t *testing.T) {
	address := os.Getenv("MKP2PIMG_REDFISH")
	if address == "" {
		t.Skip("MKP2PIMG_REDFISH does not give the URL of a Redfish emulator")
	}
	u, err := url.Parse(address)
	require.NoError(t, err)
	r := redfish{
		Redfish: lab.Redfish{URL: u, User: "admin", PasswordFile: passwordFile(t, "password"), System: os.Getenv("MKP2PIMG_REDFISH_SYSTEM")},
		node:    "emulated", pause: pause,
	}
	for range 2 { // switched on, then restarted
		note, err := r.NetworkBoot(t.Context())
		require.NoError(t, err)
		t.Log("note:", note)
	}
	s := &session{redfish: r}
	require.NoError(t, s.open(t.Context()))
	defer s.close(t.Context())
	require.NoError(t, s.choose())
	assert.EqualValues(t, "Pxe", s.system.Boot.BootSourceOverrideTarget)
}
