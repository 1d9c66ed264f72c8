package objdiff

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFunctions(t *testing.T) {
	const text = `/*
 * A comment (with braces) {
 */
#include "x.h"
#define CALL(x) call(x)

static NV_STATUS forward(int x);

static NV_STATUS
split
(
    OBJGPU *pGpu,
    int     x
)
{
    if (x)
    {
        return forward(x);
    }
    return 0;
}

struct info
{
    int x;
};

static const struct table
things[] =
{
    { call(1), 2 },
};

void generated(int x, int y) {
    // {
    split(0, x);
} // generated

int after(void)
{
    return 1;
}
`
	var got []string
	for _, f := range functions([]byte(text)) {
		got = append(got, f.name)
	}
	assert.Equal(t, []string{"split", "generated", "after"}, got)
}

func TestLineMap(t *testing.T) {
	m := newLineMap([]byte("a\nb\nc\nd\ne\n"), []byte("a\nx\ny\nb\nC\nd\n"))
	assert.Equal(t, lineMap{1: 1, 2: 4, 4: 6}, m)
}

func TestExplainLines(t *testing.T) {
	m := lineMap{300: 310, 767: 777, 0x1ff: 0x2ff}
	code := func(b ...byte) []byte { return b }
	tests := []struct {
		name           string
		stock, patched []byte
		want           bool
	}{
		{"one number", code(0xbe, 0x2c, 1, 0, 0, 0xc3), code(0xbe, 0x36, 1, 0, 0, 0xc3), true},
		{"two", code(0x2c, 1, 0, 0, 0xff, 2, 0, 0), code(0x36, 1, 0, 0, 0x09, 3, 0, 0), true},
		{"a number whose first byte stays", code(0xbe, 0xff, 1, 0, 0), code(0xbe, 0xff, 2, 0, 0), true},
		{"moved by something else", code(0xbe, 0x2c, 1, 0, 0), code(0xbe, 0x35, 1, 0, 0), false},
		{"no line", code(0xbe, 0x2d, 1, 0, 0), code(0xbe, 0x37, 1, 0, 0), false},
		{"an instruction beside it", code(0xbe, 0x2c, 1, 0, 0, 0xc3), code(0xbf, 0x36, 1, 0, 0, 0xc3), false},
		{"half a number", code(0x2c, 1, 0), code(0x36, 1, 0), false},
		{"another size", code(0x2c, 1, 0, 0), code(0x36, 1, 0, 0, 0), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, m.explain(tt.stock, tt.patched))
		})
	}
}

func TestReadSources(t *testing.T) {
	stock := fstest.MapFS{"src/a.c": {Data: []byte("a")}, "kernel-open/b.c": {}, "src/c.c": {}}
	patched := fstest.MapFS{"src/a.c": {Data: []byte("A")}}
	got, err := ReadSources(stock, patched, []string{"src/a.c", "kernel-open/b.c"})
	require.NoError(t, err)
	assert.Equal(t, []Source{{"src/a.c", []byte("a"), []byte("A")}}, got)
	_, err = ReadSources(stock, patched, []string{"src/c.c"})
	require.ErrorContains(t, err, "patched tree: open src/c.c")
	_, err = ReadSources(stock, patched, []string{"src/d.c"})
	require.ErrorContains(t, err, "stock tree: open src/d.c")
}
