package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/imagestest"
	"mkp2pimg/images/oci"
)

func TestPush(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "http://")
	dir := filepath.Dir(imagestest.Write(t, oci.Medium{}))

	push := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(t.Context(), append([]string{"push"}, args...), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, stdout, stderr := push(dir, host+"/lab/image:535", "--plain-http")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, host+"/lab/image@sha256:")
	assert.Contains(t, stdout, "tag 535")

	code, _, _ = push(dir, "image")
	assert.Equal(t, exitUsage, code)
	s.Close()
	code, _, stderr = push(filepath.Join(dir, oci.Name), host+"/lab/image", "--plain-http")
	assert.Equal(t, exitUnavailable, code, stderr)
	code, _, stderr = push(filepath.Join(dir, images.KernelName), host+"/lab/image")
	assert.Equal(t, exitData, code, stderr)
	require.NoError(t, os.Remove(filepath.Join(dir, oci.Name)))
	code, _, stderr = push(dir, host+"/lab/image")
	assert.Equal(t, exitData, code)
	assert.Contains(t, stderr, "build --format oci")
}
