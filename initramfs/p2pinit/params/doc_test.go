package params

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateDoc = flag.Bool("update", false, "write docs/parameters.md anew")

// TestManual keeps the manual's page of kernel parameters as the program has
// them.
func TestManual(t *testing.T) {
	const page = "../../../docs/parameters.md"
	var b strings.Builder
	b.WriteString("# Kernel parameters of the image\n\n" +
		"Put them on the kernel's command line: in `boot.ipxe`, in a boot menu, or with `qemu -append`.\n\n" +
		"| parameter | values | default | meaning |\n|---|---|---|---|\n")
	for _, p := range Doc() {
		values := strings.ReplaceAll(p.Values, "|", "\\|")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", p.Name, values, p.Default, p.Text)
	}
	if *updateDoc {
		require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, b.String(), string(have), "run: go test ./initramfs/p2pinit/params -update")
}
