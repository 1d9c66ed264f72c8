// Package power makes a machine start from its network once: through Redfish,
// through IPMI, with a Wake-on-LAN packet, or with a command of the user.
//
// Which machine starts is decided here, what it gets to boot is not: that is up
// to the boot service of the lab.
package power

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"mkp2pimg/internal/farm/lab"
)

// Starter starts one machine.
type Starter interface {
	// NetworkBoot makes the machine start from its network now, and only this
	// time: one that is off is switched on, one that runs is restarted without
	// asking what runs on it. It returns when that has been asked for and, where
	// it can be seen, when the machine is on; the firmware is then still at work.
	//
	// The note says what could not be made sure, for whoever looks at a machine
	// that does not come back. Errors are of type [*Error].
	NetworkBoot(ctx context.Context) (note string, err error)
}

// New returns what starts a node, nil if the lab says nothing about it. Passwords
// are read from their files each time they are needed.
func New(node *lab.Node) Starter {
	p := node.Power
	switch {
	case p == nil:
		return nil
	case p.Redfish != nil:
		return redfish{Redfish: *p.Redfish, node: node.Name, uuid: node.UUID, serial: node.Serial, pause: pause}
	case p.IPMI != nil:
		return ipmi{IPMI: *p.IPMI, program: "ipmitool"}
	case p.WOL != nil:
		return wol{mac: p.WOL.MAC, broadcast: p.WOL.Broadcast}
	default:
		return command{argv: p.Command, node: node}
	}
}

// Error is a machine that could not be started.
type Error struct {
	Target  string // which BMC, address or program
	Request string // what was asked of it: "PATCH /redfish/v1/Systems/1"
	Answer  string // what it said, empty if it said nothing
	Hint    string // what the user can do, empty if there is nothing to say
	Final   bool   // asking again is of no use, or does harm: a refused password may lock an account
	Err     error  // what failed
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Target)
	if e.Request != "" {
		fmt.Fprintf(&b, ": %s", e.Request)
	}
	if e.Answer != "" {
		fmt.Fprintf(&b, ": %s", e.Answer)
	} else {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// readPassword reads the first line of a file.
func readPassword(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", fmt.Errorf("%s: its first line is empty: it is to be the password", file)
	}
	return line, nil
}

// longestAnswer is how many characters of an answer are repeated in a message.
const longestAnswer = 300

// oneLine makes foreign text fit for a message: one line of printable characters,
// not too long.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > longestAnswer {
		s = string(r[:longestAnswer]) + "…"
	}
	return s
}

// pause waits for d, or until the context ends, whose error it returns then.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Describe says how a node is started, in a few words.
func Describe(node *lab.Node) string {
	p := node.Power
	switch {
	case p == nil:
		return "somebody else"
	case p.Redfish != nil:
		return "Redfish " + p.Redfish.URL.String()
	case p.IPMI != nil:
		return "ipmitool " + p.IPMI.Host
	case p.WOL != nil:
		return "Wake-on-LAN to " + p.WOL.Broadcast
	default:
		return strings.Join(p.Command, " ")
	}
}
