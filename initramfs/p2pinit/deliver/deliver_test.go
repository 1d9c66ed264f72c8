package deliver

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPut(t *testing.T) {
	tests := map[string]struct {
		answers []int // statuses, the last one repeated; 0 cuts the connection
		tries   int
		want    string // error, empty for success
	}{
		"at once":         {[]int{201}, 1, ""},
		"busy, then well": {[]int{503, 429, 0, 204}, 4, ""},
		"refused":         {[]int{403}, 1, "the server answered 403 Forbidden: no such lab"},
		"never":           {[]int{500}, 5, "given up after 5 tries: the server answered 500 Internal Server Error"},
		"dead":            {[]int{0}, 5, "given up after 5 tries: EOF"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status := tt.answers[min(int(n.Add(1)), len(tt.answers))-1]
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				assert.Equal(t, "report", string(body), "whole on every try")
				assert.Equal(t, http.MethodPut, r.Method)
				assert.Equal(t, ContentType, r.Header.Get("Content-Type"))
				if status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "no such\n lab")
			}))
			defer s.Close()
			u, err := url.Parse(s.URL + "/reports/n7")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err = Put(ctx, s.Client(), u, []byte("report"), func(try int, _ error) time.Duration {
				if try == 5 {
					cancel()
				}
				return 0
			})
			assert.EqualValues(t, tt.tries, n.Load())
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, "PUT "+s.URL+"/reports/n7: ")
		})
	}
}

func TestPutAndRedirects(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusMovedPermanently:  "the server answered 301 Moved Permanently with Location /new/n7: name that place in the kernel parameter",
		http.StatusFound:             "the server answered 302 Found with Location",
		http.StatusTemporaryRedirect: "",
		http.StatusPermanentRedirect: "",
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			var got []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/n7" {
					http.Redirect(w, r, "/new/n7", status)
					return
				}
				body, err := io.ReadAll(r.Body)
				assert.NoError(t, err)
				got = append(got, r.Method+" "+string(body))
			}))
			defer s.Close()
			u, err := url.Parse(s.URL + "/n7")
			require.NoError(t, err)
			err = Put(t.Context(), s.Client(), u, []byte("report"), again(t))
			if want == "" {
				require.NoError(t, err)
				assert.Equal(t, []string{"PUT report"}, got)
				return
			}
			require.ErrorContains(t, err, strings.Replace(want, "/new", s.URL+"/new", 1))
			assert.Empty(t, got)
		})
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/n7", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	u, err := url.Parse(s.URL + "/n7")
	require.NoError(t, err)
	require.ErrorContains(t, Put(t.Context(), s.Client(), u, nil, again(t)), "ten redirects")
}

func TestPutHidesThePassword(t *testing.T) {
	u := &url.URL{Scheme: "gopher", Host: "lab", User: url.UserPassword("bot", "secret")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Put(ctx, http.DefaultClient, u, nil, Delay)
	require.ErrorContains(t, err, "unsupported protocol scheme")
	assert.NotContains(t, err.Error(), "secret")
}

func TestPutToAnUnknownAuthority(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	u, err := url.Parse(s.URL + "/n7")
	require.NoError(t, err)
	err = Put(t.Context(), http.DefaultClient, u, nil, again(t))
	require.ErrorContains(t, err, "PUT "+s.URL+"/n7: tls: failed to verify certificate: x509: certificate signed by unknown authority")
	require.ErrorContains(t, err, "only public authorities are known here")

	c := s.Client()
	c.Transport.(*http.Transport).TLSClientConfig.Time = func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }
	err = Put(t.Context(), c, u, nil, again(t))
	require.ErrorContains(t, err, "certificate has expired or is not yet valid: current time 2100-01-01")
	require.ErrorContains(t, err, "is the clock of this machine right?")
}

// again is the delay of a test in which nothing is tried twice.
func again(t *testing.T) func(int, error) time.Duration {
	return func(_ int, err error) time.Duration {
		t.Errorf("tried again after: %v", err)
		return time.Millisecond
	}
}

func TestDelay(t *testing.T) {
	for try, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 16 * time.Second, 1000: 16 * time.Second} {
		for range 100 {
			d := Delay(try, errors.New("no"))
			assert.GreaterOrEqual(t, d, most/2)
			assert.Less(t, d, most)
		}
	}
	for after, want := range map[string]time.Duration{"7": 7 * time.Second, " 0 ": 0, "600": 2 * time.Minute} {
		r := &reply{code: http.StatusTooManyRequests, after: after}
		assert.Equal(t, want, Delay(9, r.failure()), after)
	}
	for _, after := range []string{"", "-1", "soon", "Mon, 30 Nov 2026 18:00:00 GMT", "99999999999999999999"} {
		r := &reply{code: http.StatusServiceUnavailable, after: after}
		assert.Less(t, Delay(1, r.failure()), time.Second, after)
	}
}

func TestWired(t *testing.T) {
	dir := func(files ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for _, f := range files {
			m["sys/class/net/n0/"+f] = &fstest.MapFile{Data: []byte("1\n")}
		}
		return m
	}
	assert.True(t, Wired(dir("type", "device/vendor"), "n0"))
	assert.False(t, Wired(dir("type"), "n0"), "bridge or dummy")
	assert.False(t, Wired(dir("type", "device/vendor", "wireless/status"), "n0"))
	assert.False(t, Wired(dir("device/vendor"), "n0"))
	loopback := dir("type", "device/vendor")
	loopback["sys/class/net/n0/type"].Data = []byte("772\n")
	assert.False(t, Wired(loopback, "n0"))
}
