package deliver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// maxChunk bounds a chunk, unpacked. A line that is longer is a chunk of its own.
	maxChunk = 1 << 20
	// gather is how long lines are collected before they are sent: those of one
	// stage come together.
	gather = 250 * time.Millisecond
	// anew is after how many tries without an answer the network is set up again:
	// the cable may be in another port by now.
	anew = 8
)

// Collector delivers a report that grows to a server, in numbered chunks of whole
// lines:
//
//	POST URL/chunks/0, 1, 2 …
//	Authorization: Bearer TOKEN
//	Content-Type: application/x-ndjson
//	Content-Encoding: gzip
//
// The server answers 200 with {"next": n}, n being the chunk it wants next, once
// it has stored the chunk, and to one that it has already too. 409 with {"next": n}
// sends the node to another chunk: a server that lost some gets them again. Every
// chunk is kept, and has the same bytes each time it is sent.
//
// It is a sink of the report: Write never waits for the server. The exported
// fields may be changed before Run.
type Collector struct {
	Client  *http.Client                           // http.DefaultClient
	Delay   func(try int, err error) time.Duration // [Delay]
	Connect func(context.Context) error            // sets the network up; nil if it is

	run   *url.URL
	token string
	hurry chan struct{} // ends a wait between tries

	mu      sync.Mutex
	text    []byte        // what is in no chunk yet
	size    int           // of all whole lines so far
	urgent  int           // so many bytes are to be sent at once
	chunks  []chunk       // all of them
	next    int           // the chunk that the server wants
	closed  bool          // nothing more is written
	err     error         // why it has given up
	trouble error         // of the last try, nil if that went well
	changed chan struct{} // closed at the next change of any of these

	connected bool // the fields from here on belong to Run
	silence   int  // tries without an answer, in a row
}

type chunk struct {
	packed []byte
	end    int // offset in the report
}

// NewCollector returns a collector for a run, by its URL on the server and the token
// that entitles to deliver to it. It delivers while [Collector.Run] runs.
func NewCollector(run *url.URL, token string) *Collector {
	return &Collector{
		Client: http.DefaultClient, Delay: Delay,
		run: run, token: token, hurry: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// update changes the state under its lock and wakes who waits for a change.
func (c *Collector) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Write adds to the report. Its error is that the rest will not be delivered.
func (c *Collector) Write(p []byte) (n int, err error) {
	c.update(func() {
		if err = c.err; err != nil {
			return
		}
		n = len(p)
		if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
			c.size = c.packed() + len(c.text) + i + 1
		}
		c.text = append(c.text, p...)
	})
	return n, err
}

// Close says that the report is whole. It goes on to be delivered.
func (c *Collector) Close() error {
	c.update(func() { c.closed = true })
	return nil
}

// packed is the size of what is in chunks; the lock is held.
func (c *Collector) packed() int { return c.upTo(len(c.chunks)) }

// upTo is the size of the first n chunks; the lock is held.
func (c *Collector) upTo(n int) int {
	if n == 0 {
		return 0
	}
	return c.chunks[n-1].end
}

// Wait waits until the server has all lines written before the call. The error
// says why it has not: for good, see [Final], or not until the context ended.
func (c *Collector) Wait(ctx context.Context) error {
	want := 0
	c.update(func() {
		want = c.size
		c.urgent = want
	})
	select {
	case c.hurry <- struct{}{}:
	default: // it is in a hurry
	}
	for {
		c.mu.Lock()
		have, err, trouble, changed := c.upTo(c.next), c.err, c.trouble, c.changed
		c.mu.Unlock()
		switch {
		case have >= want:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if trouble == nil {
				trouble = errors.New("there was no answer yet")
			}
			return fmt.Errorf("%d of %d bytes of the report are not at %s: %w", want-have, want, c.run.Redacted(), trouble)
		}
	}
}

// Run delivers until the report is whole and delivered, the server refuses it or
// the context ends.
func (c *Collector) Run(ctx context.Context) {
	for c.fill(ctx) {
		if err := persist(ctx, c.Delay, c.hurry, c.try); err != nil {
			c.update(func() {
				c.err = fmt.Errorf("deliver to %s: %w", c.run.Redacted(), err)
				c.text, c.chunks, c.next = nil, nil, 0
			})
			return
		}
	}
}

// fill waits until there is a chunk to send, and reports whether there will be one.
func (c *Collector) fill(ctx context.Context) bool {
	var gathered <-chan time.Time
	enough := false
	for {
		c.mu.Lock()
		packed, changed := c.packed(), c.changed
		fresh := c.size - packed
		switch {
		case c.next < len(c.chunks):
			c.mu.Unlock()
			return true
		case fresh > 0 && (enough || c.closed || c.urgent > packed || fresh >= maxChunk):
			c.pack()
			c.mu.Unlock()
			return true
		case c.closed:
			c.mu.Unlock()
			return false
		}
		c.mu.Unlock()
		if fresh > 0 && gathered == nil {
			gathered = time.After(gather)
		}
		select {
		case <-changed:
		case <-gathered:
			enough = true
		case <-ctx.Done():
			return false
		}
	}
}

// pack makes a chunk of the text, which has a whole line; the lock is held.
func (c *Collector) pack() {
	cut := bytes.LastIndexByte(c.text[:min(maxChunk, len(c.text))], '\n') + 1
	if cut == 0 {
		cut = bytes.IndexByte(c.text, '\n') + 1
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(c.text[:cut]) // a Buffer takes everything
	_ = w.Close()
	c.chunks = append(c.chunks, chunk{packed.Bytes(), c.packed() + cut})
	c.text = bytes.Clone(c.text[cut:])
}

// try sends the chunk that the server wants, once.
func (c *Collector) try(ctx context.Context) error {
	err := c.connect(ctx)
	if err == nil {
		err = c.post(ctx)
	}
	c.update(func() { c.trouble = err })
	return err
}

// connect sets the network up before the first try, and anew when nobody answers.
// Should that fail, the address from before may still do.
func (c *Collector) connect(ctx context.Context) error {
	if c.Connect == nil || c.connected && (c.silence == 0 || c.silence%anew != 0) {
		return nil
	}
	err := c.Connect(ctx)
	if err != nil && c.connected {
		return nil
	}
	c.connected = err == nil
	return err
}

func (c *Collector) post(ctx context.Context) error {
	c.mu.Lock()
	seq, made := c.next, len(c.chunks)
	packed := c.chunks[seq].packed
	c.mu.Unlock()
	header := http.Header{
		"Content-Type": {ContentType}, "Content-Encoding": {"gzip"},
		// Never sent: net/http repeats the request itself on a connection that the
		// server has closed meanwhile (http.Transport).
		"Idempotency-Key": nil,
	}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	r, err := send(ctx, c.Client, http.MethodPost, c.run.JoinPath("chunks", strconv.Itoa(seq)), header, bytes.NewReader(packed))
	if err != nil {
		c.silence++
		return err
	}
	c.silence = 0
	next, err := r.next(made)
	if err != nil {
		return err
	}
	c.update(func() { c.next = next })
	if next <= seq {
		return fmt.Errorf("the server answered %s to chunk %d and wants chunk %d again", r.status, seq, next)
	}
	return nil
}

// next is the chunk that the server wants after the one that it answers, of those
// that were made so far or the first that is not.
func (r *reply) next(made int) (int, error) {
	if !r.ok() && r.code != http.StatusConflict {
		return 0, r.failure()
	}
	var a struct {
		Next     *int `json:"next"`
		Conflict bool `json:"conflict"`
	}
	err := json.Unmarshal(r.body, &a)
	switch {
	case err == nil && a.Conflict:
		return 0, refused{fmt.Errorf("the server has another report of this run: another start of this machine delivered it (%s)", r.words())}
	case err != nil || a.Next == nil || *a.Next < 0:
		return 0, fmt.Errorf("the server answered %s without a number of the chunk that it wants: %s", r.status, r.words())
	case *a.Next > made:
		return 0, refused{fmt.Errorf("the server has %d chunks of this run, of which this start of the machine made %d: another start delivered the others", *a.Next, made)}
	}
	return *a.Next, nil
}
