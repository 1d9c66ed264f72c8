package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// CheckFiles compares the files of a medium with the checksums in its document
// SHA256SUMS. open opens a file by its name there; what it opened is closed if it can
// be. All that are missing or differ are named in the error.
func CheckFiles(ctx context.Context, sums []byte, open func(name string) (io.Reader, error)) error {
	want, err := ParseSums(sums)
	if err != nil {
		return fmt.Errorf("%s: %w", SumsName, err)
	}
	var errs []error
	for _, name := range []string{KernelName, InitrdName, ManifestName} {
		if want[name] == "" {
			errs = append(errs, fmt.Errorf("%s does not list %s", SumsName, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, checkFile(name, want[name], open))
	}
	return errors.Join(errs...)
}

func checkFile(name, want string, open func(string) (io.Reader, error)) error {
	r, err := open(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if c, ok := r.(io.Closer); ok {
		defer c.Close() //nolint:errcheck // it was only read
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{r}, make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s: sha256 is %s, %s says %s", name, got, SumsName, want)
	}
	return nil
}
