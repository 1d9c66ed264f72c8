package params

import (
	"fmt"
	"strings"
	"testing"

	"mkp2pimg/internal/golden"
)

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
	golden.Equal(t, page, b.String())
}
