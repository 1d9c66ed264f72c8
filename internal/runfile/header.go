// Package runfile reads NVIDIA's .run installers, which are makeself archives,
// without running any of their code.
//
// # Layout of NVIDIA's files
//
// A shell script with a payload behind it. Measured on the file of release
// 610.57.04: 463,025,450 bytes, of which 160,635 are the script; 1,189 members,
// 1,808,865,280 bytes unpacked. "Makeself 1.6.0-nv4", which release 440 has
// among its members, writes the same.
//
//	1     #! /bin/sh
//	2     CRCsum=1234567890                     POSIX cksum, decimal
//	3     MD5=0123456789abcdef0123456789abcdef  all zeros: none
//	4     skip=1022                             the payload's first line, counted from 1
//	5-6   skip_decompress=, size_decompress=    lines of an embedded decompressor
//	7-    label="NVIDIA Accelerated Graphics Driver for Linux-x86_64 610.57.04"
//	      version_string=610.57.04
//	      pkg_version=, script=./nvidia-installer
//	      targetdir=NVIDIA-Linux-x86_64-610.57.04
//	      scriptargs="", keep=n, …, TARGET_OS="Linux", TARGET_ARCH="x86_64"
//
// Both checksums cover line 4 up to the end of the file. The embedded
// decompressor is a program, so a line of the script need not be text.
//
// The payload is one stream up to the end of the file, of gzip, xz or zstd; xz
// streams are made without integrity checks of their own ("xz -C none"). It
// holds a tar archive with names such as "./libcuda.so.610.57.04",
// "./nvidia-smi" and "./firmware/gsp_ga10x.bin".
//
// # Layout of other makeself archives
//
// Makeself 2.4.5 quotes all values, skip is the number of lines before
// the payload, and CRCsum, MD5 and SHA (SHA-256) cover the payload alone, whose
// size is filesizes.
package runfile

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Limits of what is accepted, well above any file seen: see the package's
// documentation.
const (
	maxVariables = 1 << 20  // bytes that are searched for the script's variables
	maxScript    = 16 << 20 // bytes before the payload
)

// Header is what the script of a .run file says about its payload.
type Header struct {
	Label     string // "NVIDIA Accelerated Graphics Driver for Linux-x86_64 570.211.01"
	Version   string // driver release, "570.211.01"; "" in archives that are not NVIDIA's
	Script    string // what the installer runs, "./nvidia-installer"
	TargetDir string // "NVIDIA-Linux-x86_64-570.211.01"
	OS, Arch  string // "Linux", "x86_64"; "" in archives that are not NVIDIA's

	Offset      int64  // of the payload, in bytes
	Size        int64  // of the payload, in bytes
	Compression string // "gzip", "xz" or "zstd"
	Sums        Sums
}

// Sums are the checksums that a .run file carries of itself. They prove that it
// came whole, not that it came from NVIDIA.
type Sums struct {
	From   int64  // first byte that they cover; the last is the file's last
	CRC    string // POSIX cksum, decimal; "" if there is none
	MD5    string // lower-case hexadecimal; "" if there is none
	SHA256 string // lower-case hexadecimal; "" if there is none
}

// ReadHeader reads the header of a .run file of size bytes. It does not read
// the payload beyond its first bytes.
func ReadHeader(r io.ReaderAt, size int64) (*Header, error) {
	top := make([]byte, min(size, maxVariables))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), top); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	switch {
	case size == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	case !bytes.HasPrefix(top, []byte("#!")):
		return nil, fmt.Errorf("%w: it begins with %q, not with \"#!\"", ErrFormat, top[:min(len(top), 16)])
	}
	vars := variables(top)
	h := &Header{
		Label: vars["label"], Version: vars["version_string"], Script: vars["script"],
		TargetDir: vars["targetdir"], OS: vars["TARGET_OS"], Arch: vars["TARGET_ARCH"],
	}
	skip, err := strconv.ParseInt(vars["skip"], 10, 32)
	if err != nil || skip <= 0 {
		return nil, fmt.Errorf("%w: its script says skip=%q where the payload's line should be", ErrFormat, vars["skip"])
	}
	lines := bytes.SplitN(top, []byte("\n"), 4)
	nvidia := len(lines) == 4 && bytes.HasPrefix(lines[1], []byte("CRCsum=")) && bytes.HasPrefix(lines[2], []byte("MD5="))
	if nvidia {
		h.Sums.From = int64(len(top) - len(lines[3]))
		skip-- // it is the payload's first line, not the last before it
	}
	if h.Offset, err = lineOffset(r, size, skip); err != nil {
		return nil, err
	}
	h.Size = size - h.Offset
	if nvidia {
		if h.Offset < h.Sums.From {
			return nil, fmt.Errorf("%w: skip=%q puts the payload into the first lines", ErrFormat, vars["skip"])
		}
	} else {
		h.Sums.From = h.Offset
		if err := checkSize(h.Size, vars["filesizes"]); err != nil {
			return nil, err
		}
	}
	if err := h.Sums.parse(vars); err != nil {
		return nil, err
	}
	h.Compression, err = compression(r, h.Offset, h.Size)
	return h, err
}

// ReadHeaderFile reads the header of the .run file at path file.
func ReadHeaderFile(file string) (*Header, error) {
	f, h, err := open(file)
	if err != nil {
		return nil, err
	}
	return h, f.Close()
}

func open(file string) (*os.File, *Header, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	h, err := func() (*Header, error) {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%w: it is no regular file", ErrFormat)
		}
		return ReadHeader(f, info.Size())
	}()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", file, err), f.Close())
	}
	return f, h, nil
}

// CheckDriver reports whether the file is the x86-64 Linux driver of the given
// release. The error is a *VersionError.
func (h *Header) CheckDriver(version string) error {
	platform := h.OS + "-" + h.Arch
	if h.Version != version || platform != "Linux-x86_64" {
		return &VersionError{Version: h.Version, Platform: platform, Want: version}
	}
	return nil
}

// parse takes the sums from the script's variables.
func (s *Sums) parse(vars map[string]string) error {
	const none = "0" // of any length, where makeself was told to leave a sum out
	for _, v := range []struct {
		name  string
		bytes int // 0: decimal
		sum   *string
	}{{"CRCsum", 0, &s.CRC}, {"MD5", 16, &s.MD5}, {"SHA", 32, &s.SHA256}} {
		text := strings.ToLower(vars[v.name])
		if strings.Trim(text, none) == "" {
			continue
		}
		if v.bytes == 0 {
			crc, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return fmt.Errorf("%w: its script says %s=%q", ErrFormat, v.name, vars[v.name])
			}
			*v.sum = strconv.FormatUint(crc, 10)
			continue
		}
		if raw, err := hex.DecodeString(text); err != nil || len(raw) != v.bytes {
			return fmt.Errorf("%w: its script says %s=%q", ErrFormat, v.name, vars[v.name])
		}
		*v.sum = text
	}
	if s.CRC == "" && s.MD5 == "" && s.SHA256 == "" {
		return fmt.Errorf("%w: it has no checksum, so that nothing tells whether it came whole", ErrFormat)
	}
	return nil
}

// checkSize compares the payload's size with what the script says.
func checkSize(size int64, filesizes string) error {
	want, err := strconv.ParseInt(filesizes, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("%w: its script says filesizes=%q where the size of one payload should be", ErrFormat, filesizes)
	case size < want:
		return fmt.Errorf("%w: its payload has %d bytes of %d", ErrTruncated, size, want)
	case size > want:
		return fmt.Errorf("%w: %d bytes follow its payload", ErrFormat, size-want)
	}
	return nil
}

// lineOffset returns the offset behind the first n lines.
func lineOffset(r io.ReaderAt, size, n int64) (offset int64, err error) {
	b := bufio.NewReaderSize(io.NewSectionReader(r, 0, min(size, maxScript)), 64<<10)
	for n > 0 {
		line, err := b.ReadSlice('\n')
		offset += int64(len(line))
		switch {
		case err == nil:
			n--
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > maxScript:
			return 0, fmt.Errorf("%w: its payload does not begin within %d bytes", ErrFormat, maxScript)
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("%w: its payload should begin after %d more lines", ErrTruncated, n)
		default:
			return 0, fmt.Errorf("read the header: %w", err)
		}
	}
	return offset, nil
}

// variables returns the variables that a script sets at the start of a line,
// with the first value of each, unquoted but not expanded.
func variables(script []byte) map[string]string {
	vars := map[string]string{}
	for len(script) > 0 {
		line, rest, _ := bytes.Cut(script, []byte("\n"))
		name, _, ok := bytes.Cut(line, []byte("="))
		if !ok || !isName(name) {
			script = rest
			continue
		}
		var value string
		value, script = word(script[len(name)+1:])
		if _, set := vars[string(name)]; !set {
			vars[string(name)] = value
		}
	}
	return vars
}

func isName(name []byte) bool {
	for _, c := range name {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(name) > 0
}

// word returns the value at the start of text, which may be quoted and then
// have many lines, and the text from the next line on.
func word(text []byte) (value string, rest []byte) {
	if len(text) == 0 || text[0] != '"' && text[0] != '\'' {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		return string(line), rest
	}
	quote, text := text[0], text[1:]
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == quote:
			_, rest, _ = bytes.Cut(text[i:], []byte("\n"))
			return b.String(), rest
		case c == '\\' && quote == '"' && i+1 < len(text) && strings.IndexByte("\"\\`$", text[i+1]) >= 0:
			i++
			c = text[i]
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}
