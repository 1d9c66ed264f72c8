package signing

import (
	"crypto"
	"crypto/sha256"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/foxboron/go-uefi/authenticode"
	"github.com/foxboron/go-uefi/pkcs7"
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// File is a file that is signed in place.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// WIN_CERTIFICATE of the UEFI specification 2.10, 32.2.4.
const (
	certificateHeader   = 8      // bytes: length, revision, type
	certificateRevision = 0x0200 //
	certificateType     = 0x0002 // WIN_CERT_TYPE_PKCS_SIGNED_DATA
	certificateAlign    = 8
)

// EFI adds an Authenticode signature to an EFI program that has none. size is
// that of the file, a multiple of 8; the signature follows it.
func (k *Key) EFI(f File, size int64) error {
	entry, err := certificateEntry(f)
	if err != nil {
		return err
	}
	program, err := authenticode.Parse(f)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	if program.Datadir.Size != 0 || size%certificateAlign != 0 {
		return errors.New("sign: the program is signed already or not padded")
	}
	signature, err := k.authenticode(program.Hash(crypto.SHA256))
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	length := certificateHeader + len(signature)
	table := binary.LittleEndian.AppendUint32(nil, uint32(length))
	table = binary.LittleEndian.AppendUint16(table, certificateRevision)
	table = binary.LittleEndian.AppendUint16(table, certificateType)
	table = append(table, signature...)
	table = append(table, make([]byte, -length&(certificateAlign-1))...)
	if _, err := f.WriteAt(table, size); err != nil {
		return err
	}
	where := binary.LittleEndian.AppendUint32(nil, uint32(size))
	where = binary.LittleEndian.AppendUint32(where, uint32(len(table)))
	_, err = f.WriteAt(where, entry)
	return err
}

// certificateEntry is the offset of the data directory entry that says where the
// certificates are (PE format, "Optional Header Data Directories").
func certificateEntry(r io.ReaderAt) (int64, error) {
	program, err := pe.NewFile(r)
	if err != nil {
		return 0, fmt.Errorf("sign: %w", err)
	}
	if _, ok := program.OptionalHeader.(*pe.OptionalHeader64); !ok {
		return 0, errors.New("sign: not a 64-bit EFI program")
	}
	var at [4]byte
	if _, err := r.ReadAt(at[:], 0x3c); err != nil {
		return 0, err
	}
	const header, directories, entry = 4 + 20, 112, 8
	return int64(binary.LittleEndian.Uint32(at[:])) + header + directories + pe.IMAGE_DIRECTORY_ENTRY_SECURITY*entry, nil
}

// authenticode is the signature of an EFI program with this digest, as
// "Windows Authenticode Portable Executable Signature Format" has it. Firmware
// looks at no time of signing, so there is none.
func (k *Key) authenticode(digest []byte) ([]byte, error) {
	content, err := authenticode.CreateSpcIndirectDataContent(digest, crypto.SHA256)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	attributes := (&pkcs7.Attributes{ContentType: authenticode.OIDSpcIndirectDataContent, MessageDigest: sum[:]}).Marshal()
	signature, err := k.sign(attributes)
	if err != nil {
		return nil, err
	}
	var wrapped cryptobyte.Builder
	wrapped.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	set, inner := cryptobyte.String(attributes), cryptobyte.String(nil)
	if !set.ReadASN1(&inner, asn1.SET) {
		return nil, errASN1
	}
	return k.signedData(authenticode.OIDSpcIndirectDataContent, wrapped.BytesOrPanic(), inner, signature, true)
}
