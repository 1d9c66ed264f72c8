// Package deliver sends the report to a server: it sets the network up and PUTs
// the report with retries.
package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ContentType is that of the report.
const ContentType = "application/x-ndjson"

// refused is a server's final no: trying again changes nothing.
type refused struct{ error }

// Put sends body to u, again and again until the server has it, refuses it or
// the context ends. pause waits before the next try, [Pause] normally.
func Put(ctx context.Context, c *http.Client, u *url.URL, body []byte, pause func(ctx context.Context, try int) error) error {
	for try := 1; ; try++ {
		err := put(ctx, c, u, body)
		var no refused
		switch {
		case err == nil:
			return nil
		case errors.As(err, &no):
			return fmt.Errorf("PUT %s: %w", u.Redacted(), err)
		}
		if wait := pause(ctx, try); wait != nil {
			return fmt.Errorf("PUT %s: given up after %d tries: %w", u.Redacted(), try, err)
		}
	}
}

// Pause waits 1, 2, 4 … at most 16 seconds.
func Pause(ctx context.Context, try int) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second << min(try-1, 4)):
		return nil
	}
}

// perTry bounds one try, so that a server that takes the connection and then
// sleeps leaves time for another.
const perTry = 30 * time.Second

func put(ctx context.Context, c *http.Client, u *url.URL, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, perTry)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, u.String(), bytes.NewReader(body))
	if err != nil {
		return refused{err}
	}
	req.Header.Set("Content-Type", ContentType)
	keep := *c
	keep.CheckRedirect = keepMethod
	resp, err := keep.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL
			err = wrapped.Err
		}
		return certificate(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("the server answered %s: %s", resp.Status, strings.Join(strings.Fields(string(text)), " "))
	if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusTooManyRequests {
		return refused{err}
	}
	return err
}

// keepMethod follows only a redirect that repeats the PUT (307, 308). After any
// other the client would GET the new place, and what answers well there has no
// report.
func keepMethod(req *http.Request, via []*http.Request) error {
	switch {
	case req.Method != http.MethodPut:
		return refused{fmt.Errorf("the server answered %s with Location %s: name that place in p2p.report, or redirect by 307 or 308",
			req.Response.Status, req.URL.Redacted())}
	case len(via) >= 10:
		return refused{errors.New("the server answered ten redirects")}
	}
	return nil
}

// certificate makes the error of a bad certificate final, and says what to do.
func certificate(err error) error {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		return err
	}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	hint := ""
	switch {
	case errors.As(err, &unknown):
		hint = "; only public authorities are known here: give the server a certificate of one of them, or use http://"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "; is the clock of this machine right?"
	}
	return refused{fmt.Errorf("%w%s", err, hint)}
}
