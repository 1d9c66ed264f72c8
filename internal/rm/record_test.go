package rm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exchange is one call to a driver with its answer, a line of a recording.
type exchange struct {
	Escape  uint8    `json:"escape,omitempty"`
	Attach  *uint32  `json:"attach,omitempty"` // minor, in place of an escape
	Request []memory `json:"request,omitempty"`
	Reply   []memory `json:"reply,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// memory is a buffer in JSON: its length and its bytes in hexadecimal without the
// zeros at the end.
type memory []byte

func (m memory) MarshalJSON() ([]byte, error) {
	return json.Marshal(fmt.Sprintf("%d:%x", len(m), bytes.TrimRight(m, "\x00")))
}

func (m *memory) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	length, digits, _ := strings.Cut(s, ":")
	var n int
	if _, err := fmt.Sscan(length, &n); err != nil {
		return err
	}
	*m = make(memory, n)
	_, err := hex.Decode(*m, []byte(digits))
	return err
}

// contents copies the buffers of a call, with zeros for the addresses in them.
func contents(c call) []memory {
	var all []memory
	for i, b := range c.Buffers {
		m := bytes.Clone(b.Bytes)
		if i+1 < len(c.Buffers) {
			clear(m[b.Next : b.Next+8])
		}
		all = append(all, m)
	}
	return all
}

// recorder writes down what a client and a driver say to each other.
type recorder struct {
	kernel
	exchanges []exchange
}

func (r *recorder) Escape(c call) error {
	e := exchange{Escape: c.Number, Request: contents(c)}
	err := r.kernel.Escape(c)
	e.Reply = contents(c)
	r.note(e, err)
	return err
}

func (r *recorder) Attach(minor uint32) error {
	err := r.kernel.Attach(minor)
	r.note(exchange{Attach: &minor}, err)
	return err
}

func (r *recorder) note(e exchange, err error) {
	if err != nil {
		e.Error = err.Error()
	}
	r.exchanges = append(r.exchanges, e)
}

// save writes the recording, one exchange a line.
func (r *recorder) save(t *testing.T, name string) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for _, e := range r.exchanges {
		require.NoError(t, enc.Encode(e))
	}
	require.NoError(t, os.WriteFile(name, out.Bytes(), 0o644))
}

// replay is a driver that answers as a recorded one did.
type replay struct {
	t         *testing.T
	exchanges []exchange
}

func load(t *testing.T, name string) *replay {
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	r := &replay{t: t}
	for dec := json.NewDecoder(f); dec.More(); {
		var e exchange
		require.NoError(t, dec.Decode(&e))
		r.exchanges = append(r.exchanges, e)
	}
	return r
}

// next returns the next exchange, which must have been asked the same.
func (r *replay) next(want exchange) exchange {
	require.NotEmpty(r.t, r.exchanges, "the recording is over")
	e := r.exchanges[0]
	r.exchanges = r.exchanges[1:]
	require.Equal(r.t, want, exchange{Escape: e.Escape, Attach: e.Attach, Request: e.Request})
	return e
}

func (r *replay) Escape(c call) error {
	e := r.next(exchange{Escape: c.Number, Request: contents(c)})
	for i, m := range e.Reply {
		copy(c.Buffers[i].Bytes, m)
	}
	return e.err()
}

func (r *replay) Attach(minor uint32) error { return r.next(exchange{Attach: &minor}).err() }

func (r *replay) Close() error {
	require.Empty(r.t, r.exchanges, "the recording goes on")
	return nil
}

func (e exchange) err() error {
	if e.Error == "" {
		return nil
	}
	return fmt.Errorf("%s", e.Error)
}

// replayed asks a recorded driver everything.
func replayed(t *testing.T, dir string) *Survey {
	c, err := newClient(load(t, filepath.Join(dir, "calls.jsonl")))
	require.NoError(t, err)
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return s
}

// TestRecorded asks drivers of real machines, as -record of the live test wrote
// down what they said.
func TestRecorded(t *testing.T) {
	recordings, err := filepath.Glob("testdata/*/survey.json")
	require.NoError(t, err)
	require.NotEmpty(t, recordings)
	for _, name := range recordings {
		t.Run(filepath.Base(filepath.Dir(name)), func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			var want Survey
			require.NoError(t, json.Unmarshal(text, &want))
			assert.Equal(t, &want, replayed(t, filepath.Dir(name)))
		})
	}
}

func TestRecorder(t *testing.T) {
	d := newDriver(t, "565.77")
	d.short = true
	d.absent[1] = true
	r := &recorder{kernel: d}
	c, err := newClient(r)
	require.NoError(t, err)
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	dir := t.TempDir()
	r.save(t, filepath.Join(dir, "calls.jsonl"))
	assert.Equal(t, s, replayed(t, dir))
}
