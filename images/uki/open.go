package uki

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"os"

	"mkp2pimg/images"
)

// maxDocuments bounds the documents that are read into memory.
const maxDocuments = 256 << 20

// OpenContents reads, verifies and describes the unified kernel image at a path.
// The error is [images.ErrOtherFormat] if it is no EFI program, a
// *[images.DamagedError], or that of reading. A signature is not verified, since
// who it is trusted by is firmware's to say; that there is one is told.
func OpenContents(ctx context.Context, name string) (*images.Contents, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var magic [2]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil || string(magic[:]) != "MZ" {
		return nil, images.ErrOtherFormat
	}
	c, err := read(ctx, f)
	var failed *os.PathError
	if err != nil && ctx.Err() == nil && !errors.As(err, &failed) {
		err = &images.DamagedError{Path: name, Err: err}
	}
	return c, err
}

func read(ctx context.Context, f *os.File) (*images.Contents, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	program, err := pe.NewFile(f)
	if err != nil {
		return nil, err
	}
	find := func(name string) (*io.SectionReader, error) {
		s := program.Section(name)
		if s == nil {
			return nil, fmt.Errorf("no section %s: it is no image of %s", name, images.ProductName)
		}
		if s.VirtualSize > s.Size || int64(s.Offset)+int64(s.Size) > st.Size() {
			return nil, fmt.Errorf("section %s goes beyond the end of the file: it may have been cut short", name)
		}
		return io.NewSectionReader(f, int64(s.Offset), int64(s.VirtualSize)), nil
	}
	docs, err := find(documentsSection)
	if err != nil {
		return nil, err
	}
	c := &images.Contents{Format: "uki", Size: st.Size()}
	if c.Documents, err = unpack(docs); err != nil {
		return nil, fmt.Errorf("section %s: %w", documentsSection, err)
	}
	if c.Manifest, err = images.ReadManifest(bytes.NewReader(c.Documents[images.ManifestName])); err != nil {
		return nil, err
	}
	files := map[string]string{images.KernelName: kernelSection, images.InitrdName: initrdSection}
	err = images.CheckFiles(ctx, c.Documents[images.SumsName], func(name string) (io.Reader, error) {
		if section, ok := files[name]; ok {
			return find(section)
		}
		if data, ok := c.Documents[name]; ok {
			return bytes.NewReader(data), nil
		}
		return nil, errors.New("it is missing")
	})
	if err != nil {
		return nil, err
	}
	c.Parts = parts(program, st.Size())
	return c, nil
}

// unpack is the inverse of pack.
func unpack(r io.Reader) (map[string][]byte, error) {
	documents := map[string][]byte{}
	left := int64(maxDocuments)
	for t := tar.NewReader(io.LimitReader(r, maxDocuments)); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		if left -= h.Size; left < 0 { // a sparse file may be larger than its archive
			return nil, fmt.Errorf("%s: has %d bytes", h.Name, h.Size)
		}
		if documents[h.Name], err = io.ReadAll(t); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func parts(program *pe.File, size int64) []images.Part {
	names := map[string]string{
		kernelSection: images.KernelName, initrdSection: images.InitrdName, documentsSection: "manifest and other documents",
	}
	var list []images.Part
	rest := size
	if optional, ok := program.OptionalHeader.(*pe.OptionalHeader64); ok {
		if n := int64(optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY].Size); n > 0 {
			list = append(list, images.Part{Name: "signature", Size: n})
			rest -= n
		}
	}
	for _, s := range program.Sections {
		if name, ok := names[s.Name]; ok {
			list = append(list, images.Part{Name: name, Size: int64(s.Size)})
			rest -= int64(s.Size)
		}
	}
	return append(list, images.Part{Name: "boot stub and parameters", Size: rest})
}
