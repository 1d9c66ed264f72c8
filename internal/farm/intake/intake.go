// Package intake takes the reports of a farm's nodes in, over HTTP, while they run:
// it keeps what arrives, and has it judged.
//
// # Delivery
//
// A node delivers a run in numbered chunks of whole lines, in order, with the token
// that it was handed with the run:
//
//	POST /v1/runs/RUN/chunks/0, 1, 2 …
//	Authorization: Bearer TOKEN
//	Content-Type: application/x-ndjson
//	Content-Encoding: gzip, zstd or none
//
// The answer 200 {"next": n, "complete": bool} comes when the chunk is on stable
// storage, also where it was before. GET /v1/runs/RUN answers the same: where to go
// on after a break. Errors are {"error": text} with
//
//	400  what was sent is no part of a report
//	401  the token is missing or wrong
//	403  the run is over
//	404  there is no such run
//	409  with "next": that chunk is expected; with "conflict" as well: a chunk of the
//	     number arrived before, with other bytes
//	413  the chunk is larger than [MaxChunk], or the report than [store.MaxReport]
//	415  type or encoding are none of the above
//	429  too many requests; with Retry-After
//	500, 503  try again; with Retry-After
//
// # Administration
//
// With the administrator's token:
//
//	POST   /v1/nights/NIGHT/nodes/NODE   arm a node: [store.Armed]; deadline as in "30m"
//	DELETE /v1/nights/NIGHT/nodes/NODE   disarm it
//	GET    /v1/nights/NIGHT              {"night": …, "runs": […]}, see [store.Query]
//	GET    /v1/nodes/NODE/runs?night=…   […]
//	GET    /v1/runs/RUN                  [farm.Run] with all that is known
//	GET    /v1/runs/RUN/report           the report as it arrived
//	POST   /v1/import?source=stick|serial&node=NODE   a report, or a log with one in it
package intake

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/report"
)

// MaxChunk is the size of the largest chunk, unpacked, in bytes. Nodes send 1 MiB at
// most, but for a line that is longer: the facts of a large machine are one line.
const MaxChunk = 4 << 20

// Judge says what a report is about and what is new in it: the functions of
// package judge.
type Judge struct {
	Summarise func(*report.Run) *farm.Summary
	// Compare returns what changed; history holds the last Depth runs of the node,
	// among them perhaps the run itself.
	Compare func(n farm.Node, r farm.Run, history []farm.Run, pinned []farm.Baseline) []farm.Change
	Learn   func(history []farm.Run, pinned []farm.Baseline) []farm.Baseline
	Depth   int
}

// Config is what an intake needs.
type Config struct {
	Store *store.Store
	Judge Judge
	Night func(time.Time) string // the night that a time belongs to
	// Known tells whether there is a node of a name, in lab.yaml or in the store.
	Known func(node string) bool
	// Admin tells whether a token is the administrator's.
	Admin func(token string) bool
	// Pinned returns what lab.yaml says is normal for a node; what is pinned in the
	// store goes before.
	Pinned func(node string) []farm.Baseline
	Retain store.Policy

	// Addresses and Runs bound the requests of an address and those for a run.
	Addresses, Runs *limit.Limiter
	Log             *slog.Logger
	Now             func() time.Time
}

// Intake is an http.Handler for what is below /v1/.
type Intake struct {
	Config
	mux  *http.ServeMux
	wake chan struct{}       // there is something to judge
	held *semaphore.Weighted // bytes of bodies
	room chan struct{}       // a place for each chunk that may be in memory unpacked
	// grace is how long a body may take before it must arrive at minRate.
	grace time.Duration
}

// maxHeld bounds the bodies of requests that are in memory, as they came, in bytes.
const maxHeld = 256 << 20

// maxUnpacked bounds the chunks that are in memory unpacked: 64 of 4 MiB.
const maxUnpacked = 64

// New returns an intake. Of the configuration, Pinned, Retain, Addresses, Runs, Log and
// Now may be left out.
func New(c Config) *Intake {
	if c.Addresses == nil {
		c.Addresses = limit.New(5*time.Millisecond, 2000, 10000) // a lab behind one address
	}
	if c.Runs == nil {
		c.Runs = limit.New(50*time.Millisecond, 100, 10000)
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Pinned == nil {
		c.Pinned = func(string) []farm.Baseline { return nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	in := &Intake{
		Config: c, mux: http.NewServeMux(),
		wake: make(chan struct{}, 1), held: semaphore.NewWeighted(maxHeld), room: make(chan struct{}, maxUnpacked), grace: 10 * time.Second,
	}
	in.route("/v1/runs/{run}/chunks/{seq}", methods{"POST": in.postChunk})
	in.route("/v1/runs/{run}", methods{"GET": in.getRun})
	in.route("/v1/runs/{run}/report", methods{"GET": in.admin(in.getReport)})
	in.route("/v1/nights/{night}", methods{"GET": in.admin(in.getNight)})
	in.route("/v1/nights/{night}/nodes/{node}", methods{"POST": in.admin(in.arm), "DELETE": in.admin(in.disarm)})
	in.route("/v1/nodes/{node}/runs", methods{"GET": in.admin(in.getRuns)})
	in.route("/v1/import", methods{"POST": in.admin(in.postImport)})
	in.route("/", methods{})
	return in
}

// ServeHTTP implements [http.Handler].
func (in *Intake) ServeHTTP(w http.ResponseWriter, r *http.Request) { in.mux.ServeHTTP(w, r) }

// Run judges runs, gives those up that are overdue, and removes what is not kept,
// until the context ends.
func (in *Intake) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { in.judgeAll(ctx) })
	all.Go(func() { in.sweep(ctx) })
	all.Wait()
}
