package signing

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/foxboron/go-uefi/authenticode"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/signing/signingtest"
)

func TestModule(t *testing.T) {
	keyFile, certFile := signingtest.Files(t, "mkp2pimg test")
	k, err := Load(keyFile, certFile)
	require.NoError(t, err)
	module := []byte("\x7fELF and so on")
	signed, err := k.Module(module)
	require.NoError(t, err)
	again, err := k.Module(module)
	require.NoError(t, err)
	assert.Equal(t, signed, again)
	assert.True(t, IsSigned(signed))
	assert.False(t, IsSigned(module))

	// Read as the kernel does, from the end (kernel/module/signing.c).
	rest, ok := bytes.CutSuffix(signed, []byte("~Module signature appended~\n"))
	require.True(t, ok)
	trailer := rest[len(rest)-12:]
	assert.Equal(t, []byte{0, 0, 2, 0, 0, 0, 0, 0}, trailer[:8])
	length := int(binary.BigEndian.Uint32(trailer[8:]))
	message := rest[len(rest)-12-length : len(rest)-12]
	assert.Equal(t, module, rest[:len(rest)-12-length])

	opensslVerifies(t, message, module, certFile, true)
	opensslVerifies(t, message, []byte("\x7fELF and so off"), certFile, false)
}

// opensslVerifies has another implementation judge a detached signature.
func opensslVerifies(t *testing.T, message, data []byte, certFile string, want bool) {
	t.Helper()
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("openssl is not installed")
		return
	}
	dir := t.TempDir()
	messageFile, dataFile := filepath.Join(dir, "message"), filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(messageFile, message, 0o600))
	require.NoError(t, os.WriteFile(dataFile, data, 0o600))
	out, err := exec.CommandContext(t.Context(), openssl, "cms", "-verify", "-binary", "-inform", "DER", "-noverify",
		"-certfile", certFile, "-nointern", "-in", messageFile, "-content", dataFile, "-out", os.DevNull).CombinedOutput()
	assert.Equal(t, want, err == nil, "%s", out)
}

func TestEFI(t *testing.T) {
	k, err := Load(signingtest.Files(t, "mkp2pimg test"))
	require.NoError(t, err)
	other, err := Load(signingtest.Files(t, "another"))
	require.NoError(t, err)
	sign := func() *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "program.efi"))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, f.Close()) })
		_, err = f.Write(signingtest.Program())
		require.NoError(t, err)
		require.NoError(t, k.EFI(f, int64(len(signingtest.Program()))))
		return f
	}
	f := sign()
	program, err := authenticode.Parse(f)
	require.NoError(t, err)
	good, err := program.Verify(k.cert)
	require.NoError(t, err)
	assert.True(t, good)
	good, _ = program.Verify(other.cert)
	assert.False(t, good)

	first, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	second, err := os.ReadFile(sign().Name())
	require.NoError(t, err)
	assert.Equal(t, first, second)
	assert.ErrorContains(t, k.EFI(f, int64(len(first))), "signed already")

	if sbverify, err := exec.LookPath("sbverify"); err == nil {
		_, cert := signingtest.Files(t, "a third")
		assert.Error(t, exec.CommandContext(t.Context(), sbverify, "--cert", cert, f.Name()).Run())
	}

	first[0x410] ^= 1 // a byte of the section
	_, err = f.WriteAt(first, 0)
	require.NoError(t, err)
	program, err = authenticode.Parse(f)
	require.NoError(t, err)
	good, err = program.Verify(k.cert)
	assert.False(t, good && err == nil)
}

func TestLoadErrors(t *testing.T) {
	keyFile, certFile := signingtest.Files(t, "one")
	otherKey, _ := signingtest.Files(t, "two")
	dir := t.TempDir()
	short, err := rsa.GenerateKey(rand.Reader, 1024) //nolint:gosec // one that must be refused
	require.NoError(t, err)
	shortFile := filepath.Join(dir, "short")
	signingtest.Write(t, shortFile, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(short))
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	require.NoError(t, err)
	curveFile := filepath.Join(dir, "curve")
	signingtest.Write(t, curveFile, "PRIVATE KEY", der)

	locked := filepath.Join(dir, "locked")
	require.NoError(t, os.WriteFile(locked, pem.EncodeToMemory(&pem.Block{
		Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}, Bytes: []byte{1},
	}), 0o600))

	for _, tt := range []struct{ key, cert, want string }{
		{locked, certFile, "it is encrypted: take its password off"},
		{otherKey, certFile, "not the key of the certificate"},
		{certFile, certFile, "no block of type PRIVATE KEY"},
		{keyFile, keyFile, "no block of type CERTIFICATE"},
		{shortFile, certFile, "1024 bits"},
		{curveFile, certFile, "no RSA key"},
		{filepath.Join(dir, "none"), certFile, "no such file"},
	} {
		_, err := Load(tt.key, tt.cert)
		var keyErr *KeyError
		require.ErrorAs(t, err, &keyErr)
		assert.ErrorContains(t, err, tt.want)
	}
}
