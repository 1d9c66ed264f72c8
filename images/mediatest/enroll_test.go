package mediatest

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unicode/utf16"

	"github.com/foxboron/go-uefi/efi/signature"
	"github.com/foxboron/go-uefi/efi/util"
	"github.com/stretchr/testify/require"
)

// enroll puts a certificate into PK, KEK and db of an empty store of variables of
// OVMF: with a PK there, and nothing that says otherwise, Secure Boot is on. The
// form is that of EDK2 (MdeModulePkg/Include/Guid/VariableFormat.h).
func enroll(t *testing.T, store, cert []byte) []byte {
	t.Helper()
	const (
		global   = "8be4df61-93ca-11d2-aa0d-00e098032b8c" // EFI_GLOBAL_VARIABLE
		database = "d719b2cb-3d3a-4596-a3bc-dad00e67656f" // EFI_IMAGE_SECURITY_DATABASE_GUID
		owner    = "0f6cfd4b-2ae1-4c43-9a8e-5f6cf6d1c4a5"
	)
	guid := func(s string) *util.EFIGUID { return util.StringToGUID(s) }
	db := signature.NewSignatureDatabase()
	require.NoError(t, db.Append(signature.CERT_X509_GUID, *guid(owner), cert))

	header := binary.LittleEndian.Uint16(store[48:]) // EFI_FIRMWARE_VOLUME_HEADER.HeaderLength
	const storeHeader = 28                           // VARIABLE_STORE_HEADER
	at := int(header) + storeHeader
	require.Equal(t, []byte{0xff, 0xff}, store[at:at+2], "the store is not empty")
	out := bytes.Clone(store)
	for _, v := range []struct{ name, vendor string }{{"PK", global}, {"KEK", global}, {"db", database}} {
		name := append(utf16.Encode([]rune(v.name)), 0)
		var b bytes.Buffer
		for _, field := range []any{
			// AUTHENTICATED_VARIABLE_HEADER: start, added, non-volatile boot runtime
			// and authenticated by time; counter, time, index of key.
			uint16(0x55aa), uint8(0x3f), uint8(0), uint32(0x27), uint64(0), [16]byte{}, uint32(0),
			uint32(2 * len(name)), uint32(len(db.Bytes())), guid(v.vendor), name, db.Bytes(),
		} {
			require.NoError(t, binary.Write(&b, binary.LittleEndian, field))
		}
		at += copy(out[at:], b.Bytes())
		at = (at + 3) &^ 3
	}
	return out
}
