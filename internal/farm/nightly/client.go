package nightly

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"mkp2pimg/internal/farm"
)

// Client speaks to the administration of a farm's server over HTTP.
type Client struct {
	Base  *url.URL // "https://farm.lab:8443"
	Token string   // of the administration
	HTTP  *http.Client
}

// largestAnswer bounds an answer, in bytes: the runs of a night of thousands of
// nodes with all their findings.
const largestAnswer = 256 << 20

// ServerError is a request that the server did not do.
type ServerError struct {
	Request string // "POST http://farm.lab:8080/v1/nights/2026-01-02/nodes/a1"
	Status  int    // of HTTP; 0: no answer
	Answer  string // what the server said
	Err     error  // why there is no answer
}

func (e *ServerError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %v; is the farm's server running, and is its URL right?", e.Request, e.Err)
	}
	text := fmt.Sprintf("%s: %d %s", e.Request, e.Status, http.StatusText(e.Status))
	if e.Answer != "" {
		text += ": " + e.Answer
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += "; the token is the first line of the server's admin-token-file"
	case http.StatusNotFound:
		text += "; does the server read the same description of the lab?"
	}
	return text
}

func (e *ServerError) Unwrap() error { return e.Err }

// final tells whether the server will answer a request the same way again.
func final(err error) bool {
	var e *ServerError
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500 &&
		e.Status != http.StatusRequestTimeout && e.Status != http.StatusTooManyRequests
}

// Arm implements [Server].
func (c *Client) Arm(ctx context.Context, night, node string, a Arming) error {
	body := struct {
		Image    string `json:"image,omitempty"`
		Plan     string `json:"plan,omitempty"`
		Attempts int    `json:"attempts,omitempty"`
		Deadline string `json:"deadline,omitempty"`
	}{a.Image, a.Plan, a.Attempts, ""}
	if a.Deadline > 0 {
		body.Deadline = a.Deadline.String()
	}
	return c.do(ctx, http.MethodPost, body, nil, "v1", "nights", night, "nodes", node)
}

// Disarm implements [Server].
func (c *Client) Disarm(ctx context.Context, night, node string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, "v1", "nights", night, "nodes", node)
}

// Runs implements [Server].
func (c *Client) Runs(ctx context.Context, night string) ([]farm.Run, error) {
	var answer struct {
		Runs []farm.Run `json:"runs"`
	}
	err := c.do(ctx, http.MethodGet, nil, &answer, "v1", "nights", night)
	return answer.Runs, err
}

func (c *Client) do(ctx context.Context, method string, body, answer any, path ...string) error {
	u := c.Base.JoinPath(path...)
	fail := func(err error) error {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // method and URL are said already
		}
		return &ServerError{Request: method + " " + u.Redacted(), Err: err}
	}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fail(err)
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode/100 != 2 {
		return &ServerError{Request: method + " " + u.Redacted(), Status: resp.StatusCode, Answer: complaint(data)}
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fail(fmt.Errorf("the answer is no JSON of a farm's server: %w", err))
	}
	return nil
}

// complaint is what the server says about a request that it refused.
func complaint(body []byte) string {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return "" // some other server's page
	}
	return strings.Join(strings.Fields(said.Error), " ")
}
