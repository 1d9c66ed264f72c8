package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"
	"pault.ag/go/debian/version"

	"mkp2pimg/images/disk"
	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/kmod/build"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/qemu"
)

// arch is the architecture of kernel, driver and userland.
const arch = "amd64"

// buildRoles are the roles of what every build reads.
var buildRoles = []lock.Role{lock.Toolchain, lock.Kernel, lock.DriverSource, lock.Firmware, lock.Userspace, lock.Libc}

// inputs are the verified files that a lock names.
type inputs struct {
	lock  *lock.Lock
	paths map[string]string // by SHA-256
	// checked says that firmware and libraries were found to be of the driver.
	checked bool
}

// Fetch locks the inputs of a build if they aren't yet, and downloads all of
// them into the cache, those of the emulator as well.
func Fetch(ctx context.Context, o Options) (*lock.Lock, error) {
	if err := o.checkInputs(); err != nil {
		return nil, err
	}
	s := o.steps()
	in, err := s.inputs(ctx, &o, lock.Roles...)
	if err != nil {
		return nil, err
	}
	return in.lock, nil
}

// inputs reads the lock file, or resolves the request and writes it, and
// fetches the inputs with one of the roles.
func (s *steps) inputs(ctx context.Context, o *Options, roles ...lock.Role) (*inputs, error) {
	var l *lock.Lock
	var fresh bool
	err := s.run("inputs", func() (string, error) {
		var err error
		if l, fresh, err = lockFor(ctx, o); err != nil {
			return "", err
		}
		from := "from " + o.LockFile
		if fresh {
			from = fmt.Sprintf("resolved, %s of %s", l.Archives[0].Suite, l.Archives[0].Date.Format("2006-01-02"))
		}
		return fmt.Sprintf("%d files, driver %s, kernel %s, %s", len(l.Inputs), l.Driver, l.Kernel, from), nil
	})
	if err != nil {
		return nil, err
	}
	if !fresh {
		return s.fetch(ctx, o, l, roles...)
	}
	// All of them, since the lock file names the licence of each.
	in, err := s.fetch(ctx, o, l, lock.Roles...)
	if err != nil {
		return nil, err
	}
	if !fromDebian(in.lock.ByRole(lock.Userspace)[0]) { // a signed index says what Debian's are
		if err := s.userspace(ctx, o, in); err != nil {
			return nil, err
		}
	}
	return in, s.run("lock", func() (string, error) {
		if err := in.addLicences(ctx, o); err != nil {
			return "", err
		}
		return o.LockFile + " written", l.Write(o.LockFile)
	})
}

// fetch brings the inputs with one of the roles into the cache.
func (s *steps) fetch(ctx context.Context, o *Options, l *lock.Lock, roles ...lock.Role) (*inputs, error) {
	in := &inputs{lock: l, paths: map[string]string{}}
	return in, s.run("fetch", func() (string, error) {
		var files []fetch.File
		var size int64
		for _, role := range roles {
			for _, input := range l.ByRole(role) {
				f, err := l.File(input, o.mirrors(l))
				if err != nil {
					return "", err
				}
				files = append(files, f)
				size += f.Size
			}
		}
		paths, err := o.fetcher().GetAll(ctx, files)
		if err != nil {
			return "", err
		}
		for i, f := range files {
			in.paths[f.SHA256] = paths[i]
		}
		return fmt.Sprintf("%d files, %.1f MB", len(files), float64(size)/1e6), nil
	})
}

// mirrors is where to look for the archives of l instead of where l says.
func (o *Options) mirrors(l *lock.Lock) map[string]string {
	m := map[string]string{}
	if o.SourceMirror != "" {
		m[upstreamSuite] = o.SourceMirror
	}
	if o.UserspaceMirror != "" {
		m[nvidiaSuite] = o.UserspaceMirror
	}
	for _, a := range l.Archives {
		switch security := strings.HasSuffix(a.Suite, "-security"); {
		case a.Suite == upstreamSuite, a.Suite == nvidiaSuite:
		case security && o.SecurityMirror != "":
			m[a.Suite] = o.SecurityMirror
		case !security && o.Mirror != "":
			m[a.Suite] = o.Mirror
		}
	}
	return m
}

// lockFor returns the lock of a request: the one in the lock file if it fits,
// else a fresh one.
func lockFor(ctx context.Context, o *Options) (l *lock.Lock, fresh bool, err error) {
	old, err := lock.Read(o.LockFile)
	if err == nil {
		err = complete(old, o.LockFile, o.roles())
	}
	switch {
	case o.Update && err != nil, errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return nil, false, fmt.Errorf("%w (--update writes it anew)", err)
	case !o.Update:
		return old, false, o.fits(ctx, old)
	}
	driver, kernel := o.wanted(old)
	release, source, err := o.release(ctx, driver)
	if err != nil {
		return nil, false, err
	}
	l, err = resolve(ctx, o, release, source, kernel)
	return l, true, err
}

// wanted are the driver and the kernel of a fresh lock. What the request leaves
// open is as in the lock that it takes the place of, or the default.
func (o *Options) wanted(old *lock.Lock) (driver, kernel string) {
	driver, kernel = DefaultDriver, DefaultKernel
	if old != nil {
		driver, kernel = old.Driver, series(old.Kernel)
	}
	return cmp.Or(o.Driver, driver), cmp.Or(o.Kernel, kernel)
}

// fits says whether a lock is for what was asked for.
func (o *Options) fits(ctx context.Context, l *lock.Lock) error {
	driver := l.Driver
	if release, err := catalog.Lookup(o.Driver); o.Driver != "" && err == nil {
		driver = release.Version
	} else if o.Driver != "" && o.Driver != l.Driver { // the lock may be of a driver that came with its source
		return err
	}
	kernel := cmp.Or(o.Kernel, l.Kernel)
	if l.Driver != driver || !ofSeries(l.Kernel, kernel) {
		return refuse("%s is for driver %s and kernel %s, not for driver %s and kernel %s: "+
			"use --update to write it anew, or --lock to name another file",
			o.LockFile, l.Driver, l.Kernel, driver, kernel)
	}
	return o.sameParts(ctx, l)
}

// complete says whether a lock has all that a build reads.
func complete(l *lock.Lock, path string, roles []lock.Role) error {
	for _, role := range roles {
		if len(l.ByRole(role)) == 0 {
			return &lock.FileError{Path: path, Err: fmt.Errorf("it has no input with role %s", role)}
		}
	}
	return nil
}

// ofSeries says whether a kernel release such as "6.12.117+deb12-amd64" is
// what was asked for: the series "6.12", or the release itself.
func ofSeries(release, want string) bool {
	return release == want || strings.HasPrefix(release, want+".")
}

// series is that of a kernel release: "6.12" of "6.12.117+deb12-amd64".
func series(release string) string {
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

// resolve finds the inputs of a build. source is the driver's if it was given,
// kernelWanted a series or a release.
// The driver's own come first: they are the likeliest to be missing, and what is
// wrong with them is known before an archive is asked.
func resolve(ctx context.Context, o *Options, driver *catalog.Release, source *lock.Input, kernelWanted string) (*lock.Lock, error) {
	l := &lock.Lock{Version: lock.Version, Driver: driver.Version}
	driverErr := o.driverParts(ctx, l, driver, source)
	if _, missing := errors.AsType[*PartsError](driverErr); driverErr != nil && !missing {
		return nil, driverErr
	}
	// Whoever has no network wants to hear of all that is missing.
	debianErr := o.debianParts(ctx, l, driver.Debian, kernelWanted)
	if err := errors.Join(driverErr, debianErr); err != nil {
		return nil, err
	}
	l.Sort() // as it will be read from its file
	return l, l.Validate()
}

// debianParts adds what is from Debian to a lock: all that a build reads, but
// for the parts of the driver that the lock has already.
func (o *Options) debianParts(ctx context.Context, l *lock.Lock, driver *catalog.Debian, kernelWanted string) error {
	keys, err := o.keys()
	if err != nil {
		return err
	}
	client := &debian.Client{Fetch: o.fetcher(), Keys: keys}
	suites := debian.Suites(codename, o.Mirror, o.SecurityMirror)
	index, err := client.Packages(ctx, arch, suites...)
	if errors.Is(err, debian.ErrUnknownKey) {
		err = fmt.Errorf("%w (if the mirror has a key of its own, name its file with --keyring)", err)
	}
	if err != nil {
		return err
	}
	if l.Kernel, err = kernelRelease(index, kernelWanted); err != nil {
		return err
	}
	type set struct {
		role  lock.Role
		names []string
		find  func(*debian.Index, []string) ([]*debian.Package, error)
	}
	sets := []set{
		{lock.Toolchain, append([]string{"linux-headers-" + l.Kernel}, build.ToolchainPackages...), closure(build.ToolchainExclude(l.Kernel)...)},
		{lock.Kernel, []string{"linux-image-" + l.Kernel}, alone},
		{lock.Libc, initramfs.LibcPackages, alone},
		{lock.BootLoader, loaderPackages, closure(disk.Exclude...)},
		{lock.Emulator, qemu.Packages, closure()},
	}
	if driver != nil && len(l.ByRole(lock.Userspace)) == 0 {
		// The driver refuses firmware and libraries of another release, and the
		// newest in the archive are those of another one as soon as it moves on.
		sets = append(sets, set{lock.Firmware, versioned(driver.Firmware, driver.Version), alone},
			set{lock.Userspace, versioned(driver.Userspace, driver.Version), alone})
	}
	for _, s := range sets {
		pkgs, err := s.find(index, s.names)
		if err != nil {
			return fmt.Errorf("%s: %w", s.role, err)
		}
		for _, p := range pkgs {
			l.Inputs = append(l.Inputs, lock.FromPackage(s.role, p))
			addArchive(l, p.Origin)
		}
	}
	if driver == nil || len(l.ByRole(lock.DriverSource)) > 0 {
		return nil
	}

	// Only contrib has the driver's source; main's list of sources is large.
	for i := range suites {
		suites[i].Components = []string{"contrib"}
	}
	sources, err := client.Sources(ctx, suites...)
	if err != nil {
		return err
	}
	source, err := sources.Lookup(driver.Source, driver.SourceVersion)
	if err != nil {
		return err
	}
	orig, err := source.Orig()
	if err != nil {
		return err
	}
	l.Inputs = append(l.Inputs, lock.FromSource(lock.DriverSource, source, orig))
	addArchive(l, source.Origin)
	return nil
}

// closure finds packages with all they depend on, but for some.
func closure(exclude ...string) func(*debian.Index, []string) ([]*debian.Package, error) {
	return func(index *debian.Index, names []string) ([]*debian.Package, error) {
		return index.Resolve(names, debian.ResolveOptions{Exclude: exclude})
	}
}

// alone finds packages ("name" or "name=version") without what they depend on.
func alone(index *debian.Index, names []string) ([]*debian.Package, error) {
	var pkgs []*debian.Package
	for _, name := range names {
		p, ok := index.Lookup(name)
		if !ok {
			err := fmt.Errorf("package %s is in none of the archive's suites", name)
			bare, _, _ := strings.Cut(name, "=")
			if p, ok := index.Lookup(bare); ok {
				err = fmt.Errorf("%w: the newest there is %s of %s", err, p.Version, p.Origin.Name)
			}
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// versioned asks for one version of each package.
func versioned(names []string, release string) []string {
	var list []string
	for _, name := range names {
		list = append(list, name+"="+release)
	}
	return list
}

func addArchive(l *lock.Lock, origin *debian.Origin) {
	known := func(a lock.Archive) bool { return a.Suite == origin.Name }
	if !slices.ContainsFunc(l.Archives, known) {
		l.Archives = append(l.Archives, lock.FromOrigin(origin))
	}
}

// imagePackage matches the packages of Debian's generic kernels. The cloud
// flavour is never taken: it lacks the AMD IOMMU, USB and most NICs. The others
// (rt, dbg, unsigned) are not what machines run.
var imagePackage = regexp.MustCompile(`^linux-image-(\d+\.\d+\.\d+[^-]*(?:-\d+)?-amd64)$`)

// kernelRelease returns the newest release of the generic kernel that is of
// the wanted series, or is the wanted release.
func kernelRelease(index *debian.Index, want string) (string, error) {
	names := index.Names(imagePackage.MatchString)
	var best *debian.Package
	var have []string
	for _, name := range names {
		release := imagePackage.FindStringSubmatch(name)[1]
		have = append(have, release)
		if !ofSeries(release, want) {
			continue
		}
		if p, ok := index.Lookup(name); ok && (best == nil || newer(p.Version, best.Version)) {
			best = p
		}
	}
	if best == nil {
		return "", refuse("no generic kernel %q in the archive: it has %s", want, strings.Join(have, ", "))
	}
	return strings.TrimPrefix(best.Name, "linux-image-"), nil
}

// addLicences fills in the licence of every package, and the git tree of the
// driver's source. A source package's licence is known only to its debian/
// folder, which isn't fetched: the driver's is the one that NVIDIA's repository
// states.
func (in *inputs) addLicences(ctx context.Context, o *Options) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for i := range in.lock.Inputs {
		input := &in.lock.Inputs[i]
		switch {
		case input.Role == lock.DriverSource && input.Tree == "":
			g.Go(func() (err error) {
				input.Licence = driverLicence
				_, input.Tree, err = o.describeSource(ctx, *input)
				return err
			})
		case input.Licence != "":
		default:
			g.Go(func() (err error) {
				input.Licence, err = o.licence(ctx, *input)
				return err
			})
		}
	}
	return g.Wait()
}

// licence reads the licence of a package, which takes unpacking it, or takes it
// from where it was kept the last time.
func (o *Options) licence(ctx context.Context, p lock.Input) (string, error) {
	kept := filepath.Join(o.Cache, "licences", p.SHA256)
	if text, err := os.ReadFile(kept); err == nil {
		return string(text), nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	text, err := debian.Licence(o.fetcher().Path(p.SHA256))
	if err != nil {
		return "", of(p, err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(kept), 0o755), renameio.WriteFile(kept, []byte(text), 0o644)); err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	return text, nil
}

// driverLicence is what the file COPYING of the open kernel modules says.
const driverLicence = "MIT or GPL-2"

// newer says whether the Debian version a is newer than b.
func newer(a, b string) bool {
	va, errA := version.Parse(a)
	vb, errB := version.Parse(b)
	return errA == nil && errB == nil && version.Compare(va, vb) > 0
}
