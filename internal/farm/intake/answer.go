package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store"
)

// problem is an error with the status of its answer.
type problem struct {
	status int
	retry  time.Duration // when to try again; 0 where that does not help
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

// refuse returns a problem that stays when it is tried again.
func refuse(status int, format string, args ...any) error {
	return &problem{status: status, err: fmt.Errorf(format, args...)}
}

// delay returns a problem that may be over after a while.
func delay(status int, retry time.Duration, format string, args ...any) error {
	return &problem{status: status, retry: retry, err: fmt.Errorf(format, args...)}
}

// handler answers a request: with a value to be written as JSON, or an [io.Reader]
// of JSON lines to be copied.
type handler func(w http.ResponseWriter, r *http.Request) (any, error)

// methods are the handlers of a path.
type methods map[string]handler

// route serves a path.
func (in *Intake) route(path string, m methods) {
	in.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		answer, err := in.answer(w, r, m)
		if lines, ok := answer.(io.Reader); ok && err == nil {
			w.Header().Set("Content-Type", contentType)
			if _, err := io.Copy(w, lines); err != nil {
				in.Log.Error("a report could not be sent", "path", r.URL.Path, "error", err)
				panic(http.ErrAbortHandler) // the client must not take the part for the whole
			}
			return
		}
		status := http.StatusOK
		if err != nil {
			status, answer = in.failure(w.Header(), r, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // the client is gone, or reads it
	})
}

func (in *Intake) answer(w http.ResponseWriter, r *http.Request, m methods) (any, error) {
	if !in.Addresses.Allow(in.Now(), limit.Address(r.RemoteAddr)) {
		return nil, delay(http.StatusTooManyRequests, in.Addresses.Every(), "too many requests from this address")
	}
	if len(m) == 0 {
		return nil, refuse(http.StatusNotFound, "there is nothing at this path")
	}
	h, ok := m[r.Method]
	if !ok {
		allowed := strings.Join(slices.Sorted(maps.Keys(m)), ", ")
		w.Header().Set("Allow", allowed)
		return nil, refuse(http.StatusMethodNotAllowed, "this path takes %s", allowed)
	}
	if r.Method == http.MethodPost {
		// Also of a request that is refused, net/http reads the body.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(in.grace)) // see paced
	}
	return h(w, r)
}

// failure is the body of an answer to what went wrong.
type failure struct {
	Error    string `json:"error"`
	Next     *int   `json:"next,omitempty"`     // chunk that is expected
	Conflict bool   `json:"conflict,omitempty"` // a chunk of that number, with other bytes, is there
}

// failure returns the status and body of the answer to an error, and sets the
// header.
func (in *Intake) failure(h http.Header, r *http.Request, err error) (int, failure) {
	var p *problem
	var seq *store.SequenceError
	f := failure{Error: err.Error()}
	switch {
	case errors.As(err, &p):
	case errors.As(err, &seq):
		f.Next, f.Conflict = &seq.Next, seq.Conflict
		p = &problem{status: http.StatusConflict}
	case errors.Is(err, store.ErrOver):
		p = &problem{status: http.StatusForbidden}
	case errors.Is(err, store.ErrNotFound):
		p = &problem{status: http.StatusNotFound}
	case errors.Is(err, store.ErrTooLarge):
		p = &problem{status: http.StatusRequestEntityTooLarge}
	case errors.Is(err, store.ErrRemoved):
		p = &problem{status: http.StatusGone}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		p = &problem{status: http.StatusServiceUnavailable, retry: time.Second}
	default:
		in.Log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		f.Error = "the server could not do it; its log says why"
		p = &problem{status: http.StatusInternalServerError, retry: 5 * time.Second}
	}
	switch {
	case p.retry > 0:
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retry.Seconds()))))
	case p.status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	return p.status, f
}
