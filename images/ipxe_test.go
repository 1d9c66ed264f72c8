package images

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs"
)

func TestSplit(t *testing.T) {
	n := sample(t)
	n.Split = true
	n.Initrd = func(w io.Writer) (initramfs.Sizes, error) {
		_, err := io.WriteString(w, "firmware|rest")
		return initramfs.Sizes{Raw: 20, Packed: 13, First: 9}, err
	}
	dir := filepath.Join(t.TempDir(), "out")
	m, err := n.Write(t.Context(), dir)
	require.NoError(t, err)
	_, err = Open(dir)
	require.NoError(t, err)
	var whole string
	names := Initrds(m)
	script, err := os.ReadFile(filepath.Join(dir, ScriptName))
	require.NoError(t, err)
	for line := range strings.Lines(string(script)) {
		if name, ok := strings.CutPrefix(line, "initrd "); ok {
			name, _, _ = strings.Cut(name, " ")
			data, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			whole += string(data)
			require.NotEmpty(t, names)
			assert.Equal(t, names[0], name)
			names = names[1:]
			assert.Contains(t, string(script), " initrd="+name+" ")
		}
	}
	assert.Equal(t, "firmware|rest", whole)
	assert.Empty(t, names)
	assert.Equal(t, []string{InitrdName}, Initrds(&Manifest{Artifacts: []Artifact{{Name: InitrdName}}}))

	n.Initrd = sample(t).Initrd // in one archive
	_, err = n.Write(t.Context(), dir)
	require.ErrorContains(t, err, "can't be split")
}
