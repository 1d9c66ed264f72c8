package signing

import (
	"bytes"
	"encoding/binary"

	"github.com/foxboron/go-uefi/pkcs7"
)

// moduleMagic ends a signed module (include/linux/module_signature.h).
const moduleMagic = "~Module signature appended~\n"

// pkeyPKCS7 is PKEY_ID_PKCS7 of enum pkey_id_type there.
const pkeyPKCS7 = 2

// IsSigned says whether a kernel module ends in a signature.
func IsSigned(module []byte) bool { return bytes.HasSuffix(module, []byte(moduleMagic)) }

// Module is a kernel module with a signature appended, as the kernel's
// scripts/sign-file makes it: a detached PKCS #7 message with SHA-256, without
// certificate and attributes, then struct module_signature and the magic.
func (k *Key) Module(module []byte) ([]byte, error) {
	signature, err := k.sign(module)
	if err != nil {
		return nil, err
	}
	message, err := k.signedData(pkcs7.OIDData, nil, nil, signature, false)
	if err != nil {
		return nil, err
	}
	// algo, hash, id_type, signer_len, key_id_len, three bytes of padding, sig_len.
	trailer := binary.BigEndian.AppendUint32([]byte{0, 0, pkeyPKCS7, 0, 0, 0, 0, 0}, uint32(len(message)))
	return bytes.Join([][]byte{module, message, trailer, []byte(moduleMagic)}, nil), nil
}
