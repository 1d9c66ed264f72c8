package rm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Open opens the resource manager of the running nvidia.ko. The device nodes are
// those below dev, "/dev" on a machine.
func Open(dev string) (*Client, error) {
	k, err := openDevices(dev)
	if err != nil {
		return nil, err
	}
	return newClient(k)
}

// devices are the open device nodes.
type devices struct {
	dir     string
	control int
	gpus    []int
}

func openDevices(dir string) (*devices, error) {
	fd, err := openNode(filepath.Join(dir, "nvidiactl"))
	if err != nil {
		return nil, err
	}
	return &devices{dir: dir, control: fd}, nil
}

// openNode opens a device node of the driver and says what to do if it can't. It
// goes without [os.OpenFile], which would hand the device to the runtime's poller.
func openNode(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		return fd, nil
	}
	err = &fs.PathError{Op: "open", Path: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return -1, fmt.Errorf("%w: load nvidia.ko and make its device nodes (nvidia-modprobe -u -c 0), or pass them into the container", err)
	case errors.Is(err, fs.ErrPermission):
		return -1, fmt.Errorf("%w: run as root, or get read and write access to the device", err)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return -1, fmt.Errorf("%w: no loaded driver has this device", err)
	case errors.Is(err, unix.EIO):
		return -1, fmt.Errorf("%w: the driver could not start the GPU, see the kernel's log (dmesg)", err)
	}
	return -1, err
}

// Attach implements kernel.
func (d *devices) Attach(minor uint32) error {
	fd, err := openNode(filepath.Join(d.dir, fmt.Sprint("nvidia", minor)))
	if err != nil {
		return err
	}
	d.gpus = append(d.gpus, fd)
	return nil
}

// Escape implements kernel.
func (d *devices) Escape(c call) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	for i, b := range c.Buffers {
		pin.Pin(&b.Bytes[0])
		if i > 0 {
			before := c.Buffers[i-1]
			binary.LittleEndian.PutUint64(before.Bytes[before.Next:], uint64(uintptr(unsafe.Pointer(&b.Bytes[0]))))
		}
	}
	arg := c.Buffers[0].Bytes
	// _IOWR(NV_IOCTL_MAGIC, number, argument) of <asm-generic/ioctl.h>.
	request := uintptr(3)<<30 | uintptr(len(arg))<<16 | uintptr('F')<<8 | uintptr(c.Number)
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.control), request, uintptr(unsafe.Pointer(&arg[0])))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}

// Close implements kernel.
func (d *devices) Close() error {
	errs := []error{unix.Close(d.control)}
	for _, fd := range d.gpus {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
