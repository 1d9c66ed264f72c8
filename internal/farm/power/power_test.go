package power

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/lab"
)

func TestNew(t *testing.T) {
	assert.Nil(t, New(&lab.Node{}))
	assert.IsType(t, redfish{}, New(&lab.Node{Power: &lab.Power{Redfish: &lab.Redfish{}}}))
	assert.IsType(t, ipmi{}, New(&lab.Node{Power: &lab.Power{IPMI: &lab.IPMI{}}}))
	assert.IsType(t, wol{}, New(&lab.Node{Power: &lab.Power{WOL: &lab.WOL{}}}))
	assert.IsType(t, command{}, New(&lab.Node{Power: &lab.Power{Command: []string{"true"}}}))
}

// script is the command that runs some shell commands.
func script(t *testing.T, commands string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(file, []byte(commands), 0o600))
	return []string{"/bin/sh", file}
}

func TestCommand(t *testing.T) {
	node := &lab.Node{Name: "a1", MAC: "52:54:00:12:34:56", UUID: "4c4c4544-0034-4d10-8051-b4c04f333232", Serial: "S 1", Group: "rack3"}
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("OUT", out)

	argv := append(script(t, `env | grep ^MKP2PIMG_ | sort > "$OUT"; echo "$@" >> "$OUT"`), "a b", "$(c)")
	_, err := command{argv: argv, node: node}.NetworkBoot(t.Context())
	require.NoError(t, err)
	got, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, `MKP2PIMG_GROUP=rack3
MKP2PIMG_MAC=52:54:00:12:34:56
MKP2PIMG_NODE=a1
MKP2PIMG_SERIAL=S 1
MKP2PIMG_UUID=4c4c4544-0034-4d10-8051-b4c04f333232
a b $(c)
`, string(got))

	_, err = command{argv: script(t, `echo switched nothing; echo "outlet 7 is dark" >&2; exit 3`), node: node}.NetworkBoot(t.Context())
	require.ErrorContains(t, err, "exit status 3: outlet 7 is dark switched nothing")

	_, err = command{argv: []string{"/no/such/program"}, node: node}.NetworkBoot(t.Context())
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "node a1: /no/such/program: fork/exec /no/such/program: no such file or directory; install it, or give its path", e.Error())
	assert.True(t, e.Final)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = command{argv: []string{"sleep", "600"}, node: node}.NetworkBoot(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTail(t *testing.T) {
	var w tail
	for i := range 3000 {
		fmt.Fprintf(&w, "%04d\n", i)
	}
	assert.Len(t, w.String(), tailSize)
	assert.True(t, strings.HasSuffix(w.String(), "2998\n2999\n"))
}

func TestOneLine(t *testing.T) {
	assert.Equal(t, "a b [31mred c", oneLine(" a\r\n\tb \x1b[31mred\u009b c\x00"))
	assert.Len(t, []rune(oneLine(strings.Repeat("ä", 1000))), longestAnswer+1)
}

// The packet is AMD's: synchronisation, then the address sixteen times.
func TestMagicPacket(t *testing.T) {
	want := "ffffffffffff" + strings.Repeat("525400123456", 16)
	assert.Equal(t, want, hex.EncodeToString(MagicPacket(net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56})))
}

func TestWakeOnLAN(t *testing.T) {
	here, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer here.Close()
	w := wol{mac: "52:54:00:12:34:56", broadcast: here.LocalAddr().String()}
	note, err := w.NetworkBoot(t.Context())
	require.NoError(t, err)
	assert.Equal(t, wolNote, note)
	want, err := net.ParseMAC(w.mac)
	require.NoError(t, err)
	for range wolPackets {
		packet := make([]byte, 1500)
		n, _, err := here.ReadFrom(packet)
		require.NoError(t, err)
		assert.Equal(t, MagicPacket(want), packet[:n])
	}

	w.broadcast = "no.such.host.invalid:9"
	_, err = w.NetworkBoot(t.Context())
	require.ErrorContains(t, err, "give the broadcast address")
}

// fakeTool is a program in place of ipmitool: it writes down its arguments and
// answers by what it is asked for.
func fakeTool(t *testing.T, commands string) (program, log string) {
	t.Helper()
	dir := t.TempDir()
	program, log = filepath.Join(dir, "ipmitool"), filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"$@\" >> " + log + "\n" + commands + "\n"
	// Written by another process: this one may fork while it has the file open,
	// and what is open for writing can't be run.
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `cat > "$0" && chmod 700 "$0"`, program)
	cmd.Stdin = strings.NewReader(text)
	require.NoError(t, cmd.Run())
	return program, log
}

const (
	setsBoot = `*bootdev*) echo "Set Boot Device to pxe" ;; `
	powers   = `*"power cycle"*) echo "Chassis Power Control: Cycle" ;; *"power on"*) echo "Chassis Power Control: Up/On" ;; `
)

func TestIPMI(t *testing.T) {
	tests := []struct {
		name, tool, host string
		legacy           bool
		asked            []string // after the options
		want             string   // error
		final            bool
	}{
		{
			name: "off", tool: setsBoot + powers + `*status*) echo "Chassis Power is off" ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe options=efiboot", "-H bmc1 chassis power status", "-H bmc1 chassis power on"},
		},
		{
			name: "legacy BIOS", legacy: true, tool: setsBoot + powers + `*status*) echo "Chassis Power is off" ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe", "-H bmc1 chassis power status", "-H bmc1 chassis power on"},
		},
		{
			name: "on, another port", host: "bmc1:6230", tool: setsBoot + powers + `*status*) echo "Chassis Power is on" ;;`,
			asked: []string{"-H bmc1 -p 6230 chassis bootdev pxe options=efiboot", "-H bmc1 -p 6230 chassis power status", "-H bmc1 -p 6230 chassis power cycle"},
		},
		{
			// What ipmitool 1.8.19 does when the BMC refuses: nothing, and ends well.
			name: "boot flags refused", tool: `*) echo "Set Chassis Boot Parameter 5 failed: Invalid data field in request" >&2 ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe options=efiboot"},
			want:  "BMC bmc1: ipmitool chassis bootdev pxe options=efiboot: Set Chassis Boot Parameter 5 failed: Invalid data field in request",
		},
		{
			name: "wrong password", tool: `*) echo "Unable to Get Channel Cipher Suites
> RAKP 2 HMAC is invalid
Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1 ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe options=efiboot"}, final: true,
			want: "BMC bmc1: ipmitool chassis bootdev pxe options=efiboot: > RAKP 2 HMAC is invalid Error: Unable to establish IPMI v2 / RMCP+ session; the BMC refused user or password: check user and password-file",
		},
		{
			name: "no answer", tool: `*) echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1 ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe options=efiboot"},
			want:  "BMC bmc1: ipmitool chassis bootdev pxe options=efiboot: Error: Unable to establish IPMI v2 / RMCP+ session; check the address, and that IPMI over LAN is enabled on the BMC",
		},
		{
			name: "an ordinary user", tool: setsBoot + `*) echo "Error: insufficient privilege level" >&2; exit 1 ;;`,
			asked: []string{"-H bmc1 chassis bootdev pxe options=efiboot", "-H bmc1 chassis power status"}, final: true,
			want: "BMC bmc1: ipmitool chassis power status: Error: insufficient privilege level; the user needs the privilege ADMINISTRATOR on this channel",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			program, log := fakeTool(t, "case \"$*\" in\n"+tt.tool+"\nesac")
			file := passwordFile(t, bmcPassword)
			host := "bmc1"
			if tt.host != "" {
				host = tt.host
			}
			_, err := ipmi{IPMI: lab.IPMI{Host: host, User: "admin", PasswordFile: file, Legacy: tt.legacy}, program: program}.NetworkBoot(t.Context())
			asked, readErr := os.ReadFile(log)
			require.NoError(t, readErr)
			assert.NotContains(t, string(asked), bmcPassword)
			options := "-v -I lanplus -U admin -f " + file + " "
			assert.Equal(t, tt.asked, strings.Split(strings.TrimSpace(strings.ReplaceAll(string(asked), options, "")), "\n"))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tt.want, err.Error())
			assert.Equal(t, tt.final, e.Final)
		})
	}
}

func TestIPMIWithout(t *testing.T) {
	config := lab.IPMI{Host: "bmc1", User: "admin", PasswordFile: passwordFile(t, "x")}
	_, err := ipmi{IPMI: config, program: "no-such-ipmitool"}.NetworkBoot(t.Context())
	require.ErrorContains(t, err, `executable file not found in $PATH; install ipmitool`)
	config.PasswordFile = "/no/such/file"
	_, err = ipmi{IPMI: config, program: "no-such-ipmitool"}.NetworkBoot(t.Context())
	require.ErrorContains(t, err, "BMC bmc1: read the password: open /no/such/file: no such file or directory")
}

// TestIPMISimulator asks OpenIPMI's BMC simulator with the real ipmitool.
func TestIPMISimulator(t *testing.T) {
	for _, program := range []string{"ipmitool", "ipmi_sim"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v (Debian has it in the packages ipmitool and openipmi)", err)
		}
	}
	dir := t.TempDir()
	address := startSimulator(t, dir)
	// With the cipher suite given, ipmitool does not ask for those of the BMC, which
	// the simulator leaves unanswered for 10 seconds.
	tool, _ := fakeTool(t, `exec ipmitool -C 3 "$@"`)
	b := ipmi{IPMI: lab.IPMI{Host: address, User: "admin", PasswordFile: passwordFile(t, "secret\n")}, program: tool}
	_, err := b.NetworkBoot(t.Context())
	require.NoError(t, err)
	_, err = b.NetworkBoot(t.Context())
	require.NoError(t, err)
	want := []string{"boot pxe", "power 1", "boot pxe", "power 0", "power 1"}
	assert.Eventually(t, func() bool { return slices.Equal(want, sets(t, dir)) }, time.Minute, 50*time.Millisecond, "%v", sets(t, dir))

	b.PasswordFile = passwordFile(t, "wrong\n")
	_, err = b.NetworkBoot(t.Context())
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Final, "%v", err)
}

// sets is what the simulator's chassis was told so far.
func sets(t *testing.T, dir string) []string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	var sets []string
	for line := range strings.Lines(string(log)) {
		if _, set, ok := strings.Cut(strings.TrimSpace(line), " set "); ok {
			sets = append(sets, set)
		}
	}
	return sets
}

// startSimulator starts ipmi_sim, whose chassis is a script that keeps its state in
// dir and writes what it was asked for to the file log there.
func startSimulator(t *testing.T, dir string) (address string) {
	t.Helper()
	free, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	address = free.LocalAddr().String()
	require.NoError(t, free.Close())
	_, port, _ := net.SplitHostPort(address)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o700))
		return file
	}
	chassis := write("chassis", `#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$@" >> log
shift
what=$1
shift
while [ $# -gt 0 ]; do
	if [ "$what" = set ]; then
		echo "$2" > "$1"
		shift
	elif [ -f "$1" ]; then
		echo "$1:$(cat "$1")"
	elif [ "$1" = power ]; then
		echo power:0
	else
		echo boot:default
	fi
	shift
done
`)
	config := write("lan.conf", `name "node"
set_working_mc 0x20
startlan 1
 addr 127.0.0.1 `+port+`
 priv_limit admin
 allowed_auths_admin none md2 md5 straight
 guid a123456789abcdefa123456789abcdef
endlan
user 2 true "admin" "secret" admin 10 none md2 md5 straight
chassis_control "`+chassis+` 0x20"
`)
	commands := write("commands", "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n")
	sim := exec.CommandContext(t.Context(), "ipmi_sim", "-n", "-c", config, "-f", commands, "-s", t.TempDir())
	require.NoError(t, sim.Start())
	t.Cleanup(func() {
		_ = sim.Process.Kill()
		_ = sim.Wait()
	})
	return address
}
