package intake

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/report"
)

// overhead is what packing may add to a body that can't be packed.
const overhead = 64 << 10

func (in *Intake) postChunk(w http.ResponseWriter, r *http.Request) (any, error) {
	id, err := in.authorise(r)
	if err != nil {
		return nil, err
	}
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 31)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%q is not the number of a chunk", r.PathValue("seq"))
	}
	if !isLines(r.Header.Get("Content-Type")) {
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Type must be %s", contentType)
	}
	packed, err := in.read(w, r, MaxChunk+overhead)
	if err != nil {
		return nil, err
	}
	select {
	case in.room <- struct{}{}:
		defer func() { <-in.room }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	c, err := chunk(r.Header.Get("Content-Encoding"), packed)
	if err != nil {
		return nil, err
	}
	c.Seq, c.At = int(seq), in.Now()
	p, err := in.Store.Append(r.Context(), id, c)
	if err != nil {
		return nil, err
	}
	if p.Complete {
		in.judgeSoon()
	}
	return p, nil
}

// chunk makes a chunk of a body: lines of a report, of which at least one is an
// artifact.
func chunk(encoding string, packed []byte) (store.Chunk, error) {
	text, err := unpack(encoding, packed, MaxChunk)
	if err != nil {
		return store.Chunk{}, err
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		return store.Chunk{}, refuse(http.StatusBadRequest, "a chunk is whole lines: the last one has no end")
	}
	run, err := report.Parse(bytes.NewReader(text))
	if err != nil {
		return store.Chunk{}, refuse(http.StatusBadRequest, "%w", err)
	}
	c := store.Chunk{Data: text, End: run.End != nil}
	for _, s := range run.Steps {
		if !s.Started.IsZero() {
			c.Stage = stageName(s.ID)
		}
	}
	return c, nil
}

// maxStage bounds the name of a stage, in characters: ours are words.
const maxStage = 60

// stageName is the name of a stage as the reasons of lost runs have it, which go to
// terminals: anyone with a node's token can make one up.
func stageName(id string) string {
	name := []rune(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, id))
	if len(name) > maxStage {
		return string(name[:maxStage-1]) + "…"
	}
	return string(name)
}

func (in *Intake) getRun(_ http.ResponseWriter, r *http.Request) (any, error) {
	if t := bearer(r); t != "" && in.Admin(t) {
		id, err := runID(r)
		if err != nil {
			return nil, err
		}
		return in.Store.Run(r.Context(), id)
	}
	id, err := in.authorise(r)
	if err != nil {
		return nil, err
	}
	return in.Store.Progress(r.Context(), id, in.Now())
}

// runID returns the run of a request's path.
func runID(r *http.Request) (string, error) {
	id, err := uuid.Parse(r.PathValue("run"))
	if err != nil {
		return "", fmt.Errorf("run: %w", store.ErrNotFound)
	}
	return id.String(), nil
}

// authorise returns the run of a request's path, if the request comes from the node
// that it was offered to.
func (in *Intake) authorise(r *http.Request) (string, error) {
	id, err := runID(r)
	if err != nil {
		return "", err
	}
	want, err := in.Store.Token(r.Context(), id)
	if err != nil {
		return "", err
	}
	token := bearer(r)
	if token == "" {
		return "", refuse(http.StatusUnauthorized, "there is no token: send Authorization: Bearer TOKEN, the p2p.token of the run")
	}
	got := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return "", refuse(http.StatusUnauthorized, "the token is not that of this run")
	}
	if !in.Runs.Allow(in.Now(), id) {
		return "", delay(http.StatusTooManyRequests, in.Runs.Every(), "too many requests for this run")
	}
	return id, nil
}

// bearer returns the token of a request (RFC 6750), empty if it has none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

var errAdmin = errors.New("this takes the administrator's token: Authorization: Bearer TOKEN, with the text of the file admin-token-file of lab.yaml")

// admin lets the administrator through.
func (in *Intake) admin(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		if t := bearer(r); t == "" || !in.Admin(t) {
			return nil, &problem{status: http.StatusUnauthorized, err: errAdmin}
		}
		return h(w, r)
	}
}
