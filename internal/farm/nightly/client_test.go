package nightly

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/intake"
	"mkp2pimg/internal/farm/store"
)

const adminToken = "the-token-of-the-administrator"

func clientOf(t *testing.T, server *httptest.Server) *Client {
	t.Helper()
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	return &Client{Base: base, Token: adminToken, HTTP: server.Client()}
}

// The server is the real one.
func TestClient(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	require.NoError(t, err)
	defer db.Close()
	c := clientOf(t, httptest.NewServer(intake.New(intake.Config{
		Store: db, Known: func(node string) bool { return node == "a1" }, Admin: func(token string) bool { return token == adminToken },
	})))

	require.NoError(t, c.Arm(t.Context(), tonight, "a1", Arming{Image: "p2p", Plan: "check", Attempts: 3, Deadline: 90 * time.Minute}))
	armed, err := db.Armed(t.Context(), tonight, "a1")
	require.NoError(t, err)
	armed.At = time.Time{}
	assert.Equal(t, store.Armed{Night: tonight, Node: "a1", Image: "p2p", Plan: "check", Attempts: 3, Deadline: 90 * time.Minute}, armed)

	require.NoError(t, c.Disarm(t.Context(), tonight, "a1"))
	_, err = db.Armed(t.Context(), tonight, "a1")
	require.ErrorIs(t, err, store.ErrNotFound)

	runs, err := c.Runs(t.Context(), tonight)
	require.NoError(t, err)
	assert.Empty(t, runs)
	offered := farm.Run{
		ID: "7b2f0a52-6f0e-4a54-9a2e-0b0f3c1d2e4f", Node: "a1", Night: tonight, Source: farm.Network, State: farm.Offered,
		Offered: time.Date(2026, 3, 5, 22, 0, 0, 0, time.UTC), Deadline: time.Date(2026, 3, 5, 23, 0, 0, 0, time.UTC),
	}
	require.NoError(t, db.Offer(t.Context(), offered, sha256.Sum256([]byte("token"))))
	runs, err = c.Runs(t.Context(), tonight)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	assert.Equal(t, offered.ID, runs[0].ID)
	assert.Equal(t, farm.Offered, runs[0].State)

	err = c.Arm(t.Context(), tonight, "b9", Arming{Attempts: 1})
	require.ErrorContains(t, err, `/v1/nights/2026-03-05/nodes/b9: 404 Not Found: there is no node "b9"; does the server read the same description of the lab?`)
	assert.True(t, final(err))

	c.Token = "another"
	_, err = c.Runs(t.Context(), tonight)
	require.ErrorContains(t, err, "401 Unauthorized")
	require.ErrorContains(t, err, "the token is the first line of the server's admin-token-file")
	assert.True(t, final(err))
}

func TestClientErrors(t *testing.T) {
	tests := []struct {
		name  string
		code  int
		body  string
		want  string
		final bool
	}{
		{"busy", 503, `{"error":"the disk is slow"}`, "503 Service Unavailable: the disk is slow", false},
		{"too many", 429, `{"error":"slow\ndown"}`, "429 Too Many Requests: slow down", false},
		{"another server", 502, `<html>proxy</html>`, "502 Bad Gateway", false},
		{"refused", 400, `{"error":"no"}`, "400 Bad Request: no", true},
		{"no JSON", 200, `<html>`, "the answer is no JSON of a farm's server: invalid character '<' looking for beginning of value; is the farm's server running, and is its URL right?", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := clientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.body))
			})))
			_, err := c.Runs(t.Context(), tonight)
			require.EqualError(t, err, "GET "+c.Base.String()+"/v1/nights/2026-03-05: "+tt.want)
			assert.Equal(t, tt.final, final(err))
		})
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	c := clientOf(t, gone)
	gone.Close()
	err := c.Disarm(t.Context(), tonight, "a1")
	require.ErrorContains(t, err, "connection refused; is the farm's server running")
	assert.False(t, final(err))
	assert.NotContains(t, err.Error(), adminToken)
}
