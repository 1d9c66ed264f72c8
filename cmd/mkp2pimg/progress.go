package main

import (
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"mkp2pimg/internal/fetch"
)

// newProgress shows downloads as one bar on w if it is a terminal; else it is
// nil, and downloads are quiet.
func newProgress(w io.Writer) fetch.Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &bar{out: f}
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
