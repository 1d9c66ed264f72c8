package qemu

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/sandbox"
)

// multiboot makes a kernel of the Multiboot Specification 0.6.96 that prints
// to the two serial ports and then ends as told.
func multiboot(t *testing.T, com1, com2 string, end []byte) string {
	t.Helper()
	const load = 0x100000
	say := func(port uint32, text string) []byte {
		code := []byte{0xbb} // mov ebx, port
		code = binary.LittleEndian.AppendUint32(code, port)
		// call over the text, which leaves its address on the stack
		code = append(code, 0xe8)
		code = binary.LittleEndian.AppendUint32(code, uint32(len(text)+1))
		code = append(append(code, text...), 0)
		return append(code,
			0x5e,       // pop esi
			0x8a, 0x0e, // next: mov cl, [esi]
			0x46,       // inc esi
			0x84, 0xc9, // test cl, cl
			0x74, 0x0f, // jz done
			0x8d, 0x53, 0x05, // wait: lea edx, [ebx+5]: line status
			0xec,       // in al, dx
			0xa8, 0x20, // test al, 0x20: transmitter empty
			0x74, 0xf8, // jz wait
			0x89, 0xda, // mov edx, ebx
			0x88, 0xc8, // mov al, cl
			0xee,       // out dx, al
			0xeb, 0xea, // jmp next
		) // done:
	}
	const magic, flags = 0x1badb002, 1 << 16 // flags: addresses follow
	sum := uint32(0)
	sum -= magic + flags
	code := []byte{0xbc} // mov esp, stack
	code = binary.LittleEndian.AppendUint32(code, load+0x10000)
	code = append(code, say(0x3f8, com1)...)
	code = append(code, say(0x2f8, com2)...)
	code = append(code, end...)
	code = append(code, 0xfa, 0xf4, 0xeb, 0xfd) // cli; hlt; jmp back
	var file []byte
	for _, word := range []uint32{magic, flags, sum, load, load, load + 32 + uint32(len(code)), load + 0x10000, load + 32} {
		file = binary.LittleEndian.AppendUint32(file, word)
	}
	name := filepath.Join(t.TempDir(), "kernel")
	require.NoError(t, os.WriteFile(name, append(file, code...), 0o644))
	return name
}

// Ways for a multiboot kernel to end on q35 under SeaBIOS.
var (
	endOff   = []byte{0x66, 0xba, 0x04, 0x06, 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef} // outw 0x2000 to PM1a_CNT at 0x604
	endReset = []byte{0x66, 0xba, 0xf9, 0x0c, 0xb0, 0x06, 0xee}                   // outb 6 to the reset control register 0xcf9
	endHang  = []byte{}
)

func TestMain(m *testing.M) {
	sandbox.MaybeChild()
	os.Exit(m.Run())
}

// TestBoot starts the real emulator with kernels of a few dozen bytes.
func TestBoot(t *testing.T) {
	e, err := Find(t.Context(), sandbox.Root{})
	if err != nil {
		t.Skipf("the host has no emulator: %v", err)
	}
	serial, err := Parse("m.yaml", []byte(minimal+"report: serial\n"))
	require.NoError(t, err)
	panicked := "[    1.000000] Kernel panic - not syncing: no init\n"

	tests := []struct {
		name       string
		com1, com2 string
		end        []byte
		want       ExitKind
	}{
		{"power off", "[    0.500000] hello\n", "{\"a\":1}\n{\"b\":", endOff, PowerOff},
		{"reset", panicked, "", endReset, Reset},
		{"panic", panicked, "", endHang, Panic},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			img := Image{Kernel: multiboot(t, tt.com1, tt.com2, tt.end)}
			keep := t.TempDir()
			var follow bytes.Buffer
			run, err := e.boot(t.Context(), serial, img, bootOptions{accel: TCG, deadline: time.Minute, keep: keep, follow: &follow})
			require.NoError(t, err)
			assert.Equal(t, tt.want, run.Exit.Kind, "%s %s", run.Exit.Detail, run.Stderr)
			assert.Equal(t, tt.com1, string(join(run.Console)))
			assert.Equal(t, tt.com2, string(join(run.Report)))
			assert.Equal(t, tt.com1, follow.String())
			for name, want := range map[string]string{"console.log": tt.com1, "report.jsonl": tt.com2} {
				got, err := os.ReadFile(filepath.Join(keep, name))
				require.NoError(t, err)
				assert.Equal(t, want, string(got))
			}
			log, err := os.ReadFile(filepath.Join(keep, "qemu.log"))
			require.NoError(t, err)
			assert.Contains(t, string(log), "-machine q35")
		})
	}
}

// TestDeadline has a guest that hangs. How far it comes before it is killed is up
// to how busy the host is.
func TestDeadline(t *testing.T) {
	t.Parallel()
	e, err := Find(t.Context(), sandbox.Root{})
	if err != nil {
		t.Skipf("the host has no emulator: %v", err)
	}
	m, err := Parse("m.yaml", []byte(minimal))
	require.NoError(t, err)
	const text = "started\n"
	run, err := e.boot(t.Context(), m, Image{Kernel: multiboot(t, text, "", endHang)}, bootOptions{accel: TCG, deadline: 3 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, Exit{Deadline, "killed after 3s"}, run.Exit, run.Stderr)
	assert.True(t, strings.HasPrefix(text, string(join(run.Console))), "%q", join(run.Console))
}

func TestBootErrors(t *testing.T) {
	e, err := Find(t.Context(), sandbox.Root{})
	if err != nil {
		t.Skipf("the host has no emulator: %v", err)
	}
	m, err := Parse("m.yaml", []byte(minimal))
	require.NoError(t, err)

	run, err := e.boot(t.Context(), m, Image{Kernel: "/no/such/kernel"}, bootOptions{deadline: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, Failed, run.Exit.Kind)
	assert.Contains(t, run.Exit.Detail, "/no/such/kernel")

	ctx, cancel := context.WithCancel(t.Context())
	kernel := multiboot(t, "started\n", "", endHang)
	run, err = e.boot(ctx, m, Image{Kernel: kernel}, bootOptions{deadline: time.Minute, until: func(string) bool { cancel(); return false }})
	require.NoError(t, err)
	assert.Equal(t, Interrupted, run.Exit.Kind)
}

// TestBootInRoot runs an emulator from unpacked packages (see Packages).
func TestBootInRoot(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_EMULATOR_ROOT")
	if dir == "" {
		t.Skip("MKP2PIMG_EMULATOR_ROOT names no root with an emulator")
	}
	require.NoError(t, sandbox.Prepare(dir))
	e, err := Find(t.Context(), sandbox.Root{Dir: dir})
	require.NoError(t, err)
	m, err := Parse("m.yaml", []byte(minimal+"report: serial\n"))
	require.NoError(t, err)
	img := Image{Kernel: multiboot(t, "hello\n", "{}\n", endOff)}
	run, err := e.boot(t.Context(), m, img, bootOptions{accel: TCG, deadline: time.Minute})
	require.NoError(t, err)
	assert.Equal(t, Exit{Kind: PowerOff}, run.Exit, run.Stderr)
	assert.Equal(t, "{}\n", string(join(run.Report)))

	ovmf, err := Lookup("two-socket")
	require.NoError(t, err)
	_, _, err = e.stage(ovmf, img, TCG, t.TempDir())
	require.NoError(t, err, "OVMF is in the root")
}
