package modules

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// NVIDIA are the modules that Loader never loads for a device: the driver under
// test is loaded by its own stage, and every other driver of NVIDIA GPUs would
// keep them from it.
var NVIDIA = []string{"nouveau", "nova_core", "nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidiafb"}

// Loader loads modules with their dependencies, each once. Its methods may be
// called from several goroutines.
type Loader struct {
	// Insert loads the module in a file, [Insert] on a running system.
	Insert func(file, options string) error

	index *Index
	mu    sync.Mutex
	state map[string]*attempt
}

type attempt struct {
	once sync.Once
	err  error
}

// NewLoader returns a loader of the modules of an index.
func NewLoader(x *Index, insert func(file, options string) error) *Loader {
	return &Loader{Insert: insert, index: x, state: map[string]*attempt{}}
}

// Result is what became of one module.
type Result struct {
	Name string
	Err  error
}

// Load loads a module and what it needs. A module that is built in or loaded
// already is no error.
func (l *Loader) Load(name string) error {
	name = normal(name)
	m, ok := l.index.modules[name]
	switch {
	case l.index.builtin[name]:
		return nil
	case !ok:
		return fmt.Errorf("module %s is not in the image", name)
	}
	l.mu.Lock()
	a := l.state[name]
	if a == nil {
		a = &attempt{}
		l.state[name] = a
	}
	l.mu.Unlock()
	// The index has no cycles, so no module waits here for itself.
	a.once.Do(func() { a.err = l.insert(m) })
	return a.err
}

func (l *Loader) insert(m module) error {
	for _, need := range m.needs {
		if err := l.Load(need); err != nil {
			return fmt.Errorf("needs %s: %w", need, err)
		}
	}
	file := "/" + path.Join(l.index.dir, m.path)
	if err := l.Insert(file, ""); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// LoadAll loads modules, several at a time: a driver's probe mostly waits for its
// device. The results are sorted by name.
func (l *Loader) LoadAll(names []string) []Result {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	results := make([]Result, len(names))
	var g errgroup.Group
	g.SetLimit(2 * runtime.NumCPU())
	for i, name := range names {
		g.Go(func() error {
			results[i] = Result{name, l.Load(name)}
			return nil
		})
	}
	_ = g.Wait() // results holds the errors
	return results
}

// LoadHardware loads the modules of all devices below root/sys and those named
// always, as far as the kernel has them; and again for the devices that these make
// appear (a disk behind its controller), until nothing new appears. It returns
// what it tried to load.
func (l *Loader) LoadHardware(root fs.FS, always ...string) ([]Result, error) {
	var all []Result
	tried := map[string]bool{}
	for _, name := range slices.Concat(NVIDIA, always) {
		tried[normal(name)] = true
	}
	names := l.Present(always)
	for {
		all = append(all, l.LoadAll(names)...)
		names = nil
		devices, err := Modaliases(root)
		if err != nil {
			return all, err
		}
		for _, d := range devices {
			for _, name := range l.index.Match(d) {
				if !tried[name] {
					tried[name] = true
					names = append(names, name)
				}
			}
		}
		if names == nil {
			slices.SortFunc(all, func(a, b Result) int { return cmp.Compare(a.Name, b.Name) })
			return all, nil
		}
	}
}

// Present returns those of the names that the kernel has.
func (l *Loader) Present(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !l.index.Has(n) })
}

// Summary says in one line what was loaded, and returns the failures apart.
func Summary(results []Result) (string, []Result) {
	var names []string
	var failed []Result
	for _, r := range results {
		if r.Err != nil {
			failed = append(failed, r)
		} else {
			names = append(names, r.Name)
		}
	}
	text := fmt.Sprintf("%d loaded, %d failed", len(names), len(failed))
	if names != nil {
		text += ": " + strings.Join(names, " ")
	}
	return text, failed
}
