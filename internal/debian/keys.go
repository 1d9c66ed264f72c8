package debian

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"

	"github.com/ProtonMail/go-crypto/openpgp"
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
