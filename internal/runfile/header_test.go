package runfile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/runfile/runtest"
)

const version = "570.211.01"

func TestReadHeader(t *testing.T) {
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			o := runtest.Options{Compression: compression, Files: runtest.Driver(t, version)}
			data := runtest.Bytes(t, o)
			h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
			require.NoError(t, err)
			payload := runtest.Compress(t, compression, runtest.Tar(t, o.Files))
			assert.Equal(t, payload, data[h.Offset:])
			lines := strings.SplitAfterN(string(data), "\n", 4)
			want := &Header{
				Label:   "NVIDIA Accelerated Graphics Driver for Linux-x86_64 570.211.01",
				Version: version, Script: "./nvidia-installer", TargetDir: "NVIDIA-Linux-x86_64-570.211.01",
				OS: "Linux", Arch: "x86_64",
				Offset: int64(len(data) - len(payload)), Size: int64(len(payload)), Compression: compression,
				Sums: Sums{
					From: int64(len(data) - len(lines[3])),
					CRC:  strings.TrimSpace(strings.TrimPrefix(lines[1], "CRCsum=")),
					MD5:  strings.TrimSpace(strings.TrimPrefix(lines[2], "MD5=")),
				},
			}
			assert.Equal(t, want, h)
			require.NoError(t, verify(t.Context(), bytes.NewReader(data), h))

			file := filepath.Join(t.TempDir(), "x.run")
			runtest.Write(t, file, o)
			h, err = ReadHeaderFile(file)
			require.NoError(t, err)
			assert.Equal(t, want, h)
		})
	}
}

func TestReadHeaderErrors(t *testing.T) {
	valid := string(runtest.Bytes(t, runtest.Options{}))
	skip := valid[strings.Index(valid, "skip="):]
	skip, _, _ = strings.Cut(skip, "\n")
	sums, _, _ := strings.Cut(valid, "\nskip=")
	sub := func(old, text string) string { return strings.Replace(valid, old, text, 1) }
	noMD5 := func(s string) string {
		i := strings.Index(s, "MD5=")
		return s[:i] + "MD5=" + strings.Repeat("0", 32) + s[i+36:]
	}
	tests := map[string]struct {
		data string
		is   error
		want string
	}{
		"empty":             {"", ErrFormat, "it is empty"},
		"a web page":        {"<!DOCTYPE html><html>", ErrFormat, `begins with "<!DOCTYPE html><", not with "#!"`},
		"a short file":      {"#!", ErrFormat, `its script says skip=""`},
		"a script":          {"#!/bin/sh\necho\n", ErrFormat, `its script says skip=""`},
		"zero skip":         {sub(skip, "skip=0"), ErrFormat, `skip="0"`},
		"negative skip":     {sub(skip, "skip=-1"), ErrFormat, `skip="-1"`},
		"skip no number":    {sub(skip, "skip=__SKIP__"), ErrFormat, `skip="__SKIP__"`},
		"huge skip":         {sub(skip, "skip=99999999999999999999"), ErrFormat, `skip="99999999999999999999"`},
		"skip to the top":   {sub(skip, "skip=1"), ErrFormat, `skip="1" puts the payload into the first lines`},
		"skip to line 3":    {sub(skip, "skip=3"), ErrFormat, "into the first lines"},
		"skip into script":  {sub(skip, "skip=4"), ErrFormat, "its payload, at byte "},
		"skip too far":      {sub(skip, "skip=2000"), ErrTruncated, "its payload should begin after "},
		"script too long":   {valid[:50] + strings.Replace(valid[50:], "#\n", strings.Repeat("#", maxScript), 1), ErrFormat, "does not begin within 16777216 bytes"},
		"cut in line 1":     {valid[:5], ErrFormat, `skip=""`},
		"cut in line 3":     {valid[:30], ErrFormat, `skip=""`},
		"cut in the script": {valid[:200], ErrTruncated, "should begin after"},
		"cut at payload":    {valid[:strings.Index(valid, "\xff\"\n")+3], ErrTruncated, "its payload has 0 bytes"},
		"cut in magic":      {valid[:strings.Index(valid, "\xff\"\n")+6], ErrTruncated, "its payload has 3 bytes"},
		"plain tar":         {string(runtest.Bytes(t, runtest.Options{Payload: runtest.Tar(t, map[string][]byte{"a": nil})})), ErrFormat, "begins with 2e2f6100"},
		"CRC no number":     {sub("CRCsum=", "CRCsum=x"), ErrFormat, `CRCsum="x`},
		"CRC too large":     {sub("CRCsum=", "CRCsum=99999999999"), ErrFormat, `CRCsum="99999999999`},
		"MD5 too long":      {sub("MD5=", "MD5=00"), ErrFormat, `MD5="00`},
		"MD5 no hex":        {sub("MD5=", "MD5=x"), ErrFormat, `MD5="x`},
		"no checksum":       {"#! /bin/sh\nCRCsum=0000000000\n" + noMD5(valid)[strings.Index(valid, "MD5="):], ErrFormat, "it has no checksum"},
		"only checksums":    {sums, ErrFormat, `skip=""`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ReadHeader(strings.NewReader(tt.data), int64(len(tt.data)))
			require.ErrorIs(t, err, tt.is)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReadHeaderFileErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadHeaderFile(filepath.Join(dir, "nowhere.run"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadHeaderFile(dir)
	require.ErrorIs(t, err, ErrFormat)
	require.ErrorContains(t, err, dir+": not a .run file")
	file := filepath.Join(dir, "x.run")
	require.NoError(t, os.WriteFile(file, []byte("MZ"), 0o644))
	_, err = ReadHeaderFile(file)
	require.EqualError(t, err, file+`: not a .run file that can be read: it begins with "MZ", not with "#!"`)
}

func TestVariables(t *testing.T) {
	script := `#! /bin/sh
# skip=1
CRCsum=12 34
label="a \"b\" \$c \n"
first=1
first=2
license="You must not
skip=3
do this"; other=x
help='it'
echo skip=4
  skip=5
=6
a-b=7
empty=
open="to the end
skip=8
`
	assert.Equal(t, map[string]string{
		"CRCsum": "12 34", "label": `a "b" $c \n`, "first": "1", "license": "You must not\nskip=3\ndo this",
		"help": "it", "empty": "", "open": "to the end\nskip=8\n",
	}, variables([]byte(script)))
}

func TestCheckDriver(t *testing.T) {
	tests := map[string]struct {
		h    Header
		want string
	}{
		"right":          {Header{Version: version, OS: "Linux", Arch: "x86_64"}, ""},
		"other release":  {Header{Version: "580.142", OS: "Linux", Arch: "x86_64"}, "the file is the installer of driver release 580.142 for Linux-x86_64, but release 570.211.01 for Linux-x86_64 is wanted: get NVIDIA-Linux-x86_64-570.211.01.run"},
		"other platform": {Header{Version: version, OS: "Linux", Arch: "aarch64"}, "driver release 570.211.01 for Linux-aarch64"},
		"other system":   {Header{Version: version, OS: "FreeBSD", Arch: "x86_64"}, "for FreeBSD-x86_64"},
		"no driver":      {Header{Label: "CUDA"}, "the file is the installer of no driver release"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.h.CheckDriver(version)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			var e *VersionError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, version, e.Want)
		})
	}
}

// The variables that other makeself archives have, as "makeself --sha256"
// 2.4.5 writes them.
func TestReadHeaderMakeself(t *testing.T) {
	payload := runtest.Compress(t, "gzip", runtest.Tar(t, map[string][]byte{"a": []byte("x")}))
	script := func(vars string) string {
		s := "#!/bin/sh\n# This script was generated using Makeself 2.4.5\n\nORIG_UMASK=`umask`\n" + vars + "\nexit 0\n"
		return strings.Replace(s, "SKIP", fmt.Sprint(strings.Count(s, "\n")), 1)
	}
	size := fmt.Sprint(len(payload))
	crc := fmt.Sprint(runtest.CRC(payload))
	tests := map[string]struct {
		vars string
		is   error
		want string
	}{
		"right":           {`CRCsum="` + crc + `"` + "\nlabel=\"A \\\"b\\\"\"\nlicensetxt=\"a\nskip=\"\nfilesizes=\"" + size + "\"\nskip=\"SKIP\"", nil, ""},
		"several":         {`CRCsum="1 2"` + "\nfilesizes=\"10 20\"\nskip=\"SKIP\"", ErrFormat, `filesizes="10 20" where the size of one payload should be`},
		"no size":         {`CRCsum="1"` + "\nskip=\"SKIP\"", ErrFormat, `filesizes=""`},
		"too long":        {`CRCsum="1"` + "\nfilesizes=\"1\"\nskip=\"SKIP\"", ErrFormat, "bytes follow its payload"},
		"cut off":         {`CRCsum="1"` + "\nfilesizes=\"100000\"\nskip=\"SKIP\"", ErrTruncated, "its payload has " + size + " bytes of 100000"},
		"bad SHA-256":     {`SHA="1"` + "\nfilesizes=\"" + size + "\"\nskip=\"SKIP\"", ErrFormat, `SHA="1"`},
		"older than that": {`CRCsum="1"` + "\nfilesizes=\"" + size + "\"", ErrFormat, `skip=""`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			data := script(tt.vars) + string(payload)
			h, err := ReadHeader(strings.NewReader(data), int64(len(data)))
			if tt.want != "" {
				require.ErrorIs(t, err, tt.is)
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			at := int64(len(data) - len(payload))
			assert.Equal(t, &Header{
				Label: `A "b"`, Offset: at, Size: int64(len(payload)), Compression: "gzip", Sums: Sums{From: at, CRC: crc},
			}, h)
		})
	}
}

func FuzzReadHeader(f *testing.F) {
	data := runtest.Bytes(f, runtest.Options{})
	f.Add(data)
	f.Add(data[:100])
	f.Add([]byte("#!/bin/sh\nSHA=\"" + strings.Repeat("1", 64) + "\"\nfilesizes=\"6\"\nskip=\"4\"\n\xfd7zXZ\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		assert.Positive(t, h.Offset)
		assert.LessOrEqual(t, h.Sums.From, h.Offset)
		assert.Equal(t, int64(len(data)), h.Offset+h.Size)
		assert.Equal(t, byte('\n'), data[h.Offset-1])
		assert.NotEmpty(t, h.Compression)
	})
}
