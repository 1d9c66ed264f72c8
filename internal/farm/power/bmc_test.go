package power

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// bmc is a BMC with one machine, and with the quirks that a test wants it to have.
type bmc struct {
	// Quirks.
	basicOnly    bool     // no service for sessions
	tag          string   // ETag of the system; empty: none
	match        string   // what If-Match has to be; "never": absent; empty: anything
	modeless     bool     // refuses BootSourceOverrideMode
	settingsOnly bool     // the system itself is read-only, there is a settings resource
	refuses      bool     // refuses the boot source whatever it is
	forgets      bool     // accepts a boot source and does not show it
	busy         int      // so many requests are answered with 503 first
	resets       []string // ResetType values offered
	resetStatus  int      // answer to a reset; 0: it is done
	wakes        int      // so many looks later the machine is on
	targets      []string // boot sources offered
	systems      []string // further systems

	mu       sync.Mutex
	power    string
	boot     map[string]string
	requests []string
	sessions int // open
	waking   int
}

const (
	bmcUser, bmcPassword = "operator", "s3cret word"
	systemPath           = "/redfish/v1/Systems/1"
)

func newBMC() *bmc {
	return &bmc{power: "Off", boot: map[string]string{"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None", "BootSourceOverrideMode": "UEFI"}}
}

func (b *bmc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	b.requests = append(b.requests, strings.TrimSpace(r.Method+" "+strings.TrimPrefix(r.URL.Path, "/redfish/v1")+" "+strings.ReplaceAll(string(body), bmcPassword, "…")))
	if b.busy > 0 {
		b.busy--
		w.Header().Set("Retry-After", "7")
		complain(w, http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable", "The service is temporarily unavailable.", "")
		return
	}
	if path := strings.TrimRight(r.URL.Path, "/"); path == "/redfish/v1" {
		root := map[string]any{"@odata.id": "/redfish/v1/", "Systems": link("/redfish/v1/Systems"), "Links": map[string]any{}}
		if !b.basicOnly {
			root["Links"] = map[string]any{"Sessions": link("/redfish/v1/SessionService/Sessions")}
		}
		answer(w, root)
		return
	}
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/Sessions") {
		var login struct{ UserName, Password string }
		_ = json.Unmarshal(body, &login)
		if login.UserName != bmcUser || login.Password != bmcPassword {
			complain(w, http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized", "Access denied.", "Ensure that the credentials are right.")
			return
		}
		b.sessions++
		w.Header().Set("X-Auth-Token", "token")
		w.Header().Set("Location", "/redfish/v1/SessionService/Sessions/1")
		w.WriteHeader(http.StatusCreated)
		return
	}
	user, password, basic := r.BasicAuth()
	basic = basic && b.basicOnly && user == bmcUser && password == bmcPassword
	if r.Header.Get("X-Auth-Token") != "token" && !basic {
		complain(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "There is no valid session.", "")
		return
	}
	switch {
	case r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/redfish/v1/SessionService/Sessions/"):
		b.sessions--
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Path == "/redfish/v1/Systems":
		members := []any{link(systemPath)}
		for _, id := range b.systems {
			members = append(members, link("/redfish/v1/Systems/"+id))
		}
		answer(w, map[string]any{"@odata.id": "/redfish/v1/Systems", "Members": members})
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/redfish/v1/Systems/"):
		b.get(w, strings.TrimPrefix(r.URL.Path, "/redfish/v1/Systems/"))
	case r.Method == http.MethodPatch:
		b.patch(w, r, body)
	case r.URL.Path == systemPath+"/Actions/ComputerSystem.Reset":
		b.reset(w, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (b *bmc) get(w http.ResponseWriter, id string) {
	if id != "1" {
		answer(w, map[string]any{"@odata.id": "/redfish/v1/Systems/" + id, "Id": id, "UUID": "uuid-of-" + id, "SerialNumber": "serial-of-" + id})
		return
	}
	if b.waking > 0 {
		if b.waking--; b.waking == 0 {
			b.power = "On"
		}
	}
	boot := map[string]any{"BootSourceOverrideTarget@Redfish.AllowableValues": b.targets}
	for k, v := range b.boot {
		boot[k] = v
	}
	system := map[string]any{
		"@odata.id": systemPath, "Id": "1", "UUID": "uuid-of-1", "SerialNumber": "serial-of-1", "PowerState": b.power, "Boot": boot,
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": systemPath + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": b.resets,
		}},
	}
	if b.settingsOnly {
		system["@Redfish.Settings"] = map[string]any{"SettingsObject": link(systemPath + "/Settings")}
	}
	if b.tag != "" {
		w.Header().Set("ETag", b.tag)
	}
	answer(w, system)
}

func (b *bmc) patch(w http.ResponseWriter, r *http.Request, body []byte) {
	if got := cmp.Or(r.Header.Get("If-Match"), "never"); b.match != "" && got != b.match {
		complain(w, http.StatusPreconditionFailed, "Base.1.8.PreconditionFailed", "The ETag supplied did not match.", "")
		return
	}
	var change struct{ Boot map[string]string }
	if err := json.Unmarshal(body, &change); err != nil {
		complain(w, http.StatusBadRequest, "Base.1.8.MalformedJSON", err.Error(), "")
		return
	}
	_, mode := change.Boot["BootSourceOverrideMode"]
	settings := r.URL.Path == systemPath+"/Settings"
	if b.refuses || b.modeless && mode || b.settingsOnly != settings {
		complain(w, http.StatusBadRequest, "Base.1.8.PropertyNotWritable", "The property Boot is a read only property.", "Remove the property from the request body.")
		return
	}
	if !b.forgets {
		maps.Copy(b.boot, change.Boot)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (b *bmc) reset(w http.ResponseWriter, body []byte) {
	var what struct{ ResetType string }
	_ = json.Unmarshal(body, &what)
	switch {
	case b.resetStatus != 0:
		complain(w, b.resetStatus, "Base.1.8.InternalError", "The power supply of slot 2 is missing.", "Insert a power supply.")
		return
	case len(b.resets) > 0 && !slices.Contains(b.resets, what.ResetType):
		complain(w, http.StatusBadRequest, "Base.1.8.ActionParameterNotSupported", what.ResetType+" is not supported.", "")
		return
	case what.ResetType == "On" && b.wakes > 0:
		b.waking = b.wakes
	case what.ResetType == "ForceOff":
		b.power = "Off"
	default:
		b.power = "On"
	}
	w.WriteHeader(http.StatusNoContent)
}

func link(to string) map[string]any { return map[string]any{"@odata.id": to} }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func complain(w http.ResponseWriter, code int, id, message, resolution string) {
	w.WriteHeader(code)
	answer(w, map[string]any{"error": map[string]any{
		"code": "Base.1.8.GeneralError", "message": "A general error has occurred.",
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": message, "Resolution": resolution}},
	}})
}

// serve starts the BMC, with TLS and a certificate that nobody signed.
func (b *bmc) serve(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(b)
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// asked are the requests that changed something.
func (b *bmc) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changes []string
	for _, r := range b.requests {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "/Sessions") {
			changes = append(changes, r)
		}
	}
	return changes
}

// patched is the request that sets members of the system's Boot.
func patched(keysAndValues ...string) string {
	var pairs []string
	for i := 0; i < len(keysAndValues); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%q:%q", "BootSourceOverride"+keysAndValues[i], keysAndValues[i+1]))
	}
	return `PATCH /Systems/1 {"Boot":{` + strings.Join(pairs, ",") + "}}"
}
