package vfiouser

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A command is a message's command id, section "Commands" of the
// specification.
type command uint16

const (
	cmdVersion       command = 1
	cmdDMAMap        command = 2
	cmdDMAUnmap      command = 3
	cmdGetInfo       command = 4
	cmdGetRegionInfo command = 5
	cmdGetIRQInfo    command = 7
	cmdSetIRQs       command = 8
	cmdRegionRead    command = 9
	cmdRegionWrite   command = 10
	cmdReset         command = 13
)

var commandNames = map[command]string{
	cmdVersion:       "VERSION",
	cmdDMAMap:        "DMA_MAP",
	cmdDMAUnmap:      "DMA_UNMAP",
	cmdGetInfo:       "DEVICE_GET_INFO",
	cmdGetRegionInfo: "DEVICE_GET_REGION_INFO",
	cmdGetIRQInfo:    "DEVICE_GET_IRQ_INFO",
	cmdSetIRQs:       "DEVICE_SET_IRQS",
	cmdRegionRead:    "REGION_READ",
	cmdRegionWrite:   "REGION_WRITE",
	cmdReset:         "DEVICE_RESET",
}

func (c command) String() string {
	if name, ok := commandNames[c]; ok {
		return name
	}
	return fmt.Sprintf("command %d", uint16(c))
}

// Section "Header".
const (
	headerSize  = 16
	flagReply   = 1 // in the type bits, 0-3
	typeMask    = 0xf
	flagNoReply = 1 << 4
	flagError   = 1 << 5
)

// Limits this server announces. A message is never longer than a write of
// maxTransfer bytes.
const (
	maxTransfer = 1 << 20
	maxFDs      = 8
	maxMessage  = headerSize + accessSize + maxTransfer
)

// byteOrder is the host's: the specification leaves conversion to a later
// revision.
var byteOrder = binary.NativeEndian

// A header precedes each message.
type header struct {
	id      uint16
	command command
	size    uint32 // of the message with its header
	flags   uint32
	errno   uint32
}

// parseHeader reads a command's header and refuses those that no message could
// follow.
func parseHeader(b *[headerSize]byte) (header, error) {
	h := header{
		id:      byteOrder.Uint16(b[0:]),
		command: command(byteOrder.Uint16(b[2:])),
		size:    byteOrder.Uint32(b[4:]),
		flags:   byteOrder.Uint32(b[8:]),
		errno:   byteOrder.Uint32(b[12:]),
	}
	switch {
	case h.flags&typeMask != 0:
		return h, fmt.Errorf("%v: message type %d is not a command", h.command, h.flags&typeMask)
	case h.size < headerSize:
		return h, fmt.Errorf("%v: message size %d is smaller than the %d byte header", h.command, h.size, headerSize)
	case h.size > maxMessage:
		return h, fmt.Errorf("%v: message size %d is larger than the agreed %d bytes", h.command, h.size, maxMessage)
	}
	return h, nil
}

// append writes h as it goes over the socket.
func (h header) append(b []byte) []byte {
	b = byteOrder.AppendUint16(b, h.id)
	b = byteOrder.AppendUint16(b, uint16(h.command))
	b = byteOrder.AppendUint32(b, h.size)
	b = byteOrder.AppendUint32(b, h.flags)
	return byteOrder.AppendUint32(b, h.errno)
}

// A message is a command with what follows it.
type message struct {
	header
	payload []byte
	fds     int // number of file descriptors that came along
}

// readMessage reads the next command. File descriptors that come along are
// counted and closed: a Device neither reads the client's memory nor signals
// interrupts. The error is io.EOF when the client hung up between messages.
func readMessage(c *net.UnixConn) (message, error) {
	var (
		m   message
		b   [headerSize]byte
		oob = make([]byte, unix.CmsgSpace(4*maxFDs))
	)
	for have := 0; have < headerSize; {
		n, oobn, flags, _, err := c.ReadMsgUnix(b[have:], oob)
		if n == 0 && err == nil {
			err = io.EOF // older releases of package net return no error
		}
		if err != nil {
			if errors.Is(err, io.EOF) && have > 0 {
				err = io.ErrUnexpectedEOF
			}
			return m, err
		}
		fds, err := closeFDs(oob[:oobn])
		if err != nil {
			return m, err
		}
		if flags&unix.MSG_CTRUNC != 0 {
			return m, fmt.Errorf("a message came with more than the agreed %d file descriptors", maxFDs)
		}
		m.fds += fds
		have += n
	}
	h, err := parseHeader(&b)
	if err != nil {
		return m, err
	}
	m.header = h
	m.payload = make([]byte, h.size-headerSize)
	if _, err := io.ReadFull(c, m.payload); err != nil {
		return m, fmt.Errorf("%v: reading %d bytes of payload: %w", h.command, len(m.payload), err)
	}
	return m, nil
}

// closeFDs closes the file descriptors in control messages and returns how
// many there were.
func closeFDs(oob []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, fmt.Errorf("control message: %w", err)
	}
	n := 0
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // another kind of control message
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		n += len(fds)
	}
	return n, nil
}

// A reply is what a command is answered with.
type reply struct {
	payload []byte
	file    *os.File // goes along when not nil
	errno   unix.Errno
}

// fail is the reply to a command that can't be done.
func fail(e unix.Errno) reply { return reply{errno: e} }

// writeReply answers m with r.
func writeReply(c *net.UnixConn, m message, r reply) error {
	h := header{id: m.id, command: m.command, flags: flagReply}
	var oob []byte
	switch {
	case r.errno != 0:
		r.payload = nil
		h.flags |= flagError
		h.errno = uint32(r.errno)
	case r.file != nil:
		oob = unix.UnixRights(int(r.file.Fd()))
	}
	h.size = uint32(headerSize + len(r.payload))
	b := append(h.append(make([]byte, 0, h.size)), r.payload...)
	// A reply larger than the socket's buffer goes in parts; files come with the first.
	n, _, err := c.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	if err != nil {
		return fmt.Errorf("%v: writing the reply: %w", m.command, err)
	}
	return nil
}
