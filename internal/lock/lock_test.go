package lock

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian"
)

// sample is a lock file of format 1. It stays as it is when the format
// changes, to show that old locks still load.
const sample = "testdata/v2.lock"

func TestReadAndWrite(t *testing.T) {
	l, err := Read(sample)
	require.NoError(t, err)
	assert.Equal(t, "535.261.03", l.Driver)
	assert.Len(t, l.ByRole(Toolchain), 1)
	assert.Empty(t, l.ByRole(Kernel))
	want, err := os.ReadFile(sample)
	require.NoError(t, err)

	slices.Reverse(l.Inputs)
	slices.Reverse(l.Archives)
	path := filepath.Join(t.TempDir(), "mkp2pimg.lock")
	require.NoError(t, l.Write(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "the order in the file is canonical")
	assert.Equal(t, "NVIDIA-Linux-x86_64", l.Inputs[0].Name, "Write leaves its lock alone")
}

// TestReadOld reads the lock of version 1.
func TestReadOld(t *testing.T) {
	l, err := Read("testdata/v1.lock")
	require.NoError(t, err)
	assert.Equal(t, Version, l.Version)
	assert.Len(t, l.Inputs, 2)
	data, err := l.Marshal()
	require.NoError(t, err)
	again, err := Parse(data)
	require.NoError(t, err)
	assert.Equal(t, l, again)
}

func TestWriteRefusesFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mkp2pimg.lock")
	require.ErrorContains(t, (&Lock{Version: Version}).Write(path), "driver is empty")
	assert.NoFileExists(t, path)
}

func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	require.NoError(t, err)
	data, err := os.ReadFile(sample)
	require.NoError(t, err)
	validate := func(data []byte) error {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		require.NoError(t, err)
		return schema.Validate(doc)
	}
	require.NoError(t, validate(data))
	for _, role := range Roles {
		require.NoError(t, validate(bytes.Replace(data, []byte(Toolchain), []byte(role), 1)))
	}
	for old, fault := range faults {
		changed := bytes.Replace(data, []byte(old), []byte(fault.text), 1)
		require.NotEqual(t, data, changed, "%s is not in the sample", old)
		if fault.schema {
			assert.Error(t, validate(changed), "%s → %s", old, fault.text)
		}
	}
}

// faults are changes to the sample that make it invalid.
var faults = map[string]struct {
	text   string
	want   string // in the error of Parse
	schema bool   // whether the schema sees it
}{
	`"version": 2`:                 {`"version": 0`, "version is 0", true},
	`"535.261.03"`:                 {`""`, "driver is empty", true},
	`"6.12.90+deb12-amd64"`:        {`""`, "kernel is empty", true},
	`"suite": "bookworm",`:         {`"suite": "",`, "archive 0: suite is empty", true},
	`"suite": "bookworm-security"`: {`"suite": "bookworm"`, `archive "bookworm" occurs twice`, false},
	`"https://deb.debian.org/debian"`: {
		`"deb.debian.org"`, `archive "bookworm": mirror "deb.debian.org" is no`, true,
	},
	`"https://snapshot.debian.org/archive/debian"`: {`"x"`, `archive "bookworm": snapshot "x" is no`, true},
	`"2026-07-11T10:16:37Z"`:                       {`"0001-01-01T00:00:00Z"`, `archive "bookworm": date of its index is missing`, false},
	`"11`:                                          {`"x1`, `archive "bookworm": inrelease`, true},
	`"name": "gcc-12"`:                             {`"name": ""`, "input 1: name is empty", true},
	`"12.2.0-14+deb12u1"`:                          {`""`, `input toolchain "gcc-12": version is empty`, true},
	`"toolchain"`:                                  {`"toolbox"`, `input toolbox "gcc-12": unknown role`, true},
	`"pool/main`:                                   {`"/pool/main`, `input toolchain "gcc-12": path`, true},
	`"pool/contrib`:                                {`"../pool`, `input driver-source "nvidia-open-gpu-kernel-modules": path`, false},
	`"33`:                                          {`"3`, `input toolchain "gcc-12": sha256`, true},
	`19268852`:                                     {`0`, `input toolchain "gcc-12": size is 0`, true},
	`"4444`:                                        {`"x444`, `input driver-source "nvidia-open-gpu-kernel-modules": tree`, true},
	`"suite": "local"`:                             {`"suite": "else"`, `input firmware "NVIDIA-Linux-x86_64": its suite "else" is not`, false},
	`"suite": "github.com"`:                        {`"suite": "local"`, `archive 2: suite "local" is kept`, false},
	`"licence":`:                                   {`"license":`, `unknown field "license"`, true},
}

func TestParseNamesTheFaultyEntry(t *testing.T) {
	data, err := os.ReadFile(sample)
	require.NoError(t, err)
	for old, fault := range faults {
		_, err := Parse(bytes.Replace(data, []byte(old), []byte(fault.text), 1))
		assert.ErrorContains(t, err, fault.want, old)
	}
	_, err = Parse([]byte("hello"))
	require.ErrorContains(t, err, "not a lock file")
	_, err = Parse(data[:len(data)/2])
	require.ErrorContains(t, err, "not a lock file")
	_, err = Parse([]byte(`{"version": 3, "new": true}`))
	require.ErrorContains(t, err, "newer mkp2pimg")
	twice := strings.Replace(string(data), `"gcc-12"`, `"nvidia-open-gpu-kernel-modules"`, 1)
	_, err = Parse([]byte(strings.Replace(twice, "toolchain", "driver-source", 1)))
	require.ErrorContains(t, err, `input driver-source "nvidia-open-gpu-kernel-modules" occurs twice`)
}

func TestLockOfAnEmulator(t *testing.T) {
	data, err := os.ReadFile(sample)
	require.NoError(t, err)
	l, err := Parse(data)
	require.NoError(t, err)
	l.Driver, l.Kernel, l.Inputs = "", "", l.ByRole(Toolchain)
	_, err = l.Marshal()
	require.ErrorContains(t, err, "driver is empty")
	for i := range l.Inputs {
		l.Inputs[i].Role = Emulator
	}
	data, err = l.Marshal()
	require.NoError(t, err)
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	assert.NoError(t, schema.Validate(doc))
	_, err = Parse(data)
	assert.NoError(t, err)
}

func TestReadNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mkp2pimg.lock")
	_, err := Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("{}"), 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, path)
}

func TestFile(t *testing.T) {
	l, err := Read(sample)
	require.NoError(t, err)
	f, err := l.File(l.Inputs[0], nil)
	require.NoError(t, err)
	assert.Equal(t, "nvidia-open-gpu-kernel-modules_535.261.03.orig.tar.xz", f.Name)
	assert.Equal(t, int64(12521372), f.Size)
	assert.Equal(t, l.Inputs[0].SHA256, f.SHA256)
	assert.Equal(t, []string{
		"https://deb.debian.org/debian/" + l.Inputs[0].Path,
		"https://snapshot.debian.org/archive/debian/20260711T101637Z/" + l.Inputs[0].Path,
		"https://snapshot.debian.org/archive/debian/20260712T101637Z/" + l.Inputs[0].Path,
	}, f.URLs)

	f, err = l.File(l.Inputs[1], map[string]string{"bookworm-security": "file:///srv/mirror"})
	require.NoError(t, err)
	assert.Equal(t, []string{"file:///srv/mirror/" + l.Inputs[1].Path}, f.URLs)

	f, err = l.File(l.Inputs[2], nil)
	require.NoError(t, err)
	assert.Equal(t, "NVIDIA-Linux-x86_64-535.261.03.run", f.Name)
	assert.Empty(t, f.URLs, "it is a local file")

	_, err = l.File(Input{Role: Kernel, Name: "linux", Suite: "sid"}, nil)
	require.ErrorContains(t, err, `input kernel "linux": its suite "sid"`)
}

func TestFromDebian(t *testing.T) {
	o := &debian.Origin{
		Suite: debian.Suite{Name: "bookworm", Mirror: debian.DefaultMirror},
		Date:  time.Date(2026, 7, 11, 10, 16, 37, 0, time.UTC), InRelease: strings.Repeat("1", 64),
	}
	p := &debian.Package{
		Name: "gcc-12", Version: "12.2", Component: "main", Filename: "pool/gcc.deb",
		SHA256: strings.Repeat("2", 64), Size: 5, Origin: o,
	}
	s := &debian.Source{Name: "nvidia", Version: "535-1", Component: "contrib", Directory: "pool/n", Origin: o}
	orig := debian.SourceFile{Name: "nvidia_535.orig.tar.xz", SHA256: strings.Repeat("3", 64), Size: 6}
	l := &Lock{
		Version: Version, Driver: "535", Kernel: "6.12",
		Archives: []Archive{FromOrigin(o)},
		Inputs:   []Input{FromPackage(Toolchain, p), FromSource(DriverSource, s, orig)},
	}
	require.NoError(t, l.Validate())
	f, err := l.File(l.Inputs[0], nil)
	require.NoError(t, err)
	assert.Equal(t, p.File(), f)
	f, err = l.File(l.Inputs[1], nil)
	require.NoError(t, err)
	assert.Equal(t, s.File(orig), f)
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(sample)
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse(data)
		if err != nil {
			return
		}
		out, err := l.Marshal()
		require.NoError(t, err)
		again, err := Parse(out)
		require.NoError(t, err)
		l.Sort()
		require.Equal(t, l.Inputs, again.Inputs)
		for _, in := range l.Inputs {
			_, err := l.File(in, nil)
			require.NoError(t, err)
		}
	})
}
