package patch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFindBody(t *testing.T) {
	for name, test := range map[string]struct {
		src, want, err string
	}{
		"prototype before the body": {
			src:  "int f(int a);\nint f(int a)\n{\n    return a;\n}\n",
			want: "{\n    return a;\n}",
		},
		"parameters on lines of their own": {
			src:  "NV_STATUS\nf\n(\n    int a, // the (first\n    int (*b)(void)\n)\n{\n    b();\n}\n",
			want: "{\n    b();\n}",
		},
		"call in another body": {
			src:  "int g(void)\n{\n    if (f(1))\n    {\n        f(2);\n    }\n}\nint f(int a)\n{\n    return a;\n}\n",
			want: "{\n    return a;\n}",
		},
		"name in a comment and in a string": {
			src:  "/* f(x)\n{\n*/\nchar *s = \"f(x) {\";\nint f(int a)\n{\n    return a;\n}\n",
			want: "{\n    return a;\n}",
		},
		"longer name": {
			src:  "int ff(int a)\n{\n    return 0;\n}\nint f_(int a)\n{\n    return 1;\n}\nint f(int a)\n{\n    return a;\n}\n",
			want: "{\n    return a;\n}",
		},
		"brace on the first line, unbalanced branches": {
			src:  "int f(int a) {\n#if X\n    if (a) {\n#else\n    if (!a) {\n#endif\n    }\n    return a;\n}\nint g;\n",
			want: "{\n#if X\n    if (a) {\n#else\n    if (!a) {\n#endif\n    }\n    return a;\n}",
		},
		"brace in column 0 of a comment": {
			src:  "int f(int a)\n{\n/*\n}\n*/\n    return a;\n}\n",
			want: "{\n/*\n}\n*/\n    return a;\n}",
		},
		"one line": {
			src:  "static int f(void) { return 1; }\nint g(void)\n{\n}\n",
			want: "{ return 1; }",
		},
		"only a prototype":  {src: "int f(int a);\n", err: "function f is not defined here"},
		"body without end":  {src: "int f(int a)\n{\n    return a;\n", err: "function f is not defined here"},
		"defined twice":     {src: "int f(a)\n{\n}\nint f(b)\n{\n}\n", err: "function f is defined 2 times here"},
		"unclosed argument": {src: "int f(int a\n{\n}\n", err: "function f is not defined here"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&cText{src: []byte(test.src)}).findBody("f")
			if test.err != "" {
				assert.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, test.src[got.start:got.end])
		})
	}
}

func TestBlankComments(t *testing.T) {
	src := "a /* b\nc */ \"/* d\" // e\n'\"' f \"\\\"//\" g\n#error don't\nh // i"
	assert.Equal(t, "a     \n     \"/* d\"     \n'\"' f \"\\\"//\" g\n#error don't\nh     ",
		string(blankComments([]byte(src), false)))
	assert.Equal(t, "a     \n     \"    \"     \n' ' f \"    \" g\n#error don't\nh     ",
		string(blankComments([]byte(src), true)))
}

func FuzzFindBody(f *testing.F) {
	f.Add([]byte("int f(int a)\n{\n    return a;\n}\n"))
	f.Add([]byte("int f(int a) { /* } */ \"\\\" }\n}"))
	f.Add([]byte("f('"))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, literals := range []bool{false, true} {
			blank := blankComments(src, literals)
			require.Len(t, blank, len(src))
			assert.Equal(t, bytes.Count(src, []byte("\n")), bytes.Count(blank, []byte("\n")))
		}
		body, err := (&cText{src: src}).findBody("f")
		if err != nil {
			return
		}
		require.LessOrEqual(t, body.end, len(src))
		require.Less(t, body.start, body.end)
		assert.Equal(t, byte('{'), src[body.start])
		assert.Equal(t, byte('}'), src[body.end-1])
	})
}
