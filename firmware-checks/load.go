package checks

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
