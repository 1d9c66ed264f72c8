package debian

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

func TestResolve(t *testing.T) {
	x := testIndex(t, strings.Join([]string{
		debiantest.Stanza("gcc", "12", "Depends: gcc-base (= 12), libc6 (>= 2.3), cpp:any | cpp-old", "Pre-Depends: base"),
		debiantest.Stanza("gcc-base", "12"),
		debiantest.Stanza("libc6", "2.36", "Depends: libgcc"),
		debiantest.Stanza("libgcc", "12", "Depends: gcc-base (= 12), libc6"), // a cycle
		debiantest.Stanza("base", "1", "Depends: awk, editor | vi"),
		debiantest.Stanza("cpp", "12"),
		debiantest.Stanza("cpp-old", "1"),
		debiantest.Stanza("gawk", "1", "Provides: awk"),
		strings.Replace(debiantest.Stanza("mawk", "1", "Provides: awk"), "optional", "required", 1),
		debiantest.Stanza("original-awk", "1", "Provides: awk"),
		debiantest.Stanza("vi", "1"),
		debiantest.Stanza("lib-dev", "1", "Depends: libv (>= 2)"),
		debiantest.Stanza("libv-impl", "9", "Provides: libv (= 2.1)"),
		debiantest.Stanza("aaa-libv", "9", "Provides: libv"),
		debiantest.Stanza("pick", "1", "Depends: one | two"),
		debiantest.Stanza("one", "1"),
		debiantest.Stanza("two", "1"),
		debiantest.Stanza("old-user", "1", "Depends: same (<< 2)"),
		debiantest.Stanza("same", "1"),
		debiantest.Stanza("trailing", "1", "Depends: one,"),
	}, "\n"), debiantest.Stanza("same", "2"))

	tests := map[string]struct {
		ask     []string
		exclude []string
		want    []string
	}{
		"nothing": {nil, nil, nil},
		"closure": {
			[]string{"gcc"}, nil,
			[]string{"base 1", "cpp 12", "gcc 12", "gcc-base 12", "libc6 2.36", "libgcc 12", "mawk 1", "vi 1"},
		},
		"twice and in another order": {
			[]string{"libc6", "gcc", "gcc"}, nil,
			[]string{"base 1", "cpp 12", "gcc 12", "gcc-base 12", "libc6 2.36", "libgcc 12", "mawk 1", "vi 1"},
		},
		"chosen provider":    {[]string{"base", "original-awk"}, nil, []string{"base 1", "original-awk 1", "vi 1"}},
		"chosen alternative": {[]string{"pick", "two"}, nil, []string{"pick 1", "two 1"}},
		"first alternative":  {[]string{"pick"}, nil, []string{"one 1", "pick 1"}},
		"versioned provides": {[]string{"lib-dev"}, nil, []string{"lib-dev 1", "libv-impl 9"}},
		"virtual":            {[]string{"awk"}, nil, []string{"mawk 1"}},
		"older version":      {[]string{"old-user"}, nil, []string{"old-user 1", "same 1"}},
		"exact version":      {[]string{"same=1"}, nil, []string{"same 1"}},
		"excluded":           {[]string{"gcc"}, []string{"base", "libc6"}, []string{"cpp 12", "gcc 12", "gcc-base 12"}},
		"excluded virtual":   {[]string{"base"}, []string{"awk", "vi"}, []string{"base 1"}},
		"trailing comma":     {[]string{"trailing"}, nil, []string{"one 1", "trailing 1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := x.Resolve(tt.ask, ResolveOptions{Exclude: tt.exclude})
			require.NoError(t, err)
			assert.Equal(t, tt.want, names(got))
			slices.Reverse(tt.ask)
			again, err := x.Resolve(tt.ask, ResolveOptions{Exclude: tt.exclude})
			require.NoError(t, err)
			assert.Equal(t, got, again)
		})
	}
}

func TestResolveMissing(t *testing.T) {
	x := testIndex(t, strings.Join([]string{
		debiantest.Stanza("app", "1", "Depends: mid"),
		debiantest.Stanza("mid", "2", "Depends: lib (>= 3) | other"),
		debiantest.Stanza("lib", "2"),
		debiantest.Stanza("gone-user", "1", "Depends: gone"),
		debiantest.Stanza("odd", "1", "Depends: lib (!! 3)"),
		debiantest.Stanza("new", "1", "Depends: lib (>= 2)"),
	}, "\n"), debiantest.Stanza("lib", "1"))
	tests := map[string]struct {
		ask  []string
		want string
	}{
		"asked for": {[]string{"nope"}, "package nope is in none of stable, stable-security"},
		"version":   {[]string{"lib=7"}, "package lib=7 is in none of stable, stable-security: the newest there is 2"},
		"chain": {
			[]string{"app"}, "package lib (>= 3) | other, needed by mid 2, needed by app 1, " +
				"is in none of stable, stable-security: the newest there is 2",
		},
		"gone": {[]string{"gone-user"}, "package gone, needed by gone-user 1, is in none of stable, stable-security"},
		"two versions": {
			[]string{"new", "lib=1"},
			"package lib (>= 2), needed by new 1, can't be had: version 1 is needed by another package",
		},
		"syntax": {[]string{"odd"}, `package odd 1: dependencies "lib (!! 3)"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := x.Resolve(tt.ask, ResolveOptions{})
			require.ErrorContains(t, err, tt.want)
		})
	}
}
