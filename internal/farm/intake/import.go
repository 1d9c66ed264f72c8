package intake

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/report"
)

// imported is the answer to an import.
type imported struct {
	Run   farm.Run `json:"run"`
	Fresh bool     `json:"fresh"` // false: it was there
}

func (in *Intake) postImport(w http.ResponseWriter, r *http.Request) (any, error) {
	packed, err := in.read(w, r, store.MaxReport+overhead)
	if err != nil {
		return nil, err
	}
	text, err := unpack(r.Header.Get("Content-Encoding"), packed, store.MaxReport)
	if err != nil {
		return nil, err
	}
	var a imported
	a.Run, a.Fresh, err = in.Import(r.Context(), farm.Source(r.FormValue("source")), r.FormValue("node"), text)
	if _, ok := errors.AsType[*ImportError](err); ok {
		return nil, refuse(http.StatusBadRequest, "%w", err)
	}
	return a, err
}

// ImportError says that what was to be imported can't be.
type ImportError struct{ err error }

func (e *ImportError) Error() string { return "import: " + e.err.Error() }
func (e *ImportError) Unwrap() error { return e.err }

func cannot(format string, args ...any) error { return &ImportError{fmt.Errorf(format, args...)} }

// Import records a report that did not come over the network: a file of a stick
// ([farm.Stick]) or the log of a serial port ([farm.Serial]), which may have other
// text between the lines. It belongs to the node, or where that is empty to the
// one that the report names. A report that is there already, be it that it was
// delivered, is found instead; then fresh is false. The error is an [*ImportError]
// or one of the store.
func (in *Intake) Import(ctx context.Context, source farm.Source, node string, text []byte) (run farm.Run, fresh bool, err error) {
	if run, err = in.describe(source, node, text); err != nil {
		return run, false, err
	}
	if had, err := in.delivered(ctx, run, text); err != nil || had != nil {
		return *cmp.Or(had, &run), false, err
	}
	if fresh, err = in.Store.Import(ctx, run, split(text)); err != nil {
		return run, false, err
	}
	in.judgeSoon()
	run, err = in.Store.Run(ctx, run.ID)
	return run, fresh, err
}

// describe says what run a report is of. It is pure but for the clock.
func (in *Intake) describe(source farm.Source, node string, text []byte) (run farm.Run, err error) {
	if source != farm.Stick && source != farm.Serial {
		return run, cannot("source %q is neither %s nor %s", source, farm.Stick, farm.Serial)
	}
	if len(text) > store.MaxReport {
		return run, cannot("%w", store.ErrTooLarge)
	}
	told, err := report.Parse(bytes.NewReader(text))
	if err != nil {
		return run, cannot("%w", err)
	}
	if node == "" && told.Start != nil {
		node = told.Start.DUT.ID
	}
	if !in.Known(node) {
		return run, cannot("there is no node %q; say which node the report is of", node)
	}
	return in.imported(told, farm.Run{Source: source, Node: node, ID: importID(node, text)}), nil
}

// importID depends on nothing but the report and its node.
func importID(node string, text []byte) string {
	return uuid.NewHash(sha256.New(), uuid.Nil, append([]byte(node+"\x00"), text...), 8).String()
}

// plausible is how far a machine's clock may be from ours to be believed.
const plausible = 400 * 24 * time.Hour

// imported fills in what a report says about its run.
func (in *Intake) imported(told *report.Run, r farm.Run) farm.Run {
	now := in.Now()
	for _, s := range told.Steps {
		if r.Started.IsZero() {
			r.Started = s.Started
		}
		if !s.Started.IsZero() {
			r.Stage, r.Updated = stageName(s.ID), s.Started
		}
		if !s.Ended.IsZero() {
			r.Updated = s.Ended
		}
	}
	if d := now.Sub(r.Started); d > plausible || d < -plausible {
		r.Started, r.Updated = now, now
	}
	r.Offered, r.Ended = r.Started, r.Updated
	r.Night = in.Night(r.Started)
	r.State = farm.Complete
	if told.End == nil {
		r.State, r.Why = farm.Lost, "what was imported ends before the report does"
		if r.Stage != "" {
			r.Why += ", in stage " + r.Stage
		}
	}
	return r
}

// delivered returns the run of the same node and night that delivered just this
// report, if there is one.
func (in *Intake) delivered(ctx context.Context, run farm.Run, text []byte) (*farm.Run, error) {
	runs, err := in.Store.Runs(ctx, store.Query{Node: run.Node, Night: run.Night})
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.Bytes != int64(len(text)) || r.ID == run.ID {
			continue
		}
		from, err := in.Store.Report(ctx, r.ID)
		if errors.Is(err, store.ErrRemoved) {
			continue
		}
		if err != nil {
			return nil, err
		}
		had, err := io.ReadAll(from)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(had, text) {
			return &r, nil
		}
	}
	return nil, nil
}

// split makes chunks of a text of any kind: of whole lines where there are any.
func split(text []byte) []store.Chunk {
	const size = 1 << 20
	var chunks []store.Chunk
	for len(text) > 0 {
		n := min(size, len(text))
		if i := bytes.LastIndexByte(text[:n], '\n'); i >= 0 && n < len(text) {
			n = i + 1
		}
		chunks = append(chunks, store.Chunk{Data: text[:n]})
		text = text[n:]
	}
	return chunks
}
