package pipeline

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/signing"
	"mkp2pimg/kmod/patch"
)

// RequestError says what is wrong with Options.
type RequestError struct {
	Reason string
	Err    error // may be nil
}

func (e *RequestError) Error() string {
	if e.Err != nil {
		return e.Reason + ": " + e.Err.Error()
	}
	return e.Reason
}

func (e *RequestError) Unwrap() error { return e.Err }

func refuse(format string, args ...any) error {
	return &RequestError{Reason: fmt.Sprintf(format, args...)}
}

// checkInputs refuses requests whose inputs can't be had, before anything is
// asked for.
func (o *Options) checkInputs() error {
	for _, mirror := range []string{o.Mirror, o.SecurityMirror, o.SourceMirror, o.UserspaceMirror} {
		if u, err := url.Parse(mirror); mirror != "" &&
			(err != nil || !slices.Contains([]string{"http", "https", "file"}, u.Scheme)) {
			return refuse("mirror %q: want an http, https or file URL, such as %s", mirror, DefaultMirror)
		}
	}
	switch dir := filepath.Dir(o.LockFile); {
	case o.LockFile == "":
		return refuse("no lock file is named")
	case isDir(o.LockFile):
		return refuse("lock file %s: is a directory: name a file in it", o.LockFile)
	case !isDir(dir):
		return refuse("lock file %s: there is no directory %s to write it to", o.LockFile, dir)
	}
	if err := o.checkCache(); err != nil {
		return err
	}
	_, err := o.keys()
	return err
}

// checkCache refuses requests without a cache: it would be in whatever
// directory this program runs in.
func (o *Options) checkCache() error {
	if o.Cache == "" {
		return refuse("no cache directory is named")
	}
	return nil
}

// checkImage refuses requests that can't be built.
func (o *Options) checkImage() error {
	if o.Toolchain != ToolchainSandbox && o.Toolchain != ToolchainHost {
		return refuse("toolchain %q: want %s or %s", o.Toolchain, ToolchainSandbox, ToolchainHost)
	}
	modes := []patch.Mode{patch.Auto, patch.Minimal, patch.None, patch.All}
	if !slices.Contains(modes, patch.Mode(o.Edits)) {
		return refuse("edits %q: want one of %v", o.Edits, modes)
	}
	for _, format := range o.Formats {
		if !slices.Contains(Formats, format) {
			return refuse("format %q: want one of %v", format, Formats)
		}
	}
	if !slices.Contains(initramfs.Profiles, o.Profile) {
		return refuse("profile %q: want one of %v", o.Profile, initramfs.Profiles)
	}
	var err error
	if o.gpus, err = findGPUs(o.GPUs); err != nil {
		return err
	}
	if err := o.checkKey(); err != nil {
		return err
	}
	if o.Jobs < 0 {
		return refuse("jobs %d: want 1 or more, or 0 for one for each CPU", o.Jobs)
	}
	text, err := fs.ReadFile(os.DirFS(o.Source), "go.mod")
	if err != nil || !strings.HasPrefix(string(text), "module mkp2pimg\n") {
		return refuse("%s is not the source of mkp2pimg, whose programs go into the image: "+
			"run in a clone of the repository, or name one with --source-root", o.Source)
	}
	if o.Out == "" {
		return refuse("no directory is named for the image")
	}
	if err := images.CheckTarget(o.Out); err != nil {
		return &RequestError{"image", err}
	}
	return nil
}

// checkKey reads the key for signatures, and refuses one that nothing is signed
// with.
func (o *Options) checkKey() (err error) {
	switch {
	case (o.SignKey == "") != (o.SignCert == ""):
		return refuse("to sign takes both a key and its certificate")
	case o.SignKey == "" && o.SignModules:
		return refuse("to sign modules takes a key and its certificate")
	case o.SignKey == "":
		return nil
	case !o.SignModules && !slices.Contains(o.Formats, FormatUKI):
		return refuse("nothing is signed: add format %s, or sign the modules", FormatUKI)
	}
	if o.key, err = signing.Load(o.SignKey, o.SignCert); err != nil {
		return &RequestError{"key to sign with", err}
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// keys are those that may sign an index; nil: Debian's.
func (o *Options) keys() (openpgp.EntityList, error) {
	if o.Keyring == "" {
		return nil, nil
	}
	keys, err := debian.ReadKeyring(o.Keyring)
	if err != nil {
		return nil, &RequestError{"keyring", err}
	}
	return keys, nil
}
