package store_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// now is the time of the tests: with microseconds, which is what a store keeps.
var now = time.Date(2026, 3, 5, 22, 0, 0, 123456000, time.UTC)

func offer(id, node string) farm.Run {
	return farm.Run{ID: id, Node: node, Night: "2026-03-05", Image: "lab", Plan: "quick", Offered: now, Deadline: now.Add(30 * time.Minute)}
}

func TestDelivery(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		ctx := context.Background()
		s := storetest.Open(t, name)
		require.NoError(t, s.Offer(ctx, offer("r1", "n1"), store.Token{1}))
		p, err := s.Append(ctx, "r1", store.Chunk{Seq: 0, Data: []byte("a\n"), Stage: "facts", At: now})
		require.NoError(t, err)
		assert.Equal(t, store.Progress{Next: 1}, p)
		p, err = s.Append(ctx, "r1", store.Chunk{Seq: 1, Data: []byte("b\n"), End: true, At: now})
		require.NoError(t, err)
		assert.Equal(t, store.Progress{Next: 2, Complete: true}, p)
		r, err := s.Report(ctx, "r1")
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Equal(t, "a\nb\n", string(text))
		require.NoError(t, s.Judge(ctx, "r1", store.Judgement{Chunks: 2, Summary: &farm.Summary{Pairs: []farm.Pair{{GBps: 1}}}}))
		runs, err := s.History(ctx, "n1", 5)
		require.NoError(t, err)
		t.Log(runs)
		fleet, err := s.Fleet(ctx)
		require.NoError(t, err)
		t.Log(fleet)
		nights, err := s.Nights(ctx, 5)
		require.NoError(t, err)
		t.Log(nights)
		n, err := s.Retain(ctx, store.Policy{Reports: 1, Summaries: 1}, now.Add(time.Hour))
		require.NoError(t, err)
		t.Log(n)
	})
}
