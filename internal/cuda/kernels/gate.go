package kernels

import "mkp2pimg/internal/cuda"

// gateLate is the offset in a gate's memory of the word that tells of a wait that
// ended by its timeout; before it lies the word that opens the gate.
const (
	gateLate = 4
	gateSize = 64
)

// A Gate holds streams, of any contexts, until the host opens it. What was queued
// behind it by then starts at once: the time that the host takes to queue doesn't
// count.
type Gate struct {
	ctx  cuda.Context
	host cuda.HostMemory
}

// NewGate returns a closed gate.
func (k *Kernels) NewGate() (*Gate, error) {
	h, err := k.ctx.AllocHost(gateSize)
	if err != nil {
		return nil, err
	}
	g := &Gate{k.ctx, h}
	g.Shut()
	return g, nil
}

// Open lets all held streams go on.
func (g *Gate) Open() { g.host.Store(0, 1) }

// Shut closes the gate again, when no stream waits at it.
func (g *Gate) Shut() {
	g.host.Store(0, 0)
	g.host.Store(gateLate, 0)
}

// Late tells whether a stream went on before the gate was opened because its
// timeout was over: then what followed did not start together.
func (g *Gate) Late() bool { return g.host.Load(gateLate) != 0 }

// Close frees the gate.
func (g *Gate) Close() error { return g.ctx.FreeHost(g.host) }
