package main

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// payload holds p2pbw if it was there when this program was built, see its README.
//
//go:embed payload
var payload embed.FS

// programName is the name of the measuring program, in the payload and elsewhere.
const programName = "p2pbw"

// measuringProgram returns a file with the measuring program: the one that is
// named, the one that this program carries, the one beside it, or the one of PATH.
// remove takes away what had to be written for it.
func measuringProgram(named string) (file string, remove func() error, err error) {
	none := func() error { return nil }
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", none, fmt.Errorf("the measuring program: %w", err)
		}
		return named, none, nil
	}
	carried, err := payload.ReadFile("payload/" + programName)
	if err == nil {
		return unpackProgram(carried)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", none, err
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), programName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, none, nil
		}
	}
	if found, err := exec.LookPath(programName); err == nil {
		return found, none, nil
	}
	return "", none, errors.New("this mkp2pimg was built without the measuring program p2pbw, and there is none beside it or in PATH: " +
		"build both with \"make bin/mkp2pimg\", or name one with --p2pbw")
}

// unpackProgram writes a program to a folder of its own.
func unpackProgram(program []byte) (file string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "mkp2pimg-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	file = filepath.Join(dir, programName)
	if err := os.WriteFile(file, program, 0o700); err != nil {
		return "", remove, errors.Join(err, remove())
	}
	return file, remove, nil
}
