package lab

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"mkp2pimg/initramfs/p2pinit/params"
)

// Names go into URLs, iPXE scripts and kernel command lines.
var (
	nameRule   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	serialRule = regexp.MustCompile(`^[\x21-\x7e](?:[\x20-\x7e]{0,62}[\x21-\x7e])?$`)
	// parameterRule leaves out what iPXE expands ($, {, }), what separates commands
	// (|, &, #), and quotes, which iPXE hands on and the kernel removes.
	parameterRule = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._:/,=+@%~\[\]-]{0,255}$`)
)

// placeholders are UUIDs that vendors forgot to set: all-zero, all-one, and that
// of AMI's sample firmware.
var placeholders = []string{
	"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "03000200-0400-0500-0006-000700080009",
}

// reserved are kernel parameters that have a key of their own or that the server sets.
var reserved = map[string]string{
	"p2p.plan": "use the key plan", "p2p.after": "use the key after", "p2p.node": "it is the node's name",
	"p2p.collect": "the server sets it", "p2p.token": "the server sets it", "p2p.pin": "the server sets it",
}

func text(v string) (string, error) {
	if v == "" {
		return "", fmt.Errorf("the value is empty: give one, or leave the key out")
	}
	return v, nil
}

func name(v string) (string, error) {
	if !nameRule.MatchString(v) {
		return "", fmt.Errorf("%q is no name: up to 63 letters, digits and . _ -, the first a letter or digit", v)
	}
	return v, nil
}

func serial(v string) (string, error) {
	if !serialRule.MatchString(v) {
		return "", fmt.Errorf("%q is no serial number: up to 64 printable characters of ASCII", v)
	}
	return v, nil
}

func mac(v string) (string, error) {
	hw, err := net.ParseMAC(v)
	if err != nil || len(hw) != 6 {
		return "", fmt.Errorf("%q is no MAC address such as 52:54:00:12:34:56", v)
	}
	if hw[0]&1 != 0 {
		return "", fmt.Errorf("%s is the MAC address of a group, not of a machine", hw)
	}
	return hw.String(), nil
}

func systemUUID(v string) (string, error) {
	id, err := uuid.Parse(v)
	if err != nil || len(v) != 36 {
		return "", fmt.Errorf("%q is no UUID such as 4c4c4544-0034-4d10-8051-b4c04f333232", v)
	}
	if slices.Contains(placeholders, id.String()) {
		return "", fmt.Errorf("UUID %s is that of many boards whose vendor set none: use mac or serial", id)
	}
	return id.String(), nil
}

func address(v string) (netip.Addr, error) {
	a, err := netip.ParseAddr(v)
	if err != nil || !a.Is4() {
		return a, fmt.Errorf("%q is no IPv4 address", v)
	}
	return a, nil
}

// duration is that of Go, or a number of days: 30m, 1h30m, 90d.
func duration(v string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(v, "d")
	d, err := time.ParseDuration(v)
	if isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is no duration such as 90s, 30m, 2h or 90d", v)
	}
	return d, nil
}

// clock is a time of day: 18:00.
func clock(v string) (time.Duration, error) {
	t, err := time.Parse("15:04", v)
	if err != nil {
		return 0, fmt.Errorf("%q is no time of day such as 18:00", v)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}

func zone(v string) (*time.Location, error) {
	z, err := time.LoadLocation(v)
	if err != nil || v == "" {
		return nil, fmt.Errorf("%q is no time zone such as Europe/Berlin or UTC", v)
	}
	return z, nil
}

func count(v string) (int, error) {
	n, err := strconv.ParseUint(v, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number from 1 to 65535", v)
	}
	return int(n), nil
}

func yes(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", v)
	}
	return b, nil
}

// listen is an address to listen at: ":8080", "10.0.0.1:8080".
func listen(v string) (string, error) {
	_, port, err := net.SplitHostPort(v)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is no address to listen at such as :8080 or 10.0.0.1:8080", v)
	}
	return v, nil
}

// server reads the URL of a server, without a path.
func server(scheme string) func(string) (string, error) {
	return func(v string) (string, error) {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != scheme || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" ||
			!parameterRule.MatchString(v) {
			return "", fmt.Errorf("%q is no URL of a server such as %s://10.0.0.1:8080", v, scheme)
		}
		return scheme + "://" + u.Host, nil
	}
}

func bmcURL(v string) (*url.URL, error) {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, fmt.Errorf("%q is no URL of a BMC such as https://10.0.1.7", v)
	}
	if u.User != nil {
		return nil, fmt.Errorf("a password must not be in the URL of a BMC: use user and password-file")
	}
	return u, nil
}

// pin is the base64url SHA-256 of a public key.
func pin(v string) (string, error) {
	if sum, err := base64.RawURLEncoding.DecodeString(v); err != nil || len(sum) != 32 {
		return "", fmt.Errorf("%q is no pin: want the SHA-256 of the certificate's public key in base64url, 43 characters", v)
	}
	return v, nil
}

func hostPort(v string) (string, error) {
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		host, port = v, "9" // discard, where magic packets go by custom
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
		return "", fmt.Errorf("%q is no address such as 10.0.0.255 or 10.0.0.255:9", v)
	}
	return net.JoinHostPort(host, port), nil
}

func oneOf[T ~string](allowed ...T) func(string) (T, error) {
	return func(v string) (T, error) {
		if !slices.Contains(allowed, T(v)) {
			return "", fmt.Errorf("%q: want one of %v", v, allowed)
		}
		return T(v), nil
	}
}

// parameter is one kernel parameter, or several with spaces between them.
func parameter(v string) (string, error) {
	for p := range strings.FieldsSeq(v) {
		if !parameterRule.MatchString(p) {
			return "", fmt.Errorf("kernel parameter %q: letters, digits and . _ : / , = + @ %% ~ [ ] - are possible", p)
		}
		key, _, _ := strings.Cut(p, "=")
		if why, ok := reserved[key]; ok {
			return "", fmt.Errorf("%s can't be set here: %s", key, why)
		}
	}
	if _, warnings := params.Parse(v); len(warnings) > 0 {
		return "", fmt.Errorf("%s", strings.Replace(warnings[0], " ignored", "", 1))
	}
	return v, nil
}

// quantity is a number with its unit: 26.1 GB/s.
func quantity(v string) (number float64, unit string, err error) {
	digits, unit, _ := strings.Cut(strings.TrimSpace(v), " ")
	number, err = strconv.ParseFloat(digits, 64)
	if err != nil || !(number > 0 && number < 1e15) {
		return 0, "", fmt.Errorf("%q is no quantity such as 26.1 GB/s", v)
	}
	return number, strings.TrimSpace(unit), nil
}
