package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/internal/digest"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/kmod/catalog"
)

// Suites of a lock for the parts of a driver that come from NVIDIA, and the name
// of the source there.
const (
	upstreamSuite  = "open-gpu-kernel-modules"
	nvidiaSuite    = "nvidia-driver"
	upstreamSource = "open-gpu-kernel-modules"
)

// nvidiaLicence is where the licence of what a .run archive has can be read.
const nvidiaLicence = "NVIDIA Driver License Agreement (file LICENSE in the archive)"

// PartsError says which parts of a driver could not be had, and what to do.
type PartsError struct {
	Driver string
	Parts  []MissingPart
}

// MissingPart is a part of a driver, where it is published, and why it could
// not be had from there.
type MissingPart struct {
	What string // "source" or "firmware and user space"
	URL  string
	Flag string // the option that takes a copy of it
	Err  error
}

func (e *PartsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "driver %s: parts of it could not be had; download each on another machine and name the copy:", e.Driver)
	for _, p := range e.Parts {
		reason := p.Err.Error()
		if _, off := errors.AsType[*fetch.OfflineError](p.Err); off {
			reason = "the network is off"
		}
		fmt.Fprintf(&b, "\n  %s:\n    from %s\n    with %s FILE\n    because: %s", p.What, p.URL, p.Flag, reason)
	}
	return b.String()
}

// Unwrap gives the reasons.
func (e *PartsError) Unwrap() []error {
	var errs []error
	for _, p := range e.Parts {
		errs = append(errs, p.Err)
	}
	return errs
}

// release finds the driver that is asked for. A source that is given says itself
// of which release it is, and may be of one that the catalog does not know; it is
// returned with it, nil if none is given.
func (o *Options) release(ctx context.Context, driver string) (*catalog.Release, *lock.Input, error) {
	known, err := catalog.Lookup(driver)
	if o.DriverSource == "" || err != nil && !wholeVersion.MatchString(driver) {
		return known, nil, err
	}
	tag := driver
	if known != nil {
		tag = known.Version
	}
	in, err := o.givenSource(ctx, tag)
	if err != nil {
		return nil, nil, err
	}
	if o.Driver != "" && in.Version != tag {
		return nil, nil, refuse("--source %s is of driver %s, not of %s", o.DriverSource, in.Version, tag)
	}
	if r, err := catalog.Lookup(in.Version); err == nil {
		return r, &in, nil
	}
	return &catalog.Release{Version: in.Version}, &in, nil
}

// wholeVersion matches a release, such as "570.211.01" or "565.77", and no branch.
var wholeVersion = regexp.MustCompile(`^\d+(\.\d+)+$`)

// driverParts adds what of a driver is not from Debian to a lock: what was
// given, the source if it was, and what only NVIDIA has.
func (o *Options) driverParts(ctx context.Context, l *lock.Lock, r *catalog.Release, source *lock.Input) error {
	missing := &PartsError{Driver: r.Version}
	switch {
	case source != nil:
		l.Inputs = append(l.Inputs, *source)
	case r.Debian == nil:
		in, archive, err := o.upstreamSource(ctx, r)
		if err != nil {
			missing.Parts = append(missing.Parts, MissingPart{"source", sourceURL(r), "--source", err})
			break
		}
		l.Inputs, l.Archives = append(l.Inputs, in), append(l.Archives, archive)
	}
	switch {
	case o.Userspace != nil:
		list, err := o.givenUserspace(ctx, r.Version)
		if err != nil {
			return err
		}
		l.Inputs = append(l.Inputs, list...)
	case r.Debian == nil:
		list, archive, err := o.nvidiaUserspace(ctx, r)
		if err != nil {
			missing.Parts = append(missing.Parts, MissingPart{"firmware and user space", userspaceURL(r), "--userspace", err})
			break
		}
		l.Inputs, l.Archives = append(l.Inputs, list...), append(l.Archives, archive)
	}
	if missing.Parts != nil {
		return missing
	}
	return nil
}

// keep puts a file into the cache unless it is there.
func (o *Options) keep(name string, r io.ReadCloser) (f fetch.File, err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	file, ok := r.(*os.File)
	if !ok {
		return o.fetcher().Import(name, r)
	}
	sum, err := digest.File(file.Name())
	if err != nil {
		return f, err
	}
	info, err := file.Stat()
	if err != nil {
		return f, err
	}
	have, err := os.Stat(o.fetcher().Path(sum))
	if err == nil && have.Size() == info.Size() {
		return fetch.File{Name: name, SHA256: sum, Size: info.Size()}, nil
	}
	return o.fetcher().Import(name, r)
}

// fromDebian says whether an input comes from one of Debian's suites.
func fromDebian(in lock.Input) bool {
	return !slices.Contains([]string{lock.Local, upstreamSuite, nvidiaSuite}, in.Suite)
}

// sameParts says whether what was given is what the lock has.
func (o *Options) sameParts(ctx context.Context, l *lock.Lock) error {
	var given []lock.Input
	if o.DriverSource != "" {
		in, err := o.givenSource(ctx, l.Driver)
		if err != nil {
			return err
		}
		given = append(given, in)
	}
	if o.Userspace != nil {
		list, err := o.givenUserspace(ctx, l.Driver)
		if err != nil {
			return err
		}
		given = append(given, list...)
	}
	for _, in := range given {
		same := func(have lock.Input) bool { return have.SHA256 == in.SHA256 }
		if have := l.ByRole(in.Role); !slices.ContainsFunc(have, same) {
			return refuse("%s has other %s than %s, which was given: use --update to write it anew, or --lock to name another file",
				o.LockFile, in.Role, in.Path)
		}
	}
	return nil
}
