package runfile

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/runfile/runtest"
)

// write makes a file of the given bytes, and an empty directory to unpack to,
// beside nothing else.
func write(t testing.TB, data []byte) (file, dir string) {
	t.Helper()
	top := t.TempDir()
	file, dir = filepath.Join(top, "x.run"), filepath.Join(top, "out")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	require.NoError(t, os.Mkdir(dir, 0o755))
	return file, dir
}

// contents returns the files below dir.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = fmt.Sprintf("%s %s", info.Mode(), data)
		return err
	}))
	return files
}

// all takes every member but one.
var all = Files{Dest: func(name string) (string, bool) { return name, name != "unwanted" }}

func TestExtractDriver(t *testing.T) {
	members := runtest.Driver(t, version)
	members["firmware/bindata_image.bin"] = []byte("bindata")
	members["firmware/notes.txt"] = []byte("no firmware")
	members["firmware/old/gsp_ga10x.bin"] = []byte("of another directory")
	want := map[string]string{}
	for dest, m := range map[string]struct{ mode, name string }{
		"LICENSE":                                          {"-rw-r--r--", "LICENSE"},
		"nvidia-smi":                                       {"-rwxr-xr-x", "nvidia-smi"},
		"libcuda.so.570.211.01":                            {"-rwxr-xr-x", "libcuda.so.570.211.01"},
		"libnvidia-ml.so.570.211.01":                       {"-rwxr-xr-x", "libnvidia-ml.so.570.211.01"},
		"libnvidia-ptxjitcompiler.so.570.211.01":           {"-rwxr-xr-x", "libnvidia-ptxjitcompiler.so.570.211.01"},
		"lib/firmware/nvidia/570.211.01/gsp_ga10x.bin":     {"-rw-r--r--", "firmware/gsp_ga10x.bin"},
		"lib/firmware/nvidia/570.211.01/gsp_tu10x.bin":     {"-rw-r--r--", "firmware/gsp_tu10x.bin"},
		"lib/firmware/nvidia/570.211.01/bindata_image.bin": {"-rw-r--r--", "firmware/bindata_image.bin"},
		"lib/firmware/nvidia/570.211.01/ucodes_ga10x.bin":  {"-rw-r--r--", "firmware/ucodes_ga10x.bin"},
		"lib/firmware/nvidia/570.211.01/ucodes_tu10x.bin":  {"-rw-r--r--", "firmware/ucodes_tu10x.bin"},
	} {
		want[dest] = m.mode + " " + string(members[m.name])
	}
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			file, dir := write(t, runtest.Bytes(t, runtest.Options{Files: members, Compression: compression}))
			h, err := Extract(t.Context(), file, dir, Driver(version))
			require.NoError(t, err)
			assert.Equal(t, compression, h.Compression)
			assert.Equal(t, want, contents(t, dir))
		})
	}
}

func TestExtractOtherRelease(t *testing.T) {
	for name, o := range map[string]runtest.Options{
		"release":  {Version: "580.142", Files: runtest.Driver(t, "580.142")},
		"platform": {Arch: "aarch64", Files: runtest.Driver(t, version)},
	} {
		t.Run(name, func(t *testing.T) {
			// The payload is not looked at: it is damaged.
			o.Payload = append([]byte("\x28\xb5\x2f\xfd"), make([]byte, 100)...)
			file, dir := write(t, runtest.Bytes(t, o))
			_, err := Extract(t.Context(), file, dir, Driver(version))
			var e *VersionError
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, file+": the file is the installer of driver release ")
			assert.Empty(t, contents(t, dir))
		})
	}
}

func TestExtractMissing(t *testing.T) {
	members := runtest.Driver(t, version)
	delete(members, "nvidia-smi")
	delete(members, "libcuda.so."+version)
	delete(members, "firmware/gsp_ga10x.bin")
	delete(members, "firmware/gsp_tu10x.bin")
	members["sub/nvidia-smi"] = nil
	file, dir := write(t, runtest.Bytes(t, runtest.Options{Files: members}))
	_, err := Extract(t.Context(), file, dir, Driver(version))
	var e *MissingError
	require.ErrorAs(t, err, &e)
	require.EqualError(t, err, file+": the payload lacks libcuda.so.570.211.01, nvidia-smi, firmware/gsp_*.bin")
	assert.Empty(t, contents(t, dir))
}

func TestExtractUnsafe(t *testing.T) {
	reg := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 1}
	}
	link := func(kind byte, name, target string) tar.Header {
		return tar.Header{Typeflag: kind, Name: name, Linkname: target}
	}
	tests := map[string]struct {
		entries []tar.Header
		member  string
		reason  string
	}{
		"goes up":            {[]tar.Header{reg("../x")}, "../x", "its name leads out of the archive"},
		"goes up inside":     {[]tar.Header{reg("./a/../../x")}, "./a/../../x", "leads out"},
		"up and back":        {[]tar.Header{reg("./a/../x")}, "./a/../x", "leads out"},
		"absolute":           {[]tar.Header{reg("/etc/x")}, "/etc/x", "leads out"},
		"directory above":    {[]tar.Header{{Typeflag: tar.TypeDir, Name: "../x/", Mode: 0o755}}, "../x/", "leads out"},
		"link to absolute":   {[]tar.Header{link(tar.TypeSymlink, "./l", "/etc")}, "./l", `it is a link to "/etc", which is outside of the archive`},
		"link above":         {[]tar.Header{link(tar.TypeSymlink, "./a/l", "../../x")}, "./a/l", "outside of the archive"},
		"file through link":  {[]tar.Header{link(tar.TypeSymlink, "./unwanted", "a"), reg("./unwanted/x")}, "./unwanted/x", "unwanted is no directory"},
		"deep through link":  {[]tar.Header{link(tar.TypeSymlink, "./unwanted", "a"), reg("./unwanted/b/x")}, "./unwanted/b/x", "unwanted is no directory"},
		"file through file":  {[]tar.Header{reg("./f"), reg("./f/x")}, "./f/x", "f is no directory"},
		"hard link outside":  {[]tar.Header{link(tar.TypeLink, "./l", "/etc/passwd")}, "./l", "outside of the archive"},
		"hard link above":    {[]tar.Header{link(tar.TypeLink, "./l", "../x")}, "./l", "outside of the archive"},
		"wanted link":        {[]tar.Header{link(tar.TypeSymlink, "./l", "good")}, "./l", "is a link where a file is wanted"},
		"wanted hard link":   {[]tar.Header{link(tar.TypeLink, "./l", "good")}, "./l", "is a link where a file is wanted"},
		"character device":   {[]tar.Header{{Typeflag: tar.TypeChar, Name: "./null", Devmajor: 1, Devminor: 3}}, "./null", "it is a device"},
		"block device":       {[]tar.Header{{Typeflag: tar.TypeBlock, Name: "./sda"}}, "./sda", "it is a device"},
		"pipe":               {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "./p"}}, "./p", "a pipe"},
		"twice":              {[]tar.Header{reg("./f"), reg("f")}, "f", "its name comes twice"},
		"as file and link":   {[]tar.Header{reg("./f"), link(tar.TypeSymlink, "./f", "good")}, "./f", "its name comes twice"},
		"file for directory": {[]tar.Header{{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o755}, reg("./d")}, "./d", "its name comes twice"},
		"too many":           {[]tar.Header{reg("1"), reg("2"), reg("3"), reg("4"), reg("5")}, "5", "the archive has more than 5 members"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := runtest.Options{Files: map[string][]byte{"good": []byte("good")}, Entries: tt.entries}
			file, dir := write(t, runtest.Bytes(t, o))
			if name != "too many" { // of the limits below
				_, err := Extract(t.Context(), file, dir, all)
				require.ErrorContains(t, err, file+": member ")
				assert.Empty(t, contents(t, dir))
				list, err := os.ReadDir(filepath.Dir(dir))
				require.NoError(t, err)
				assert.Len(t, list, 2, "nothing was written outside")
			}
			err := extractAll(t, file, dir, limits{members: 5, member: 1000, unpacked: 100_000})
			var e *MemberError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tt.member, e.Name)
			assert.Contains(t, e.Reason, tt.reason)
			data := runtest.Tar(t, o.Files, tt.entries...)
			assert.Equal(t, tt.member, strings.TrimRight(string(data[e.Offset-512:][:100]), "\x00"), "the offset is behind the member's header")
		})
	}
}

// extractAll extracts every member within limits.
func extractAll(t testing.TB, file, dir string, lim limits) error {
	t.Helper()
	f, h, err := open(file)
	require.NoError(t, err)
	defer f.Close()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	return extract(t.Context(), f, h, root, all, lim)
}

// Links and kinds of members that stay inside do no harm where nobody wants
// them.
func TestExtractHarmless(t *testing.T) {
	file, dir := write(t, runtest.Bytes(t, runtest.Options{
		Files: map[string][]byte{"good": []byte("good")},
		Entries: []tar.Header{
			{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}},
			{Typeflag: tar.TypeSymlink, Name: "./a/l", Linkname: "../good"},
			{Typeflag: tar.TypeLink, Name: "./h", Linkname: "./good"},
			{Typeflag: tar.TypeDir, Name: "./a/", Mode: 0o755},
			{Typeflag: tar.TypeDir, Name: "a", Mode: 0o755},
		},
	}))
	_, err := Extract(t.Context(), file, dir, Files{
		Dest:   func(name string) (string, bool) { return "to/" + name, name == "good" },
		Needed: []string{"g*"},
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"to/good": "-rwxr-xr-x good"}, contents(t, dir))
}

func TestExtractLimits(t *testing.T) {
	file, dir := write(t, runtest.Bytes(t, runtest.Options{Files: map[string][]byte{"a": make([]byte, 600), "b": make([]byte, 600)}}))
	tests := map[string]struct {
		lim  limits
		want string
	}{
		"one":     {limits{5, 599, 10_000}, `member "./a", at byte 512 of the unpacked payload, is refused: it has 600 bytes, and more than 599 are not expected`},
		"all":     {limits{5, 600, 1199}, "its payload has more than 1199 bytes"},
		"header":  {limits{5, 600, 550}, "is refused: all members together have more than 550 bytes"},
		"headers": {limits{5, 600, 2000}, "its payload has more than 2000 bytes when unpacked"},
		"padding": {limits{5, 600, 3500}, "its payload has more than 3500 bytes when unpacked"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, extractAll(t, file, dir, tt.lim), tt.want)
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o755))
		})
	}
	require.NoError(t, extractAll(t, file, dir, limits{2, 600, 4096}))
}

// A member's size is a number in its header: nothing is read or kept for it.
func TestExtractHugeMember(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "huge", Size: 1 << 40}))
	file, dir := write(t, runtest.Bytes(t, runtest.Options{Payload: runtest.Compress(t, "gzip", b.Bytes())}))
	_, err := Extract(t.Context(), file, dir, Driver(version))
	var e *MemberError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "it has 1099511627776 bytes, and more than 1073741824 are not expected", e.Reason)
}

func TestExtractTruncated(t *testing.T) {
	members := runtest.Driver(t, version)
	noise := make([]byte, 100_000) // is not compressed away
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(noise)
	members["libcuda.so."+version] = append(members["libcuda.so."+version], noise...)
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		data := runtest.Bytes(t, runtest.Options{Files: members, Compression: compression})
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for name, n := range map[string]int64{
			"no payload":        h.Offset,
			"in the magic":      h.Offset + 3,
			"behind the magic":  h.Offset + 6,
			"in stream's head":  h.Offset + 9,
			"at a quarter":      h.Offset + h.Size/4,
			"at half":           h.Offset + h.Size/2,
			"before the end":    h.Offset + h.Size - 20,
			"without last byte": h.Offset + h.Size - 1,
		} {
			t.Run(compression+" "+name, func(t *testing.T) {
				file, dir := write(t, data[:n])
				_, err := Extract(t.Context(), file, dir, Driver(version))
				require.ErrorIs(t, err, ErrTruncated)
				require.ErrorContains(t, err, file+": the file is cut off, download it again: its payload ")
				assert.Empty(t, contents(t, dir))
			})
		}
	}
}

// An archive may end early in a stream that doesn't.
func TestExtractTruncatedTar(t *testing.T) {
	whole := runtest.Tar(t, map[string][]byte{"a": make([]byte, 600)})
	for _, n := range []int{300, 512, 700} {
		file, dir := write(t, runtest.Bytes(t, runtest.Options{Payload: runtest.Compress(t, "zstd", whole[:n])}))
		_, err := Extract(t.Context(), file, dir, all)
		require.ErrorIs(t, err, ErrTruncated, n)
		assert.Empty(t, contents(t, dir))
	}
}

func TestExtractDamaged(t *testing.T) {
	members := runtest.Driver(t, version)
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		data := runtest.Bytes(t, runtest.Options{Files: members, Compression: compression})
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for name, at := range map[string]int64{
			"script": h.Offset - 2, "stream's head": h.Offset + 7, "quarter": h.Offset + h.Size/4, "half": h.Offset + h.Size/2, "end": h.Offset + h.Size - 1,
		} {
			t.Run(compression+" "+name, func(t *testing.T) {
				bad := bytes.Clone(data)
				bad[at] ^= 0x10
				file, dir := write(t, bad)
				_, err := Extract(t.Context(), file, dir, Driver(version))
				var sum *ChecksumError
				var member *MemberError
				switch {
				case errors.As(err, &sum):
					assert.Equal(t, h.Sums.MD5, sum.Want)
				case errors.As(err, &member): // damage may look like anything
				default:
					require.ErrorIs(t, err, ErrTruncated)
				}
				assert.Empty(t, contents(t, dir))
			})
		}
	}
}

// The checksum that the script has is wrong, the payload is whole.
func TestExtractWrongChecksum(t *testing.T) {
	data := runtest.Bytes(t, runtest.Options{Files: runtest.Driver(t, version)})
	i := bytes.Index(data, []byte("MD5=")) + 4
	data[i] ^= 1 // '0' for '1', 'c' for 'b'
	file, dir := write(t, data)
	_, err := Extract(t.Context(), file, dir, Driver(version))
	var e *ChecksumError
	require.ErrorAs(t, err, &e)
	require.NoError(t, e.Err)
	require.ErrorContains(t, err, file+": the file is damaged, download it again: its MD5 is ")
	assert.Empty(t, contents(t, dir))
}

// The checksum is right, but the payload is none.
func TestExtractBadPayload(t *testing.T) {
	good := runtest.Tar(t, map[string][]byte{"a": []byte("x")})
	for name, payload := range map[string][]byte{
		"not a tar":            runtest.Compress(t, "zstd", bytes.Repeat([]byte("not a tar"), 1000)),
		"not zstd":             append([]byte("\x28\xb5\x2f\xfd"), bytes.Repeat([]byte{0xff}, 100)...),
		"not xz":               append([]byte("\xfd7zXZ\x00"), bytes.Repeat([]byte{0xff}, 100)...),
		"not gzip":             append([]byte("\x1f\x8b"), bytes.Repeat([]byte{0xff}, 100)...),
		"more behind zstd":     append(runtest.Compress(t, "zstd", good), "more behind the stream"...),
		"more behind xz":       append(runtest.Compress(t, "xz", good), "more behind the stream"...),
		"more behind gzip":     append(runtest.Compress(t, "gzip", good), "more behind the stream"...),
		"dictionary too large": slices.Concat([]byte("\x28\xb5\x2f\xfd\x00\xf8"), make([]byte, 100)), // a window of 2 TiB
	} {
		t.Run(name, func(t *testing.T) {
			file, dir := write(t, runtest.Bytes(t, runtest.Options{Payload: payload}))
			_, err := Extract(t.Context(), file, dir, all)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, "though its checksum is right: unpack its ")
			assert.Empty(t, contents(t, dir))
		})
	}
}

func TestExtractDirectories(t *testing.T) {
	file, dir := write(t, runtest.Bytes(t, runtest.Options{Files: map[string][]byte{"a": nil}}))
	_, err := Extract(t.Context(), file, dir+"/nowhere", all)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, os.WriteFile(dir+"/mine", nil, 0o600))
	_, err = Extract(t.Context(), file, dir, all)
	require.EqualError(t, err, "unpack "+file+": "+dir+" is not empty")
	assert.Equal(t, map[string]string{"mine": "-rw------- "}, contents(t, dir))
	require.NoError(t, os.Remove(dir+"/mine"))

	_, err = Extract(t.Context(), file, dir, Files{Dest: func(string) (string, bool) { return "../a", true }})
	require.ErrorContains(t, err, "path escapes from parent")
	assert.NoFileExists(t, filepath.Join(filepath.Dir(dir), "a"))
}

func TestExtractCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	file, dir := write(t, runtest.Bytes(t, runtest.Options{Files: map[string][]byte{"a": nil, "b": make([]byte, 1<<20), "c": nil}}))
	var asked []string
	_, err := Extract(ctx, file, dir, Files{Dest: func(name string) (string, bool) {
		if asked = append(asked, name); name == "b" {
			cancel(stop)
		}
		return name, true
	}})
	assert.Equal(t, []string{"a", "b"}, asked, "it stopped at once")
	require.ErrorIs(t, err, stop)
	assert.Empty(t, contents(t, dir))
}

// FuzzExtract unpacks any payload that comes with the right checksums. Most of
// what the fuzzer makes is no compressed stream: pack makes it one.
func FuzzExtract(f *testing.F) {
	members := map[string][]byte{"a": []byte("x"), "b/c": nil}
	links := []tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "b"},
		{Typeflag: tar.TypeReg, Name: "../up", Size: 1},
	}
	f.Add(true, runtest.Tar(f, members))
	f.Add(true, runtest.Tar(f, members, links...))
	f.Add(false, runtest.Tar(f, nil))
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		f.Add(false, runtest.Compress(f, compression, runtest.Tar(f, members)))
	}
	f.Fuzz(func(t *testing.T, pack bool, payload []byte) {
		if pack {
			payload = runtest.Compress(t, "zstd", payload)
		}
		file, dir := write(t, runtest.Bytes(t, runtest.Options{Payload: payload}))
		_, err := Extract(t.Context(), file, dir, all)
		got := contents(t, dir)
		if err != nil {
			assert.Empty(t, got)
		}
		for _, text := range got {
			assert.Regexp(t, "^-rw[x-]r-[x-]r-[x-] ", text)
		}
		list, err := os.ReadDir(filepath.Dir(dir))
		require.NoError(t, err)
		assert.Len(t, list, 2)
	})
}
