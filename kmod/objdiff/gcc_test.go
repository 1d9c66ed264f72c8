package objdiff

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script merges the sections as the driver's own linker script does.
const script = `SECTIONS {
	.text : { *(.text .text.*) }
	.data : { *(.data .data.*) }
	.rodata : { *(.rodata .rodata.*) }
	.bss : { *(.bss .bss.*) }
}`

// compiler makes small objects with the driver's options that matter here.
type compiler struct {
	t   *testing.T
	dir string
}

func newCompiler(t *testing.T) compiler {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "gcc", "-dumpmachine").Output()
	if err != nil || !strings.HasPrefix(string(out), "x86_64") {
		t.Skipf("needs a gcc for x86-64: %s%v", out, err)
	}
	c := compiler{t, t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "script.ld"), []byte(script), 0o600))
	return c
}

func (c compiler) run(name string, args ...string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), name, args...)
	cmd.Dir = c.dir
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "%s", out)
}

// compile compiles one file.
func (c compiler) compile(name, text string) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
	c.run("gcc", "-O2", "-ffreestanding", "-fno-pic", "-mcmodel=kernel", "-ffunction-sections", "-fdata-sections",
		"-fno-stack-protector", "-fno-jump-tables", "-c", name)
}

// link links the objects to one that can be linked again, without what nothing refers to.
func (c compiler) link(objects ...string) *Object {
	c.t.Helper()
	args := []string{"-r", "--gc-sections", "-u", "entry", "-u", "others", "-T", "script.ld", "-o", "all.o"}
	c.run("ld", append(args, objects...)...)
	f, err := os.Open(filepath.Join(c.dir, "all.o"))
	require.NoError(c.t, err)
	defer func() { require.NoError(c.t, f.Close()) }()
	o, err := Read(f)
	require.NoError(c.t, err)
	return o
}

const unit = `
extern void report(int line, const char *function, const char *message);
extern int scale(int);
#define REPORT(message) report(__LINE__, __FUNCTION__, message)
#define APART __attribute__((noinline))
typedef int chosen(int);

static int calls;
static int table[] = { 1, 2, 3, 4 };
static int stub(int x) { return -1; }
static int real(int x) { return x * 77; }

static APART int helper(int x)
{
    return scale(x) + 10;
}

static int folded(int x)
{
    return scale(x) * 3;
}

int first(int x)
{
    if (x > 1000)
        REPORT("too much");
    return helper(x) + 1;
}

int second(int x)
{
    calls = 99;
    REPORT("second");
    return folded(x) + table[x & 3];
}

int third(int x)
{
    if (calls == 5)
        REPORT("third");
    return x;
}

chosen *choose(int x)
{
    if (x == 0)
        return real;
    return stub;
}

int shared(int x)
{
    return x - 3;
}

int fourth(int x)
{
    return shared(x) * 2;
}

const char NVRM_ID[] = "nvidia id: Driver  1.0  Release Build  (me@here)  Thu Jan  1 00:00:00 UTC 1970";

void *entry[] = { first, second, third, choose, shared, fourth, (void *)NVRM_ID };
`

// other comes first in the link, so that its growth moves everything else.
const other = `
int before(int x)
{
    return x;
}

void *others[] = { before };
`

func TestCheck(t *testing.T) {
	type finding struct {
		status Status
		kind   Kind
		name   string
	}
	tests := []struct {
		name     string
		replace  []string // old, new, … in the unit
		unknown  []string // the same, but not told to Check
		other    string   // if not empty, instead of other from here on, and not told either
		want     []finding
		without  []string
		mismatch string
	}{
		{name: "nothing"},
		{
			name: "an edited function",
			replace: []string{
				"return helper(x) + 1;", "return helper(x) + 2;",
			},
			want: []finding{{Changed, Edited, "first"}},
		},
		{
			name:    "a message",
			replace: []string{`"second"`, `"seconds"`},
			want:    []finding{{Changed, Edited, "second"}},
		},
		{
			name:    "a function that is not inlined",
			replace: []string{"+ 10", "+ 11"},
			want:    []finding{{Changed, Edited, "helper"}},
		},
		{
			name:    "a function that is inlined",
			replace: []string{"* 3;", "* 5;"},
			want:    []finding{{Changed, Inlines, "second"}},
		},
		{
			name:    "a global function that is inlined no more",
			replace: []string{"return x - 3;", "{ " + strings.Repeat("x = scale(x); x ^= scale(x + 1); ", 20) + " return x; }"},
			want:    []finding{{Changed, Edited, "shared"}, {Changed, Inlines, "fourth"}},
		},
		{
			name:    "lines that move those behind",
			replace: []string{"return helper(x) + 1;", "x = scale(x);\n\n    return helper(x) + 1;"},
			want: []finding{
				{Changed, Edited, "first"}, {Changed, LineNumbers, "second"}, {Changed, LineNumbers, "third"},
			},
		},
		{
			name:    "lines whose numbers are kept",
			replace: []string{"return helper(x) + 1;", "x = scale(x);\n#line 27\n    return helper(x) + 1;"},
			want:    []finding{{Changed, Edited, "first"}},
		},
		{
			name:    "a new message where there was none",
			replace: []string{"return real;", `{ REPORT("real"); return real; }`},
			want:    []finding{{Changed, Edited, "choose"}, {Added, Reference, "__FUNCTION__"}},
		},
		{
			name:    "a stub that is no longer needed",
			replace: []string{"return stub;", "return real;"},
			want:    []finding{{Changed, Edited, "choose"}, {Removed, Reference, "stub"}},
		},
		{
			name:    "an edit that makes no difference",
			replace: []string{"return x;\n", "return x + 0;\n"},
			without: []string{"third"}, mismatch: "third was edited, but is the same in both objects",
		},
		{
			name:    "another day",
			unknown: []string{"Thu Jan  1", "Sat Jun 20"},
			want:    []finding{{Changed, Build, "NVRM_ID"}},
		},
		{
			name:     "another driver",
			unknown:  []string{"Driver  1.0", "Driver  1.1"},
			want:     []finding{{Changed, Unexplained, "NVRM_ID"}},
			mismatch: "NVRM_ID: ",
		},
		{
			name:    "an inlined function whose edit moves lines and no more",
			replace: []string{"return scale(x) * 3;", "\n    return scale(x) * 3;"},
			want: []finding{
				{Changed, LineNumbers, "first"}, {Changed, LineNumbers, "second"}, {Changed, LineNumbers, "third"},
			},
			without: []string{"folded"}, mismatch: "folded was edited, but is the same in both objects",
		},
		{
			name:     "code that no edit is about",
			unknown:  []string{"calls == 5", "calls == 6"},
			want:     []finding{{Changed, Unexplained, "third"}},
			mismatch: "third: ",
		},
		{
			name:     "a message that no edit is about",
			unknown:  []string{`"third"`, `"3rd"`},
			want:     []finding{{Changed, Unexplained, "third"}},
			mismatch: `refers to "3rd" instead of "third"`,
		},
		{
			name:     "a table that no edit is about",
			unknown:  []string{"3, 4 }", "3, 5 }"},
			want:     []finding{{Changed, Unexplained, "table"}},
			mismatch: "unit.c: table: 16 bytes, were 16; at +0xc: 05 00 00 00 instead of 04 00 00 00",
		},
		{
			name:    "references that no edit is about",
			unknown: []string{"first, second, third", "second, first, third"},
			want:    []finding{{Changed, Unexplained, "entry"}},
			mismatch: "entry: 56 bytes, were 56; " +
				"at +0x0: refers to second instead of first",
		},
		{
			name:     "a function that another takes the place of",
			unknown:  []string{"return real;", "return helper;"},
			want:     []finding{{Changed, Unexplained, "choose"}, {Removed, Unexplained, "real"}},
			mismatch: "unit.c: real: only in the stock object",
		},
		{
			name:     "a line number that is not the line's",
			replace:  []string{"return helper(x) + 1;", "x = scale(x);\n    return helper(x) + 1;"},
			unknown:  []string{"int second(int x)\n", "\nint second(int x)\n"},
			want:     []finding{{Changed, Edited, "first"}, {Changed, Unexplained, "second"}, {Changed, Unexplained, "third"}},
			mismatch: "second: ",
		},
		{
			name: "another file that grows",
			other: `
static const char *names[] = { "a", "b" };
static int more(int x) { return names[x & 1][0]; }
int before(int x) { return x; }
void *others[] = { before, more };
`,
			want: []finding{
				{Changed, Unexplained, "others"}, {Added, Unexplained, "more"}, {Added, Unexplained, "names"},
			},
			mismatch: "others: 16 bytes, were 8",
		},
	}
	c := newCompiler(t)
	c.compile("other.c", other)
	c.compile("unit.c", unit)
	stock := c.link("other.o", "unit.o")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patched := replaced(t, unit, tt.replace)
			c := compiler{t, c.dir}
			c.compile("unit.c", replaced(t, patched, tt.unknown))
			if tt.other != "" {
				c.compile("other.c", tt.other)
			}
			d := Compare(stock, c.link("other.o", "unit.o"))
			report, err := Check(d, []Source{{"src/unit.c", []byte(unit), []byte(patched)}})
			var got []finding
			for _, f := range report.Findings {
				got = append(got, finding{f.Status, f.Kind, strings.TrimSuffix(unnumbered(f.Name), ".#")})
			}
			assert.ElementsMatch(t, tt.want, got, "%v", report)
			assert.Equal(t, tt.without, report.Without)
			if tt.mismatch == "" {
				require.NoError(t, err)
				return
			}
			var mismatch *MismatchError
			require.ErrorAs(t, err, &mismatch)
			require.ErrorContains(t, err, tt.mismatch)
		})
	}
}

func replaced(t *testing.T, text string, pairs []string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Equal(t, 1, strings.Count(text, pairs[i]), "%q", pairs[i])
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}
