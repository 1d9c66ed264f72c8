package initramfs

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
)

// PackOptions say how to pack a tree.
type PackOptions struct {
	Epoch time.Time       // modification time of every file: SOURCE_DATE_EPOCH
	Done  func(raw int64) // called now and then with the uncompressed bytes written so far; may be nil

	// First chooses files for an archive of their own, which comes first: the kernel
	// unpacks one after the other. May be nil.
	First func(path string) bool
}

// Compression. The image holds two builds of the same 22 MB module a module's
// length apart, so the window must reach back over one of them: the second then
// costs next to nothing. The kernel takes windows up to 128 MiB
// (lib/decompress_unzstd.c, ZSTD_WINDOWSIZE_MAX) and allocates one while it
// unpacks.
//
// The level is chosen by the time to build and to boot. Of an image of 245.3 MB for
// driver 535.261.03, on 2 cores:
//
//	fastest   95.8 MB in  0.7 s, unpacked by the kernel in 2.6 to 4.6 s
//	default   92.8 MB in  0.9 s,                           2.7 to 3.2 s
//	better    86.8 MB in  1.9 s,                           2.8 to 3.7 s
//	best      79.4 MB in 11.1 s,                           2.7 to 3.4 s
//
// (three boots each in QEMU by TCG). Unpacking does not depend on the level; what
// firmware loads at every boot, often from a BMC's slow virtual drive, does. The best
// level saves almost as much again as better does over fastest, for six times the
// time of better in every build.
//
// The encoder searches for matches in one block while it codes and writes the one
// before; more parallel than that takes frames of their own, which can't refer to
// each other.
const (
	level  = zstd.SpeedBetterCompression
	window = 32 << 20
)

// Sizes are the bytes of a packed tree.
type Sizes struct {
	Raw    int64 `json:"raw"`    // of the cpio archive
	Packed int64 `json:"packed"` // after zstd
	// First is how many of the packed bytes are the archive of the files that were
	// chosen to come first.
	First int64 `json:"first,omitempty"`
}

// maxSize is the largest file newc can hold: its size field is 8 hex digits.
const maxSize = 1<<32 - 1

// Pack writes the tree as a zstd-compressed newc cpio archive, the form the
// kernel unpacks as its initramfs, or as two of them. Owner and group are root,
// entries are sorted by path and numbered in that order, no two share an inode.
//
// The checksum of the compressed frame lets the kernel notice a damaged
// download.
func (t *Tree) Pack(w io.Writer, opt PackOptions) (Sizes, error) {
	var total Sizes
	archives := [][]*Entry{t.Entries()}
	if opt.First != nil {
		first, rest := split(t.Entries(), opt.First)
		archives = [][]*Entry{first, rest}
	}
	for _, entries := range archives {
		total.First = total.Packed // of the last but one
		raw, packed, err := packArchive(w, entries, opt, total.Raw)
		if err != nil {
			return Sizes{}, fmt.Errorf("pack the image: %w", err)
		}
		total.Raw += raw
		total.Packed += packed
	}
	return total, nil
}

// split takes files out, with the directories that lead to them; the rest keeps
// all directories.
func split(entries []*Entry, chosen func(path string) bool) (first, rest []*Entry) {
	needed := map[string]bool{}
	for _, e := range entries {
		if e.Mode.IsDir() || !chosen(e.Path) {
			continue
		}
		for name := e.Path; name != "/"; name = path.Dir(name) {
			needed[name] = true
		}
	}
	for _, e := range entries {
		if needed[e.Path] {
			first = append(first, e)
		}
		if e.Mode.IsDir() || !needed[e.Path] {
			rest = append(rest, e)
		}
	}
	return first, rest
}

// packArchive writes one archive. before is the size of those before it.
func packArchive(w io.Writer, entries []*Entry, opt PackOptions, before int64) (raw, packed int64, err error) {
	out := &counter{w: w}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(level), zstd.WithWindowSize(window), zstd.WithEncoderCRC(true))
	if err != nil {
		return 0, 0, err
	}
	in := &counter{w: z}
	if opt.Done != nil {
		in.report = func(n int64) { opt.Done(before + n) }
	}
	if err := writeCPIO(in, entries, opt.Epoch); err != nil {
		return 0, 0, errors.Join(err, z.Close())
	}
	if err := z.Close(); err != nil {
		return 0, 0, err
	}
	return in.n, out.n, nil
}

func writeCPIO(w io.Writer, entries []*Entry, epoch time.Time) error {
	buf := bufio.NewWriterSize(w, 1<<20)
	c := cpio.NewWriter(buf)
	for i, e := range entries {
		if err := writeEntry(c, e, int64(i+1), epoch); err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	return buf.Flush()
}

// writeEntry leaves Header.Checksum zero: the library would turn every later
// header of the process into the crc variant otherwise.
func writeEntry(c *cpio.Writer, e *Entry, inode int64, epoch time.Time) error {
	h := &cpio.Header{Name: e.Path[1:], Mode: cpio.FileMode(e.Mode.Perm()), ModTime: epoch, Inode: inode, Links: 1}
	switch {
	case e.Mode.IsDir():
		h.Mode |= cpio.TypeDir
		h.Links = 2
		return c.WriteHeader(h)
	case e.Link != "":
		h.Mode |= cpio.TypeSymlink
		h.Size = int64(len(e.Link))
		if err := c.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.WriteString(c, e.Link)
		return err
	}
	if e.Size > maxSize {
		return fmt.Errorf("%d bytes are too many for a cpio archive, which holds files of up to %d", e.Size, int64(maxSize))
	}
	h.Mode |= cpio.TypeReg
	h.Size = e.Size
	if err := c.WriteHeader(h); err != nil {
		return err
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(c, sum), r)
	if err != nil && !errors.Is(err, cpio.ErrWriteTooLong) {
		return err
	}
	if err != nil || hex.EncodeToString(sum.Sum(nil)) != e.SHA256 {
		return fmt.Errorf("%s changed since it was added to the image", e.host)
	}
	return nil
}

// counter counts what passes through to w.
type counter struct {
	w      io.Writer
	n      int64
	report func(int64)
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	if c.report != nil {
		c.report(c.n)
	}
	return n, err
}
