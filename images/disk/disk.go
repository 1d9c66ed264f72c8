package disk

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/backend/file"

	"mkp2pimg/images"
	"mkp2pimg/internal/sandbox"
)

// Name is the name of a disk image in the directory of an image.
const Name = "disk.img"

// Medium makes disk images.
type Medium struct {
	Loaders sandbox.Root // where Packages and Tools are unpacked
	// CD places kernel and initramfs in one piece each, at a multiple of CDSector,
	// so that the directory of a CD can lead to them.
	CD bool

	// Install, if set, makes the boot partition boot by BIOS in place of syslinux.
	Install func(ctx context.Context, image string, offset int64) error
}

// Name implements [images.Medium].
func (Medium) Name() string { return Name }

// Make implements [images.Medium].
func (m Medium) Make(ctx context.Context, path string, p *images.Payload) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(m.fill(ctx, f, p), f.Close())
}

func (m Medium) fill(ctx context.Context, f *os.File, p *images.Payload) error {
	manifest, ok := p.Documents[images.ManifestName]
	if !ok {
		return fmt.Errorf("the payload has no %s", images.ManifestName)
	}
	files, err := m.files(p)
	if err != nil {
		return err
	}
	size, err := payloadSize(p, files)
	if err != nil {
		return err
	}
	w := &image{
		f: f, b: file.New(f, false), at: plan(size, m.CD), cd: m.CD, id: sha256.Sum256(manifest),
		epoch: time.Unix(p.Manifest.SourceDateEpoch, 0),
	}
	if err := f.Truncate(w.at.disk); err != nil {
		return err
	}
	if err := w.at.table(w.id.guid("disk"), w.id.guid(bootName), w.id.guid(reportName)).Write(f, w.at.disk); err != nil {
		return fmt.Errorf("partition table: %w", err)
	}
	if err := writeReports(w.b, f, w.at.report, w.id.serial(reportName), w.epoch); err != nil {
		return err
	}
	l := loaders{m.Loaders}
	install := l.installSyslinux
	if m.Install != nil {
		install = m.Install
	}
	if err := w.bootPartition(ctx, install, p, files); err != nil {
		return err
	}
	code, err := l.mbr()
	if err != nil {
		return err
	}
	_, err = f.WriteAt(code, 0)
	return err
}

// files are the small files of the boot partition by path.
func (m Medium) files(p *images.Payload) (map[string][]byte, error) {
	files := loaderFiles(p.Manifest)
	l := loaders{m.Loaders}
	var errs []error
	for path, from := range map[string]string{
		"/EFI/BOOT/BOOTX64.EFI":      systemdBoot,
		syslinuxDir + "/menu.c32":    biosModules + "/menu.c32",
		syslinuxDir + "/libutil.c32": biosModules + "/libutil.c32",
	} {
		data, err := l.read(from)
		errs = append(errs, err)
		files[path] = data
	}
	for name, data := range p.Documents {
		files["/mkp2pimg/"+name] = data
	}
	return files, errors.Join(errs...)
}

// payloadSize is what the boot partition must hold, with room for what syslinux
// installs, for directories, FATs and a few files that a person may add.
func payloadSize(p *images.Payload, files map[string][]byte) (int64, error) {
	size := int64(8 * mib)
	for _, data := range files {
		size += int64(len(data))
	}
	for _, path := range []string{p.Kernel, p.Initrd} {
		st, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		size += st.Size()
	}
	return size + size/64, nil // the FATs take 8 bytes for a cluster of 512
}

// image is a disk image that is being made.
type image struct {
	f     *os.File
	b     backend.Storage
	at    partitions
	cd    bool
	id    identity
	epoch time.Time
}

// bootPartition makes the partition that firmware boots.
func (w *image) bootPartition(ctx context.Context, install func(ctx context.Context, image string, offset int64) error,
	p *images.Payload, files map[string][]byte,
) error {
	fs, err := format(w.b, w.at.boot, bootName)
	if err != nil {
		return err
	}
	if err := fs.Mkdir(syslinuxDir); err != nil {
		return err
	}
	if err := install(ctx, w.f.Name(), w.at.boot.start); err != nil {
		return err
	}
	if fs, err = reopen(w.b, w.at.boot); err != nil {
		return fmt.Errorf("file system as syslinux left it: %w", err)
	}
	for _, dir := range []string{"/EFI/BOOT", "/loader/entries", "/mkp2pimg"} {
		if err := fs.Mkdir(dir); err != nil {
			return err
		}
	}
	// Before the small files, while no directory has to grow in between.
	for _, big := range []struct{ path, host string }{{kernelPath, p.Kernel}, {initrdPath, p.Initrd}} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.align(fs); err != nil {
			return err
		}
		if err := fs.copyFile(big.path, big.host); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := fs.writeFile(name, files[name]); err != nil {
			return err
		}
	}
	if err := tidy(w.f, w.at.boot, w.id.serial(bootName), w.epoch); err != nil {
		return fmt.Errorf("boot partition: %w", err)
	}
	return nil
}

// readme is for who looks at the stick on a laptop.
const readme = "Reports of mkp2pimg are written here, one file for each run:\r\n" +
	"JSON lines, named after the time and, if it has one, the name of the machine.\r\n"

// writeReports makes the partition for reports.
func writeReports(b backend.Storage, f readWriterAt, at region, serial uint32, t time.Time) error {
	fs, err := format(b, at, reportName)
	if err != nil {
		return err
	}
	if err := fs.writeFile("/README.TXT", []byte(readme)); err != nil {
		return err
	}
	if err := tidy(f, at, serial, t); err != nil {
		return fmt.Errorf("report partition: %w", err)
	}
	return nil
}
