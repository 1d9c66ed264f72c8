package power

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"

	"mkp2pimg/internal/farm/lab"
)

// ipmi starts a machine with ipmitool, which has to be installed. IPMI's protocol
// has too many dialects for another implementation of it to be worth having.
type ipmi struct {
	lab.IPMI
	program string
}

// NetworkBoot sets the boot flags before it touches the power, in one go: a BMC
// forgets flags that were not used within 60 seconds (IPMI 2.0, 28.13).
func (b ipmi) NetworkBoot(ctx context.Context) (string, error) {
	// ipmitool takes a file that is missing for an empty password.
	if _, err := readPassword(b.PasswordFile); err != nil {
		return "", &Error{Target: "BMC " + b.Host, Request: "read the password", Err: err, Final: true}
	}
	// Where it can't set the flags, ipmitool 1.8.19 says so and ends with 0.
	request := []string{"chassis", "bootdev", "pxe", "options=efiboot"}
	if b.Legacy {
		request = request[:3]
	}
	if _, err := b.ask(ctx, "Set Boot Device to pxe", request...); err != nil {
		return "", err
	}
	status, err := b.ask(ctx, "Chassis Power is", "chassis", "power", "status")
	if err != nil {
		return "", err
	}
	// A cycle takes the power off, which ends states of a GPU that a reset of the
	// machine does not.
	action := "cycle"
	if strings.Contains(status, "is off") {
		action = "on"
	}
	_, err = b.ask(ctx, "Chassis Power Control", "chassis", "power", action)
	return "", err
}

// ask runs one command of ipmitool, which has to answer with some words. The
// password is neither in its arguments nor in its environment, which others may
// read.
func (b ipmi) ask(ctx context.Context, want string, words ...string) (string, error) {
	argv := []string{b.program, "-v", "-I", "lanplus", "-U", b.User, "-f", b.PasswordFile, "-H"}
	if host, port, err := net.SplitHostPort(b.Host); err == nil {
		argv = append(argv, host, "-p", port)
	} else {
		argv = append(argv, b.Host)
	}
	stdout, stderr, err := execute(ctx, os.Environ(), append(argv, words...)...)
	said := oneLine(reasons(stderr))
	if err == nil {
		if strings.Contains(stdout, want) {
			return stdout, nil
		}
		err = errors.New("it did not do that")
	}
	e := &Error{Target: "BMC " + b.Host, Request: "ipmitool " + strings.Join(words, " "), Answer: said, Err: err}
	e.Hint, e.Final = advice(said)
	if missing(err) {
		e.Answer, e.Hint, e.Final = "", "install ipmitool", true
	}
	return "", e
}

// reasons are the lines of ipmitool that say why something failed: not those about
// what it can do without.
func reasons(stderr string) string {
	var kept strings.Builder
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "Get Channel Cipher Suites") || strings.Contains(line, "IANA PEN Registry") {
			continue
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// advice says what to do about what ipmitool said, and whether it makes no sense
// to ask again. The texts are those of ipmitool 1.8.19, src/plugins/lanplus.
func advice(said string) (hint string, final bool) {
	switch {
	case strings.Contains(said, "HMAC is invalid"), strings.Contains(said, "unauthorized name"):
		return "the BMC refused user or password: check user and password-file", true
	case strings.Contains(strings.ToLower(said), "insufficient privilege"):
		return "the user needs the privilege ADMINISTRATOR on this channel", true
	case strings.Contains(said, "Unable to establish"):
		return "check the address, and that IPMI over LAN is enabled on the BMC", false
	}
	return "", false
}
