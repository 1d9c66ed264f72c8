package page

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func get(t testing.TB, url string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(b), r.Header
}

func TestPages(t *testing.T) {
	l := newLab(t)
	for _, path := range []string{"/", "/nodes/r1-n02", "/nodes/r2-n01", "/nights", "/nights/" + tonight, "/runs/r1-n03-" + tonight, "/runs/r1-n10-" + tonight, "/runs/r1-n03-" + tonight + "/measurements"} {
		code, body, _ := get(t, l.Server.URL+path)
		assert.Equal(t, 200, code, path)
		if d := os.Getenv("DUMP"); d != "" {
			os.WriteFile(d+"/"+strings.ReplaceAll(path[1:], "/", "_")+".html", []byte(body), 0o644)
		}
	}
}
