package measure

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inOrder checks that windows lie in order within size bytes, apart from each
// other, on pages.
func inOrder(t *testing.T, ws []Window, size int64) {
	t.Helper()
	require.NotEmpty(t, ws)
	end := int64(0)
	for _, w := range ws {
		require.GreaterOrEqual(t, w.Offset, end, "overlap")
		require.Zero(t, w.Offset%windowAlign)
		require.Zero(t, w.Size%windowAlign)
		require.Positive(t, w.Size)
		end = w.Offset + w.Size
	}
	assert.Zero(t, ws[0].Offset, "the first page")
	assert.Equal(t, size, end, "the last page")
}

// holds tells whether both sides of a boundary are in the windows.
func holds(ws []Window, boundary int64) bool {
	return slices.ContainsFunc(ws, func(w Window) bool { return w.Offset < boundary && w.Offset+w.Size > boundary })
}

func TestWindowsAreInOrderWithinTheBuffer(t *testing.T) {
	for _, size := range []int64{windowAlign, windowSize, windowSize + windowAlign, 8 * windowSize, 8*windowSize + windowAlign, 512 << 20, 32 << 30} {
		for seed := range uint64(50) {
			inOrder(t, windows(size, false, seed), size)
			inOrder(t, reachWindows(max(size, reachPage), 0, false, seed), max(size, reachPage))
		}
	}
}

func TestWindowsHoldTheMiddle(t *testing.T) {
	const size = 512 << 20
	assert.True(t, holds(windows(size, false, 1), size/2))
}

func TestReachHoldsTheBoundaries(t *testing.T) {
	const size, bar1 = 141 << 30, 96 << 30
	ws := reachWindows(size, bar1, false, 1)
	for _, b := range []int64{256 << 20, 512 << 20, 4 << 30, 32 << 30, 64 << 30, bar1, 140 << 30} {
		assert.True(t, holds(ws, b), "%#x", b)
	}
	var bytes int64
	for _, w := range ws {
		bytes += w.Size
	}
	assert.Less(t, bytes, int64(64<<20), "a sample, not all")
	assert.True(t, holds(reachWindows(size, 3<<20, false, 1), 3<<20), "a BAR1 of odd size")
}

func TestFullWindowsLeaveNothingOut(t *testing.T) {
	const size = 20*windowSize + windowAlign
	assert.Equal(t, []Window{{0, size}}, windows(size, true, 1))
	assert.Equal(t, []Window{{0, size}}, reachWindows(size, 0, true, 1))
}

func TestChunksCoverTheirWindows(t *testing.T) {
	got := slices.Collect(chunks([]Window{{0, 2*windowSize + 8}, {5 * windowSize, windowSize}}, windowSize))
	assert.Equal(t, []Window{{0, windowSize}, {windowSize, windowSize}, {2 * windowSize, 8}, {5 * windowSize, windowSize}}, got)
}

func TestBatchesFitTheirBuffer(t *testing.T) {
	got := slices.Collect(batches([]Window{{0, 6}, {10, 3}, {20, 12}}, 10))
	assert.Equal(t, [][]piece{
		{{Window{0, 6}, 0}, {Window{10, 3}, 6}},
		{{Window{20, 10}, 0}},
		{{Window{30, 2}, 0}},
	}, got)
	assert.Empty(t, slices.Collect(batches(nil, 10)))
}

func TestWindowsDependOnTheSeed(t *testing.T) {
	assert.Equal(t, windows(1<<30, false, 1), windows(1<<30, false, 1))
	assert.NotEqual(t, windows(1<<30, false, 1), windows(1<<30, false, 2))
}
