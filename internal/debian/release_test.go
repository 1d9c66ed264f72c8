package debian

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

func TestArchiveKeysAreThoseOfTheTable(t *testing.T) {
	readme, err := os.ReadFile("keys/README.md")
	require.NoError(t, err)
	keys := ArchiveKeys()
	require.Len(t, keys, 9)
	for _, k := range keys {
		assert.Contains(t, string(readme), strings.ToUpper(hex.EncodeToString(k.PrimaryKey.Fingerprint)))
		for _, sub := range k.Subkeys {
			assert.Contains(t, string(readme), strings.ToUpper(hex.EncodeToString(sub.PublicKey.Fingerprint)))
		}
	}
}

const digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

const releaseText = `Origin: Debian
Suite: oldstable-security
Codename: bookworm-security
Date: Sat, 11 Jul 2026 10:16:37 UTC
Valid-Until: Sat, 25 Jul 2026 10:16:37 UTC
Acquire-By-Hash: yes
Architectures: amd64 arm64
Components: updates/main updates/non-free-firmware
Description: Debian 12 - Security Updates
MD5Sum:
 d41d8cd98f00b204e9800998ecf8427e        0 main/binary-amd64/Packages
SHA256:
 ` + digest + `        0 main/binary-amd64/Packages
 ` + digest + `       32 main/binary-amd64/Packages.xz
`

func TestParseInRelease(t *testing.T) {
	key := newKey(t, debiantest.Decade)
	r, err := ParseInRelease(sign(t, releaseText, key), openpgp.EntityList{newKey(t, debiantest.Decade), key}, now)
	require.NoError(t, err)
	assert.Equal(t, &Release{
		Suite:         "oldstable-security",
		Codename:      "bookworm-security",
		Date:          time.Date(2026, 7, 11, 10, 16, 37, 0, time.UTC),
		ValidUntil:    time.Date(2026, 7, 25, 10, 16, 37, 0, time.UTC),
		Architectures: []string{"amd64", "arm64"},
		Components:    []string{"main", "non-free-firmware"},
		ByHash:        true,
		Files: map[string]FileSum{
			"main/binary-amd64/Packages":    {digest, 0},
			"main/binary-amd64/Packages.xz": {digest, 32},
		},
		SignedBy: strings.ToUpper(hex.EncodeToString(key.PrimaryKey.Fingerprint)),
	}, r)
}

func TestParseInReleaseOfSeveralSigners(t *testing.T) {
	old, current, other := newKey(t, 24*time.Hour), newKey(t, debiantest.Decade), newKey(t, debiantest.Decade)
	r, err := ParseInRelease(sign(t, releaseText, other, old, current), openpgp.EntityList{old, current}, now)
	require.NoError(t, err)
	assert.Equal(t, strings.ToUpper(hex.EncodeToString(current.PrimaryKey.Fingerprint)), r.SignedBy)
}

func TestParseInReleaseRefuses(t *testing.T) {
	key, other, old := newKey(t, debiantest.Decade), newKey(t, debiantest.Decade), newKey(t, 24*time.Hour)
	trusted := openpgp.EntityList{key, old}
	good := sign(t, releaseText, key)
	_, err := ParseInRelease(good, trusted, now)
	require.NoError(t, err)

	replace := func(from, to string) []byte { return bytes.Replace(good, []byte(from), []byte(to), 1) }
	signed := func(from, to string) []byte {
		return sign(t, strings.Replace(releaseText, from, to, 1), key)
	}
	signature := good[bytes.Index(good, []byte("-----BEGIN PGP SIGNATURE")):]
	tests := map[string]struct {
		data []byte
		now  time.Time
		want error
		text string
	}{
		"empty":             {nil, now, ErrUnsigned, ""},
		"error page":        {[]byte("<html>captive portal</html>"), now, ErrUnsigned, ""},
		"unsigned":          {[]byte(releaseText), now, ErrUnsigned, ""},
		"cut off":           {good[:len(good)-40], now, ErrUnsigned, ""},
		"changed text":      {replace("Suite: old", "Suite: new"), now, ErrBadSignature, ""},
		"changed digest":    {replace(digest, strings.Replace(digest, "e3b", "e3c", 1)), now, ErrBadSignature, ""},
		"added line":        {replace("SHA256:\n", "SHA256:\n "+digest+" 1 x\n"), now, ErrBadSignature, ""},
		"unknown key":       {sign(t, releaseText, other), now, ErrUnknownKey, hexID(other)},
		"signature of none": {append([]byte("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nSuite: x\n"), signature...), now, ErrBadSignature, ""},
		"expired key":       {sign(t, releaseText, old), now, ErrKeyExpired, "2026-07-20"},
		"expired index":     {good, now.AddDate(0, 1, 0), ErrExpired, "25 Jul 2026"},
		"no date":           {signed("Date:", "Dat:"), now, nil, "field Date"},
		"local date":        {signed("10:16:37 UTC", "10:16:37 CET"), now, nil, "not in UTC"},
		"bad validity":      {signed("Sat, 25", "Sat, 45"), now, nil, "Valid-Until"},
		"bad digest":        {signed(digest+"       32", "zz 32"), now, nil, "digest size name"},
		"no digests":        {signed("SHA256:", "SHA1:"), now, nil, "lists no file"},
		"two paragraphs":    {signed("MD5Sum:", "\nSuite: x\nMD5Sum:"), now, nil, ""},
		"empty text":        {sign(t, "\n", key), now, nil, "empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := ParseInRelease(tt.data, trusted, tt.now)
			require.Error(t, err)
			assert.Nil(t, r)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			assert.ErrorContains(t, err, tt.text)
		})
	}
}

func hexID(e *openpgp.Entity) string {
	return strings.ToUpper(hex.EncodeToString(e.PrimaryKey.Fingerprint[12:]))
}

func FuzzParseInRelease(f *testing.F) {
	key := newKey(f, debiantest.Decade)
	good := sign(f, releaseText, key)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(releaseText))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseInRelease(data, openpgp.EntityList{key}, now)
		if err != nil {
			return
		}
		// Whatever surrounds it, only the signed text is taken.
		require.Equal(t, "bookworm-security", r.Codename)
		require.Len(t, r.Files, 2)
		// And it parses without its signature, too.
		_, err = parseRelease([]byte(releaseText))
		require.NoError(t, err)
	})
}

func FuzzParseRelease(f *testing.F) {
	f.Add([]byte(releaseText))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRelease(data)
		if err != nil {
			return
		}
		require.NotEmpty(t, r.Files)
		for _, sum := range r.Files {
			require.True(t, isDigest(sum.SHA256))
			require.GreaterOrEqual(t, sum.Size, int64(0))
		}
	})
}

func TestReadKeyring(t *testing.T) {
	a, b := newKey(t, debiantest.Decade), newKey(t, debiantest.Decade)
	binary := debiantest.Keyring(t, a, b)
	tests := map[string]struct {
		data []byte
		keys openpgp.EntityList
		want string // in the error
	}{
		"binary":         {binary, openpgp.EntityList{a, b}, ""},
		"armoured":       {debiantest.Armour(t, binary), openpgp.EntityList{a, b}, ""},
		"two blocks":     {append(debiantest.Armour(t, debiantest.Keyring(t, b)), debiantest.Armour(t, debiantest.Keyring(t, a))...), openpgp.EntityList{b, a}, ""},
		"empty":          {nil, nil, "it holds none"},
		"text":           {[]byte("deb http://mirror.lab/debian bookworm main\n"), nil, "gpg --export"},
		"cut off":        {binary[:len(binary)/3], nil, "gpg --export"},
		"block cut off":  {debiantest.Armour(t, binary)[:200], nil, "gpg --export"},
		"another block":  {sign(t, "text", a), nil, "gpg --export"},
		"GnuPG's keybox": {[]byte("\x00\x00\x00\x20\x01\x01\x00\x02KBXf\x00\x00\x00\x00"), nil, "gpg --export"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := tempFile(t, tt.data)
			keys, err := ReadKeyring(file)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				require.ErrorContains(t, err, file)
				return
			}
			require.NoError(t, err)
			require.Len(t, keys, len(tt.keys))
			for i, key := range tt.keys {
				assert.Equal(t, key.PrimaryKey.Fingerprint, keys[i].PrimaryKey.Fingerprint)
			}
		})
	}
	_, err := ReadKeyring("no-such-file")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzParseKeyring(f *testing.F) {
	binary := debiantest.Keyring(f, newKey(f, debiantest.Decade))
	f.Add(binary)
	f.Add(debiantest.Armour(f, binary))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseKeyring(data)
		if err != nil {
			assert.Empty(t, keys)
		}
		for _, k := range keys {
			assert.NotEmpty(t, k.PrimaryKey.Fingerprint)
		}
	})
}
