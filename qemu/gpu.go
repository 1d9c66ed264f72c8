package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"mkp2pimg/qemu/fakegpu"
	"mkp2pimg/qemu/vfiouser"
)

// mistake says what is wrong with the description of a GPU, at which field.
func (d *Device) mistake() (field string, err error) {
	model, err := fakegpu.ModelByName(d.Model)
	if err != nil {
		return "model", err
	}
	i := slices.IndexFunc(model.BARs, fakegpu.BAR.Resizable)
	if i < 0 {
		return "model", fmt.Errorf("%s has no resizable BAR", d.Model)
	}
	sizes := model.BARs[i].Sizes
	for _, f := range []struct {
		name string
		size Size
	}{{"bar", d.BAR}, {"largest", d.Largest}} {
		if f.size != 0 && !slices.Contains(sizes, fakegpu.Size(f.size)) {
			return f.name, fmt.Errorf("is %s: the framebuffer BAR of %s can be a power of two from %s to %s",
				f.size, d.Model, Size(sizes[0]), Size(sizes[len(sizes)-1]))
		}
	}
	if d.Largest != 0 && d.BAR > d.Largest {
		return "bar", fmt.Errorf("is %s, more than the largest size %s", d.BAR, d.Largest)
	}
	if d.Speed > model.Speed {
		return "speed", fmt.Errorf("is %d: the fastest link of %s is of generation %d", d.Speed, d.Model, model.Speed)
	}
	if d.Width > model.Width {
		return "width", fmt.Errorf("is %d: the widest link of %s has %d lanes", d.Width, d.Model, model.Width)
	}
	return "", nil
}

// config is what makes the board of d.
func (d *Device) config() (fakegpu.Config, error) {
	model, err := fakegpu.ModelByName(d.Model)
	return fakegpu.Config{
		Model: model, BAR: fakegpu.Size(d.BAR), MaxBAR: fakegpu.Size(d.Largest), NoReBAR: d.Fixed,
		Speed: d.Speed, Width: d.Width,
	}, err
}

// functions is the number of PCI functions of the board.
func (g *Board) functions() int {
	if m, err := fakegpu.ModelByName(g.Model); err == nil && m.Audio != 0 {
		return 2
	}
	return 1
}

// gpuServer serves the emulated GPUs of one run to its emulator.
type gpuServer struct {
	cancel  context.CancelFunc
	serving sync.WaitGroup
	boards  []*fakegpu.GPU

	mu   sync.Mutex
	errs []error
}

// serveGPUs makes the emulated GPUs of m and serves each function on its socket
// in dir. The caller has to stop the server, whether there is an error or not.
func (m *Machine) serveGPUs(ctx context.Context, dir string) (*gpuServer, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &gpuServer{cancel: cancel}
	for n, d := range m.GPUs() {
		c, err := d.config()
		if err != nil {
			return s, fmt.Errorf("%s: %w", d.ID, err)
		}
		board, err := fakegpu.New(c)
		if err != nil {
			return s, fmt.Errorf("%s: %w", d.ID, err)
		}
		s.boards = append(s.boards, board)
		for f, function := range board.Functions() {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, gpuSocket(n, f)), Net: "unix"})
			if err != nil {
				return s, fmt.Errorf("%s: %w", d.ID, err)
			}
			s.serving.Go(func() {
				if err := vfiouser.Serve(ctx, l, function); err != nil && !errors.Is(err, context.Canceled) {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.errs = append(s.errs, fmt.Errorf("emulated GPU %s, function %d: %w", d.ID, f, err))
				}
			})
		}
	}
	return s, nil
}

// bars are the sizes of the framebuffer BARs, as the guest has set them.
func (s *gpuServer) bars() []Size {
	var all []Size
	for _, b := range s.boards {
		all = append(all, Size(b.BAR()))
	}
	return all
}

// stop ends the service, closes the sockets and gives the memory of the boards
// back. The error says what went wrong while it ran.
func (s *gpuServer) stop() error {
	s.cancel()
	s.serving.Wait()
	for _, b := range s.boards {
		s.errs = append(s.errs, b.Close())
	}
	s.boards = nil
	return errors.Join(s.errs...)
}
