package qemu

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

func TestArgs(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			m, err := Lookup(name)
			require.NoError(t, err)
			args := m.Args(Boot{
				Kernel:  "/image/vmlinuz",
				Initrd:  "/image/initrd.zst",
				Cmdline: []string{"quiet", "p2p.plan=full"},
				GPUs:    "/run",
				Console: "/run/console", Report: "/run/report", Control: "/run/control",
				Code: "/ovmf/code.fd", Vars: "/run/vars",
			})
			golden.Equal(t, "testdata/"+filepath.Join("args", name+".txt"), perOption(args))
		})
	}
}

// perOption writes one option per line, as a person compares them.
func perOption(args []string) string {
	var b strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
		case strings.HasPrefix(a, "-"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(Quote([]string{a}))
	}
	return b.String() + "\n"
}

func TestArgsOfBoot(t *testing.T) {
	m, err := Parse("m.yaml", []byte(minimal+"firmware: ovmf\n"))
	require.NoError(t, err)
	args := strings.Join(m.Args(Boot{Kernel: "k", Accel: KVM, Console: "/a,b/console", Code: "/a,b/code", Vars: "/a,b/vars"}), " ")
	assert.Contains(t, args, "-accel kvm -cpu host")
	assert.Contains(t, args, "path=/a,,b/console", "commas are doubled in QEMU's options")
	assert.Contains(t, args, "file=/a,,b/code")
	assert.Contains(t, args, "file=/a,,b/vars")
	assert.NotContains(t, args, "-initrd")
}

func TestQuote(t *testing.T) {
	assert.Equal(t, `qemu -append 'quiet a=b' '' 'it'\''s' plain`, Quote([]string{"qemu", "-append", "quiet a=b", "", "it's", "plain"}))
}
