package power

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"mkp2pimg/internal/farm/lab"
)

// redfish starts a machine through its BMC (DMTF DSP0266 and DSP2046,
// ComputerSystem). BMCs differ in what they accept; what is tried one after the
// other is said at each place.
type redfish struct {
	lab.Redfish
	node, uuid, serial string // of lab.yaml
	pause              func(context.Context, time.Duration) error
}

// How often something that takes a BMC or a machine a while is looked at, and how
// many times.
const (
	look       = 2 * time.Second
	looksBoot  = 5  // until a boot source that was set is shown
	looksPower = 45 // until a machine is on, or off: power supplies, and BMCs that are slow to notice
)

// undoLimit bounds what is undone after an error, which may be that time is up.
const undoLimit = 30 * time.Second

// NetworkBoot implements [Starter]. If the machine can't be started, the BMC is
// told to forget the boot source again.
func (r redfish) NetworkBoot(ctx context.Context) (note string, err error) {
	s := &session{redfish: r}
	if err := s.open(ctx); err != nil {
		return "", s.explain(err)
	}
	defer s.close(ctx)
	if err := s.choose(); err != nil {
		return "", s.explain(err)
	}
	if err := s.setBoot(s.networkBoot()); err != nil {
		return "", s.explain(err)
	}
	doubt, err := s.confirmBoot(ctx)
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		err = s.explain(err)
		s.undo(ctx)
		return "", err
	}
	return strings.Join(slices.DeleteFunc([]string{s.stranger(), doubt}, func(n string) bool { return n == "" }), "; "), nil
}

// session is one conversation with a BMC.
type session struct {
	redfish
	line   *line
	api    *gofish.APIClient
	system *schemas.ComputerSystem
}

// open logs in: with a session, which is what BMCs are made for, else with each
// request (HTTP Basic), where there is no service for sessions. A refused password
// is not tried a second time.
func (s *session) open(ctx context.Context) error {
	password, err := readPassword(s.PasswordFile)
	if err != nil {
		return &Error{Target: s.target(), Request: "read the password", Err: err, Final: true}
	}
	s.line = newLine(s.Redfish, s.pause)
	config := gofish.ClientConfig{
		Endpoint: strings.TrimSuffix(strings.TrimRight(s.URL.String(), "/"), "/redfish/v1"),
		Username: s.User, Password: password,
		HTTPClient: s.line.client(), NoModifyTransport: true, ReuseConnections: true,
	}
	s.api, err = gofish.ConnectContext(ctx, config)
	if noSessions(err) {
		config.BasicAuth = true
		s.api, err = gofish.ConnectContext(ctx, config)
	}
	return err
}

// noSessions tells whether a login failed because there is nothing to log in to:
// gofish found no link to it in the service root, or it leads nowhere.
func noSessions(err error) bool {
	if code := status(err); code != 0 {
		return slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, code)
	}
	return err != nil && !errors.As(err, new(*url.Error))
}

// close logs out: BMCs allow a handful of sessions, and keep one for half an hour.
func (s *session) close(ctx context.Context) {
	if _, err := s.api.GetSession(); err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		s.api.WithContext(ctx).Logout()
	}
	s.api.HTTPClient.CloseIdleConnections()
}

// choose finds the computer system: the one that lab.yaml names, else the only one,
// else the one with the node's UUID or serial number.
func (s *session) choose() error {
	systems, err := s.api.Service.Systems()
	is := func(*schemas.ComputerSystem) bool { return true }
	switch {
	case s.System != "":
		is = func(v *schemas.ComputerSystem) bool { return s.System == v.ID || s.System == v.ODataID }
	case len(systems) > 1:
		is = func(v *schemas.ComputerSystem) bool { return s.known(v) }
	}
	i := slices.IndexFunc(systems, is)
	if i >= 0 {
		s.system = systems[i]
		return nil
	}
	if err != nil {
		return err
	}
	var ids []string
	for _, v := range systems {
		ids = append(ids, oneLine(v.ID))
	}
	e := &Error{Target: s.target(), Request: s.line.request(), Err: errors.New("it has no computer system"), Final: true}
	switch {
	case s.System != "" && len(ids) > 0:
		e.Err = fmt.Errorf("it has no computer system %q, but %s", s.System, strings.Join(ids, ", "))
		e.Hint = "correct system in the lab's description"
	case len(ids) > 0:
		e.Err = fmt.Errorf("it has %d computer systems: %s", len(ids), strings.Join(ids, ", "))
		e.Hint = "say which is node " + s.node + " with system in the lab's description"
	}
	return e
}

func (s *session) known(v *schemas.ComputerSystem) bool {
	return s.uuid != "" && strings.EqualFold(s.uuid, v.UUID) || s.serial != "" && s.serial == v.SerialNumber
}

// stranger says that the BMC knows its machine by other numbers than lab.yaml. That
// is no error, since vendors set them differently in SMBIOS and in the BMC.
func (s *session) stranger() string {
	if s.known(s.system) || s.serial == "" || s.system.SerialNumber == "" {
		return ""
	}
	return fmt.Sprintf("the BMC is that of a machine with serial number %q, and node %s has %q: is it the right BMC?", oneLine(s.system.SerialNumber), s.node, s.serial)
}

// override is the Boot property of a computer system, as far as it is set here.
type override struct {
	Enabled schemas.BootSourceOverrideEnabled `json:"BootSourceOverrideEnabled,omitempty"`
	Mode    schemas.BootSourceOverrideMode    `json:"BootSourceOverrideMode,omitempty"`
	Target  schemas.BootSource                `json:"BootSourceOverrideTarget,omitempty"`
}

// networkBoot is what to set: PXE, or UEFI HTTP where the BMC offers that only. The
// mode is set to what it is, since there are BMCs that take its absence for Legacy.
func (s *session) networkBoot() override {
	o := override{schemas.OnceBootSourceOverrideEnabled, s.system.Boot.BootSourceOverrideMode, schemas.PxeBootSource}
	offered := s.system.Boot.AllowableBootSourceOverrideTargetValues
	if !slices.Contains(offered, schemas.PxeBootSource) && slices.Contains(offered, schemas.UefiHTTPBootSource) {
		o.Target = schemas.UefiHTTPBootSource
	}
	return o
}

// setBoot sets the boot source, where and how the BMC takes it: in the resource
// itself or in the one for settings of the next start, with or without the mode.
func (s *session) setBoot(o override) error {
	withoutMode := o
	withoutMode.Mode = ""
	var first error
	places := []string{s.system.ODataID}
	if uri := settings(s.system); uri != "" {
		places = append(places, uri)
	}
	for _, uri := range places {
		for _, o := range slices.Compact([]override{o, withoutMode}) {
			err := s.patch(uri, map[string]override{"Boot": o})
			if err == nil || !refused(err) {
				return err
			}
			first = cmp.Or(first, s.explain(err))
		}
	}
	return first
}

// refused tells whether a BMC did not take what was said, and might take it when it
// is said differently.
func refused(err error) bool {
	return slices.Contains([]int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict,
		http.StatusUnprocessableEntity, http.StatusNotImplemented,
	}, status(err))
}

// patch changes a resource. Most BMCs want to be told in If-Match which state of it
// is changed, and some of them compare badly: with what they sent, with the strong
// form of a weak tag only (RFC 9110 forbids weak ones there), or never.
func (s *session) patch(uri string, body any) error {
	tag, err := s.tag(uri)
	if err != nil {
		return err
	}
	for _, tag := range slices.Compact([]string{tag, strings.TrimPrefix(tag, "W/"), ""}) {
		var header map[string]string
		if tag != "" {
			header = map[string]string{"If-Match": tag}
		}
		var resp *http.Response
		if resp, err = s.api.PatchWithHeaders(uri, body, header); err == nil {
			return resp.Body.Close()
		}
		if status(err) != http.StatusPreconditionFailed {
			break
		}
	}
	return err
}

// tag is the ETag of a resource, from the header or the body; empty: it has none.
func (s *session) tag(uri string) (string, error) {
	resp, err := s.api.Get(uri)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	tag := resp.Header.Get("ETag")
	var state struct {
		Tag string `json:"@odata.etag"`
	}
	if json.NewDecoder(resp.Body).Decode(&state) == nil {
		tag = cmp.Or(tag, state.Tag)
	}
	return tag, nil
}

// settings is the resource for what shall be so from the next start on.
func settings(system *schemas.ComputerSystem) string {
	var v struct {
		Settings struct {
			Object struct {
				ID string `json:"@odata.id"`
			} `json:"SettingsObject"`
		} `json:"@Redfish.Settings"`
	}
	_ = json.Unmarshal(system.RawData, &v) // gofish has parsed it already
	return v.Settings.Object.ID
}

// reread reads the state of the system anew.
func (s *session) reread() error {
	system, err := schemas.GetComputerSystem(s.api, s.system.ODataID)
	if err == nil {
		s.system = system
	}
	return err
}

// confirmBoot looks whether the BMC shows the boot source that it accepted. Some
// show it only once the machine starts, so it is a doubt and no error.
func (s *session) confirmBoot(ctx context.Context) (doubt string, err error) {
	for i := range looksBoot {
		if i > 0 {
			if err := s.pause(ctx, look); err != nil {
				return "", err
			}
		}
		if err := s.reread(); err != nil {
			return "", err
		}
		boot := s.system.Boot
		if boot.BootSourceOverrideEnabled != schemas.DisabledBootSourceOverrideEnabled &&
			slices.Contains([]schemas.BootSource{schemas.PxeBootSource, schemas.UefiHTTPBootSource}, boot.BootSourceOverrideTarget) {
			return "", nil
		}
	}
	boot := s.system.Boot
	return fmt.Sprintf("the BMC accepted the boot source but shows %q for %q: its firmware may start from disk",
		oneLine(string(boot.BootSourceOverrideEnabled)), oneLine(string(boot.BootSourceOverrideTarget))), nil
}

// start switches the machine on, or restarts it.
func (s *session) start(ctx context.Context) error {
	changing := func() bool {
		return s.system.PowerState == schemas.PoweringOnPowerState || s.system.PowerState == schemas.PoweringOffPowerState
	}
	if err := s.await(ctx, func() bool { return !changing() }); err != nil {
		return err
	}
	if s.system.PowerState == schemas.OffPowerState {
		return s.switchOn(ctx)
	}
	restart := s.offered(schemas.ForceRestartResetType, schemas.PowerCycleResetType, schemas.FullPowerCycleResetType)
	if restart != "" {
		return s.reset(restart)
	}
	if err := s.reset(schemas.ForceOffResetType); err != nil {
		return err
	}
	if err := s.await(ctx, func() bool { return s.system.PowerState == schemas.OffPowerState }); err != nil {
		return err
	}
	return s.switchOn(ctx)
}

func (s *session) switchOn(ctx context.Context) error {
	on := cmp.Or(s.offered(schemas.OnResetType, schemas.ForceOnResetType, schemas.PushPowerButtonResetType), schemas.OnResetType)
	if err := s.reset(on); err != nil {
		return err
	}
	return s.await(ctx, func() bool {
		return s.system.PowerState == schemas.OnPowerState || s.system.PowerState == schemas.PoweringOnPowerState
	})
}

// offered is the first of some resets that the BMC can do; any, if it does not say
// what it can do.
func (s *session) offered(types ...schemas.ResetType) schemas.ResetType {
	possible, err := s.system.GetSupportedResetTypes()
	if err != nil || len(possible) == 0 {
		return types[0]
	}
	for _, t := range types {
		if slices.Contains(possible, t) {
			return t
		}
	}
	return ""
}

func (s *session) reset(t schemas.ResetType) error {
	_, err := s.system.Reset(t)
	if err != nil && status(err) == 0 && !errors.As(err, new(*url.Error)) {
		// gofish itself refused: the BMC offers no such reset, or no reset at all.
		return &Error{Target: s.target(), Request: "reset of type " + string(t), Err: err, Final: true}
	}
	return err
}

// await waits until the system is in some state.
func (s *session) await(ctx context.Context, reached func() bool) error {
	for range looksPower {
		if err := s.reread(); err != nil {
			return err
		}
		if reached() {
			return nil
		}
		if err := s.pause(ctx, look); err != nil {
			return err
		}
	}
	return &Error{
		Target: s.target(), Request: s.line.request(), Hint: "look at the machine's power supply and at the log of its BMC",
		Err: fmt.Errorf("the BMC accepted everything, and the machine is still %q after %v", oneLine(string(s.system.PowerState)), looksPower*look),
	}
}

// undo tells the BMC to forget the boot source. It may be that time is up.
func (s *session) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	api := s.api
	defer func() { s.api = api }()
	s.api = api.WithContext(ctx)
	_ = s.setBoot(override{Enabled: schemas.DisabledBootSourceOverrideEnabled}) // the error before it is the one to tell
}
