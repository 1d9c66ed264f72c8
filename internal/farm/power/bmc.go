package power

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"mkp2pimg/internal/farm/lab"
)

// Limits of the conversation with a BMC. They are slow: seconds for a request are
// common, and tens of seconds after a start of the BMC itself.
const (
	answerLimit  = 60 * time.Second // for the first byte of an answer
	requestLimit = 3 * time.Minute  // for a request with all its repetitions
	busyTries    = 5                // of a request that a BMC has no time for
	busyPause    = 5 * time.Second  // between them, if the BMC does not say how long
	longestPause = 30 * time.Second // whatever the BMC says
	largestBody  = 8 << 20          // bytes of an answer
)

// line is the connection to a BMC: it repeats what the BMC has no time for, and
// remembers the last request for messages about errors.
type line struct {
	next  http.RoundTripper
	pause func(context.Context, time.Duration) error

	mu   sync.Mutex // gofish reads members of a collection concurrently
	last string
}

func newLine(c lab.Redfish, pause func(context.Context, time.Duration) error) *line {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tlsConfig(c)
	transport.ResponseHeaderTimeout = answerLimit
	return &line{next: transport, pause: pause}
}

// tlsConfig trusts the authorities of the host, only the pinned key, or anybody.
func tlsConfig(c lab.Redfish) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure || c.Pin != ""}
	if c.Pin == "" {
		return config
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if got := Pin(state.PeerCertificates[0]); subtle.ConstantTimeCompare([]byte(got), []byte(c.Pin)) != 1 {
			return &pinError{got}
		}
		return nil
	}
	return config
}

// Pin is the pin of a certificate: base64url of the SHA-256 of its public key
// (SubjectPublicKeyInfo), which stays the same when the certificate is renewed.
func Pin(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// pinError is a BMC with another key than the pinned one.
type pinError struct{ got string }

func (e *pinError) Error() string {
	return "it has another key than the pinned one: its pin is " + e.got
}

func (l *line) client() *http.Client {
	return &http.Client{Transport: l, Timeout: requestLimit, CheckRedirect: sameHost}
}

// sameHost follows redirects that stay on the BMC and do not give encryption up:
// requests carry a password, or a token that is as good.
func sameHost(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	switch {
	case len(via) > 5:
		return errors.New("it redirects without end")
	case req.URL.Hostname() != from.Hostname():
		return fmt.Errorf("it redirects to another host, %s, which is not to get the password", req.URL.Host)
	case from.Scheme == "https" && req.URL.Scheme != "https":
		return errors.New("it redirects from https to http, where the password can be read by others")
	}
	return nil
}

// RoundTrip implements [http.RoundTripper].
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.last = req.Method + " " + req.URL.Path
	l.mu.Unlock()
	for try := 1; ; try++ {
		resp, err := l.next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		busy := resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests
		if !busy || try == busyTries || req.Body != nil && req.GetBody == nil {
			resp.Body = limited{io.LimitReader(resp.Body, largestBody), resp.Body}
			return resp, nil
		}
		resp.Body.Close() //nolint:errcheck // the request is made again
		if err := l.pause(req.Context(), retryAfter(resp.Header)); err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

type limited struct {
	io.Reader
	io.Closer
}

// retryAfter is how long a BMC wants to be left alone. The form of Retry-After with
// a date is of no use: the clocks of BMCs are wrong.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return busyPause
	}
	return min(time.Duration(seconds)*time.Second, longestPause)
}

// request is the last request that was made.
func (l *line) request() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (r redfish) target() string { return "BMC " + r.URL.Host }

// status is the HTTP status of an error that a BMC answered with, or 0.
func status(err error) int {
	if answer := answerOf(err); answer != nil {
		return answer.HTTPReturnedStatusCode
	}
	return 0
}

func answerOf(err error) *schemas.Error {
	if several, ok := errors.AsType[*schemas.CollectionError](err); ok {
		for _, e := range several.Failures {
			err = e // one stands for all
		}
	}
	answer, _ := errors.AsType[*schemas.Error](err)
	return answer
}

// explain says what was asked of the BMC, what it answered, and what to do.
func (s *session) explain(err error) error {
	if done, ok := errors.AsType[*Error](err); ok {
		return done
	}
	e := &Error{Target: s.target(), Request: s.line.request(), Err: err}
	if answer := answerOf(err); answer != nil && answer.HTTPReturnedStatusCode != 0 {
		e.Answer = words(answer)
		switch answer.HTTPReturnedStatusCode {
		case http.StatusUnauthorized:
			e.Final, e.Hint = true, "check user and password-file"
		case http.StatusForbidden:
			e.Final, e.Hint = true, "user "+s.User+" needs the role Operator, which may configure components"
		case http.StatusNotFound:
			e.Final, e.Hint = true, "check url: is there a Redfish service, and is it enabled?"
		case http.StatusPreconditionRequired:
			e.Hint = "the BMC wants an ETag that it does not send: update its firmware, or use ipmi"
		}
		return e
	}
	if several, ok := errors.AsType[*schemas.CollectionError](err); ok {
		for _, failure := range several.Failures {
			e.Err = failure
		}
	}
	e.Hint, e.Final = s.connectAdvice(e.Err)
	if outer, ok := errors.AsType[*url.Error](e.Err); ok {
		e.Err = outer.Err // method and URL are said already
	}
	return e
}

// connectAdvice is about errors below HTTP.
func (s *session) connectAdvice(err error) (hint string, final bool) {
	var untrusted *tls.CertificateVerificationError
	var other *pinError
	switch {
	case errors.As(err, &untrusted) && len(untrusted.UnverifiedCertificates) > 0:
		return fmt.Sprintf("compare with the BMC's own display of its certificate, then add pin: %s", Pin(untrusted.UnverifiedCertificates[0])), true
	case errors.As(err, &other):
		return "if the BMC got a new certificate, change pin; if not, somebody else answers", true
	case errors.Is(err, context.Canceled):
		return "", false
	case errors.As(err, new(*url.Error)):
		return "check url, and that the BMC is reachable from here", false
	}
	return "is that a Redfish service?", false
}

// words are what a BMC answered, in a line: the messages of its registries, with
// what it recommends to do.
func words(answer *schemas.Error) string {
	code := answer.HTTPReturnedStatusCode
	text := fmt.Sprintf("%d %s", code, http.StatusText(code))
	if said := oneLine(answer.Message); said != "" && !strings.HasPrefix(said, "<") { // not a page
		text += ": " + said
	}
	for _, m := range answer.ExtendedInfos {
		if said := oneLine(m.Message); said != "" && !strings.Contains(text, said) {
			text += "; " + said
		}
		if said := oneLine(m.Resolution); said != "" && said != "None" && said != "None." {
			text += " (" + said + ")"
		}
	}
	return text
}
