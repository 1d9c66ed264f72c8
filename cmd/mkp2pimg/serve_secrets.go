package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"mkp2pimg/internal/farm/lab"
)

// adminToken reads the administrator's token, or makes one with its file. The
// result tells whether a token is that.
func adminToken(path string) (func(string) bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		raw := make([]byte, 32)
		rand.Read(raw) // never fails: see its documentation
		data = []byte(base64.RawURLEncoding.EncodeToString(raw) + "\n")
		err = writeSecret(path, data)
	}
	if err != nil {
		return nil, fmt.Errorf("admin token: %w", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode()&0o077 != 0 {
		return nil, dataError{fmt.Errorf("admin token: others may read %s: chmod 600 %s, or remove it for a new one", path, path)}
	}
	token := strings.TrimSpace(string(data))
	if len(token) < 20 {
		return nil, dataError{fmt.Errorf("admin token: %s has no token of 20 characters or more: remove it for a new one", path)}
	}
	want := sha256.Sum256([]byte(token))
	return func(token string) bool {
		got := sha256.Sum256([]byte(token))
		return subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}, nil
}

// writeSecret writes a file that only its owner may read.
func writeSecret(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o600, renameio.IgnoreUmask())
}

// keyPair is a certificate with its key; its zero value is none.
type keyPair struct {
	cert, key string // paths
	pin       string // base64url SHA-256 of the public key, for p2p.pin
}

// loadKeyPair checks the files of lab.yaml, and makes them if neither is there: a
// certificate that signs itself does for machines, which are told its public key.
func loadKeyPair(t lab.TLS, server string) (keyPair, error) {
	_, noCert := os.Stat(t.Cert)
	_, noKey := os.Stat(t.Key)
	if errors.Is(noCert, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist) {
		if err := makeKeyPair(t, server); err != nil {
			return keyPair{}, fmt.Errorf("tls: %w", err)
		}
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return keyPair{}, dataError{fmt.Errorf("tls: %s, %s: %w", t.Cert, t.Key, err)}
	}
	sum := sha256.Sum256(pair.Leaf.RawSubjectPublicKeyInfo)
	return keyPair{t.Cert, t.Key, base64.RawURLEncoding.EncodeToString(sum[:])}, nil
}

// certTime is how long a certificate of ours is good: no machine looks at that.
const certTime = 10 * 365 * 24 * time.Hour

func makeKeyPair(t lab.TLS, server string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "mkp2pimg serve"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(certTime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	names := []string{hostOf(t.Server), hostOf(server)}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writeSecret(t.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return err
	}
	return renameio.WriteFile(t.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
}

// hostOf is the host of a URL.
func hostOf(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// zoneName is the name of the host's time zone, empty if it is not known.
func zoneName() string {
	path, err := filepath.EvalSymlinks("/etc/localtime")
	_, name, found := strings.Cut(path, "/zoneinfo/")
	if err != nil || !found {
		name = ""
	}
	name = cmp.Or(os.Getenv("TZ"), name)
	if _, err := time.LoadLocation(name); err != nil {
		return ""
	}
	return name
}
