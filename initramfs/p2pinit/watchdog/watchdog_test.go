package watchdog

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type fake struct {
	pets     chan struct{}
	disarmed bool
	err      error
}

func (f *fake) Name() string           { return "fake" }
func (f *fake) Timeout() time.Duration { return 3 * time.Millisecond }
func (f *fake) Pet() error {
	f.pets <- struct{}{}
	return f.err
}

func (f *fake) Disarm() error {
	f.disarmed = true
	return nil
}

func TestGuardPets(t *testing.T) {
	f := &fake{pets: make(chan struct{}, 1000)}
	g := NewGuard(f, time.Now().Add(time.Hour))
	<-f.pets
	<-f.pets
	require.NoError(t, g.Disarm())
	assert.True(t, f.disarmed)
}

func TestGuardStopsAtTheTimeAllowed(t *testing.T) {
	now := time.Now()
	f := &fake{pets: make(chan struct{}, 1000)}
	g := &Guard{dev: f, until: now.Add(time.Minute)}
	g.pet(now)
	assert.Len(t, f.pets, 1)
	g.pet(now.Add(time.Minute))
	assert.Len(t, f.pets, 1, "time is over: let it bite")
	g.Allow(now.Add(time.Hour))
	g.pet(now.Add(time.Minute))
	assert.Len(t, f.pets, 2)
}

func TestDisarmTellsOfFailedPets(t *testing.T) {
	f := &fake{pets: make(chan struct{}, 1000), err: errors.New("input/output error")}
	g := NewGuard(f, time.Now().Add(time.Hour))
	<-f.pets
	require.ErrorIs(t, g.Disarm(), f.err)
}

func TestOpenMissing(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "watchdog0"), Timeout)
	require.ErrorContains(t, err, "watchdog: open")
}
