package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"mkp2pimg/internal/escape"
)

// TreeError reports that a tree is not a full open-gpu-kernel-modules source tree.
type TreeError struct{ Reason string }

func (e *TreeError) Error() string {
	return "not a full open-gpu-kernel-modules source tree: " + e.Reason
}

// outside refuses a tree with a file elsewhere.
func outside(name string) error {
	return &TreeError{name + " lies outside of it, by its name or by a link: copy the tree with what its links point to (cp -rL)"}
}

// upstream is where releases are published as source.
const upstream = "https://github.com/NVIDIA/open-gpu-kernel-modules"

// precompiled are the places where packages for DKMS keep the resource manager, which they ship
// as an object: in the packages of distributions, and in NVIDIA's own.
var precompiled = []string{
	"nvidia/nv-kernel.o_binary", "kernel-open/nvidia/nv-kernel.o_binary",
	"nvidia/nv-kernel.o", "kernel-open/nvidia/nv-kernel.o",
}

var (
	versionLine = regexp.MustCompile(`(?m)^NVIDIA_VERSION\s*=\s*(\d+(?:\.\d+)+)\s*$`)
	kbuildLine  = regexp.MustCompile(`NV_VERSION_STRING=\\"(\d+(?:\.\d+)+)\\"`)
)

// TreeVersion returns the release that the tree says it is. The error is a [*TreeError] if
// the tree lacks what every open-gpu-kernel-modules tree has.
func TreeVersion(tree fs.FS) (string, error) {
	text, err := fs.ReadFile(tree, "version.mk")
	if escape.Is(err) {
		return "", outside("version.mk")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	m := versionLine.FindSubmatch(text)
	_, missing := fs.Stat(tree, "src/nvidia")
	if escape.Is(missing) {
		return "", outside("src/nvidia")
	}
	if missing != nil {
		return "", kernelPartOnly(tree, text, m)
	}
	switch {
	case text == nil:
		return "", &TreeError{"it has no version.mk"}
	case m == nil:
		return "", &TreeError{"its version.mk sets no NVIDIA_VERSION"}
	}
	if _, err := fs.Stat(tree, "kernel-open"); err != nil {
		return "", &TreeError{"kernel-open is missing"}
	}
	return string(m[1]), nil
}

// kernelPartOnly says what a tree without src/nvidia is, and where its whole source is.
func kernelPartOnly(tree fs.FS, versionMK []byte, m [][]byte) error {
	for _, kbuild := range []string{"Kbuild", "kernel-open/Kbuild"} {
		if m != nil {
			break
		}
		if text, err := fs.ReadFile(tree, kbuild); err == nil {
			m = kbuildLine.FindSubmatch(text)
		}
	}
	if versionMK == nil && m == nil {
		return &TreeError{"it has neither version.mk nor src/nvidia; name the directory that version.mk is in"}
	}
	from := upstream + " (the tag is the release)"
	if m != nil {
		from = fmt.Sprintf("git clone --depth 1 -b %s %s", m[1], upstream)
	}
	has := ""
	if i := slices.IndexFunc(precompiled, func(name string) bool {
		_, err := fs.Stat(tree, name)
		return err == nil
	}); i >= 0 {
		has = ": the tree has it precompiled, as " + precompiled[i] + ", like packages for DKMS do"
	}
	return &TreeError{"src/nvidia, the source of the resource manager, is missing" + has + ". The edits need the whole source: " + from +
		", or \"apt-get source nvidia-open-gpu-kernel-modules\" where Debian has the release"}
}
