package vfiouser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"

	"golang.org/x/sys/unix"
)

// Serve waits for one client on l and serves d to it until the client hangs up
// (nil), breaks the protocol (an error that names the message), or ctx ends
// (ctx's error). It closes l as soon as the client is there, since a device
// has one owner.
func Serve(ctx context.Context, l *net.UnixListener, d Device) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	c, err := l.AcceptUnix()
	_ = l.Close()
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("wait for a vfio-user client: %w", err)
	}
	return serveConn(ctx, c, d)
}

// serveConn serves d to the client on c and closes c.
func serveConn(ctx context.Context, c *net.UnixConn, d Device) error {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	s := server{device: d}
	for {
		m, err := readMessage(c)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var r reply
		if err == nil {
			r, err = s.handle(m)
		}
		if err == nil && m.flags&flagNoReply == 0 {
			err = writeReply(c, m, r)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("vfio-user client: %w", err)
		}
	}
}

// A server is the state of one connection.
type server struct {
	device     Device
	negotiated bool
	maps       []dmaMap
}

// A dmaMap is a range of the client's memory open to the device.
type dmaMap struct{ address, size uint64 }

// maxMaps is the default of the capability max_dma_maps.
const maxMaps = 65535

// handle carries out one command. An error ends the connection; a command that
// is well-formed but can't be done gets an error reply.
func (s *server) handle(m message) (reply, error) {
	if !s.negotiated && m.command != cmdVersion {
		return reply{}, fmt.Errorf("%v came before VERSION", m.command)
	}
	switch m.command {
	case cmdVersion:
		return s.version(m.payload)
	case cmdDMAMap:
		return s.dmaMap(m.payload), nil
	case cmdDMAUnmap:
		return s.dmaUnmap(m.payload), nil
	case cmdGetInfo:
		return s.info(m.payload), nil
	case cmdGetRegionInfo:
		return s.regionInfo(m.payload), nil
	case cmdGetIRQInfo:
		return s.irqInfo(m.payload), nil
	case cmdSetIRQs:
		return s.setIRQs(m.payload, m.fds), nil
	case cmdRegionRead:
		return s.regionRead(m.payload), nil
	case cmdRegionWrite:
		return s.regionWrite(m.payload), nil
	case cmdReset:
		s.device.Reset()
		return reply{}, nil
	}
	return fail(unix.ENOTSUP), nil
}

// version negotiates. Major 0 is the only version there is; capabilities that
// only the client knows need no answer.
func (s *server) version(p []byte) (reply, error) {
	if s.negotiated {
		return reply{}, errors.New("VERSION came twice")
	}
	if len(p) < 4 {
		return reply{}, fmt.Errorf("VERSION: payload of %d bytes, want at least 4", len(p))
	}
	if major := byteOrder.Uint16(p); major != 0 {
		return reply{}, fmt.Errorf("VERSION: major version %d, want 0", major)
	}
	if data := p[4:]; len(data) > 0 {
		data, ok := bytes.CutSuffix(data, []byte{0})
		if !ok {
			return reply{}, errors.New("VERSION: version data does not end with NUL")
		}
		var v struct {
			Capabilities map[string]any `json:"capabilities"`
		}
		if err := json.Unmarshal(data, &v); err != nil {
			return reply{}, fmt.Errorf("VERSION: version data: %w", err)
		}
	}
	s.negotiated = true
	b := make([]byte, 4) // version 0.0
	b = fmt.Appendf(b, `{"capabilities":{"max_msg_fds":%d,"max_data_xfer_size":%d}}`, maxFDs, maxTransfer)
	return reply{payload: append(b, 0)}, nil
}

// dmaMap adds a range of client memory.
func (s *server) dmaMap(p []byte) reply {
	if len(p) != 32 {
		return fail(unix.EINVAL)
	}
	m := dmaMap{byteOrder.Uint64(p[16:]), byteOrder.Uint64(p[24:])}
	last, overflow := bits.Add64(m.address, m.size-1, 0)
	if m.size == 0 || overflow != 0 {
		return fail(unix.EINVAL)
	}
	for _, o := range s.maps {
		if m.address <= o.address+o.size-1 && o.address <= last {
			return fail(unix.EEXIST)
		}
	}
	if len(s.maps) == maxMaps {
		return fail(unix.ENOSPC)
	}
	s.maps = append(s.maps, m)
	return reply{}
}

// unmapAll is VFIO_DMA_UNMAP_FLAG_ALL of linux/vfio.h. The specification does
// not use the flags; QEMU sends it before it lets a device go.
const unmapAll = 1 << 1

// dmaUnmap removes a range that was added before.
func (s *server) dmaUnmap(p []byte) reply {
	if len(p) != 24 {
		return fail(unix.EINVAL)
	}
	if byteOrder.Uint32(p[4:])&unmapAll != 0 {
		s.maps = nil
		return reply{payload: p}
	}
	m := dmaMap{byteOrder.Uint64(p[8:]), byteOrder.Uint64(p[16:])}
	for i, o := range s.maps {
		if o == m {
			s.maps[i] = s.maps[len(s.maps)-1]
			s.maps = s.maps[:len(s.maps)-1]
			return reply{payload: p}
		}
	}
	return fail(unix.ENOENT)
}

// Flags of struct vfio_device_info.
const (
	deviceReset = 1 << 0
	devicePCI   = 1 << 1
)

func (s *server) info(p []byte) reply {
	if len(p) != 16 {
		return fail(unix.EINVAL)
	}
	return reply{payload: words(16, deviceReset|devicePCI, NumRegions, NumIRQs)}
}

// Flags of struct vfio_region_info.
const (
	regionRead  = 1 << 0
	regionWrite = 1 << 1
	regionMmap  = 1 << 2
)

func (s *server) regionInfo(p []byte) reply {
	if len(p) != 32 {
		return fail(unix.EINVAL)
	}
	index := byteOrder.Uint32(p[8:])
	if index >= NumRegions {
		return fail(unix.EINVAL)
	}
	r := s.device.Region(int(index))
	var flags uint32
	if r.Size > 0 {
		flags = regionRead
		if !r.ReadOnly {
			flags |= regionWrite
		}
		if r.File != nil {
			flags |= regionMmap
		}
	}
	b := words(32, flags, index, 0)
	b = byteOrder.AppendUint64(b, r.Size)
	b = byteOrder.AppendUint64(b, 0)
	return reply{payload: b, file: r.File}
}

// Flags of struct vfio_irq_info.
const (
	irqEventFD    = 1 << 0
	irqMaskable   = 1 << 1
	irqAutomasked = 1 << 2
	irqNoResize   = 1 << 3
)

func (s *server) irqInfo(p []byte) reply {
	if len(p) != 16 {
		return fail(unix.EINVAL)
	}
	index := byteOrder.Uint32(p[8:])
	if index >= NumIRQs {
		return fail(unix.EINVAL)
	}
	flags := uint32(irqEventFD | irqNoResize)
	if index == INTxIRQ {
		flags = irqEventFD | irqMaskable | irqAutomasked
	}
	return reply{payload: words(16, flags, index, s.device.IRQs(int(index)))}
}

// Flags of struct vfio_irq_set.
const (
	irqDataNone      = 1 << 0
	irqDataBool      = 1 << 1
	irqDataEventFD   = 1 << 2
	irqDataMask      = irqDataNone | irqDataBool | irqDataEventFD
	irqActionMask    = 1 << 3
	irqActionUnmask  = 1 << 4
	irqActionTrigger = 1 << 5
	irqActions       = irqActionMask | irqActionUnmask | irqActionTrigger
)

// setIRQs checks the command; a Device raises no interrupts.
func (s *server) setIRQs(p []byte, fds int) reply {
	if len(p) < 20 {
		return fail(unix.EINVAL)
	}
	flags, index := byteOrder.Uint32(p[4:]), byteOrder.Uint32(p[8:])
	start, count := byteOrder.Uint32(p[12:]), byteOrder.Uint32(p[16:])
	data := flags & irqDataMask
	if flags&^(irqDataMask|irqActions) != 0 || bits.OnesCount32(data) != 1 ||
		bits.OnesCount32(flags&irqActions) != 1 || index >= NumIRQs {
		return fail(unix.EINVAL)
	}
	if uint64(start)+uint64(count) > uint64(s.device.IRQs(int(index))) {
		return fail(unix.EINVAL)
	}
	switch {
	case data == irqDataBool && uint64(len(p)-20) != uint64(count),
		data != irqDataBool && len(p) != 20,
		data == irqDataEventFD && fds != 0 && uint64(fds) != uint64(count),
		data != irqDataEventFD && fds != 0:
		return fail(unix.EINVAL)
	}
	return reply{}
}

// accessSize is the length of what precedes the data of a region access.
const accessSize = 16

// access reads the head of a region access and finds the region.
func (s *server) access(p []byte) (index int, offset uint64, count uint32, r Region, ok bool) {
	if len(p) < accessSize {
		return 0, 0, 0, Region{}, false
	}
	offset, count = byteOrder.Uint64(p), byteOrder.Uint32(p[12:])
	region := byteOrder.Uint32(p[8:])
	if region >= NumRegions || count > maxTransfer {
		return 0, 0, 0, Region{}, false
	}
	r = s.device.Region(int(region))
	end, overflow := bits.Add64(offset, uint64(count), 0)
	return int(region), offset, count, r, overflow == 0 && end <= r.Size
}

func (s *server) regionRead(p []byte) reply {
	index, offset, count, _, ok := s.access(p)
	if !ok || len(p) != accessSize {
		return fail(unix.EINVAL)
	}
	b := make([]byte, accessSize+int(count))
	copy(b, p)
	if err := s.device.ReadRegion(index, b[accessSize:], offset); err != nil {
		return fail(unix.EIO)
	}
	return reply{payload: b}
}

func (s *server) regionWrite(p []byte) reply {
	index, offset, count, r, ok := s.access(p)
	if !ok || len(p) != accessSize+int(count) {
		return fail(unix.EINVAL)
	}
	if r.ReadOnly {
		return fail(unix.EPERM)
	}
	if err := s.device.WriteRegion(index, p[accessSize:], offset); err != nil {
		return fail(unix.EIO)
	}
	return reply{payload: p[:accessSize]}
}

// words lays 32-bit fields one after another.
func words(fields ...uint32) []byte {
	var b []byte
	for _, f := range fields {
		b = byteOrder.AppendUint32(b, f)
	}
	return b
}
