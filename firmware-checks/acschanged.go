package checks

// ACSChanged is about access controls that were switched off when the machine
// was asked to (package remedy). Like [Measured] it comes from whoever did so;
// [Run] doesn't make it.
const ACSChanged ID = "P2P-ACS-CHANGED"

var acsChangedDoc = Doc{
	ID:       ACSChanged,
	Question: "Was ACS redirect switched off for this run, and does the machine start with it?",
	Meaning:  "With p2p.acs=clear the image switches off the access controls that redirect traffic between GPUs. What it finds and measures after that holds until the machine starts anew.",
	Fix:      "Make the change last, as P2P-ACS-REDIRECT says.",
	Outcomes: []Outcome{
		{Pass, "redirect was switched off where it does no harm"},
		{Warn, "it was switched off where it does harm, or could not be switched off"},
		{Skip, "no port between GPUs redirects"},
	},
}
