package runfile

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"mkp2pimg/internal/decompress"

	"github.com/mikelolasagasti/xz"
)

// limits bound what a payload may hold.
type limits struct {
	members  int
	member   int64 // bytes of one
	unpacked int64 // bytes of all, with their tar headers
}

// payloadLimits is a few times what release 610.57.04 has: 1,189 members, the
// largest of 121 MB, 1.8 GB in all.
var payloadLimits = limits{members: 1 << 14, member: 1 << 30, unpacked: 8 << 30}

// Files says which members to take from a payload.
type Files struct {
	// Version is the driver release that the file must be of; "" for any.
	Version string
	// Dest says where below the directory a member goes, and whether it is
	// wanted at all. Names are clean: "libcuda.so.570.211.01".
	Dest func(name string) (dest string, ok bool)
	// Needed has patterns of path.Match. Each must match a member taken.
	Needed []string
}

// Extract writes members of the .run file at path file below dir, an empty
// directory, and checks the whole file: its release before anything else is
// read, its checksums in the same pass. If there is an error dir is left empty.
//
// Nothing is written outside dir. Only regular files are written, with their
// permission to be executed; a payload that has links out of it, devices, or
// names that lead outside is refused even where they are not wanted.
//
// In a second of an AMD EPYC core's time it reads 100 MB of a .run file that is
// compressed with zstd, 50 MB with gzip, 20 MB with xz (measured on files of 40
// to 170 MB), with less than 20 MB of memory.
func Extract(ctx context.Context, file, dir string, files Files) (h *Header, err error) {
	f, h, err := open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if list, err := fs.ReadDir(root.FS(), "."); err != nil {
		return nil, err
	} else if len(list) > 0 {
		return nil, fmt.Errorf("unpack %s: %s is not empty", file, dir)
	}
	if files.Version != "" {
		err = h.CheckDriver(files.Version)
	}
	if err == nil {
		err = extract(ctx, f, h, root, files, payloadLimits)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), empty(root))
	}
	return h, nil
}

// empty removes what is in root.
func empty(root *os.Root) error {
	list, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, entry := range list {
		errs = append(errs, root.RemoveAll(entry.Name()))
	}
	return errors.Join(errs...)
}

func extract(ctx context.Context, r io.ReaderAt, h *Header, root *os.Root, files Files, lim limits) error {
	sums := newDigests(h.Sums)
	if _, err := io.Copy(sums, io.NewSectionReader(r, h.Sums.From, h.Offset-h.Sums.From)); err != nil {
		return err
	}
	payload := contextReader{ctx, io.TeeReader(io.NewSectionReader(r, h.Offset, h.Size), sums)}
	x := extraction{root: root, files: files, lim: lim, seen: map[string]bool{}}
	damage, err := x.unpack(ctx, bufio.NewReaderSize(payload, 256<<10), h.Compression)
	if err != nil {
		return err
	}
	// What follows a damaged place has to be read for the checksums, which say
	// better than a decompressor what is wrong.
	if _, err := io.Copy(io.Discard, payload); err != nil {
		return err
	}
	if errors.Is(damage, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: its payload ends early", ErrTruncated)
	}
	if err := sums.check(); err != nil {
		if sum := new(ChecksumError); errors.As(err, &sum) {
			sum.Err = damage
		}
		return err
	}
	if damage != nil {
		return fmt.Errorf("%w, though its checksum is right: unpack its %s payload: %w", ErrFormat, h.Compression, damage)
	}
	return x.missing()
}

// extraction writes the wanted members of a payload.
type extraction struct {
	root  *os.Root
	files Files
	lim   limits

	in    countingReader  // unpacked payload
	seen  map[string]bool // members by clean name: whether it is a directory
	size  int64           // of all members' content
	taken []string
}

// unpack writes the wanted members. Damage is what can't be read of the
// payload; any other error is not the stream's fault.
func (x *extraction) unpack(ctx context.Context, packed *bufio.Reader, compression string) (damage, err error) {
	z, err := decompress.NewReader(packed, decompress.Format(compression))
	if err != nil {
		return x.blame(err)
	}
	defer z.Close()
	x.in = countingReader{r: contextReader{ctx, z}, limit: x.lim.unpacked}
	t := tar.NewReader(&x.in)
	for {
		hdr, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return x.blame(err)
		}
		if err := x.member(hdr, t); err != nil {
			return x.blame(err)
		}
	}
	// The checks of a stream come at its end, behind the padding of the archive.
	_, err = io.Copy(io.Discard, &x.in)
	return x.blame(err)
}

// blame tells errors of reading the payload from those that have another cause.
// A context that has ended needs no case: the payload can't be read on then.
func (x *extraction) blame(err error) (damage, other error) {
	var member *MemberError
	var file *fs.PathError
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &member), errors.As(err, &file), errors.Is(err, ErrFormat):
		return nil, err
	case errors.Is(err, io.EOF), // of a stream that ends before its header does
		errors.Is(err, xz.ErrBuf): // which it only says when it asks for more and there is none
		err = io.ErrUnexpectedEOF
	}
	return err, nil
}

// member checks one member and writes it if it is wanted.
func (x *extraction) member(hdr *tar.Header, content io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil // describes the members that follow
	}
	name, reason := x.check(hdr)
	if reason == "" && hdr.Typeflag != tar.TypeDir {
		if dest, ok := x.files.Dest(name); ok {
			if hdr.Typeflag == tar.TypeReg {
				x.taken = append(x.taken, name)
				return x.write(dest, hdr, content)
			}
			reason = "is a link where a file is wanted"
		}
	}
	if reason != "" {
		return &MemberError{Name: hdr.Name, Offset: x.in.n, Reason: reason}
	}
	return nil
}

// check returns the clean name of a member, or why it is refused.
func (x *extraction) check(hdr *tar.Header) (name, reason string) {
	name = path.Clean(hdr.Name)
	if !isLocal(hdr.Name) {
		return "", "its name leads out of the archive"
	}
	dir, seen := x.seen[name]
	isDir := hdr.Typeflag == tar.TypeDir
	switch {
	case seen && (!dir || !isDir): // tar repeats directories
		return "", "its name comes twice"
	case len(x.seen) >= x.lim.members:
		return "", fmt.Sprintf("the archive has more than %d members", x.lim.members)
	case hdr.Size > x.lim.member:
		return "", fmt.Sprintf("it has %d bytes, and more than %d are not expected", hdr.Size, x.lim.member)
	case hdr.Size > x.lim.unpacked-x.size:
		return "", fmt.Sprintf("all members together have more than %d bytes", x.lim.unpacked)
	}
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if dir, seen := x.seen[parent]; seen && !dir {
			return "", parent + " is no directory"
		}
	}
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeDir:
	case tar.TypeSymlink:
		if !isLocalTarget(name, hdr.Linkname) {
			return "", fmt.Sprintf("it is a link to %q, which is outside of the archive", hdr.Linkname)
		}
	case tar.TypeLink:
		if !isLocal(hdr.Linkname) {
			return "", fmt.Sprintf("it is a link to %q, which is outside of the archive", hdr.Linkname)
		}
	default:
		return "", fmt.Sprintf("it is a device, a pipe or of another kind (%q)", hdr.Typeflag)
	}
	x.seen[name] = isDir
	x.size += hdr.Size
	return name, ""
}

// isLocal accepts names such as "./a/b". One that goes up, even if it comes
// back, is no honest archive's.
func isLocal(name string) bool {
	return name != "" && !strings.ContainsRune(name, 0) && fs.ValidPath(path.Clean(name)) &&
		!slices.Contains(strings.Split(name, "/"), "..")
}

// isLocalTarget says whether a symbolic link stays in the archive.
func isLocalTarget(name, target string) bool {
	return !path.IsAbs(target) && fs.ValidPath(path.Join(path.Dir(name), target))
}

func (x *extraction) write(dest string, hdr *tar.Header, content io.Reader) error {
	if err := x.root.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if hdr.FileInfo().Mode()&0o100 != 0 {
		mode = 0o755
	}
	f, err := x.root.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// missing says which needed members were not there.
func (x *extraction) missing() error {
	var lacks []string
	for _, pattern := range x.files.Needed {
		if !slices.ContainsFunc(x.taken, func(name string) bool { ok, _ := path.Match(pattern, name); return ok }) {
			lacks = append(lacks, pattern)
		}
	}
	if len(lacks) > 0 {
		return &MissingError{lacks}
	}
	return nil
}

// countingReader counts what is read of r, and fails beyond limit bytes.
type countingReader struct {
	r        io.Reader
	n, limit int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n > c.limit {
		return n, fmt.Errorf("%w: its payload has more than %d bytes when unpacked", ErrFormat, c.limit)
	}
	return n, err
}
