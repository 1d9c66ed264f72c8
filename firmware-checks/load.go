package checks

import "mkp2pimg/firmware-checks/facts"

// DriverLoad is the ID of the finding about loading the driver's modules. It comes
// from whoever loads them; [Run] doesn't make it.
const DriverLoad ID = "P2P-DRIVER-LOAD"

var driverLoadDoc = Doc{
	ID:       DriverLoad,
	Question: "Did the kernel take the driver's modules, and did they find a GPU?",
	Meaning:  "Without the driver there is nothing to measure. The error and the kernel's lines tell a module for another kernel from one that was refused, and a GPU that is not known from one that could not be started.",
	Fix:      "Depends on the reason: kernel and modules of one build, Secure Boot off, the other driver kept away, a release that knows the GPU.",
	Outcomes: []Outcome{
		{Pass, "the module is loaded"},
		{Fail, "it is not, for a reason that the finding gives"},
		{Skip, "the module ran, and there is no GPU"},
	},
}

// Loaded returns the findings about what a driver changes when it is loaded, the
// size of BARs, to be put in the place of those made before.
func Loaded(f *facts.Facts) []Finding {
	var found []Finding
	for _, x := range Run(f) {
		if x.ID == ReBAR || x.ID == BAR1Memory {
			x.Again = true
			found = append(found, x)
		}
	}
	return found
}

// DriverUnload is the ID of the finding about a driver that has to make room for
// another build of it. It comes from whoever loads them; [Run] doesn't make it.
const DriverUnload ID = "P2P-DRIVER-UNLOAD"

var driverUnloadDoc = Doc{
	ID:       DriverUnload,
	Question: "Could the driver be unloaded, to load another build of it in the same boot?",
	Meaning:  "Two builds of the driver are compared one after the other. One that a program still uses, or that does not come back from its end, stays; the other can't be loaded then.",
	Fix:      "Measure the other build in a boot of its own, with p2p.driver=p2p or p2p.driver=stock.",
	Outcomes: []Outcome{
		{Unknown, "it could not; what the other build would have done is not known"},
	},
}
