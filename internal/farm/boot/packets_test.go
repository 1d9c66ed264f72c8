package boot

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/golden"
)

// firmwarePackets are what SeaBIOS 1.16.2 with the iPXE ROM of QEMU 7.2, OVMF
// 2022.11, iPXE and the image sent.
func firmwarePackets(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/packets/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".hex")], err = hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		require.NoError(t, err)
	}
	return all
}

func TestFirmware(t *testing.T) {
	for name, data := range firmwarePackets(t) {
		var b strings.Builder
		m, err := dhcpv4.FromBytes(data)
		require.NoError(t, err)
		port := dhcpPort
		if strings.HasSuffix(name, "4011") {
			port = pxePort
		}
		for _, mode := range []lab.Mode{lab.Full, lab.Proxy} {
			fmt.Fprintf(&b, "%s: ", mode)
			a := server(t, mode).Answer(noon, m, port)
			if a == nil {
				b.WriteString("no answer\n")
				continue
			}
			to := "to where it came from"
			if a.To != nil {
				to = "to " + a.To.String()
			}
			fmt.Fprintf(&b, "%s\n%s", to, a.Packet.Summary())
		}
		golden.Equal(t, "testdata/packets/"+name+".txt", b.String())
	}
}
