package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/imagestest"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/sandbox"
)

// medium makes images with the boot loaders unpacked in MKP2PIMG_LOADERS, or with
// others that are none.
func medium(t *testing.T) Medium {
	t.Helper()
	if root := os.Getenv("MKP2PIMG_LOADERS"); root != "" {
		return Medium{Loaders: sandbox.Root{Dir: root}}
	}
	root := t.TempDir()
	for _, name := range []string{systemdBoot, gptMBR, biosModules + "/menu.c32", biosModules + "/libutil.c32"} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("loader "+filepath.Base(name)), 0o600))
	}
	nothing := func(context.Context, string, int64) error { return nil }
	return Medium{Loaders: sandbox.Root{Dir: root}, Install: nothing}
}

// sample writes an image and returns its disk image.
func sample(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	_, err := imagestest.Netboot(t, medium(t)).Write(t.Context(), dir)
	require.NoError(t, err)
	return filepath.Join(dir, Name)
}

func TestMake(t *testing.T) {
	path := sample(t)
	c, err := OpenContents(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "535.261.03", c.Manifest.Driver)
	var sum int64
	for _, p := range c.Parts {
		assert.Positive(t, p.Size, p.Name)
		sum += p.Size
	}
	assert.Equal(t, c.Size, sum, "the parts are the whole")
	for _, a := range c.Manifest.Artifacts {
		assert.NotEqual(t, Name, a.Name, "an image can't have its own checksum")
	}
	outer, err := images.Open(filepath.Dir(path))
	require.NoError(t, err)
	last := outer.Manifest.Artifacts[len(outer.Manifest.Artifacts)-2]
	assert.Equal(t, Name, last.Name)
	assert.Equal(t, c.Size, last.Size)
	t.Logf("sha256 %s", last.SHA256) // to compare with that of another user
	sound(t, path)
}

// sound has other programs judge an image, as far as they are installed.
func sound(t *testing.T, path string) {
	t.Helper()
	d, err := Open(path)
	require.NoError(t, err)
	defer d.Close()
	out := tool(t, "sgdisk", "-v", path)
	assert.Contains(t, out, "No problems found")
	tool(t, "sfdisk", "--verify", path)
	for _, r := range []region{d.at.boot, d.at.report} {
		part := filepath.Join(t.TempDir(), "part")
		f, err := os.Create(part)
		require.NoError(t, err)
		_, err = io.Copy(f, io.NewSectionReader(d.f, r.start, r.size))
		require.NoError(t, errors.Join(err, f.Close()))
		out := tool(t, "fsck.fat", "-nv", part)
		assert.NotContains(t, out, "ifference")
		assert.NotContains(t, out, "irty")
		require.NoError(t, os.Remove(part))
	}
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name) // not in the PATH of an ordinary user
	}
	if err != nil {
		t.Logf("%s is not installed", name)
		return "No problems found"
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	return string(out)
}

// TestReproducible makes the image in another directory, another time zone and at
// another time.
func TestReproducible(t *testing.T) {
	first := digest(t, sample(t))
	local := time.Local
	defer func() { time.Local = local }()
	time.Local = time.FixedZone("far", 14*3600)
	time.Sleep(2 * time.Second) // FAT counts in steps of two
	assert.Equal(t, first, digest(t, sample(t)))
}

func digest(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

func TestMakeFails(t *testing.T) {
	broken := medium(t)
	broken.Install = func(context.Context, string, int64) error { return errors.New("no syslinux") }
	dir := filepath.Join(t.TempDir(), "out")
	_, err := imagestest.Netboot(t, broken).Write(t.Context(), dir)
	require.ErrorContains(t, err, "disk.img: no syslinux")
	assert.NoDirExists(t, dir)

	broken.Loaders.Dir = t.TempDir()
	_, err = imagestest.Netboot(t, broken).Write(t.Context(), dir)
	require.ErrorContains(t, err, "systemd-bootx64.efi: no such file")

	broken = medium(t)
	ctx, cancel := context.WithCancel(t.Context())
	broken.Install = func(context.Context, string, int64) error { cancel(); return nil }
	_, err = imagestest.Netboot(t, broken).Write(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
	assert.NoDirExists(t, dir)
}

func TestDamaged(t *testing.T) {
	path := sample(t)
	d, err := Open(path)
	require.NoError(t, err)
	boot, report := d.at.boot, d.at.report
	var kernel int64
	for _, e := range d.files {
		if e.path == kernelPath {
			runs, err := d.boot.runs(e.first)
			require.NoError(t, err)
			kernel = runs[0].start + 1000
		}
	}
	require.NoError(t, d.Close())
	tests := map[string]struct {
		at   int64
		want string
	}{
		"table header":    {sector + 40, "partition table: its checksum is wrong"},
		"table entries":   {2*sector + 130, "partition table: its checksum is wrong"},
		"entries counted": {sector + 80, "not of the form that this program writes"},
		"no FAT":          {boot.start + 82, "boot partition: there is no FAT32 file system"},
		"cluster size":    {boot.start + 13, "not a file system of this program"},
		"FAT":             {boot.start + 32*sector + 8, "boot partition: /: the chain of cluster 2"},
		"kernel":          {kernel, "vmlinuz: sha256 is"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			defer f.Close()
			var b [1]byte
			_, err = f.ReadAt(b[:], tt.at)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[0] ^ 0x55}, tt.at)
			require.NoError(t, err)
			_, err = OpenContents(t.Context(), path)
			var damaged *images.DamagedError
			require.ErrorAs(t, err, &damaged)
			assert.ErrorContains(t, err, tt.want)
			_, err = f.WriteAt(b[:], tt.at)
			require.NoError(t, err)
		})
	}
	require.NoError(t, os.Truncate(path, report.end()+8*mib))
	_, err = OpenContents(t.Context(), path)
	require.NoError(t, err, "a stick that is larger than the image, which dd wrote")
	require.NoError(t, os.Truncate(path, report.end()))
	_, err = Open(path)
	require.ErrorContains(t, err, "a copy may have been cut short")
	_, err = Open(filepath.Join(filepath.Dir(path), images.ScriptName))
	require.ErrorIs(t, err, images.ErrOtherFormat)
}

// TestMoved opens a disk whose partitions have changed places: on a small stick
// the first would be beyond its end.
func TestMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "moved")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	at := partitions{disk: 80 * mib, boot: region{36 * mib, 40 * mib}, report: region{mib, 35 * mib}}
	require.NoError(t, f.Truncate(at.disk))
	require.NoError(t, at.table(uuid.NewString(), uuid.NewString(), uuid.NewString()).Write(f, at.disk))
	_, err = Open(path)
	require.ErrorContains(t, err, "are not where this program has them")
}

func TestGrow(t *testing.T) {
	d, err := Open(sample(t))
	require.NoError(t, err)
	defer d.Close()
	for _, size := range []int64{d.at.disk, 512<<20 - 5*sector, 64 << 30} {
		g, err := d.Grow(size)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "stick")
		f, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(size))
		var written int64
		for _, at := range g.Chunks() {
			p := make([]byte, min(Chunk, size-at))
			_, err := g.ReadAt(p, at)
			require.NoError(t, err)
			_, err = f.WriteAt(p, at)
			require.NoError(t, err)
			written += int64(len(p))
		}
		require.NoError(t, f.Close())
		assert.Less(t, written, int64(200<<20), "only what matters")
		stick, err := Open(path)
		require.NoError(t, err)
		require.NoError(t, stick.Verify(t.Context()))
		assert.Equal(t, d.table.GUID, stick.table.GUID)
		assert.Greater(t, stick.at.report.size, min(size, maxReportSize)-d.at.report.start-3*mib)
		v, err := openVolume(stick.f, stick.at.report)
		require.NoError(t, err)
		require.NoError(t, v.walk(func(entry) error { return nil }))
		require.NoError(t, stick.Close())
		if size <= 512<<20 {
			sound(t, path)
		}
		require.NoError(t, os.Remove(path))
	}
	_, err = d.Grow(60 << 20)
	var small *TooSmallError
	require.ErrorAs(t, err, &small)
	assert.Equal(t, d.at.disk, small.Image)
}

func TestSoundSizes(t *testing.T) {
	// Sizes in MiB of which go-diskfs v1.9.4 makes what fsck.fat rejects.
	for _, bad := range []int64{8, 32, 64, 129, 194, 259, 1018, 4096} {
		assert.False(t, isSound(bad*mib), "%d MiB", bad)
		assert.Greater(t, soundFAT(bad*mib), bad*mib)
	}
	for _, good := range []int64{34, 63, 128, 512, 1024} {
		assert.Equal(t, good*mib, soundFAT(good*mib), "%d MiB", good)
	}
	assert.Equal(t, int64(35*mib), soundFAT(34*mib+1))
}

func TestMenus(t *testing.T) {
	m := &images.Manifest{Product: images.Product{Name: "mkp2pimg", Version: "0.1.0"}, CommandLine: images.DefaultCommandLine}
	files := loaderFiles(m)
	for _, name := range []string{"/loader/loader.conf", "/loader/entries/full.conf", "/syslinux/syslinux.cfg"} {
		golden.Equal(t, "testdata/"+filepath.Base(name), files[name])
	}
	var plans []params.Params
	for _, p := range images.Plans {
		got, warnings := params.Parse(parameters(m, p))
		assert.Empty(t, warnings, p.ID)
		assert.NotContains(t, plans, got, "%s is another entry again", p.ID)
		plans = append(plans, got)
		assert.Contains(t, string(files["/loader/entries/"+p.ID+".conf"]), p.Title)
		assert.Less(t, len(p.Title), 76, "%s is wider than a menu", p.ID)
	}
}

func TestDOSTime(t *testing.T) {
	for text, want := range map[string][4]byte{
		"1970-01-01T00:00:00Z":      {0, 0, 0x21, 0}, // the first that FAT knows is of 1980
		"2023-11-14T22:13:20Z":      {0xaa, 0xb1, 0x6e, 0x57},
		"2023-11-15T00:13:20+02:00": {0xaa, 0xb1, 0x6e, 0x57},
	} {
		at, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		assert.Equal(t, want, dosTime(at), text)
	}
}

// overlay is a file with some bytes changed: offset (3 bytes) and value each.
type overlay struct {
	r       io.ReaderAt
	changes []byte
}

func (o overlay) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.r.ReadAt(p, off)
	for c := o.changes; len(c) >= 4; c = c[4:] {
		if at := int64(c[0])<<16 + int64(c[1])<<8 + int64(c[2]) + mib - off; at >= 0 && at < int64(n) {
			p[at] = c[3]
		}
	}
	return n, err
}

// TestHugeFAT opens a file system that says it is of 2 TiB.
func TestHugeFAT(t *testing.T) {
	m := &memory{size: 80 * mib, chunks: map[int64][]byte{}}
	_, err := format(m, region{mib, 34 * mib}, bootName)
	require.NoError(t, err)
	for at, v := range map[int64]uint32{32: 1<<32 - 1, 36: 1 << 25} { // sectors; those of a FAT
		_, err := m.WriteAt(binary.LittleEndian.AppendUint32(nil, v), mib+at)
		require.NoError(t, err)
	}
	_, err = openVolume(m, region{mib, 1 << 41})
	require.ErrorContains(t, err, "clusters, but a FAT of 33554432 sectors")
}

// FuzzVolume reads file systems of which some bytes are wrong.
func FuzzVolume(f *testing.F) {
	dir := f.TempDir()
	m := &memory{size: 80 * mib, chunks: map[int64][]byte{}}
	fs, err := format(m, region{mib, 34 * mib}, bootName)
	require.NoError(f, err)
	require.NoError(f, fs.Mkdir("/loader/entries"))
	require.NoError(f, fs.writeFile("/loader/entries/"+strings.Repeat("long", 10)+".conf", []byte("options")))
	require.NoError(f, os.WriteFile(filepath.Join(dir, "big"), bytes.Repeat([]byte{1}, 5000), 0o600))
	require.NoError(f, fs.copyFile("/big", filepath.Join(dir, "big")))
	f.Add([]byte{0, 0, 13, 8})                           // cluster size
	f.Add([]byte{0, 0x40, 8, 2})                         // the root directory is a ring
	f.Add([]byte{0, 0, 44, 0, 0, 0, 36, 1, 0, 0, 32, 9}) // root, length of the FAT, sectors
	f.Fuzz(func(t *testing.T, changes []byte) {
		v, err := openVolume(overlay{m, changes}, region{mib, 34 * mib})
		if err != nil {
			return
		}
		_ = v.walk(func(e entry) error {
			r, err := v.open(e)
			if err == nil && !e.dir {
				if n, err := io.Copy(io.Discard, r); err == nil {
					assert.Equal(t, e.size, n, e.path)
				}
			}
			return nil // on to the next file
		})
	})
}
