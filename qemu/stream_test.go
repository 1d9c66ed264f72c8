package qemu

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestStream(t *testing.T) {
	var seen []string
	var log bytes.Buffer
	s := stream{start: time.Now(), seen: func(text string) { seen = append(seen, text) }}
	s.read(pipe{Reader: strings.NewReader("one\r\ntwo\n\nthr")}, &log)
	assert.Equal(t, []string{"one", "two", "", "thr"}, seen)
	assert.Equal(t, "one\r\ntwo\n\nthr", log.String())
	assert.Len(t, s.lines, 4)
	assert.Equal(t, "one\ntwo\n\nthr", string(join(s.lines)), "a cut line stays without its end")
}

func TestStreamWithoutEnd(t *testing.T) {
	s := stream{}
	endless := io.LimitReader(zeros{}, maxStream+1000)
	s.read(pipe{Reader: endless}, io.Discard)
	assert.Len(t, s.lines, 1)
	assert.Len(t, s.lines[0].Text, maxStream)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestMonitor(t *testing.T) {
	greeting := `{"QMP": {"version": {}, "capabilities": []}}` + "\n" + `{"return": {}}` + "\n"
	for _, tt := range []struct {
		name, in, reason string
		stopped          bool
	}{
		{"power off", greeting + `{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}` + `{"event":"STOP"}`, "guest-shutdown", false},
		{"reset", greeting + `{"event":"RTC_CHANGE","data":{"offset":1}}{"event":"SHUTDOWN","data":{"reason":"guest-reset"}}`, "guest-reset", false},
		{"watchdog", greeting + `{"event":"WATCHDOG","data":{"action":"reset"}}{"event":"SHUTDOWN","data":{"reason":"guest-reset"}}`, watchdogReset, false},
		{"internal error", greeting + `{"event":"STOP"}`, "", true},
		{"cut", greeting + `{"event":"SHUT`, "", false},
		{"silent", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			stopped := false
			q := monitor{stopped: func() { stopped = true }}
			q.read(pipe{strings.NewReader(tt.in), &out}, nil)
			assert.Equal(t, tt.reason, q.reason)
			assert.Equal(t, tt.stopped, stopped)
			assert.Equal(t, tt.in != "", strings.Contains(out.String(), "qmp_capabilities"), "answers a greeting, and only that")
		})
	}
}
