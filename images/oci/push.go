package oci

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/retry"
)

// ReferenceError says that a reference names no place in a registry.
type ReferenceError struct {
	Reference string
	Err       error
}

func (e *ReferenceError) Error() string {
	return fmt.Sprintf("%q is not of the form REGISTRY/REPOSITORY[:TAG]: %v", e.Reference, e.Err)
}

func (e *ReferenceError) Unwrap() error { return e.Err }

// PushError says that a registry did not take an artifact.
type PushError struct {
	Reference string
	Err       error
}

func (e *PushError) Error() string {
	return fmt.Sprintf("push to %s: %v (log in with \"oras login\" or \"docker login\"; --plain-http for a registry without TLS)", e.Reference, e.Err)
}

func (e *PushError) Unwrap() error { return e.Err }

// PushOptions say how to talk to a registry.
type PushOptions struct {
	PlainHTTP bool // no TLS
	UserAgent string
	// Patience bounds the time that the registry takes to answer a request, each time
	// it is tried; zero: half a minute.
	Patience time.Duration
}

// Pushed is where an artifact went.
type Pushed struct {
	Reference string `json:"reference"` // with the digest
	Tag       string `json:"tag"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"` // bytes of all layers
}

// Push copies the artifact to a reference, whose tag is "latest" if it has none.
// What the registry has already is not sent again. Credentials are those that
// docker and ORAS keep. The error is a *ReferenceError or a *PushError.
func (a *Artifact) Push(ctx context.Context, reference string, o PushOptions) (*Pushed, error) {
	ref, err := registry.ParseReference(reference)
	if err != nil {
		return nil, &ReferenceError{reference, err}
	}
	if ref.Reference == "" {
		ref.Reference = tag
	}
	if err := ref.ValidateReferenceAsTag(); err != nil {
		return nil, &ReferenceError{reference, err}
	}
	repository, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, &ReferenceError{reference, err}
	}
	repository.PlainHTTP = o.PlainHTTP
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http: DefaultTransport
	transport.ResponseHeaderTimeout = cmp.Or(o.Patience, 30*time.Second)
	client := &auth.Client{Client: &http.Client{Transport: retry.NewTransport(transport)}, Cache: auth.NewCache()}
	if o.UserAgent != "" {
		client.SetUserAgent(o.UserAgent)
	}
	if store, err := credentials.NewStoreFromDocker(credentials.StoreOptions{}); err == nil { // without one nobody is logged in
		client.Credential = credentials.Credential(store)
	}
	repository.Client = client

	if _, err := oras.Copy(ctx, a.store, tag, repository, ref.Reference, oras.DefaultCopyOptions); err != nil {
		return nil, &PushError{reference, err}
	}
	p := &Pushed{Reference: ref.Registry + "/" + ref.Repository + "@" + a.Root.Digest.String(), Tag: ref.Reference, Digest: a.Root.Digest.String()}
	for _, l := range a.layers {
		p.Size += l.Size
	}
	return p, nil
}
