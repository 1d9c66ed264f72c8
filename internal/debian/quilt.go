package debian

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// AddDebian puts the debian/ folder of a source package's debian tarball
// (format "3.0 (quilt)") into the unpacked upstream source at dir and applies
// its patches. It returns the names of the patches, in their order.
func AddDebian(tarball, dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// dpkg-source(1): the tarball replaces upstream's own debian folder.
	if err := root.RemoveAll("debian"); err != nil {
		return nil, err
	}
	if err := UnpackTar(tarball, dir, UnpackOptions{}); err != nil {
		return nil, err
	}
	return applySeries(root)
}

const patchDir = "debian/patches"

// applySeries applies the patches listed in debian/patches/series.
func applySeries(root *os.Root) ([]string, error) {
	data, err := root.ReadFile(patchDir + "/series")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	series, err := parseSeries(data)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range series {
		patch, err := root.ReadFile(path.Join(patchDir, s.name))
		if err != nil {
			return nil, fmt.Errorf("quilt series: %w", err)
		}
		if err := applyPatch(root, patch, s.strip); err != nil {
			return nil, fmt.Errorf("patch %s: %w", s.name, err)
		}
		names = append(names, s.name)
	}
	return names, nil
}

// seriesEntry is one patch of a series. strip is the number of leading
// elements of its file names to drop.
type seriesEntry struct {
	name  string
	strip int
}

func parseSeries(data []byte) ([]seriesEntry, error) {
	var all []seriesEntry
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		e := seriesEntry{words[0], 1}
		switch options := words[1:]; {
		case !fs.ValidPath(e.name):
			return nil, fmt.Errorf("quilt series: bad patch name %q", e.name)
		case len(options) == 0 || slices.Equal(options, []string{"-p1"}):
		case slices.Equal(options, []string{"-p0"}):
			e.strip = 0
		default:
			return nil, fmt.Errorf("quilt series: patch %s: options %q are not supported", e.name, options)
		}
		all = append(all, e)
	}
	return all, lines.Err()
}

// applyPatch changes the files below root. Hunks may have moved, as patch(1)
// allows, but their context must match.
func applyPatch(root *os.Root, patch []byte, n int) error {
	if bytes.HasPrefix(patch, []byte("diff --git ")) || bytes.Contains(patch, []byte("\ndiff --git ")) {
		n = 0 // the parser has dropped a/ and b/ already
	}
	files, _, err := gitdiff.Parse(bytes.NewReader(patch))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := applyFile(root, f, n); err != nil {
			return err
		}
	}
	return nil
}

func applyFile(root *os.Root, f *gitdiff.File, n int) error {
	from, to, err := patchNames(root, f, n)
	if err != nil {
		return err
	}
	var old []byte
	mode := fs.FileMode(0o644)
	if !f.IsNew {
		if old, err = root.ReadFile(from); err != nil {
			return err
		}
		info, err := root.Stat(from)
		if err != nil {
			return err
		}
		mode = info.Mode()
	}
	if f.NewMode != 0 {
		mode = f.NewMode
	}
	if err := relocate(f.TextFragments, old); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	var changed bytes.Buffer
	if err := gitdiff.Apply(&changed, bytes.NewReader(old), f); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if f.IsDelete || f.IsRename {
		if err := root.Remove(from); err != nil {
			return err
		}
	}
	if f.IsDelete {
		return nil
	}
	if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	if err := root.WriteFile(to, changed.Bytes(), mode.Perm()); err != nil {
		return err
	}
	return root.Chmod(to, mode.Perm())
}

// patchNames returns the file that a patch reads and the one that it writes.
// Without git's header the names before and after may be of different trees
// ("x.orig/f", "x/f"), and only one of them the file's.
func patchNames(root *os.Root, f *gitdiff.File, n int) (from, to string, err error) {
	from, okFrom := strip(f.OldName, n)
	to, okTo := strip(f.NewName, n)
	switch {
	case f.IsNew:
		okFrom = okTo
	case f.IsDelete:
		okTo = okFrom
	case !f.IsRename && !f.IsCopy && from != to:
		if _, err := root.Stat(to); err == nil {
			from = to
		}
		to = from
	}
	if !okFrom || !okTo {
		return "", "", fmt.Errorf("file name %q or %q is too short for -p%d", f.OldName, f.NewName, n)
	}
	return from, to, nil
}

// relocate finds where each hunk fits in the old text, nearest to where it
// says, and corrects its position.
func relocate(hunks []*gitdiff.TextFragment, old []byte) error {
	lines := slices.Collect(strings.Lines(string(old)))
	next, moved := int64(0), int64(0)
	for i, h := range hunks {
		if h.OldLines == 0 {
			continue
		}
		var want []string
		for _, l := range h.Lines {
			if l.Old() {
				want = append(want, l.Line)
			}
		}
		expected := h.OldPosition - 1 + moved
		at, ok := findLines(lines, want, next, expected)
		if !ok {
			return fmt.Errorf("hunk %d (%s) fits nowhere", i+1, strings.TrimSpace(h.Header()))
		}
		moved += at - expected
		next = at + int64(len(want))
		h.OldPosition = at + 1
	}
	return nil
}

// findLines returns the index at or after first, nearest to expected, at
// which lines has want.
func findLines(lines, want []string, first, expected int64) (int64, bool) {
	last := int64(len(lines) - len(want))
	fits := func(at int64) bool {
		return at >= first && at <= last && slices.Equal(lines[at:at+int64(len(want))], want)
	}
	expected = max(first, min(expected, last))
	for d := int64(0); d <= last-first; d++ {
		if fits(expected + d) {
			return expected + d, true
		}
		if fits(expected - d) {
			return expected - d, true
		}
	}
	return 0, false
}
