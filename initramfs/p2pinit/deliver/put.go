// Package deliver brings the report out of the machine: it sets the network up and
// sends the report to a server, whole with [Put] or in pieces with a [Collector],
// or writes it to a [Stick].
package deliver

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// ContentType is that of the report.
const ContentType = "application/x-ndjson"

// Put sends body to u, again and again until the server has it, refuses it or
// the context ends. delay says how long to wait before the next try, [Delay]
// normally.
func Put(ctx context.Context, c *http.Client, u *url.URL, body []byte, delay func(try int, err error) time.Duration) error {
	err := persist(ctx, delay, nil, func(ctx context.Context) error {
		r, err := send(ctx, c, http.MethodPut, u, http.Header{"Content-Type": {ContentType}}, bytes.NewReader(body))
		if err != nil || r.ok() {
			return err
		}
		return r.failure()
	})
	if err != nil {
		return fmt.Errorf("PUT %s: %w", u.Redacted(), err)
	}
	return nil
}
