// Package flash writes a disk image to a device, such as a USB stick, and says
// which devices may be written to.
package flash

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a whole block device as the kernel describes it.
type Device struct {
	Name       string // sdb
	Size       int64  // bytes
	Model      string // vendor and model, may be empty
	Removable  bool   // with removable medium, on USB, or a memory card
	ReadOnly   bool
	SectorSize int      // logical, bytes
	Partitions []string // sdb1 …
	Uses       []string // what it is in use for: "sdb1 is mounted on /mnt"
	// Sequence is a number that no device had before it, nor this one with another
	// medium (sysfs: diskseq); "" before Linux 5.15.
	Sequence string
}

// Path is the device's file.
func (d *Device) Path() string { return "/dev/" + d.Name }

// Objections are the reasons not to write to it that a person may overrule.
func (d *Device) Objections() []string {
	list := slices.Clone(d.Uses)
	if !d.Removable {
		list = append(list, d.Name+" is not removable: it may be a disk of this machine")
	}
	return list
}

// Devices lists the block devices of the machine whose root directory is root, by
// name. Devices without a medium are left out.
func Devices(root string) ([]*Device, error) {
	entries, err := os.ReadDir(filepath.Join(root, "sys/block"))
	if err != nil {
		return nil, fmt.Errorf("block devices: %w", err)
	}
	uses, err := readUses(root)
	if err != nil {
		return nil, err
	}
	var list []*Device
	for _, e := range entries {
		d, err := readDevice(root, e.Name(), uses)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("device %s: %w", e.Name(), err)
		}
		if d.Size > 0 {
			list = append(list, d)
		}
	}
	return list, nil
}

// Find looks up the device that a path leads to. It goes by the device's number: a
// file may be named as another device is.
func Find(root, path string) (*Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, fmt.Errorf("%s is no block device", path)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	dir, err := filepath.EvalSymlinks(filepath.Join(root, "sys/dev/block", number))
	if err != nil {
		return nil, fmt.Errorf("%s is no device that the kernel lists: %w", path, err)
	}
	list, err := Devices(root)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(dir)
	for _, d := range list {
		if d.Name == name {
			return d, nil
		}
		if slices.Contains(d.Partitions, name) {
			return nil, fmt.Errorf("%s is a partition: name the whole device, %s", path, d.Path())
		}
	}
	return nil, fmt.Errorf("%s has no medium", path)
}

func readDevice(root, name string, uses func(name, number string) []string) (*Device, error) {
	dir := filepath.Join(root, "sys/block", name)
	text := func(file string) string {
		b, _ := os.ReadFile(filepath.Join(dir, file)) // not every device has each
		return strings.TrimSpace(string(b))
	}
	sectors, err := os.ReadFile(filepath.Join(dir, "size")) // of 512 bytes, whatever the device has
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(sectors)), 10, 64)
	if err != nil {
		return nil, err
	}
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	d := &Device{
		Name: name, Size: n * 512, ReadOnly: text("ro") == "1", SectorSize: 512, Sequence: text("diskseq"),
		Model: strings.TrimSpace(text("device/vendor") + " " + text("device/model")),
		// An external drive does not call its medium removable, but its bus is.
		Removable: text("removable") == "1" || strings.Contains(target, "/usb") || strings.HasPrefix(name, "mmcblk"),
	}
	if size, err := strconv.Atoi(text("queue/logical_block_size")); err == nil {
		d.SectorSize = size
	}
	d.Uses = uses(name, text("dev"))
	parts, err := filepath.Glob(filepath.Join(dir, name+"*", "partition"))
	if err != nil {
		return nil, err
	}
	for _, p := range append([]string{filepath.Join(dir, "partition")}, parts...) {
		part := filepath.Dir(p)
		if part != dir {
			d.Partitions = append(d.Partitions, filepath.Base(part))
			number, _ := os.ReadFile(filepath.Join(part, "dev"))
			d.Uses = append(d.Uses, uses(filepath.Base(part), strings.TrimSpace(string(number)))...)
		}
		holders, _ := os.ReadDir(filepath.Join(part, "holders"))
		for _, h := range holders {
			d.Uses = append(d.Uses, fmt.Sprintf("%s is part of %s", filepath.Base(part), h.Name()))
		}
	}
	return d, nil
}

// readUses reads what is mounted and what is swapped to. The function it returns
// says what a device is used for, by its name and its number ("8:17").
func readUses(root string) (func(name, number string) []string, error) {
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("mounted file systems: %w", err)
	}
	swaps, err := os.ReadFile(filepath.Join(root, "proc/swaps"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("swap space: %w", err)
	}
	return func(name, number string) []string {
		var list []string
		for s := bufio.NewScanner(bytes.NewReader(mounts)); s.Scan(); {
			before, after, _ := strings.Cut(s.Text(), " - ")
			fields, source := strings.Fields(before), strings.Fields(after)
			if len(fields) < 5 || len(source) < 2 {
				continue
			}
			// Some file systems (btrfs) have a number of their own.
			if fields[2] == number || source[1] == "/dev/"+name {
				list = append(list, fmt.Sprintf("%s is mounted on %s", name, unescape(fields[4])))
			}
		}
		for s := bufio.NewScanner(bytes.NewReader(swaps)); s.Scan(); {
			if file, _, _ := strings.Cut(s.Text(), " "); file == "/dev/"+name {
				list = append(list, name+" is swap space")
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}, nil
}

// unescape undoes the octal escapes of white space in mountinfo (proc(5)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
