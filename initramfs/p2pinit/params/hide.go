package params

import (
	"bytes"
	"regexp"
)

const (
	tokenName = "p2p.token"
	hidden    = "…" // what stands in place of a token
)

var (
	// token is what a token may be. It has no character that a quoted string, JSON
	// or a URL would write in another way, so that it can be found in any of them.
	token = regexp.MustCompile(`^[A-Za-z0-9_-]{32,128}$`)
	// assigned is a token on a command line, or what is left of it there.
	assigned = regexp.MustCompile(`(\bp2p\.token=\\?"?)[^\s"'\\…]+`)
)

// Hide returns text without the token: neither the value of any p2p.token in it,
// which may have been cut short, nor the token of these parameters anywhere else.
// Text without either is returned as it is.
func (p Params) Hide(text []byte) []byte {
	if bytes.Contains(text, []byte(tokenName)) {
		text = assigned.ReplaceAll(text, []byte("${1}"+hidden))
	}
	if p.Token != "" && bytes.Contains(text, []byte(p.Token)) {
		text = bytes.ReplaceAll(text, []byte(p.Token), []byte(hidden))
	}
	return text
}
