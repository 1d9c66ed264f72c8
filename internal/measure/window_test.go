package measure

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWindowsAreInOrderWithinTheBuffer(t *testing.T) {
	for _, size := range []int64{windowAlign, windowSize, windowSize + windowAlign, 8 * windowSize, 8*windowSize + windowAlign, 512 << 20, 32 << 30} {
		for seed := range uint64(50) {
			ws := windows(size, false, seed)
			require.NotEmpty(t, ws)
			assert.Zero(t, ws[0].Offset, "the first page")
			end := int64(0)
			for _, w := range ws {
				assert.GreaterOrEqual(t, w.Offset, end, "size %d seed %d: overlap", size, seed)
				assert.Zero(t, w.Offset%windowAlign)
				assert.Positive(t, w.Size)
				end = w.Offset + w.Size
			}
			assert.Equal(t, size, end, "the last page")
		}
	}
}

func TestWindowsHoldTheMiddle(t *testing.T) {
	const size = 512 << 20
	var held bool
	for _, w := range windows(size, false, 1) {
		held = held || w.Offset < size/2 && w.Offset+w.Size > size/2
	}
	assert.True(t, held)
}

func TestFullWindowsLeaveNothingOut(t *testing.T) {
	const size = 20*windowSize + windowAlign
	assert.Equal(t, []Window{{0, size}}, windows(size, true, 1))
}

func TestChunksCoverTheirWindows(t *testing.T) {
	got := slices.Collect(chunks([]Window{{0, 2*windowSize + 8}, {5 * windowSize, windowSize}}))
	assert.Equal(t, []Window{{0, windowSize}, {windowSize, windowSize}, {2 * windowSize, 8}, {5 * windowSize, windowSize}}, got)
}

func TestWindowsDependOnTheSeed(t *testing.T) {
	assert.Equal(t, windows(1<<30, false, 1), windows(1<<30, false, 1))
	assert.NotEqual(t, windows(1<<30, false, 1), windows(1<<30, false, 2))
}
