package patch

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Fork is a family of drivers that carry P2P edits of others.
type Fork struct {
	// Name says whose pattern it is.
	Name string
	// About says how its edits work.
	About string
	// Signs are tests that all hold in a tree of the family, and never all in NVIDIA's source.
	Signs []Test
}

// Forks are the known families, the most particular first.
func Forks() []Fork {
	const hal, gmmuFmt = "src/nvidia/generated/g_kern_bus_nvoc.c", "src/nvidia/src/libraries/mmu/gmmu_fmt.c"
	is := func(file, function, pattern string) Test {
		return Test{File: file, Func: function, Pattern: regexp.MustCompile(pattern)}
	}
	isNot := func(file, function, pattern string) Test {
		t := is(file, function, pattern)
		t.Absent = true
		return t
	}
	forced := is(kernelBIF, "_kbifInitRegistryOverrides", `pKernelBif->p2pOverride = 0x[0-9a-fA-F]+;`)
	rebound := is(hal, halInit, `else\s*\{\s*pThis->__kbusCreateP2PMappingForBar1P2P__ = &kbusCreateP2PMappingForBar1P2P_GH100;`)
	peerAsSysmem := isNot(gmmuFmt, "gmmuFmtPtePhysAddrFld", `\bfldAddrPeer\b`)
	hasFormat := is(gmmuFmt, "gmmuFmtPtePhysAddrFld", `\bfldAddrSysmem\b`)
	return []Fork{
		{
			Name:  "tinygrad's first P2P driver (550.54.15 and its ports to 550.90, 550.127 and 560)",
			About: "the Hopper functions are called directly, and every peer goes over BAR1: NVLink is lost",
			Signs: []Test{
				forced,
				is("src/nvidia/src/kernel/gpu/bus/p2p_api.c", "", `\bkbusCreateP2PMapping_GH100\(`),
			},
		},
		{
			Name:  "aikitoria's P2P driver with RTX 50 support (575 and later)",
			About: "UVM takes every GPU for a coherent one, and peer pages are mapped as coherent system memory",
			Signs: []Test{
				forced, rebound,
				is("kernel-open/nvidia-uvm/uvm_gpu.h", "", `\buvm_parent_gpu_is_coherent\(const\b`),
				isNot("kernel-open/nvidia-uvm/uvm_gpu.h", "uvm_parent_gpu_is_coherent",
					`\{\s*return parent_gpu->system_bus\.memory_window_end > parent_gpu->system_bus\.memory_window_start;\s*\}`),
			},
		},
		{
			Name:  "aikitoria's P2P driver for 575 and later",
			About: "static BAR1 is forced: a GPU whose BAR1 is smaller than its memory does not start",
			Signs: []Test{
				forced, rebound,
				is("src/nvidia/src/kernel/gpu/bus/kern_bus.c", "kbusInitRegistryOverrides",
					`staticBar1ForceType = NV_REG_STR_RM_FORCE_STATIC_BAR1_ENABLE;`),
			},
		},
		{
			Name:  "the simplified P2P driver (aikitoria 560 to 570, tinygrad 565.57.01)",
			About: "every peer page is addressed as BAR1 of the peer, without the start of static BAR1",
			Signs: []Test{forced, rebound, hasFormat, peerAsSysmem},
		},
		{
			Name:  "a minimal P2P driver (the function table and forced defaults, as for 580 and later)",
			About: "the function table is bound as by mkp2pimg, and the defaults are forced in the source",
			Signs: []Test{forced, rebound},
		},
	}
}

// ForkError reports a tree that carries the P2P edits of someone else.
type ForkError struct {
	Driver string
	Fork   Fork
	// Evidence are the lines that show it.
	Evidence []string
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("the source of driver %s carries P2P edits already: those of %s, where %s\n\t%s\n"+
		"edits on top of others can't be proven: start from NVIDIA's own source, "+
		"git clone --depth 1 -b %s %s",
		e.Driver, e.Fork.Name, e.Fork.About, strings.Join(e.Evidence, "\n\t"), e.Driver, upstream)
}

// recogniseFork returns a [*ForkError] if the tree carries the P2P edits of one of the [Forks].
// Edits by this package are told apart by their marks.
func (r *Result) recogniseFork() error {
	for _, fork := range Forks() {
		evidence, err := r.src.signs(fork)
		if err != nil {
			return err
		}
		if evidence != nil {
			return &ForkError{r.Driver, fork, evidence}
		}
	}
	return nil
}

// signs returns the lines that show the fork, or nil if it is not in the tree.
func (s *source) signs(fork Fork) ([]string, error) {
	var evidence []string
	for _, t := range fork.Signs {
		f, err := s.file(t.File)
		if err != nil {
			return nil, err
		}
		holds, line, err := s.ask(t)
		if err != nil {
			return nil, err
		}
		if f.missing || !holds || bytes.Contains(f.old.src, []byte(markPrefix)) {
			return nil, nil
		}
		evidence = append(evidence, line)
	}
	return evidence, nil
}
