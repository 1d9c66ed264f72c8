package mediatest

import (
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/iso"
	"mkp2pimg/images/uki"
	"mkp2pimg/internal/signing"
	"mkp2pimg/internal/signing/signingtest"
)

func TestMediaISO(t *testing.T) {
	path := image(t, iso.Name)
	attach := map[string][]string{
		"CD":    {"-drive", "if=none,id=cd,media=cdrom,readonly=on,format=raw,file=" + path, "-device", "ide-cd,drive=cd,bootindex=0"},
		"stick": {"-device", "qemu-xhci", "-drive", "if=none,id=stick,snapshot=on,format=raw,file=" + path, "-device", "usb-storage,drive=stick,bootindex=0"},
	}
	for name, args := range attach {
		args = append(args, "-nic", "none")
		t.Run(name+" by BIOS", func(t *testing.T) { start(t, append(args, seaBIOS...)...).reports(t) })
		t.Run(name+" by UEFI", func(t *testing.T) { start(t, append(args, ovmf(t)...)...).reports(t) })
	}
}

// esp is a file system with a program where firmware looks for one.
func esp(t *testing.T, program string) []string {
	t.Helper()
	dir := t.TempDir()
	boot := filepath.Join(dir, "EFI", "BOOT")
	require.NoError(t, os.MkdirAll(boot, 0o755))
	copyFile(t, program, filepath.Join(boot, "BOOTX64.EFI"))
	return []string{"-nic", "none", "-drive", "if=none,id=esp,format=raw,readonly=on,file=fat:" + dir, "-device", "virtio-blk-pci,drive=esp,bootindex=0"}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	r, err := os.Open(from)
	require.NoError(t, err)
	defer r.Close()
	w, err := os.Create(to)
	require.NoError(t, err)
	_, err = io.Copy(w, r)
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

func TestMediaUKI(t *testing.T) {
	start(t, append(esp(t, image(t, uki.Name)), ovmf(t)...)...).reports(t)
}

// TestMediaSecureBoot boots an image that was signed, modules included, with the
// key of the certificate in the file MKP2PIMG_CERT.
func TestMediaSecureBoot(t *testing.T) {
	path, certFile := image(t, uki.Name), os.Getenv("MKP2PIMG_CERT")
	if certFile == "" {
		t.Skip("MKP2PIMG_CERT names no certificate")
	}
	text, err := os.ReadFile(certFile)
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	require.NotNil(t, block)
	t.Run("enrolled", func(t *testing.T) {
		m := start(t, append(esp(t, path), secureBoot(t, block.Bytes)...)...)
		m.Wait(t, "secureboot: Secure boot enabled")
		m.reports(t)
		m.Wait(t, "nvidia.ko ran on this kernel and found no GPU")
	})
	t.Run("another key enrolled", func(t *testing.T) {
		other, err := signing.Load(signingtest.Files(t, "another"))
		require.NoError(t, err)
		m := start(t, append(esp(t, path), secureBoot(t, other.Certificate())...)...)
		m.Wait(t, "Access Denied")
		assert.NotContains(t, string(m.Said()), "Linux version")
	})
}

func TestMediaNetwork(t *testing.T) {
	script := image(t, images.ScriptName)
	out := filepath.Base(filepath.Dir(script))
	root := filepath.Dir(filepath.Dir(script))
	url, asked := serve(t, root)
	boots := map[string]string{
		"TFTP": "tftp=" + root + ",bootfile=" + out + "/" + images.ScriptName,
		"HTTP": "bootfile=" + url + out + "/" + images.ScriptName,
	}
	for name, options := range boots {
		args := []string{"-netdev", "user,id=n0," + options, "-device", "virtio-net-pci,netdev=n0,mac=52:54:00:12:34:56,bootindex=0", "-uuid", "c0ffee00-0000-4000-8000-000000000001"}
		t.Run(name+" by BIOS", func(t *testing.T) { start(t, append(args, seaBIOS...)...).reports(t) })
		t.Run(name+" by UEFI", func(t *testing.T) { start(t, append(args, ovmf(t)...)...).reports(t) })
	}
	said := asked()
	assert.Contains(t, said, "/"+images.NodesDir+"/c0ffee00-0000-4000-8000-000000000001.ipxe")
	assert.Contains(t, said, "/"+images.NodesDir+"/52-54-00-12-34-56.ipxe")
}
