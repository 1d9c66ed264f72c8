package debian

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

//go:embed keys/*.gpg
var keyFiles embed.FS

// ArchiveKeys returns the keys of the Debian archive that this program
// trusts. keys/README.md says where they come from.
var ArchiveKeys = sync.OnceValue(func() openpgp.EntityList {
	var all openpgp.EntityList
	names, err := fs.Glob(keyFiles, "keys/*.gpg")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		f, err := keyFiles.Open(name)
		if err != nil {
			panic(err)
		}
		keys, err := openpgp.ReadKeyRing(f)
		if err != nil {
			panic(fmt.Errorf("%s: %w", name, err)) // a broken build, not bad input
		}
		all = append(all, keys...)
	}
	return all
})

// ReadKeyring reads the OpenPGP keys in a file, armoured or binary, as
// "gpg --export" writes them. A file without a key is an error.
func ReadKeyring(name string) (openpgp.EntityList, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeyring(data)
	if err == nil && len(keys) == 0 {
		err = errors.New("it holds none")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: not a keyring of OpenPGP keys (gpg --export writes one): %w", name, err)
	}
	return keys, nil
}

func parseKeyring(data []byte) (openpgp.EntityList, error) {
	if !bytes.Contains(data, []byte("-----BEGIN PGP ")) {
		return openpgp.ReadKeyRing(bytes.NewReader(data))
	}
	var all openpgp.EntityList
	// A reader that armor takes as it is, so that it stays at the end of a block.
	for r := bufio.NewReader(bytes.NewReader(data)); ; {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		keys, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
}
