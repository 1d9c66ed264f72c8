package mediatest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mkp2pimg/qemu/qemutest"
)

// image is the directory of the image to boot, made with all formats.
func image(t *testing.T, file string) string {
	t.Helper()
	dir := os.Getenv("MKP2PIMG_IMAGE")
	if dir == "" {
		t.Skip("MKP2PIMG_IMAGE names no directory of an image")
	}
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	path := filepath.Join(dir, file)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not in the image: build it with --format", file)
	}
	return path
}

const firmwareDir = "/usr/share/OVMF/"

// seaBIOS is the emulator's own firmware.
var seaBIOS []string

// ovmf is UEFI without Secure Boot.
func ovmf(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(firmwareDir + "OVMF_CODE_4M.fd"); err != nil {
		t.Skip("OVMF is not installed")
	}
	return []string{
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + firmwareDir + "OVMF_CODE_4M.fd",
		"-drive", "if=pflash,format=raw,unit=1,snapshot=on,file=" + firmwareDir + "OVMF_VARS_4M.fd",
	}
}

// secureBoot is UEFI that runs only what a certificate vouches for.
func secureBoot(t *testing.T, cert []byte) []string {
	t.Helper()
	empty, err := os.ReadFile(firmwareDir + "OVMF_VARS_4M.fd")
	if _, code := os.Stat(firmwareDir + "OVMF_CODE_4M.secboot.fd"); err != nil || code != nil {
		t.Skip("OVMF with Secure Boot is not installed")
	}
	vars := filepath.Join(t.TempDir(), "vars")
	require.NoError(t, os.WriteFile(vars, enroll(t, empty, cert), 0o600))
	return []string{
		"-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1",
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + firmwareDir + "OVMF_CODE_4M.secboot.fd",
		"-drive", "if=pflash,format=raw,unit=1,file=" + vars,
	}
}

// machine is one that runs.
type machine struct{ *qemutest.Machine }

// start starts a machine with only what args attach to it.
func start(t *testing.T, args ...string) machine {
	t.Helper()
	return machine{qemutest.Start(t, append([]string{"-m", "2048", "-no-reboot"}, args...)...)}
}

// reports waits for the first findings and the verdict.
func (m machine) reports(t *testing.T) {
	t.Helper()
	m.Wait(t, "checks    done")
	m.Wait(t, "P2P NO GPU")
}

// serve serves the directory above that of an image over HTTP, to guests at the
// returned URL, and says what they asked for.
func serve(t *testing.T, dir string) (url string, asked func() string) {
	t.Helper()
	paths := make(chan string, 1000)
	files := http.FileServer(http.Dir(dir))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.URL.Path
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	return "http://10.0.2.2:" + port + "/", func() string { // the host, as QEMU's user network has it
		var all strings.Builder
		for len(paths) > 0 {
			all.WriteString(<-paths + "\n")
		}
		return all.String()
	}
}
