package topology_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/golden"
)

// shown are the kinds whose drawing is kept: one of each shape of tree.
var shown = []string{"good-2x4090", "acs-switch", "two-switches", "two-sockets", "guest", "unprivileged", "testdev-standin", "one-gpu", "no-gpu"}

// TestKinds draws every kind of machine.
func TestKinds(t *testing.T) {
	for _, k := range fixture.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			f := gather(t, k)
			g := topology.New(f)
			var b, again bytes.Buffer
			fmt.Fprintf(&b, "# %s\n\n", k.About)
			require.NoError(t, g.WriteTree(&b, topology.UTF8))
			b.WriteString("\n")
			require.NoError(t, g.WriteMatrix(&b))
			for _, p := range g.Pairs() {
				fmt.Fprintf(&b, "\n%s to %s, at most %.2f written and %.2f read, now %.2f\n",
					p.A.Address, p.B.Address, float64(p.Ceiling.Write), float64(p.Ceiling.Read), float64(p.Now.Write))
				for i, h := range p.Hops {
					fmt.Fprintf(&b, "  %s to %s: %s", h.From, h.To, h.Kind)
					if h.Link != nil {
						fmt.Fprintf(&b, " %v, %s", h.Link.Loaded, h.Link.Basis)
					}
					if i == p.Ceiling.Hop {
						b.WriteString(", narrowest")
					}
					b.WriteString("\n")
				}
				for _, n := range p.Ceiling.Notes {
					fmt.Fprintf(&b, "  note: %s\n", n)
				}
				if p.Redirected() {
					fmt.Fprintf(&b, "  redirected by %v\n", p.Redirecting)
				}
			}
			if slices.Contains(shown, k.Name) {
				golden.Equal(t, "testdata/"+k.Name+".txt", b.Bytes())
			}

			b.Reset()
			require.NoError(t, g.WriteSVG(&b))
			require.NoError(t, topology.New(f).WriteSVG(&again))
			assert.Equal(t, b.String(), again.String())
			wellFormed(t, b.Bytes())
		})
	}
}

func wellFormed(t *testing.T, doc []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(doc))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSVG(t *testing.T) {
	for _, name := range []string{"two-switches", "two-sockets"} {
		var b bytes.Buffer
		require.NoError(t, topology.New(gather(t, kind(t, name))).WriteSVG(&b))
		golden.Equal(t, "testdata/"+name+".svg", b.Bytes())
	}
}

func TestASCII(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, topology.New(gather(t, kind(t, "two-switches"))).WriteTree(&b, topology.ASCII))
	golden.Equal(t, "testdata/two-switches-ascii.txt", b.Bytes())
	for _, c := range b.Bytes() {
		require.Less(t, c, byte(0x80))
	}
}

func TestPlaceNotKnown(t *testing.T) {
	f := &facts.Facts{Devices: []facts.Device{
		{Address: "0000:01:00.0", GPU: true, NUMANode: -1}, {Address: "0000:02:00.0", GPU: true, NUMANode: -1},
	}}
	g := topology.New(f)
	p := g.Path("0000:01:00.0", "0000:02:00.0")
	assert.Equal(t, topology.Unknown, p.Class)
	assert.Empty(t, p.Hops)
	assert.Equal(t, -1, p.Ceiling.Hop)
	assert.Zero(t, p.Ceiling.Write)
	assert.Equal(t, topology.Unknown, g.Path("0000:01:00.0", "0000:99:00.0").Class)
	var b bytes.Buffer
	require.NoError(t, g.WriteTree(&b, topology.UTF8))
	assert.Contains(t, b.String(), "not known")
}
