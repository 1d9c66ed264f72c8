package runfile

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strconv"
)

// digests computes the checksums of what is written to it.
type digests []digest

type digest struct {
	hash.Hash
	kind, want string
	format     func([]byte) string
}

func newDigests(s Sums) digests {
	all := digests{
		{sha256.New(), "SHA-256", s.SHA256, hex.EncodeToString},
		{md5.New(), "MD5", s.MD5, hex.EncodeToString},
		{new(cksum), "CRC", s.CRC, func(sum []byte) string {
			return strconv.FormatUint(uint64(binary.BigEndian.Uint32(sum)), 10)
		}},
	}
	var d digests
	for _, x := range all {
		if x.want != "" {
			d = append(d, x)
		}
	}
	return d
}

// Write implements io.Writer. It never fails.
func (d digests) Write(p []byte) (int, error) {
	for _, x := range d {
		_, _ = x.Write(p)
	}
	return len(p), nil
}

func (d digests) check() error {
	for _, x := range d {
		if got := x.format(x.Sum(nil)); got != x.want {
			return &ChecksumError{Kind: x.kind, Got: got, Want: x.want}
		}
	}
	return nil
}
