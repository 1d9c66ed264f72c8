package arms

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, name := range []string{"p2p", "stock", "p2p-mailbox", "stock-noacs", "p2p-mailbox-noacs"} {
		a, err := Parse(name)
		require.NoError(t, err)
		assert.Equal(t, name, a.String())
	}
	for _, name := range []string{"", "none", "p2p-", "p2p-noacs-mailbox", "P2P", "p2p-bar1"} {
		_, err := Parse(name)
		require.ErrorContains(t, err, "want p2p or stock", name)
	}
}

func TestChoose(t *testing.T) {
	both := []string{P2P, Stock}
	const no = "none of the GPUs has one"
	for name, test := range map[string]struct {
		wish    Wish
		machine Machine
		run     []string
		left    []Left
	}{
		"nothing to compare": {Wish{Set: Stock}, Machine{Sets: both}, []string{"stock"}, nil},
		"drivers":            {Wish{Set: P2P, Drivers: true}, Machine{Sets: both}, []string{"stock", "p2p-mailbox", "p2p"}, nil},
		"drivers, no mailbox": {
			Wish{Set: P2P, Drivers: true}, Machine{Sets: both, NoMailbox: no}, []string{"stock", "p2p"}, []Left{{"p2p-mailbox", no}},
		},
		"everything": {
			Wish{Set: P2P, Drivers: true, ACS: true}, Machine{Sets: both}, []string{"stock", "p2p-mailbox", "p2p-noacs", "p2p"}, nil,
		},
		"access controls of the stock driver": {Wish{Set: Stock, ACS: true}, Machine{Sets: both}, []string{"stock-noacs", "stock"}, nil},
		"nothing redirects": {
			Wish{Set: P2P, ACS: true}, Machine{Sets: both, NoRedirect: "no switch"}, []string{"p2p"}, []Left{{"p2p-noacs", "no switch"}},
		},
		"one set": {
			Wish{Set: P2P, Drivers: true}, Machine{Sets: []string{P2P}}, []string{"p2p-mailbox", "p2p"}, []Left{{"stock", "the image has no module set stock"}},
		},
		"by name, though it may not work": {
			Wish{Arms: []Arm{{Set: P2P}, {Set: P2P, Mailbox: true}, {Set: P2P}}, Set: P2P}, Machine{Sets: both, NoMailbox: no},
			[]string{"p2p", "p2p-mailbox"}, nil,
		},
		"by name, nothing to clear": {
			Wish{Arms: []Arm{{Set: P2P, NoACS: true}}, Set: P2P}, Machine{Sets: both, NoRedirect: "no switch"}, []string{"p2p"}, []Left{{"p2p-noacs", "no switch"}},
		},
		"no image to tell": {Wish{Set: P2P}, Machine{}, []string{"p2p"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			run, left := Choose(test.wish, test.machine)
			var names []string
			for _, a := range run {
				names = append(names, a.String())
			}
			assert.Equal(t, test.run, names)
			assert.Equal(t, test.left, left)
		})
	}
}

func TestSameDriver(t *testing.T) {
	p2p := Arm{Set: P2P}
	assert.True(t, p2p.SameDriver(Arm{Set: P2P, NoACS: true}))
	assert.False(t, p2p.SameDriver(Arm{Set: P2P, Mailbox: true}))
	assert.False(t, p2p.SameDriver(Arm{Set: Stock}))
}
