package driver

import (
	"fmt"

	"mkp2pimg/internal/kmsg"
)

// Log follows the kernel's log.
type Log struct{ kmsg *kmsg.Reader }

// FollowLog opens /dev/kmsg at its end: only what is logged from now on is read.
func FollowLog() (*Log, error) {
	r, err := kmsg.Open(kmsg.Device)
	if err != nil {
		return nil, err
	}
	if err := r.SkipToEnd(); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("skip to the end of %s: %w", kmsg.Device, err)
	}
	return &Log{r}, nil
}

// Lines returns the relevant lines logged since the last call.
func (l *Log) Lines() []string {
	var lines []string
	buf := make([]byte, kmsg.MaxRecord)
	for {
		n, err := l.kmsg.Read(buf)
		if err != nil {
			return lines // all read, or nothing more can be
		}
		if text, ok := Message(string(buf[:n])); ok && Relevant(text) {
			lines = append(lines, text)
		}
	}
}

// Close closes the log.
func (l *Log) Close() error { return l.kmsg.Close() }
