package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"
)

// contentType is that of JSON lines.
const contentType = "application/x-ndjson"

// minRate is how fast a body must arrive on average, in bytes per second, once
// [Intake.grace] is over.
const minRate = 16 << 10

// answerTime is how long an answer may take, from the end of the body on.
const answerTime = 2 * time.Minute

// read returns the body of a request as it was sent, with at most limit bytes.
func (in *Intake) read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	// Until the request is over; a body of unknown length may be as large as allowed.
	held := limit
	if r.ContentLength >= 0 {
		held = r.ContentLength
	}
	if !in.held.TryAcquire(held) {
		return nil, delay(http.StatusServiceUnavailable, 5*time.Second, "the server has its hands full")
	}
	context.AfterFunc(r.Context(), func() { in.held.Release(held) })
	p := &paced{body: r.Body, conn: http.NewResponseController(w), due: time.Now().Add(in.grace)}
	data, err := io.ReadAll(http.MaxBytesReader(w, p, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, delay(http.StatusServiceUnavailable, time.Second, "the body came with less than %d bytes per second", minRate)
	case err != nil:
		return nil, delay(http.StatusServiceUnavailable, time.Second, "the body was cut short: %w", err)
	}
	// What is left of a body that is refused is read by net/http, in the time that was
	// left for it; a body that is whole leaves the connection to the next request.
	_ = p.conn.SetReadDeadline(time.Time{}) // as in Read
	// The server's own bound on answers counts from the header on.
	_ = p.conn.SetWriteDeadline(time.Now().Add(answerTime))
	return data, nil
}

func tooLarge(limit int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "at most %d bytes are taken at once", limit)
}

// paced ends the reading of a body that comes too slowly.
type paced struct {
	body io.ReadCloser
	conn *http.ResponseController
	due  time.Time // of the first byte
	n    int64
}

func (p *paced) Read(b []byte) (int, error) {
	// A connection without deadlines is one of a test.
	_ = p.conn.SetReadDeadline(p.due.Add(time.Duration(p.n) * time.Second / minRate))
	n, err := p.body.Read(b)
	p.n += int64(n)
	return n, err
}

func (p *paced) Close() error { return p.body.Close() }

// unpack undoes an encoding; the result has at most limit bytes.
func unpack(encoding string, data []byte, limit int64) ([]byte, error) {
	var from io.Reader = bytes.NewReader(data)
	switch encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not gzip: %w", err)
		}
		from = z
	case "zstd":
		z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20)) // as RFC 9659 wants of HTTP
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "the body is not zstd: %w", err)
		}
		defer z.Close()
		from = z
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding %q is none of gzip, zstd and identity", encoding)
	}
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if int64(len(text)) > limit {
		return nil, tooLarge(limit)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body can't be unpacked: %w", err)
	}
	return text, nil
}

// isLines tells whether a Content-Type is that of JSON lines.
func isLines(header string) bool {
	t, _, err := mime.ParseMediaType(header)
	return err == nil && t == contentType
}
