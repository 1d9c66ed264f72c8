// Package signing signs what a kernel or firmware runs: kernel modules and EFI
// programs. The same key, certificate and data give the same bytes: signatures
// are RSA with PKCS #1 v1.5 padding, and none carries a time.
package signing

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	encoding "encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/foxboron/go-uefi/pkcs7"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Key is a private key with the certificate that firmware or a kernel trusts.
type Key struct {
	cert *x509.Certificate
	key  *rsa.PrivateKey
}

// KeyError says that a key or certificate can't be used.
type KeyError struct {
	Path string
	Err  error
}

func (e *KeyError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }

func (e *KeyError) Unwrap() error { return e.Err }

// minBits is the shortest key that is accepted: what NIST SP 800-131A allows for
// signatures, and the only length that every firmware knows (UEFI specification
// 2.10, 32.5.3.1).
const minBits = 2048

// Load reads a private key (PKCS #8 or PKCS #1) and its certificate, both in PEM.
// The error is a *KeyError.
func Load(keyFile, certFile string) (*Key, error) {
	block, err := readPEM(certFile, "CERTIFICATE")
	if err != nil {
		return nil, &KeyError{certFile, err}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, &KeyError{certFile, err}
	}
	if block, err = readPEM(keyFile, "PRIVATE KEY", "RSA PRIVATE KEY"); err != nil {
		return nil, &KeyError{keyFile, err}
	}
	key, err := parseKey(block)
	switch {
	case err != nil:
	case key.N.BitLen() < minBits:
		err = fmt.Errorf("an RSA key of %d bits: want %d or more", key.N.BitLen(), minBits)
	case !key.PublicKey.Equal(cert.PublicKey):
		err = fmt.Errorf("it is not the key of the certificate in %s", certFile)
	}
	if err != nil {
		return nil, &KeyError{keyFile, err}
	}
	return &Key{cert, key}, nil
}

// readPEM returns the first block of one of the types.
func readPEM(name string, types ...string) (*pem.Block, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, fmt.Errorf("no block of type %s in PEM form: convert it with openssl, and take an encrypted key's password off", types[0])
		}
		if slices.Contains(types, block.Type) {
			return block, nil
		}
	}
}

func parseKey(block *pem.Block) (*rsa.PrivateKey, error) {
	if block.Headers["DEK-Info"] != "" { // RFC 1421, 4.6.1.3
		return nil, errors.New("it is encrypted: take its password off with openssl")
	}
	if block.Type == "RSA PRIVATE KEY" {
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T is no RSA key, which is what UEFI firmware knows", parsed)
	}
	return key, nil
}

// ID names the certificate: the SHA-256 of its DER form.
func (k *Key) ID() string {
	sum := sha256.Sum256(k.cert.Raw)
	return hex.EncodeToString(sum[:])
}

// Certificate is the certificate in DER form.
func (k *Key) Certificate() []byte { return k.cert.Raw }

func (k *Key) sign(data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	return rsa.SignPKCS1v15(nil, k.key, crypto.SHA256, sum[:])
}

// signedData is a PKCS #7 SignedData (RFC 2315, 9.1) of one signer. content is
// what the content info holds besides its type, nil for a detached signature;
// attributes are those that are signed, as a SET, nil for none.
func (k *Key) signedData(kind encoding.ObjectIdentifier, content, attributes, signature []byte, withCert bool) ([]byte, error) {
	explicit := asn1.Tag(0).ContextSpecific().Constructed()
	algorithm := func(oid encoding.ObjectIdentifier) func(*cryptobyte.Builder) {
		return func(b *cryptobyte.Builder) {
			b.AddASN1ObjectIdentifier(oid)
			b.AddASN1NULL()
		}
	}
	signer := func(b *cryptobyte.Builder) {
		b.AddASN1Int64(1) // version
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddBytes(k.cert.RawIssuer)
			b.AddASN1BigInt(k.cert.SerialNumber)
		})
		b.AddASN1(asn1.SEQUENCE, algorithm(pkcs7.OIDDigestAlgorithmSHA256))
		if attributes != nil {
			b.AddASN1(explicit, func(b *cryptobyte.Builder) { b.AddBytes(attributes) })
		}
		b.AddASN1(asn1.SEQUENCE, algorithm(pkcs7.OIDEncryptionAlgorithmRSA))
		b.AddASN1OctetString(signature)
	}
	var out cryptobyte.Builder
	out.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(pkcs7.OIDSignedData)
		b.AddASN1(explicit, func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1Int64(1) // version
				b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
					b.AddASN1(asn1.SEQUENCE, algorithm(pkcs7.OIDDigestAlgorithmSHA256))
				})
				b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1ObjectIdentifier(kind)
					if content != nil {
						b.AddASN1(explicit, func(b *cryptobyte.Builder) { b.AddBytes(content) })
					}
				})
				if withCert {
					b.AddASN1(explicit, func(b *cryptobyte.Builder) { b.AddBytes(k.cert.Raw) })
				}
				b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) { b.AddASN1(asn1.SEQUENCE, signer) })
			})
		})
	})
	return out.Bytes()
}

// errASN1 is a certificate or digest that can't be encoded, which none that was
// parsed is.
var errASN1 = errors.New("can't be encoded in ASN.1")
