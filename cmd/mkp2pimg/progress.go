package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/pipeline"
)

// follow logs the steps of a request on w and, if that is a terminal, shows
// what is under way: downloads as one bar, other steps by name and duration.
func follow(o *pipeline.Options, w io.Writer) {
	o.Log = w
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b := &bar{out: f}
		o.Progress, o.Doing = b, b.doing
	}
}

// bar is a progress bar over all downloads that are under way or done.
type bar struct {
	out io.Writer

	mu    sync.Mutex
	bar   *progressbar.ProgressBar
	open  int
	total int64
}

func (b *bar) Start(_ string, size int64) fetch.Meter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(b.out), progressbar.OptionShowBytes(true),
			progressbar.OptionSetDescription("download"), progressbar.OptionClearOnFinish())
		b.total = 0
	}
	b.open++
	b.total += size
	b.bar.ChangeMax64(max(b.total, 1))
	return b
}

// doing shows a step on the terminal's last line, unless downloads are there,
// and clears that line when the step ends.
func (b *bar) doing(step string, since time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const clearLine = "\r\x1b[K" // ECMA-48: EL
	switch {
	case b.bar != nil:
	case step == "":
		fmt.Fprint(b.out, clearLine)
	default:
		fmt.Fprintf(b.out, "%s%s … %s", clearLine, step, since.Round(time.Second))
	}
}

func (b *bar) Add(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Add64(n) // a bar that can't be drawn must not stop the download
}

func (b *bar) End(error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open--; b.open == 0 {
		_ = b.bar.Finish()
		b.bar = nil
	}
}
