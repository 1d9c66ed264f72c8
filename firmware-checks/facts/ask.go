package facts

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"mkp2pimg/internal/rm"
)

// Ask adds to f what a loaded NVIDIA driver answers: NVML by way of nvidia-smi,
// if root is "/", and the resource manager behind /dev/nvidiactl. Unlike
// [Gather], which only reads, this starts GPUs that nobody uses, which takes
// seconds for each. f is as Gather left it; without a loaded driver nothing is
// asked.
func (f *Facts) Ask(ctx context.Context, root string) {
	if f.NVIDIA == nil {
		return
	}
	g := &gatherer{root: root, facts: f}
	f.NVIDIA.NVML = g.nvml(runSMI(ctx, root))
	survey, err := askManager(ctx, g.path("dev"))
	if err != nil {
		g.unknown("what the driver grants to pairs of GPUs", "dev/nvidiactl", err)
	}
	f.NVIDIA.Survey = survey
}

func runSMI(ctx context.Context, root string) ([]byte, error) {
	if root != "/" {
		return nil, errors.New("runs on the machine itself only")
	}
	out, err := exec.CommandContext(ctx, smi, "-q", "-x").Output()
	if err != nil && len(out) > 0 {
		// It says on its output what is wrong.
		err = errors.New(strings.TrimSpace(string(out)))
	}
	return out, err
}

func askManager(ctx context.Context, dev string) (*rm.Survey, error) {
	client, err := rm.Open(dev)
	if err != nil {
		return nil, err
	}
	defer client.Close() // only asked
	return client.Survey(ctx)
}
