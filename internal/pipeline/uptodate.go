package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"mkp2pimg/images"
	"mkp2pimg/initramfs/userland"
	"mkp2pimg/internal/digest"
)

// imageKey names all that decides the bytes of the image: this program, the
// image's programs, the inputs and the request.
func (in *inputs) imageKey(ctx context.Context, o *Options) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := digest.File(self)
	if err != nil {
		return "", err
	}
	source, err := userland.Digest(ctx, o.Source)
	if err != nil {
		return "", err
	}
	toolchain, _, err := in.toolchainKeys(ctx, o)
	if err != nil {
		return "", err
	}
	locked, err := in.lock.Marshal()
	if err != nil {
		return "", err
	}
	parts := append([]string{program, source, string(locked), o.Edits, toolchain, string(o.Profile), strings.Join(o.gpus.names, ", ")}, o.media()...)
	if o.key != nil {
		parts = append(parts, "signed by "+o.key.ID(), fmt.Sprint("modules ", o.SignModules))
	}
	return keyOf(parts...), nil
}

// builtPath is the file that says which image a key gave: the digest of the
// image's list of checksums.
func (o *Options) builtPath(key string) string { return filepath.Join(o.Cache, "built", key) }

// upToDate returns the manifest of the image in o.Out if it is the one that
// key gave, and undamaged; else nil.
func (o *Options) upToDate(key string) *images.Manifest {
	want, err := os.ReadFile(o.builtPath(key))
	if err != nil {
		return nil
	}
	have, err := digest.File(filepath.Join(o.Out, images.SumsName))
	if err != nil || have != string(want) {
		return nil
	}
	dir, err := images.Open(o.Out)
	if err != nil {
		return nil
	}
	return dir.Manifest
}

// remember notes which image key gave.
func (o *Options) remember(key string) error {
	sums, err := digest.File(filepath.Join(o.Out, images.SumsName))
	if err != nil {
		return err
	}
	path := o.builtPath(key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), renameio.WriteFile(path, []byte(sums), 0o644)); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}
