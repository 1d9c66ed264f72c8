package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// maxStream bounds what is kept of one stream, so that a guest that prints
// without end does not take the host's memory.
const maxStream = 64 << 20

// stream collects the lines that come out of one port of the guest.
type stream struct {
	start time.Time
	seen  func(text string) // called with each line, if not nil
	lines []Line
}

func (s *stream) read(r io.ReadWriter, log io.Writer) {
	br := bufio.NewReader(io.LimitReader(io.TeeReader(r, log), maxStream))
	for {
		text, err := br.ReadString('\n')
		if text != "" {
			whole := strings.HasSuffix(text, "\n")
			text = strings.TrimRight(text, "\r\n")
			s.lines = append(s.lines, Line{At: time.Since(s.start), Text: text, Cut: !whole})
			if s.seen != nil {
				s.seen(text)
			}
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, r) // keep a writer beyond the bound going
			return
		}
	}
}

// join puts lines together again.
func join(lines []Line) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		b.WriteString(l.Text)
		if !l.Cut {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// monitor speaks QMP (QEMU's docs/interop/qmp-spec) as far as needed to learn
// why the guest ended.
type monitor struct {
	stopped func() // called when the guest is paused and can't go on
	reason  string // of the SHUTDOWN event: guest-shutdown, guest-reset, …
}

// watchdogReset is the reason for a SHUTDOWN event that a WATCHDOG event foretold.
const watchdogReset = "watchdog"

type qmpMessage struct {
	QMP   json.RawMessage `json:"QMP"`
	Event string          `json:"event"`
	Data  struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

func (q *monitor) read(rw io.ReadWriter, _ io.Writer) {
	dec := json.NewDecoder(rw)
	for {
		var msg qmpMessage
		if err := dec.Decode(&msg); err != nil {
			return
		}
		switch {
		case msg.QMP != nil:
			if _, err := io.WriteString(rw, `{"execute":"qmp_capabilities"}`+"\n"); err != nil {
				return
			}
		case msg.Event == "WATCHDOG":
			q.reason = watchdogReset
		case msg.Event == "SHUTDOWN" && q.reason == "":
			q.reason = msg.Data.Reason
		case msg.Event == "STOP" && q.reason == "":
			q.stopped()
		}
	}
}

// socketDir makes a directory whose path leaves room for a socket's name within
// the 108 bytes of sockaddr_un.
func socketDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > 60 {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "mkp2pimg-qemu-")
	if err != nil {
		return "", fmt.Errorf("directory for the emulator's sockets: %w", err)
	}
	return dir, nil
}

// ports are the sockets of a run, each read by a goroutine of its own.
type ports struct {
	dir       string // of the sockets
	keep      string // of the copies, none when empty
	listeners []net.Listener
	readers   sync.WaitGroup
}

// open waits for the emulator to connect to a socket and reads what it sends;
// log names the file that gets a copy, none when empty.
func (p *ports) open(ctx context.Context, name, log string, read func(io.ReadWriter, io.Writer)) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(p.dir, name))
	if err != nil {
		return fmt.Errorf("socket for the emulator: %w", err)
	}
	p.listeners = append(p.listeners, ln)
	file, err := keepFile(p.keep, log)
	if err != nil {
		return err
	}
	p.readers.Go(func() {
		defer file.Close()
		conn, err := ln.Accept()
		if err != nil {
			return // closed: the emulator never came
		}
		defer conn.Close()
		read(conn, file)
	})
	return nil
}

// close stops waiting for the emulator, and waits for what it has sent to be read.
func (p *ports) close() {
	for _, ln := range p.listeners {
		_ = ln.Close() // a second time it has nothing to do
	}
	p.readers.Wait()
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// keepFile creates a file in dir, or gives a writer to nowhere when either is
// empty.
func keepFile(dir, name string) (io.WriteCloser, error) {
	if dir == "" || name == "" {
		return discard{io.Discard}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("directory for the run's logs: %w", err)
	}
	return os.Create(filepath.Join(dir, name))
}

// keep writes a text to a file in dir, if there is one.
func keep(dir, name, text string) error {
	f, err := keepFile(dir, name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}

func copyFile(dst, src string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
