package deliver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mkp2pimg/initramfs/layout"
)

// StickDir is where the partition for reports is mounted, below the root.
const StickDir = "run/mkp2pimg/stick"

// Mounter mounts file systems and unmounts them.
type Mounter interface {
	Mount(source, target, fstype, data string) error
	Unmount(target string) error
}

// FindStick returns the device name (sda2) of the partition for reports, by its
// name in the partition table, or "" if there is none yet. Of several the first
// by name counts.
func FindStick(root fs.FS) string {
	paths, _ := fs.Glob(root, "sys/class/block/*/uevent") // the pattern is well formed
	slices.Sort(paths)
	for _, p := range paths {
		text, err := fs.ReadFile(root, p)
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), "PARTNAME="+layout.ReportPartition) {
			return path.Base(path.Dir(p))
		}
	}
	return ""
}

// Stick writes the report to a new file of the partition for reports. The
// partition is mounted by the first write, so that a stick that does not answer
// holds up only whoever writes to it. What was synced survives a power cut: FAT
// has no journal, but then both the data and the directory are on the stick.
type Stick struct {
	Root    string // "/" on the machine
	Device  string // as from FindStick
	Node    string // the machine's id, may be empty
	Mounter Mounter

	mu   sync.Mutex
	file *os.File
}

// Write appends to the report.
func (s *Stick) Write(p []byte) (int, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	return s.file.Write(p)
}

// Sync brings what was written to the stick.
func (s *Stick) Sync() error {
	if err := s.open(); err != nil {
		return err
	}
	return s.file.Sync()
}

// Close ends the report and unmounts the partition, which marks it as clean.
func (s *Stick) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return errors.Join(s.file.Close(), s.Mounter.Unmount("/"+StickDir))
}

// File is the name of the report's file in the partition, "" if there is none yet.
func (s *Stick) File() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return ""
	}
	return filepath.Base(s.file.Name())
}

func (s *Stick) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		return nil
	}
	dir := filepath.Join(s.Root, StickDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Without a character set the kernel takes the configured one, whose module the
	// image may lack.
	if err := s.Mounter.Mount("/dev/"+s.Device, "/"+StickDir, "vfat", "iocharset=ascii"); err != nil {
		return fmt.Errorf("mount %s: %w", s.Device, err)
	}
	f, err := create(dir, time.Now(), s.Node)
	if err != nil {
		return errors.Join(err, s.Mounter.Unmount("/"+StickDir))
	}
	s.file = f
	return nil
}

// create makes a file with the time and the machine's id in its name. A machine
// whose clock stands still has the same time in every run, hence the number.
func create(dir string, now time.Time, node string) (*os.File, error) {
	stem := "report-" + now.UTC().Format("20060102-150405")
	if node != "" {
		stem += "-" + strings.ReplaceAll(node, ":", "_") // which FAT does not allow
	}
	for n := 1; ; n++ {
		name := stem + ".jsonl"
		if n > 1 {
			name = fmt.Sprintf("%s-%d.jsonl", stem, n)
		}
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}
