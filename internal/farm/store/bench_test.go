package store_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
)

// BenchmarkRead reads what pages show, of 2,000 nodes and 90 nights.
func BenchmarkRead(b *testing.B) {
	const nodes, nights = 2000, 90
	for engine, name := range map[string]func(testing.TB) string{
		"sqlite":   func(b testing.TB) string { return filepath.Join(b.TempDir(), "farm.db") },
		"postgres": storetest.Postgres,
	} {
		b.Run(engine, func(b *testing.B) {
			ctx := context.Background()
			s := storetest.Open(b, name(b))
			storetest.Seed(b, s, nodes, nights)
			last := storetest.LastNight.Format("2006-01-02")
			b.Run("fleet", func(b *testing.B) {
				for b.Loop() {
					fleet, err := s.Fleet(ctx)
					require.NoError(b, err)
					require.Len(b, fleet, nodes)
				}
			})
			b.Run("night", func(b *testing.B) {
				for b.Loop() {
					runs, err := s.Runs(ctx, store.Query{Night: last})
					require.NoError(b, err)
					require.Len(b, runs, nodes)
				}
			})
			b.Run("nights", func(b *testing.B) {
				for b.Loop() {
					rows, err := s.Nights(ctx, nights)
					require.NoError(b, err)
					require.Len(b, rows, nights)
				}
			})
			for gpus, i := range map[string]int{"two": 1, "eight": 0} {
				b.Run("history-"+gpus+"-GPUs", func(b *testing.B) {
					for b.Loop() {
						runs, err := s.History(ctx, storetest.NodeName(i), nights)
						require.NoError(b, err)
						require.Len(b, runs, nights)
					}
				})
			}
		})
	}
}
