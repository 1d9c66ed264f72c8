package intake

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/renameio/v2"
)

// AdminToken returns what tells the administrator's token, which is in a file that
// nobody else may read. A file that is not there is made, with a random token.
func AdminToken(path string) (func(token string) bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(newToken() + "\n")
		err = renameio.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("administrator's token: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("administrator's token: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("administrator's token: others may read %s: chmod 600 it, or remove it to get a new one", path)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 20 {
		return nil, fmt.Errorf("administrator's token: %s has %d characters, which can be guessed: remove it to get a new one", path, len(token))
	}
	return isToken(token), nil
}

// isToken returns what tells a token. Its time does not depend on the token that
// it is asked about.
func isToken(token string) func(string) bool {
	want := sha256.Sum256([]byte(token))
	return func(token string) bool {
		got := sha256.Sum256([]byte(token))
		return subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
}

// newToken returns 32 random bytes as base64url.
func newToken() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}
