package boot

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// identity is what a machine's iPXE says that it is. Nothing of it is proven.
type identity struct{ MAC, UUID, Serial string }

// printable is what a serial number may consist of to be one here.
var printable = regexp.MustCompile(`^[\x21-\x7e](?:[\x20-\x7e]{0,62}[\x21-\x7e])?$`)

// readIdentity reads the query of the first script. What does not look like what
// it should be is left out.
func readIdentity(q url.Values) identity {
	id := identity{MAC: readMAC(q.Get("mac"))}
	if u, err := uuid.Parse(q.Get("uuid")); err == nil {
		id.UUID = u.String()
	}
	if s := strings.TrimSpace(q.Get("serial")); printable.MatchString(s) {
		id.Serial = s
	}
	return id
}

// readMAC is the address in lower case with colons, empty if it is none.
func readMAC(s string) string {
	hw, err := net.ParseMAC(s)
	if err != nil || len(hw) != 6 || hw[0]&1 != 0 {
		return ""
	}
	return hw.String()
}

// name is that of a machine that is not in lab.yaml.
func (id identity) name() string { return "mac-" + strings.ReplaceAll(id.MAC, ":", "-") }
