package catalog_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/loadopt"
	"mkp2pimg/kmod/patch"
)

const bus = "src/nvidia/src/kernel/gpu/bus/"

// says are the messages that tell how BAR1 peer-to-peer was set up, and where they are. A release
// has them in one of the files; those that may be missing are marked.
var says = []struct {
	text  string
	files []string
	may   bool
}{
	{"Static bar1 mapped offset", []string{bus + "arch/hopper/kern_bus_gh100.c", bus + "arch/turing/kern_bus_tu102.c"}, false},
	{"added PCIe BAR1 P2P mapping between", []string{bus + "arch/hopper/kern_bus_gh100.c"}, false},
	{"added PCIe P2P mapping between", []string{bus + "arch/maxwell/kern_bus_gm200.c"}, false},
	{"P2P write mailboxes allocated", []string{bus + "arch/maxwell/kern_bus_gm200.c"}, false},
	{"Enabling static BAR1 automatically", []string{bus + "arch/turing/kern_bus_tu102.c"}, true},
}

const names = "src/nvidia/generated/g_nv_name_released.h"

// trees returns the source trees in $MKP2PIMG_TREES by release: a folder of trees, or a git
// repository with a tag per release, of which it returns the files that these tests read.
func trees(t *testing.T) map[string]fs.FS {
	t.Helper()
	dir := os.Getenv("MKP2PIMG_TREES")
	if dir == "" {
		t.Skip("MKP2PIMG_TREES is not set to a folder of driver trees or a bare git repository")
	}
	all := map[string]fs.FS{}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		for _, r := range catalog.Load().Releases {
			if exec.CommandContext(t.Context(), "git", "-C", dir, "cat-file", "-e", r.Commit).Run() == nil {
				all[r.Version] = files(t, dir, r.Commit)
			}
		}
		return all
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all[e.Name()] = os.DirFS(filepath.Join(dir, e.Name()))
	}
	return all
}

// files returns what these tests read of a commit.
func files(t *testing.T, repository, commit string) fs.FS {
	t.Helper()
	list := []string{"kernel-open/nvidia/nv-reg.h", "src/nvidia/interface/nvrm_registry.h", bus + "kern_bus.c", names}
	for _, s := range says {
		list = append(list, s.files...)
	}
	tree := fstest.MapFS{}
	for _, name := range list {
		if text, err := exec.CommandContext(t.Context(), "git", "-C", repository, "show", commit+":"+name).Output(); err == nil {
			tree[name] = &fstest.MapFile{Data: text}
		}
	}
	return tree
}

// TestOffersAreThoseOfTheSource compares what the catalog says of a release with its source.
func TestOffersAreThoseOfTheSource(t *testing.T) {
	function := regexp.MustCompile(`(?m)^(?:[\w *]+ )?(\w+)\s*\n?\($`)
	for version, tree := range trees(t) {
		t.Run(version, func(t *testing.T) {
			release, err := catalog.Lookup(version)
			require.NoError(t, err)
			want, err := catalog.Load().Offer(release)
			require.NoError(t, err)
			offer, err := patch.Offered(tree)
			require.NoError(t, err)
			assert.Equal(t, want, offer)

			var asked []string
			for _, o := range loadopt.Choose(offer, true, nil).Options {
				if o.Name == "NVreg_RmMsg" {
					asked = strings.Split(o.Value, ",")
				}
			}
			for _, s := range says {
				found := false
				for _, name := range s.files {
					text, err := fs.ReadFile(tree, name)
					if at := bytes.Index(text, []byte(s.text)); err == nil && at >= 0 {
						found = true
						above := function.FindAllSubmatch(text[:at], -1)
						require.NotEmpty(t, above, "%s: no function above %q", name, s.text)
						in := string(above[len(above)-1][1])
						assert.True(t, slices.ContainsFunc(asked, func(part string) bool { return strings.Contains(in, part) }),
							"NVreg_RmMsg does not ask for %s, which says %q", in, s.text)
					}
				}
				assert.True(t, found || s.may, "no message %q", s.text)
			}
		})
	}
}

// TestGPUsAreThoseOfTheDriver compares ids and names with the newest release at hand.
func TestGPUsAreThoseOfTheDriver(t *testing.T) {
	all := trees(t)
	var newest fs.FS
	for _, r := range catalog.Load().Releases {
		if tree := all[r.Version]; tree != nil {
			newest = tree
		}
	}
	require.NotNil(t, newest)
	text, err := fs.ReadFile(newest, names)
	require.NoError(t, err)
	known := map[string][]string{}
	for _, m := range regexp.MustCompile(`\{ 0x([0-9A-F]{4}), 0x\w+, 0x\w+, "(?:NVIDIA )?([^"]+)" \}`).FindAllSubmatch(text, -1) {
		id := strings.ToLower(string(m[1]))
		known[id] = append(known[id], string(m[2]))
	}
	for _, g := range catalog.Load().GPUs {
		for _, id := range g.IDs {
			assert.Contains(t, known[id], g.Name, "id %s", id)
		}
	}
}
