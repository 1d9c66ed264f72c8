package measure

import (
	"iter"
	"math/rand/v2"
	"slices"
)

const (
	// windowSize is the size of a window, unless all of the buffer is one.
	windowSize = 1 << 20
	// windowAlign is the smallest page that a GPU maps; windows start on one.
	windowAlign = 4096
	// randomWindows is how many windows lie at random, besides the first, the
	// middle and the last.
	randomWindows = 5
)

// windows returns the parts of a buffer of size bytes that a check looks at, in
// order and without overlap: all of it if full is set or it is small, otherwise
// the first, the middle, the last and a few chosen by seed. Size is a multiple of
// windowAlign.
func windows(size int64, full bool, seed uint64) []Window {
	if full || size <= windowSize*(randomWindows+3) {
		return []Window{{0, size}}
	}
	last := size - windowSize
	starts := []int64{0, last / 2 &^ (windowAlign - 1), last}
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	for range randomWindows {
		starts = append(starts, rng.Int64N(last/windowAlign)*windowAlign)
	}
	slices.Sort(starts)
	var ws []Window
	for _, at := range starts {
		if n := len(ws); n > 0 {
			at = max(at, ws[n-1].Offset+ws[n-1].Size)
		}
		if n := min(windowSize, size-at); n > 0 {
			ws = append(ws, Window{at, n})
		}
	}
	return ws
}

// chunks cuts windows into pieces of at most windowSize, which bounds the pinned
// memory of a check.
func chunks(ws []Window) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		for _, w := range ws {
			for at := int64(0); at < w.Size; at += windowSize {
				if !yield(Window{w.Offset + at, min(windowSize, w.Size-at)}) {
					return
				}
			}
		}
	}
}
