package objdiff

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNames(t *testing.T) {
	tests := []struct{ name, unnumbered, base string }{
		{"kbusMap_GM107", "kbusMap_GM107", "kbusMap_GM107"},
		{"f.cold", "f.cold", "f"},
		{"f.part.0", "f.part.#", "f"},
		{"f.constprop.0.isra.12", "f.constprop.0.isra.#", "f"},
		{"f.part.0.cold", "f.part.0.cold", "f"},
		{"__FUNCTION__.31", "__FUNCTION__.#", "__FUNCTION__"},
		{"x.y", "x.y", "x.y"},
		{".7", ".7", ".7"},
		{"9", "9", "9"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.unnumbered, unnumbered(tt.name), tt.name)
		assert.Equal(t, tt.base, base(tt.name), tt.name)
	}
}

// Each letter is a symbol that holds the letter.
func TestAlign(t *testing.T) {
	tests := []struct{ name, a, b, want string }{
		{"the same", "abc", "abc", "aa bb cc"},
		{"one more in front", "abc", "xabc", "aa bb cc"},
		{"one less", "abc", "ac", "aa cc"},
		{"one in another's place", "abc", "axc", "aa bx cc"},
		{"one alone is the other's counterpart", "a", "x", "ax"},
		{"one replaced by two", "abc", "axyc", "aa bx cc"},
		{"none", "", "x", ""},
		{"another order", "ab", "ba", "bb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			symbols := func(letters string) (list []*symbol) {
				for _, c := range letters {
					list = append(list, &symbol{name: string(c)})
				}
				return list
			}
			digest := func(s *symbol) uint64 { return uint64(s.name[0]) }
			a, b := symbols(tt.a), symbols(tt.b)
			p := pairs{}
			p.align(a, b, digest, digest)
			var got []string
			for _, s := range a {
				if p[s] != nil {
					got = append(got, s.name+p[s].name)
				}
			}
			assert.Equal(t, tt.want, strings.Join(got, " "))
		})
	}
}
