package vfiouser

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// testDevice has 16 bytes in BAR 0, a read-only ROM of 4 and a file behind
// BAR 2.
type testDevice struct {
	bar    [16]byte
	file   *os.File
	resets int
}

func (d *testDevice) Region(i int) Region {
	switch i {
	case 0:
		return Region{Size: uint64(len(d.bar))}
	case 2:
		return Region{Size: 4096, File: d.file}
	case ROMRegion:
		return Region{Size: 4, ReadOnly: true}
	}
	return Region{}
}

func (d *testDevice) IRQs(i int) uint32 {
	if i == MSIIRQ {
		return 4
	}
	return 0
}

func (d *testDevice) ReadRegion(i int, p []byte, off uint64) error {
	if i == 2 {
		return io.ErrUnexpectedEOF
	}
	copy(p, d.bar[off:])
	return nil
}

func (d *testDevice) WriteRegion(i int, p []byte, off uint64) error {
	if i == 2 {
		return io.ErrShortWrite
	}
	copy(d.bar[off:], p)
	return nil
}

func (d *testDevice) Reset() { d.resets++ }

// pair returns both ends of a connection.
func pair(t testing.TB) (client, server *net.UnixConn) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var conns []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		_ = f.Close()
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		conns = append(conns, c.(*net.UnixConn))
	}
	return conns[0], conns[1]
}

// A client is the other side of the protocol.
type client struct {
	t    *testing.T
	conn *net.UnixConn
	done chan error
}

// dial serves d and negotiates.
func dial(t *testing.T, d Device) *client {
	near, far := pair(t)
	c := &client{t: t, conn: near, done: make(chan error, 1)}
	go func() { c.done <- serveConn(context.Background(), far, d) }()
	payload := append(make([]byte, 4), "{\"capabilities\":{\"max_msg_fds\":8,\"twin_socket\":{\"supported\":true}}}\x00"...)
	r, errno, _ := c.do(cmdVersion, payload)
	require.Zero(t, errno)
	assert.Equal(t, "\x00\x00\x00\x00{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576}}\x00", string(r))
	return c
}

// encode makes a message.
func encode(cmd command, flags uint32, payload []byte) []byte {
	h := header{id: 7, command: cmd, size: uint32(headerSize + len(payload)), flags: flags}
	return append(h.append(nil), payload...)
}

// do sends a command with files and returns the reply's payload, error number
// and number of file descriptors.
func (c *client) do(cmd command, payload []byte, files ...int) (reply []byte, errno unix.Errno, fds int) {
	var oob []byte
	if files != nil {
		oob = unix.UnixRights(files...)
	}
	_, _, err := c.conn.WriteMsgUnix(encode(cmd, 0, payload), oob, nil)
	require.NoError(c.t, err)
	var head [headerSize]byte
	got := make([]byte, unix.CmsgSpace(4*maxFDs))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(head[:], got)
	require.NoError(c.t, err)
	require.Equal(c.t, headerSize, n)
	fds, err = closeFDs(got[:oobn])
	require.NoError(c.t, err)
	assert.EqualValues(c.t, 7, byteOrder.Uint16(head[0:]))
	assert.EqualValues(c.t, cmd, byteOrder.Uint16(head[2:]))
	flags := byteOrder.Uint32(head[8:])
	assert.EqualValues(c.t, flagReply, flags&typeMask)
	reply = make([]byte, byteOrder.Uint32(head[4:])-headerSize)
	_, err = io.ReadFull(c.conn, reply)
	require.NoError(c.t, err)
	errno = unix.Errno(byteOrder.Uint32(head[12:]))
	assert.Equal(c.t, errno != 0, flags&flagError != 0)
	return reply, errno, fds
}

// fields lays out integers by their sizes.
func fields(values ...any) []byte {
	var b bytes.Buffer
	for _, v := range values {
		if err := binary.Write(&b, byteOrder, v); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

type (
	u32 = uint32
	u64 = uint64
)

func TestCommands(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "bar"))
	require.NoError(t, err)
	defer file.Close()
	d := &testDevice{file: file}
	copy(d.bar[:], "0123456789abcdef")
	c := dial(t, d)
	for _, step := range []struct {
		name    string
		command command
		payload []byte
		files   []int
		reply   []byte
		errno   unix.Errno
		fds     int
	}{
		{"device", cmdGetInfo, make([]byte, 16), nil, fields(u32(16), u32(3), u32(9), u32(5)), 0, 0},
		{"device, short", cmdGetInfo, make([]byte, 15), nil, nil, unix.EINVAL, 0},
		{"region", cmdGetRegionInfo, fields(u32(32), u32(0), u32(0), u32(0), u64(0), u64(0)), nil,
			fields(u32(32), u32(3), u32(0), u32(0), u64(16), u64(0)), 0, 0},
		{"region to map", cmdGetRegionInfo, fields(u32(32), u32(0), u32(2), u32(0), u64(0), u64(0)), nil,
			fields(u32(32), u32(7), u32(2), u32(0), u64(4096), u64(0)), 0, 1},
		{"read-only region", cmdGetRegionInfo, fields(u32(32), u32(0), u32(6), u32(0), u64(0), u64(0)), nil,
			fields(u32(32), u32(1), u32(6), u32(0), u64(4), u64(0)), 0, 0},
		{"no such region", cmdGetRegionInfo, fields(u32(32), u32(0), u32(9), u32(0), u64(0), u64(0)), nil, nil, unix.EINVAL, 0},
		{"MSI", cmdGetIRQInfo, fields(u32(16), u32(0), u32(1), u32(0)), nil, fields(u32(16), u32(9), u32(1), u32(4)), 0, 0},
		{"INTx", cmdGetIRQInfo, fields(u32(16), u32(0), u32(0), u32(0)), nil, fields(u32(16), u32(7), u32(0), u32(0)), 0, 0},
		{"no such interrupt", cmdGetIRQInfo, fields(u32(16), u32(0), u32(5), u32(0)), nil, nil, unix.EINVAL, 0},
		{"eventfds", cmdSetIRQs, fields(u32(20), u32(irqDataEventFD|irqActionTrigger), u32(1), u32(1), u32(2)), []int{0, 0}, []byte{}, 0, 0},
		{"eventfds taken away", cmdSetIRQs, fields(u32(20), u32(irqDataEventFD|irqActionTrigger), u32(1), u32(0), u32(4)), nil, []byte{}, 0, 0},
		{"too few eventfds", cmdSetIRQs, fields(u32(20), u32(irqDataEventFD|irqActionTrigger), u32(1), u32(0), u32(4)), []int{0}, nil, unix.EINVAL, 0},
		{"interrupts off", cmdSetIRQs, fields(u32(20), u32(irqDataNone|irqActionTrigger), u32(0), u32(0), u32(0)), nil, []byte{}, 0, 0},
		{"vector too high", cmdSetIRQs, fields(u32(20), u32(irqDataNone|irqActionMask), u32(1), u32(4), u32(1)), nil, nil, unix.EINVAL, 0},
		{"vectors wrap", cmdSetIRQs, fields(u32(20), u32(irqDataNone|irqActionMask), u32(1), u32(1), ^u32(0)), nil, nil, unix.EINVAL, 0},
		{"two actions", cmdSetIRQs, fields(u32(20), u32(irqDataNone|irqActionMask|irqActionUnmask), u32(1), u32(0), u32(1)), nil, nil, unix.EINVAL, 0},
		{"booleans", cmdSetIRQs, append(fields(u32(22), u32(irqDataBool|irqActionMask), u32(1), u32(0), u32(2)), 0, 1), nil, []byte{}, 0, 0},
		{"booleans missing", cmdSetIRQs, append(fields(u32(22), u32(irqDataBool|irqActionMask), u32(1), u32(0), u32(2)), 0), nil, nil, unix.EINVAL, 0},
		{"read", cmdRegionRead, fields(u64(10), u32(0), u32(6)), nil, append(fields(u64(10), u32(0), u32(6)), "abcdef"...), 0, 0},
		{"read beyond", cmdRegionRead, fields(u64(10), u32(0), u32(7)), nil, nil, unix.EINVAL, 0},
		{"read wraps", cmdRegionRead, fields(^u64(0), u32(0), u32(7)), nil, nil, unix.EINVAL, 0},
		{"read too much", cmdRegionRead, fields(u64(0), u32(0), u32(maxTransfer+1)), nil, nil, unix.EINVAL, 0},
		{"read of nothing", cmdRegionRead, fields(u64(0), u32(1), u32(1)), nil, nil, unix.EINVAL, 0},
		{"read fails", cmdRegionRead, fields(u64(0), u32(2), u32(1)), nil, nil, unix.EIO, 0},
		{"write", cmdRegionWrite, append(fields(u64(2), u32(0), u32(2)), "XY"...), nil, fields(u64(2), u32(0), u32(2)), 0, 0},
		{"read back", cmdRegionRead, fields(u64(0), u32(0), u32(5)), nil, append(fields(u64(0), u32(0), u32(5)), "01XY4"...), 0, 0},
		{"write with too little data", cmdRegionWrite, append(fields(u64(2), u32(0), u32(2)), "X"...), nil, nil, unix.EINVAL, 0},
		{"write of read-only", cmdRegionWrite, append(fields(u64(0), u32(6), u32(1)), "X"...), nil, nil, unix.EPERM, 0},
		{"write fails", cmdRegionWrite, append(fields(u64(0), u32(2), u32(1)), "X"...), nil, nil, unix.EIO, 0},
		{"map", cmdDMAMap, fields(u32(32), u32(3), u64(0), u64(0x1000), u64(0x1000)), []int{0}, []byte{}, 0, 0},
		{"map over it", cmdDMAMap, fields(u32(32), u32(3), u64(0), u64(0x1fff), u64(1)), nil, nil, unix.EEXIST, 0},
		{"map beside it", cmdDMAMap, fields(u32(32), u32(3), u64(0), u64(0x2000), u64(1)), nil, []byte{}, 0, 0},
		{"map to the end", cmdDMAMap, fields(u32(32), u32(3), u64(0), ^u64(0), u64(1)), nil, []byte{}, 0, 0},
		{"map wraps", cmdDMAMap, fields(u32(32), u32(3), u64(0), ^u64(0), u64(2)), nil, nil, unix.EINVAL, 0},
		{"map of nothing", cmdDMAMap, fields(u32(32), u32(3), u64(0), u64(0), u64(0)), nil, nil, unix.EINVAL, 0},
		{"unmap of a part", cmdDMAUnmap, fields(u32(24), u32(0), u64(0x1000), u64(1)), nil, nil, unix.ENOENT, 0},
		{"unmap", cmdDMAUnmap, fields(u32(24), u32(0), u64(0x1000), u64(0x1000)), nil, fields(u32(24), u32(0), u64(0x1000), u64(0x1000)), 0, 0},
		{"unmap again", cmdDMAUnmap, fields(u32(24), u32(0), u64(0x1000), u64(0x1000)), nil, nil, unix.ENOENT, 0},
		{"unmap all", cmdDMAUnmap, fields(u32(24), u32(unmapAll), u64(0), u64(0)), nil, fields(u32(24), u32(unmapAll), u64(0), u64(0)), 0, 0},
		{"map once more", cmdDMAMap, fields(u32(32), u32(3), u64(0), u64(0x2000), u64(1)), nil, []byte{}, 0, 0},
		{"reset", cmdReset, nil, nil, []byte{}, 0, 0},
		{"not supported", 16, nil, nil, nil, unix.ENOTSUP, 0},
	} {
		reply, errno, fds := c.do(step.command, step.payload, step.files...)
		assert.Equal(t, step.errno, errno, step.name)
		if step.errno == 0 {
			assert.Equal(t, step.reply, reply, step.name)
		} else {
			assert.Empty(t, reply, step.name)
		}
		assert.Equal(t, step.fds, fds, step.name)
	}

	// A command that wants no reply gets none: the next reply is that of the
	// read, which sees what was written before.
	_, err = c.conn.Write(encode(cmdRegionWrite, flagNoReply, append(fields(u64(0), u32(0), u32(1)), '!')))
	require.NoError(t, err)
	reply, _, _ := c.do(cmdRegionRead, fields(u64(0), u32(0), u32(1)))
	assert.Equal(t, byte('!'), reply[accessSize])

	require.NoError(t, c.conn.Close())
	assert.NoError(t, <-c.done)
	assert.Equal(t, 1, d.resets)
}

// TestLargestRead: a read of as much as was agreed is answered whole, though it
// does not fit the socket's buffer.
func TestLargestRead(t *testing.T) {
	near, far := pair(t)
	require.NoError(t, far.SetWriteBuffer(4096))
	c := &client{t: t, conn: near, done: make(chan error, 1)}
	go func() { c.done <- serveConn(context.Background(), far, &largeDevice{}) }()
	_, errno, _ := c.do(cmdVersion, make([]byte, 4))
	require.Zero(t, errno)
	reply, errno, _ := c.do(cmdRegionRead, fields(u64(0), u32(0), u32(maxTransfer)))
	require.Zero(t, errno)
	assert.Len(t, reply, accessSize+maxTransfer)
	require.NoError(t, near.Close())
	assert.NoError(t, <-c.done)
}

// largeDevice has zeros in a BAR as large as the largest read.
type largeDevice struct{ testDevice }

func (*largeDevice) Region(int) Region                    { return Region{Size: maxTransfer} }
func (*largeDevice) ReadRegion(int, []byte, uint64) error { return nil }

func TestViolations(t *testing.T) {
	version := encode(cmdVersion, 0, make([]byte, 4))
	for _, tc := range []struct {
		name, want string
		stream     []byte
	}{
		{"no version", "vfio-user client: DEVICE_GET_INFO came before VERSION", encode(cmdGetInfo, 0, make([]byte, 16))},
		{"version twice", "vfio-user client: VERSION came twice", append(bytes.Clone(version), version...)},
		{"other version", "vfio-user client: VERSION: major version 1, want 0", encode(cmdVersion, 0, fields(uint16(1), uint16(0)))},
		{"short version", "vfio-user client: VERSION: payload of 3 bytes, want at least 4", encode(cmdVersion, 0, make([]byte, 3))},
		{"no NUL", "vfio-user client: VERSION: version data does not end with NUL", encode(cmdVersion, 0, []byte("\x00\x00\x00\x00{}"))},
		{"not JSON", "vfio-user client: VERSION: version data: unexpected end of JSON input", encode(cmdVersion, 0, []byte("\x00\x00\x00\x00{\x00"))},
		{"reply", "vfio-user client: VERSION: message type 1 is not a command", encode(cmdVersion, flagReply, nil)},
		{"too small", "vfio-user client: VERSION: message size 15 is smaller than the 16 byte header", header{command: cmdVersion, size: 15}.append(nil)},
		{"too large", "vfio-user client: VERSION: message size 1048609 is larger than the agreed 1048608 bytes", header{command: cmdVersion, size: maxMessage + 1}.append(nil)},
		{"ends in a header", "vfio-user client: unexpected EOF", version[:10]},
		{"ends in a payload", "vfio-user client: VERSION: reading 4 bytes of payload: unexpected EOF", version[:18]},
		{"unknown command", "vfio-user client: command 99 came before VERSION", encode(99, 0, nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := pair(t)
			done := make(chan error, 1)
			go func() { done <- serveConn(context.Background(), far, &testDevice{}) }()
			_, err := near.Write(tc.stream)
			require.NoError(t, err)
			require.NoError(t, near.CloseWrite())
			_, err = io.Copy(io.Discard, near)
			require.NoError(t, err)
			assert.EqualError(t, <-done, tc.want)
		})
	}
}

func TestTooManyFiles(t *testing.T) {
	near, far := pair(t)
	done := make(chan error, 1)
	go func() { done <- serveConn(context.Background(), far, &testDevice{}) }()
	_, _, err := near.WriteMsgUnix(encode(cmdVersion, 0, make([]byte, 4)), unix.UnixRights(make([]int, maxFDs+4)...), nil)
	require.NoError(t, err)
	assert.EqualError(t, <-done, "vfio-user client: a message came with more than the agreed 8 file descriptors")
}

func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listen := func() *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		return l
	}
	t.Run("client leaves", func(t *testing.T) {
		l, done := listen(), make(chan error, 1)
		go func() { done <- Serve(context.Background(), l, &testDevice{}) }()
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		assert.NoError(t, <-done)
	})
	t.Run("ends before a client comes", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		assert.ErrorIs(t, Serve(ctx, listen(), &testDevice{}), context.Canceled)
	})
	t.Run("ends with a client", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		l, done := listen(), make(chan error, 1)
		go func() { done <- Serve(ctx, l, &testDevice{}) }()
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		require.NoError(t, err)
		defer c.Close()
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(encode(cmdVersion, 0, nil))
	f.Add(header{command: cmdRegionWrite, size: ^u32(0), flags: ^u32(0)}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		h, err := parseHeader((*[headerSize]byte)(b))
		if err == nil && (h.size < headerSize || h.size > maxMessage) {
			t.Errorf("size %d was let through", h.size)
		}
		if again := h.append(nil); !bytes.Equal(again, b[:headerSize]) {
			t.Errorf("% x became % x", b[:headerSize], again)
		}
	})
}

// FuzzServe serves any stream of bytes: it must neither panic nor hang, and
// must answer with whole replies.
func FuzzServe(f *testing.F) {
	version := encode(cmdVersion, 0, make([]byte, 4))
	add := func(messages ...[]byte) { f.Add(bytes.Join(append([][]byte{version}, messages...), nil)) }
	add(encode(cmdGetInfo, 0, make([]byte, 16)), encode(cmdReset, 0, nil))
	add(encode(cmdRegionRead, 0, fields(u64(0), u32(0), u32(16))))
	add(encode(cmdRegionWrite, flagNoReply, append(fields(u64(0), u32(0), u32(2)), 1, 2)))
	add(encode(cmdDMAMap, 0, fields(u32(32), u32(3), u64(0), u64(0), u64(4096))),
		encode(cmdDMAUnmap, 0, fields(u32(24), u32(0), u64(0), u64(4096))))
	add(encode(cmdSetIRQs, 0, fields(u32(20), u32(irqDataNone|irqActionMask), u32(1), u32(0), u32(1))))
	add(encode(cmdGetRegionInfo, 0, fields(u32(32), u32(0), u32(6), u32(0), u64(0), u64(0))))
	f.Fuzz(func(t *testing.T, stream []byte) {
		near, far := pair(t)
		done := make(chan struct{})
		go func() {
			_ = serveConn(context.Background(), far, &testDevice{})
			close(done)
		}()
		go func() {
			_, _ = near.Write(stream) // fails when the server hangs up first
			_ = near.CloseWrite()
		}()
		replies, err := io.ReadAll(near)
		<-done
		if err != nil && len(replies) == 0 {
			return // reset, for the server left part of the stream unread
		}
		for len(replies) > 0 {
			if len(replies) < headerSize || int(byteOrder.Uint32(replies[4:])) < headerSize || int(byteOrder.Uint32(replies[4:])) > len(replies) {
				t.Fatalf("not a whole reply: % x", replies)
			}
			replies = replies[byteOrder.Uint32(replies[4:]):]
		}
	})
}
