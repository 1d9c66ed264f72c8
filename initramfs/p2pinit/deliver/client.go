package deliver

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mkp2pimg/initramfs/p2pinit/params"
)

// Client returns a client that trusts the servers with these keys, whatever else
// their certificates say and the clock shows. Without any it trusts whom public
// authorities vouch for.
func Client(pins []params.Pin) *http.Client {
	if pins == nil {
		return http.DefaultClient
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The handshake proves that the server has the key of its certificate. That
		// it is the right key is proved here instead of by a chain of certificates.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(s tls.ConnectionState) error {
			key := params.Pin(sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo))
			if slices.Contains(pins, key) {
				return nil
			}
			return refused{fmt.Errorf("the server's key is %s, p2p.pin wants %s: it has a new one, or another server answers at its address", key, either(pins))}
		},
	}
	return &http.Client{Transport: t}
}

// either lists pins for a person.
func either(pins []params.Pin) string {
	var words []string
	for _, p := range pins {
		words = append(words, p.String())
	}
	return strings.Join(words, " or ")
}

// perTry bounds one try, so that a server that takes the connection and then
// sleeps leaves time for another.
const perTry = 30 * time.Second

// maxReply is how much of an answer is read: it is a few words.
const maxReply = 4096

// reply is the answer of a server.
type reply struct {
	code   int
	status string // with the code: "200 OK"
	after  string // Retry-After
	body   []byte
}

// send sends a request with a body once.
func send(ctx context.Context, c *http.Client, method string, u *url.URL, header http.Header, body io.Reader) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, perTry)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, refused{err}
	}
	req.Header = header
	keep := *c
	keep.CheckRedirect = keepMethod
	resp, err := keep.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL
			err = wrapped.Err
		}
		return nil, certificate(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReply)) // what is missing shows
	return &reply{resp.StatusCode, resp.Status, resp.Header.Get("Retry-After"), text}, nil
}

// failure is what a reply other than of success says: a no that is final, or that
// the server can't take it now.
func (r *reply) failure() error {
	err := fmt.Errorf("the server answered %s: %s", r.status, r.words())
	switch r.code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		if r.code/100 == 4 {
			return refused{err}
		}
	}
	// Its other form, a date, needs a clock that is right.
	if seconds, bad := strconv.ParseUint(strings.TrimSpace(r.after), 10, 16); bad == nil {
		return busy{err, time.Duration(seconds) * time.Second}
	}
	return err
}

// ok reports whether the server says that all is well.
func (r *reply) ok() bool { return r.code/100 == 2 }

// words are the beginning of the server's own words, fit for a console.
func (r *reply) words() string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(r.body), "?")), " ")
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
	const most = 200
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + " …"
	}
	return text
}

// keepMethod follows only a redirect that repeats the request (307, 308). After any
// other the client would GET the new place, and what answers well there has no
// report.
func keepMethod(req *http.Request, via []*http.Request) error {
	switch {
	case req.Method != via[0].Method:
		return refused{fmt.Errorf("the server answered %s with Location %s: name that place in the kernel parameter, or redirect by 307 or 308",
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
		hint = "; only public authorities are known here: name the server's key in p2p.pin, give it a certificate of one of them, or use http://"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "; is the clock of this machine right?"
	}
	return refused{fmt.Errorf("%w%s", err, hint)}
}
