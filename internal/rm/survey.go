package rm

import (
	"context"
	"slices"
)

// StaticBAR1 is the part of BAR1 in which the driver maps a GPU's memory for good.
type StaticBAR1 struct {
	Enabled bool   `json:"enabled"`
	Start   uint64 `json:"start"` // bytes from the beginning of BAR1
	Size    uint64 `json:"size"`  // bytes
}

// Pair is what the driver grants to an ordered pair of GPUs.
type Pair struct {
	A      string   `json:"a"` // BDF of the GPU that reads and writes
	B      string   `json:"b"` // BDF of the GPU whose memory it is
	Caps   Caps     `json:"caps"`
	Path   Path     `json:"path"`
	Status Statuses `json:"status"`
	PeerID uint32   `json:"peer_id"`         // of B on A; 0xffffffff: none is assigned
	Error  string   `json:"error,omitempty"` // why the rest is not known
}

// Surveyed is a GPU with what the driver told about it.
type Surveyed struct {
	GPU
	Running bool `json:"running"`
	// Memory is the size of the GPU's memory in bytes; 0: not known.
	Memory uint64 `json:"memory,omitempty"`
	// StaticBAR1 is nil if the driver does not tell.
	StaticBAR1 *StaticBAR1 `json:"static_bar1,omitempty"`
	Errors     []string    `json:"errors,omitempty"` // why something is not known
}

// Survey is everything that the resource manager was asked.
type Survey struct {
	Driver string     `json:"driver"` // release of nvidia.ko
	GPUs   []Surveyed `json:"gpus"`
	Pairs  []Pair     `json:"pairs"` // every ordered pair
}

// Survey starts all GPUs and asks about each of them and each ordered pair. What
// can't be told is in the survey; the error is the context's, or says that the
// resource manager does not answer at all.
func (c *Client) Survey(ctx context.Context) (*Survey, error) {
	s := &Survey{Driver: c.version}
	for _, g := range c.gpus {
		gpu := Surveyed{GPU: g}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.Attach(g); err != nil {
			gpu.Errors = append(gpu.Errors, err.Error())
		}
		s.GPUs = append(s.GPUs, gpu)
	}
	// A GPU whose device node is missing may run nevertheless, on behalf of others.
	running, err := c.Attached()
	if err != nil {
		return nil, err
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		g.Running = slices.Contains(running, g.ID)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if g.Running {
			c.ask(g)
		}
	}
	for _, a := range s.GPUs {
		for _, b := range s.GPUs {
			if a.ID == b.ID {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s.Pairs = append(s.Pairs, c.pair(a, b))
		}
	}
	return s, nil
}

// ask asks about one running GPU.
func (c *Client) ask(g *Surveyed) {
	var err error
	if g.Memory, err = c.Memory(g.GPU); err != nil {
		g.Errors = append(g.Errors, err.Error())
	}
	if g.StaticBAR1, err = c.StaticBAR1(g.GPU); err != nil && !slices.Contains(g.Errors, err.Error()) {
		g.Errors = append(g.Errors, err.Error())
	}
}

// pair asks about one pair of GPUs.
func (c *Client) pair(a, b Surveyed) Pair {
	unknown := func(why string) Pair { return Pair{A: a.BDF, B: b.BDF, PeerID: invalidID, Error: why} }
	for _, g := range []Surveyed{a, b} {
		if !g.Running {
			return unknown("the driver has not started GPU " + g.BDF)
		}
	}
	p, err := c.P2P(a.GPU, b.GPU)
	if err != nil {
		return unknown(err.Error())
	}
	return *p
}
