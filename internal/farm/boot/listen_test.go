package boot

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/pin/tftp/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/farm/lab"
)

// freePort is a UDP port that nobody has.
func freePort(t *testing.T) int {
	t.Helper()
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// onLoopback serves DHCP and TFTP at ports of the loopback interface.
func onLoopback(t *testing.T) Ports {
	t.Helper()
	b := newBench(t, "unknown:", "dhcp: {mode: proxy, interface: lo}\nunknown:")
	ports := Ports{freePort(t), freePort(t), freePort(t)}
	l, err := b.Listen(ports)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("this kernel lets only root bind a socket to an interface")
	}
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return ports
}

func TestBootServerSocket(t *testing.T) {
	ports := onLoopback(t)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp4", (&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports.PXE}).String())
	require.NoError(t, err)
	defer conn.Close()
	ask := func(mac byte) []byte {
		return packet(t, dhcpv4.MessageTypeRequest, append(clients["UEFI, 7"].options, dhcpv4.WithHwAddr(net.HardwareAddr{0x52, 0x54, 0, 0, 0, mac}))...).ToBytes()
	}
	for _, data := range [][]byte{nil, {1}, bytes.Repeat([]byte{0xff}, 2000), ask(0xf), ask(0xa)} { // rubbish, a stranger, a node
		_, err = conn.Write(data)
		require.NoError(t, err)
	}
	buf := make([]byte, 2000)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	n, err := conn.Read(buf)
	require.NoError(t, err)
	m, err := dhcpv4.FromBytes(buf[:n])
	require.NoError(t, err)
	assert.Equal(t, dhcpv4.MessageTypeAck, m.MessageType())
	assert.Equal(t, pxe.EFI, m.BootFileName)
	assert.Equal(t, "52:54:00:00:00:0a", m.ClientHWAddr.String(), "the stranger got no answer")
}

func TestTFTP(t *testing.T) {
	ports := onLoopback(t)
	c, err := tftp.NewClient((&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports.TFTP}).String())
	require.NoError(t, err)
	c.SetBlockSize(1468)
	c.RequestTSize(true)
	c.SetRetries(3)
	get := func(name string) (string, int64, error) {
		from, err := c.Receive(name, "octet")
		if err != nil {
			return "", 0, err
		}
		size := int64(-1)
		if in, ok := from.(tftp.IncomingTransfer); ok {
			size, _ = in.Size()
		}
		var b strings.Builder
		_, err = from.WriteTo(&b)
		return b.String(), size, err
	}
	for _, name := range []string{pxe.EFI, "/" + pxe.EFI} {
		text, size, err := get(name)
		require.NoError(t, err)
		assert.Equal(t, "MZ efi", text)
		assert.Equal(t, int64(6), size)
	}
	for _, name := range []string{
		"vmlinuz", "manifest.json", "../" + pxe.EFI, "/etc/passwd", "../../../../etc/passwd", "..\\..\\etc\\passwd", "", ".", "/", "UNDIONLY.KPXE", "a\x01b",
	} {
		_, _, err := get(name)
		require.ErrorContains(t, err, "no such file", name)
	}
	to, err := c.Send(pxe.BIOS, "octet")
	if err == nil {
		_, err = to.ReadFrom(strings.NewReader("evil"))
	}
	require.Error(t, err, "nothing is taken")
}

func TestListenErrors(t *testing.T) {
	b := newBench(t, "unknown:", "dhcp: {mode: proxy, interface: nowhere0}\nunknown:")
	_, err := b.Listen(Ports{})
	require.ErrorContains(t, err, `there is no network interface "nowhere0": this machine has lo`)

	b = newBench(t, "unknown:", "dhcp: {mode: full, interface: lo, range: 10.9.0.1-10.9.0.9}\nunknown:")
	_, err = b.Listen(Ports{})
	require.ErrorContains(t, err, "is not in 127.0.0.0/8, the net of interface lo")

	b = newBench(t, "unknown:", "dhcp: {mode: proxy, interface: lo}\nunknown:")
	taken, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp4", "0.0.0.0:0")
	require.NoError(t, err)
	defer taken.Close()
	_, err = b.Listen(Ports{taken.LocalAddr().(*net.UDPAddr).Port, freePort(t), freePort(t)})
	if !errors.Is(err, fs.ErrPermission) {
		require.ErrorContains(t, err, "another program has it")
	}

	b = newBench(t)
	l, err := b.Listen(Ports{})
	require.NoError(t, err, "with mode off there is nothing to listen at")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, l.Serve(ctx))
}

func TestLeasesSurviveTheServer(t *testing.T) {
	path := t.TempDir() + "/leases.json"
	b := newBench(t, "unknown:", "dhcp: {mode: full, interface: lo, range: 127.0.0.100-127.0.0.110, lease-file: "+path+"}\nunknown:")
	l, err := b.Listen(Ports{freePort(t), freePort(t), freePort(t)})
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("this kernel lets only root bind a socket to an interface")
	}
	require.NoError(t, err)
	a, _ := l.decide(noon, packet(t, dhcpv4.MessageTypeDiscover).ToBytes(), dhcpPort)
	require.NotNil(t, a)
	require.NotNil(t, l.dhcp.Answer(noon, packet(t, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.Packet.YourIPAddr))), dhcpPort))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, l.Serve(ctx))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(data), a.Packet.YourIPAddr.String())
	assert.Contains(t, string(data), machine.String())
}

func TestPacketsOfOneMachineAreLimited(t *testing.T) {
	b := newBench(t, "unknown: never", "unknown: always")
	l := &Listener{s: b.Service, dhcp: server(t, lab.Proxy)}
	data := packet(t, dhcpv4.MessageTypeDiscover, clients["BIOS"].options...).ToBytes()
	answers := 0
	for range 100 {
		if a, _ := l.decide(noon, data, dhcpPort); a != nil {
			answers++
		}
	}
	assert.Equal(t, 20, answers)
}
