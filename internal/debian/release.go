package debian

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Why an InRelease document is refused.
var (
	ErrUnsigned     = errors.New("not a signed index: another page came in its place, or it is cut off")
	ErrUnknownKey   = errors.New("signed by no key that is trusted here")
	ErrBadSignature = errors.New("its signature doesn't match: the index was changed on its way")
	ErrKeyExpired   = errors.New("the key that signed it is no longer valid")
	ErrExpired      = errors.New("the index is too old")
	ErrWrongSuite   = errors.New("not the index of this suite")
)

// Release is the verified content of an InRelease document.
type Release struct {
	Suite, Codename string
	Date            time.Time
	ValidUntil      time.Time // zero if the index says none
	Architectures   []string
	Components      []string
	ByHash          bool               // files are served below by-hash/ too
	NoAll           bool               // Packages of an architecture hold those of "all" too
	Files           map[string]FileSum // by path below dists/<suite>/
	SignedBy        string             // fingerprint of the primary key, hex
}

// FileSum pins one file of a Release.
type FileSum struct {
	SHA256 string
	Size   int64
}

// ParseInRelease verifies an InRelease document against keys and returns its
// signed content. now decides whether keys and the index are still valid.
// The error is one of the Err values above, or says what is malformed.
func ParseInRelease(data []byte, keys openpgp.EntityList, now time.Time) (*Release, error) {
	block, _ := clearsign.Decode(data)
	if block == nil {
		return nil, ErrUnsigned
	}
	signature := new(bytes.Buffer)
	if _, err := signature.ReadFrom(block.ArmoredSignature.Body); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrUnsigned, err)
	}
	signer, err := verify(block.Bytes, signature.Bytes(), keys, now)
	if err != nil {
		return nil, err
	}
	// Only what the signature covers is read.
	r, err := parseRelease(block.Plaintext)
	if err != nil {
		return nil, err
	}
	if !r.ValidUntil.IsZero() && now.After(r.ValidUntil) {
		return nil, fmt.Errorf("%w: valid until %s, and now is %s: use a mirror that is up to date, or correct the clock",
			ErrExpired, r.ValidUntil.Format(time.RFC1123), now.UTC().Format(time.RFC1123))
	}
	r.SignedBy = fmt.Sprintf("%X", signer.PrimaryKey.Fingerprint)
	return r, nil
}

// verify returns the owner of a valid signature. An archive signs with the
// keys of several releases: an expired one doesn't spoil the others.
func verify(text, signature []byte, keys openpgp.EntityList, now time.Time) (*openpgp.Entity, error) {
	config := &packet.Config{Time: func() time.Time { return now }}
	var expired error
	for {
		signer, err := openpgp.CheckDetachedSignature(keys, bytes.NewReader(text), bytes.NewReader(signature), config)
		switch {
		case err == nil:
			return signer, nil
		case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrKeyRevoked),
			errors.Is(err, pgperrors.ErrSignatureExpired):
			expired = fmt.Errorf("%w: %X at %s: %w", ErrKeyExpired, signer.PrimaryKey.Fingerprint,
				now.UTC().Format(time.DateOnly), err)
			keys = slices.DeleteFunc(slices.Clone(keys), func(e *openpgp.Entity) bool { return e == signer })
		case errors.Is(err, pgperrors.ErrUnknownIssuer) && expired != nil:
			return nil, expired
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			return nil, fmt.Errorf("%w: signed by %s", ErrUnknownKey, issuers(signature))
		default:
			return nil, fmt.Errorf("%w (%w)", ErrBadSignature, err)
		}
	}
}

// issuers names the keys that made the signatures.
func issuers(signature []byte) string {
	var ids []string
	packets := packet.NewReader(bytes.NewReader(signature))
	for {
		p, err := packets.Next()
		if err != nil {
			break
		}
		if sig, ok := p.(*packet.Signature); ok && sig.IssuerKeyId != nil {
			ids = append(ids, fmt.Sprintf("%016X", *sig.IssuerKeyId))
		}
	}
	if ids == nil {
		return "nobody"
	}
	return strings.Join(ids, ", ")
}

// errOnce stops after the first paragraph.
var errOnce = errors.New("more than one paragraph")

func parseRelease(text []byte) (*Release, error) {
	fields := []string{
		"Suite", "Codename", "Date", "Valid-Until", "Architectures", "Components",
		"Acquire-By-Hash", "No-Support-for-Architecture-all", "SHA256",
	}
	var r *Release
	err := readParagraphs(bytes.NewReader(text), fields, func(p paragraph) (err error) {
		if r != nil {
			return errOnce
		}
		r, err = newRelease(p)
		return err
	})
	if err == nil && r == nil {
		err = errors.New("is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("signed index: %w", err)
	}
	return r, nil
}

func newRelease(p paragraph) (*Release, error) {
	r := &Release{
		Suite:         p["Suite"],
		Codename:      p["Codename"],
		Architectures: strings.Fields(p["Architectures"]),
		ByHash:        p["Acquire-By-Hash"] == "yes",
		NoAll:         slices.Contains(strings.Fields(p["No-Support-for-Architecture-all"]), "Packages"),
		Files:         make(map[string]FileSum),
	}
	// Security suites list "updates/main", whose files are below "main".
	for c := range strings.FieldsSeq(p["Components"]) {
		r.Components = append(r.Components, strings.TrimPrefix(c, "updates/"))
	}
	var err error
	if r.Date, err = parseDate(p["Date"]); err != nil {
		return nil, fmt.Errorf("field Date: %w", err)
	}
	if v := p["Valid-Until"]; v != "" {
		if r.ValidUntil, err = parseDate(v); err != nil {
			return nil, fmt.Errorf("field Valid-Until: %w", err)
		}
	}
	files, err := sums(p["SHA256"])
	if err != nil {
		return nil, fmt.Errorf("field SHA256: %w", err)
	}
	if len(files) == 0 {
		return nil, errors.New("field SHA256 lists no file")
	}
	for _, f := range files {
		r.Files[f.name] = FileSum{f.sha256, f.size}
	}
	return r, nil
}

// parseDate reads a date such as "Sat, 11 Jul 2026 10:16:37 UTC".
func parseDate(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC1123, s)
	if err != nil {
		return t, err
	}
	if name, _ := t.Zone(); name != "UTC" && name != "GMT" {
		return t, fmt.Errorf("%q is not in UTC", s)
	}
	return t.UTC(), nil
}

// separateAll reports whether packages for every architecture have an index
// of their own.
func (r *Release) separateAll() bool {
	return !r.NoAll && slices.Contains(r.Architectures, "all")
}
