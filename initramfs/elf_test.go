package initramfs

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/elftest"
)

// moduleBytes makes a kernel module with the given .modinfo entries.
func moduleBytes(t *testing.T, info ...string) []byte {
	t.Helper()
	return elftest.Bytes(t, elf.ET_REL, "",
		elftest.Section{Name: ".strtab", Type: elf.SHT_STRTAB, Data: []byte("\x00init_module\x00")},
		elftest.Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: 1, Size: 24, Data: append(make([]byte, 24), 1, 0, 0, 0, 0x12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
		elftest.Section{Name: ".modinfo", Type: elf.SHT_PROGBITS, Data: []byte(strings.Join(info, "\x00") + "\x00")})
}

// writeFiles makes files, or symbolic links for contents that begin with "-> ".
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if target, ok := strings.CutPrefix(string(data), "-> "); ok {
			require.NoError(t, os.Symlink(target, file))
			continue
		}
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
}
