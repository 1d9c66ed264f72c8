package topology_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/topology"
)

// kind returns a machine of the library by its name.
func kind(t testing.TB, name string) fixture.Kind {
	t.Helper()
	for _, k := range fixture.Kinds() {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no kind %q", name)
	return fixture.Kind{}
}

func gather(t testing.TB, k fixture.Kind) *facts.Facts {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, k.Write(root))
	f, err := facts.Gather(root, facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
	require.NoError(t, err)
	return f
}

func TestClass(t *testing.T) {
	for name, want := range map[string][]string{
		"good-2x4090": {"PHB  0000:00:01.1 0000:00:01.3"},
		"acs-sv-only": {"PIX 0000:01:00.0 0000:02:00.0 0000:02:04.0"},
		"two-switches": {
			"PIX 0000:03:00.0 0000:04:00.0 0000:04:04.0",
			"PXB 0000:01:00.0 0000:04:00.0 0000:03:00.0 0000:02:00.0 0000:02:04.0 0000:07:00.0 0000:08:00.0",
			"PXB 0000:01:00.0 0000:04:04.0 0000:03:00.0 0000:02:00.0 0000:02:04.0 0000:07:00.0 0000:08:00.0",
		},
		"two-sockets": {
			"NODE  0000:00:01.1 0000:40:01.1",
			"SYS  0000:00:01.1 0000:80:01.1",
			"SYS  0000:40:01.1 0000:80:01.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range topology.New(gather(t, kind(t, name))).Pairs() {
				got = append(got, string(p.Class)+" "+p.Ancestor+" "+strings.Join(p.Ports, " "))
			}
			assert.Equal(t, want, got)
		})
	}
}

func TestClassWithoutNUMANodes(t *testing.T) {
	k := kind(t, "two-sockets")
	for i := range k.Hosts {
		k.Hosts[i].Node = -1
	}
	for _, p := range topology.New(gather(t, k)).Pairs() {
		assert.Equal(t, topology.Unclear, p.Class)
	}
	k.CPU.Sockets = 1
	for _, p := range topology.New(gather(t, k)).Pairs() {
		assert.Equal(t, topology.NODE, p.Class)
	}
}
