// Package driver loads the NVIDIA kernel modules of the image and says what came
// of it.
package driver

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"

	checks "mkp2pimg/firmware-checks"
)

// LoadFinding is the finding about loading the driver.
const LoadFinding = checks.DriverLoad

// Kind is what an insertion of a module came to.
type Kind string

// The kinds of outcome.
const (
	Loaded      Kind = "loaded"
	NoGPU       Kind = "no-gpu"      // the module ran and found no GPU
	Unsupported Kind = "unsupported" // a GPU that this driver release does not run
	NotStarted  Kind = "not-started" // a GPU is there and could not be started
	Taken       Kind = "taken"       // another driver has the GPU
	Signature   Kind = "signature"   // the kernel takes signed modules only
	WrongKernel Kind = "wrong-kernel"
	Symbols     Kind = "symbols" // the kernel or another module lacks a symbol
	NoMemory    Kind = "no-memory"
	Damaged     Kind = "damaged" // not an ELF module, or cut short
	Failed      Kind = "failed"  // anything else
)

// Outcome is what an insertion came to, for a person.
type Outcome struct {
	Kind    Kind
	Title   string
	Meaning string
	Fix     string
}

// rule recognises an outcome by the error and by a line of the kernel's log.
type rule struct {
	kind  Kind
	errno []syscall.Errno // any of; empty: whatever the error
	log   *regexp.Regexp  // nil: whatever the log
	title string          // %[1]s: module, %[2]s: the line that matched
	mean  string
	fix   string
}

// rules are tried in order. The texts of the kernel are those of
// kernel/module/main.c, version.c and signing.c of Linux 6.1 and 6.12, the texts
// of the driver those of kernel-open/nvidia/nv.c and nv-pci.c.
var rules = []rule{
	{NoGPU, []syscall.Errno{syscall.ENODEV}, regexp.MustCompile(`NVRM: No NVIDIA GPU found`),
		"%[1]s ran on this kernel and found no GPU",
		"The module fits the kernel and its init ran to the search for devices; the machine has no NVIDIA GPU.",
		""},
	{Unsupported, []syscall.Errno{syscall.ENODEV}, regexp.MustCompile(`not supported by open|does not include the required GPU|not supported by the NVIDIA|legacy GPU`),
		"this release of %[1]s does not run this GPU",
		"The open driver runs GPUs with a GPU System Processor only (Turing and newer), and each release only the GPUs known at its time.",
		"Build the image with a driver release that knows this GPU (mkp2pimg build --driver)."},
	{Taken, []syscall.Errno{syscall.ENODEV}, regexp.MustCompile(`probe routine was not called|already bound to`),
		"another driver has the GPU, %[1]s was not asked",
		"A display driver of the kernel bound the GPU before this stage.",
		"Boot with module_blacklist=nouveau,nvidiafb,nova_core."},
	{NotStarted, []syscall.Errno{syscall.ENODEV, syscall.EIO}, regexp.MustCompile(`NVRM: `),
		"%[1]s found a GPU and could not start it: %[2]s",
		"The driver gave the GPU up; the kernel's lines say at which step.",
		"See the findings about BAR1 and the root port; power the machine off, reseat the GPU and check its power cables."},
	{Signature, []syscall.Errno{syscall.EKEYREJECTED, syscall.EPERM}, nil,
		"the kernel refused %[1]s for want of a signature",
		"Secure Boot or lockdown is on: the kernel loads only modules that its vendor signed.",
		"Turn Secure Boot off in the firmware setup for this test."},
	{WrongKernel, nil, regexp.MustCompile(`version magic '[^']*' should be '[^']*'`),
		"%[1]s was built for another kernel: %[2]s",
		"The image's kernel is not the one that booted, for example with a kernel of one build and an initrd of another.",
		"Boot vmlinuz and initrd of the same build."},
	{Symbols, nil, regexp.MustCompile(`disagrees about version of symbol|Unknown symbol|no symbol version for`),
		"%[1]s does not fit the kernel: %[2]s",
		"A function that the module calls is missing from the running kernel, or has another signature.",
		"Boot vmlinuz and initrd of the same build; if they are, report this as a fault of the build."},
	{NoMemory, []syscall.Errno{syscall.ENOMEM}, nil,
		"no memory to load %[1]s",
		"The kernel had too little free memory for the module.",
		"Give the machine at least 2 GiB of memory."},
	{Damaged, []syscall.Errno{syscall.ENOEXEC}, nil,
		"%[1]s is no module for this kernel",
		"The file is damaged or cut short, or built for another architecture.",
		"Check the image against its SHA256SUMS and give the machine enough memory to unpack it."},
}

// Classify says what the insertion of a module came to, from its error and the
// lines that the kernel logged meanwhile.
func Classify(module string, err error, log []string) Outcome {
	if err == nil || errors.Is(err, syscall.EEXIST) {
		return Outcome{Kind: Loaded, Title: module + " is loaded"}
	}
	for _, r := range rules {
		if r.errno != nil && !slices.ContainsFunc(r.errno, func(e syscall.Errno) bool { return errors.Is(err, e) }) {
			continue
		}
		line := ""
		if r.log != nil {
			i := slices.IndexFunc(log, r.log.MatchString)
			if i < 0 {
				continue
			}
			line = log[i]
		}
		title := strings.NewReplacer("%[1]s", module, "%[2]s", line).Replace(r.title)
		return Outcome{r.kind, title, r.mean, r.fix}
	}
	return Outcome{
		Kind:    Failed,
		Title:   module + " was not loaded",
		Meaning: "Without the driver nothing can be measured.",
		Fix:     "The kernel's lines in the report say more.",
	}
}

// Finding states an outcome, with the error and the kernel's lines as evidence.
// No GPU is no failure: the question does not apply.
func (o Outcome) Finding(module string, err error, log []string) checks.Finding {
	f := checks.Finding{ID: LoadFinding, Title: o.Title, Meaning: o.Meaning, Fix: o.Fix}
	switch o.Kind {
	case Loaded:
		f.Status = checks.Pass
	case NoGPU:
		f.Status = checks.Skip
	default:
		f.Status = checks.Fail
	}
	raw := "success"
	if err != nil {
		raw = err.Error()
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			raw = fmt.Sprintf("errno %d, %v", int(errno), errno)
		}
	}
	f.Evidence = append(f.Evidence, checks.Evidence{What: "insertion of " + module, Where: "finit_module(2)", Raw: raw})
	for _, line := range log {
		f.Evidence = append(f.Evidence, checks.Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: line})
	}
	return f
}
