package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"mkp2pimg/internal/sandbox"
)

// Names in a cache entry.
const (
	treeDir    = "tree"    // the compiled source tree
	modulesDir = "modules" // NAME.ko, stripped, and modules.json
)

// Paths inside the sandbox.
const (
	guestFrom    = "/from"
	guestTree    = "/build"
	guestModules = "/modules"
)

type builder struct {
	Config
	steps []Step
}

// job is one of the stages.
type job struct {
	label   string                  // "core", "stock" or "p2p"
	entry   string                  // the cache entry
	from    string                  // tree to start from
	partial string                  // the entry while it is unfinished
	change  func(tree string) error // made to the copy before it is compiled; may be nil
	modules bool                    // whether the modules are made, not nv-kernel.o alone
}

// build fills the cache entry of j.
func (b *builder) build(ctx context.Context, j job) error {
	tree, modules := filepath.Join(j.partial, treeDir), filepath.Join(j.partial, modulesDir)
	if err := errors.Join(os.Mkdir(tree, 0o755), os.Mkdir(modules, 0o755)); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	logPath := j.entry + ".log"
	log, err := os.Create(logPath)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	defer log.Close()

	p := &process{
		builder: b,
		binds: []sandbox.Bind{
			{Host: j.from, Guest: guestFrom, ReadOnly: true},
			{Host: tree, Guest: guestTree},
			{Host: modules, Guest: guestModules},
		},
		log:     &steadyWriter{w: io.MultiWriter(b.Log, log)},
		logPath: logPath,
	}
	if b.Toolchain.Host() {
		for i := range p.binds {
			p.binds[i].Guest = p.binds[i].Host
		}
	}
	from, tree, out := p.binds[0].Guest, p.binds[1].Guest, p.binds[2].Guest

	if err := p.run(ctx, j.label+": copy", "/", copyCommand(from, tree)); err != nil {
		return err
	}
	if j.change != nil {
		if err := j.change(filepath.Join(j.partial, treeDir)); err != nil {
			return fmt.Errorf("%s: %w", j.label, err)
		}
	}
	commands := []command{nvKernel(b.Epoch)}
	if j.modules {
		commands = append(commands, kbuild(b.Kernel))
		for _, name := range moduleNames {
			commands = append(commands, strip(name, out))
		}
	}
	for _, c := range commands {
		argv := c.argv
		if c.parallel {
			argv = append(argv, "-j", strconv.Itoa(b.Jobs))
		}
		if err := p.run(ctx, j.label+": "+c.name, tree, argv); err != nil {
			return err
		}
	}
	if err := errors.Join(p.log.err, log.Close()); err != nil {
		return fmt.Errorf("build: log: %w", err)
	}
	if !j.modules {
		return nil
	}
	return writeModules(modules)
}

// steadyWriter accepts everything and keeps the first error, so that a command
// whose output can't be stored, on a full disk for one, still gets to say why it
// fails itself.
type steadyWriter struct {
	w   io.Writer
	err error
}

func (s *steadyWriter) Write(p []byte) (int, error) {
	if s.err == nil {
		_, s.err = s.w.Write(p)
	}
	return len(p), nil
}

// process runs the commands of one job.
type process struct {
	*builder
	binds   []sandbox.Bind
	log     *steadyWriter
	logPath string
}

func (p *process) run(ctx context.Context, name, dir string, argv []string) error {
	errs := &errorLines{}
	out := io.MultiWriter(errs, p.log)
	cmd := sandbox.Cmd{
		Root:   p.Toolchain,
		Binds:  p.binds,
		Dir:    dir,
		Env:    environment(p.Epoch),
		Argv:   argv,
		Stdout: out,
		Stderr: out,
	}
	start := time.Now()
	err := cmd.Run(ctx)
	if s := cmd.ProcessState; s != nil {
		step := Step{Name: name, Wall: time.Since(start), CPU: s.UserTime() + s.SystemTime()}
		if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
			step.PeakRSS = usage.Maxrss * 1024
		}
		p.steps = append(p.steps, step)
	}
	if forbidden, no := errors.AsType[*sandbox.ForbiddenError](err); no {
		return forbidden
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return errs.explain(&CompileError{Step: name, Log: p.logPath, Err: err})
}
