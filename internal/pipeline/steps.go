package pipeline

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Step is one finished part of a run.
type Step struct {
	Name   string        `json:"name"`
	Detail string        `json:"detail"`
	Wall   time.Duration `json:"wall_ns"`
	// Peak is the highest resident memory, in bytes, of this process and all
	// its descendants together while the step ran, sampled twice a second.
	Peak int64 `json:"peak_rss_bytes"`
}

// steps runs named parts one after the other, times them and says so.
type steps struct {
	log   io.Writer
	doing func(step string, since time.Duration) // may be nil
	done  []Step
}

func (o *Options) steps() *steps { return &steps{log: o.Log, doing: o.Doing} }

// run does one step. The detail that fn returns tells a person what came of it.
func (s *steps) run(name string, fn func() (detail string, err error)) error {
	start := time.Now()
	doing := s.doing
	if doing == nil {
		doing = func(string, time.Duration) {}
	}
	stop := watchMemory(func() { doing(name, time.Since(start)) })
	detail, err := fn()
	step := Step{Name: name, Detail: detail, Wall: time.Since(start), Peak: stop()}
	doing("", step.Wall)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.done = append(s.done, step)
	fmt.Fprintf(s.log, "%-10s %7.1f s  %5d MB  %s\n", name, step.Wall.Seconds(), step.Peak/1e6, detail)
	return nil
}

// watchMemory samples the resident memory of this process tree, and calls
// sampled each time, until the returned function is called, which gives the
// highest sum seen.
func watchMemory(sampled func()) (stop func() int64) {
	var peak atomic.Int64
	quit, ended := make(chan struct{}), make(chan struct{})
	sample := func() { peak.Store(max(peak.Load(), treeMemory("/proc", os.Getpid()))) }
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				sample()
				sampled()
			}
		}
	}()
	return func() int64 {
		close(quit)
		<-ended
		sample()
		return peak.Load()
	}
}

// treeMemory sums the resident set sizes of a process and its descendants, in
// bytes. Pages that processes share are counted for each of them. Processes
// that end meanwhile count for nothing.
func treeMemory(proc string, root int) int64 {
	paths, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return 0
	}
	rss := map[int]int64{}
	children := map[int][]int{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		pid, parent, pages, ok := parseStat(string(text))
		if !ok {
			continue
		}
		rss[pid] = pages * int64(os.Getpagesize())
		children[parent] = append(children[parent], pid)
	}
	var sum func(pid int) int64
	sum = func(pid int) int64 {
		total := rss[pid]
		for _, child := range children[pid] {
			total += sum(child)
		}
		return total
	}
	return sum(root)
}

// parseStat reads pid, parent and resident pages from a /proc/PID/stat line
// (proc(5): fields 1, 4 and 24). The command name in field 2 may hold spaces
// and parentheses, so the other fields are counted from its last parenthesis.
func parseStat(line string) (pid, parent int, pages int64, ok bool) {
	head, rest, found := strings.Cut(line, " (")
	end := strings.LastIndex(rest, ") ")
	if !found || end < 0 {
		return 0, 0, 0, false
	}
	fields := strings.Fields(rest[end+2:])
	if len(fields) < 22 {
		return 0, 0, 0, false
	}
	pid, err1 := strconv.Atoi(head)
	parent, err2 := strconv.Atoi(fields[1])
	pages, err3 := strconv.ParseInt(fields[21], 10, 64)
	return pid, parent, pages, err1 == nil && err2 == nil && err3 == nil && pid != parent
}
