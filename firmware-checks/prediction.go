package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/loadopt"
)

var predictionDoc = Doc{
	ID:       PathPrediction,
	Question: "Over which path will the driver let two GPUs reach each other, and which of its conditions refuses?",
	Meaning:  "The driver asks a chain of conditions before it grants NVLink-C2C, NVLink, PCIe BAR1 or the mailbox. They are asked here, for the driver as it is and for one with the P2P edits and options. What refuses has a finding of its own, or is up to the driver.",
	Fix:      "The finding names the first condition that refuses, and what opens it.",
	Outcomes: []Outcome{
		{Pass, "the loaded or installed driver grants a path that works; without one, that of an image does, which has the edits"},
		{Warn, "it grants none, one that does not work, or another than predicted"},
		{Skip, "there is one GPU, or stand-ins are judged in place of GPUs"},
		{Unknown, "the release is not known, or what it asks for is not"},
	},
	Weightless: true,
}

// forecast is what is foretold of a pair, for the driver as it is and with the
// P2P edits and the options that choose BAR1.
type forecast struct {
	is, edited predict.Prediction
	// granted is what the loaded driver granted, if is does not allow for it;
	// isEdited says that edited does.
	granted  string
	isEdited bool
}

// prediction foretells the path of every pair.
func prediction(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	switch len(gpus) {
	case 0:
		return nil
	case 1:
		return []Finding{{ID: PathPrediction, Status: Skip, Title: "one GPU, no path to foretell", Devices: addresses(gpus), Meaning: "Peer-to-peer needs two GPUs."}}
	}
	if gpus[0].StandIn {
		return []Finding{{ID: PathPrediction, Status: Skip, Title: "no NVIDIA driver will have these devices", Devices: addresses(gpus), Meaning: "What the driver decides depends on the GPU."}}
	}
	driver, whence, present := DriverOf(f)
	edited, err := WithEdits(driver.Release)
	if err != nil {
		return []Finding{{
			ID: PathPrediction, Status: Unknown, Title: "driver " + driver.Release + " is not known", Devices: addresses(gpus), Evidence: []Evidence{whence},
			Meaning: "Over which path it would let the GPUs reach each other is not known: " + err.Error() + ".",
			Fix:     "Rely on the measured bandwidth with verified data.",
		}}
	}
	var out []Finding
	for _, c := range forecasts(f, driver, edited) {
		found := c.finding(driver.Release, present)
		i := slices.IndexFunc(out, func(o Finding) bool { return o.Title == found.Title && o.Meaning == found.Meaning })
		if i < 0 {
			found.Evidence = append([]Evidence{whence}, found.Evidence...)
			out = append(out, found)
			continue
		}
		out[i].Pairs = append(out[i].Pairs, found.Pairs...)
	}
	for i := range out {
		out[i].Title = fmt.Sprintf("%s (%s)", out[i].Title, count(len(out[i].Pairs), "GPU pair"))
	}
	return out
}

// DriverOf returns the driver that is loaded or else installed, with where that
// is known from. When none is present, it is the one that images have by default.
func DriverOf(f *facts.Facts) (d predict.Driver, whence Evidence, present bool) {
	if n := f.NVIDIA; n != nil && n.Release != "" {
		keys, _ := rm.ParseKeys(n.Params)
		return predict.Driver{Release: n.Release, Keys: keys, Resize: paramsMatch(f) == "1"},
			Evidence{What: "loaded driver", Where: "/proc/driver/nvidia/{version,params}", Raw: n.Release + " with " + keysOf(keys)}, true
	}
	if f.Installed != nil {
		for _, l := range f.Installed.Libraries {
			if l.Release != "" {
				return predict.Driver{Release: l.Release}, Evidence{What: "installed driver", Where: l.Path, Raw: l.Release}, true
			}
		}
	}
	release := recommended(f)
	return predict.Driver{Release: release}, Evidence{What: "driver", Where: "none is loaded or installed", Raw: release + ", recommended for these GPUs"}, false
}

// recommended returns the newest release of the branch that is recommended for
// the GPUs, the highest where they differ; for unknown ones the default of
// images.
func recommended(f *facts.Facts) string {
	c, branch := catalog.Load(), 0
	for _, d := range f.GPUs() {
		models, err := c.LookupGPU(fmt.Sprintf("10de:%04x", uint64(d.Device)))
		if err != nil {
			continue
		}
		if family := c.Family(models[0].Family); family != nil {
			branch = max(branch, family.Recommended)
		}
	}
	if r := c.Newest(branch); r != nil {
		return r.Version
	}
	return c.Default
}

func keysOf(keys rm.Keys) string {
	var words []string
	for name, value := range keys {
		words = append(words, fmt.Sprintf("%s=%#x", name, value))
	}
	if words == nil {
		return "no registry key"
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// WithEdits returns the driver of a release with the P2P edits, loaded with the
// options that choose BAR1.
func WithEdits(release string) (predict.Driver, error) {
	offer, err := catalog.Load().Offer(&catalog.Release{Version: release})
	if err != nil {
		return predict.Driver{}, err
	}
	return predict.Loaded(release, true, loadopt.Choose(offer, true, nil).Options)
}

// forecasts foretells each pair once: the driver answers for both directions
// alike.
func forecasts(f *facts.Facts, is, edited predict.Driver) []forecast {
	a, b := predict.Pairs(f, is), predict.Pairs(f, edited)
	var out []forecast
	for i := range a {
		if a[i].A > a[i].B {
			continue
		}
		c := forecast{is: a[i], edited: b[i]}
		if granted := unforeseen(f, c.is); granted != "" {
			c.granted, c.isEdited = granted, unforeseen(f, c.edited) == ""
		}
		out = append(out, c)
	}
	return out
}

// unforeseen returns what the loaded driver granted to a pair when a prediction
// does not allow for it.
func unforeseen(f *facts.Facts, p predict.Prediction) string {
	if f.NVIDIA == nil {
		return ""
	}
	mismatches, _ := predict.Compare([]predict.Prediction{p}, f.NVIDIA.Survey)
	if mismatches == nil {
		return ""
	}
	return mismatches[0].String()
}

func (c forecast) finding(release string, present bool) Finding {
	found := Finding{
		ID: PathPrediction, Pairs: [][2]string{{c.is.A, c.is.B}},
		Title:    fmt.Sprintf("driver %s: %s; with edits and options: %s", release, wordPath(c.is), wordPath(c.edited)),
		Evidence: append(outcomeEvidence("driver "+release, c.is), outcomeEvidence("driver "+release+" with edits and options", c.edited)...),
	}
	switch {
	case c.isEdited:
		found.Status = Pass
		found.Evidence = append(found.Evidence, Evidence{What: "granted path", Where: "resource manager of the loaded driver", Raw: c.granted})
		found.Meaning = "The loaded driver granted what it does with the P2P edits only: it has them."
	case c.granted != "":
		found.Status = Warn
		found.Title = fmt.Sprintf("driver %s granted what was not foretold", release)
		found.Evidence = append(found.Evidence, Evidence{What: "granted path", Where: "resource manager of the loaded driver", Raw: c.granted})
		found.Meaning = "The driver decided otherwise than its published source says of these facts: it was changed, or a fact is not what it seems."
		found.Fix = "Send the facts file with a report of the fault; rely on the measured bandwidth with verified data."
	case c.is.Path == predict.UnknownPath:
		found.Status = Unknown
		found.Meaning = "The conditions of this release are not known."
		found.Fix = "Rely on the measured bandwidth with verified data."
	case works(c.is):
		found.Status = Pass
		found.Meaning = "As published, with the keys that it has, the driver lets these GPUs reach each other."
	case works(c.edited) && !present:
		found.Status = Pass
		found.Meaning = "As published, the driver does not let these GPUs reach each other in a way that works; with the P2P edits and options, which images have, it does."
	case works(c.edited):
		found.Status = Warn
		found.Meaning = "As published, with the keys that it has, the driver does not let these GPUs reach each other in a way that works; with the P2P edits and options it does."
		found.Fix = opens(c.is)
	default:
		found.Status = Warn
		found.Meaning = "Neither as published nor with the P2P edits and options does the driver let these GPUs reach each other in a way that works."
		found.Fix = opens(c.edited)
	}
	return found
}

// works says whether a path is granted that works as far as is known.
func works(p predict.Prediction) bool {
	return p.Path != rm.NoPath && p.Path != predict.UnknownPath && p.Works != predict.No
}

// wordPath words a path with its conditions: "PCIe BAR1 if MIG is off".
func wordPath(p predict.Prediction) string {
	name := cmp.Or(pathNames[p.Path], "no path")
	if p.Path == predict.UnknownPath {
		name = "not known"
	}
	if len(p.If) > 0 {
		name += " if " + strings.Join(p.If, " and ")
	}
	if p.Works == predict.No {
		name += ", and it does not work"
	}
	return name
}

// outcomeEvidence says which path a prediction has, and the answers that refuse
// it or speak against its working.
func outcomeEvidence(driver string, p predict.Prediction) []Evidence {
	out := []Evidence{{
		What: driver, Where: "rules of its source",
		Raw: fmt.Sprintf("%s, read %v, write %v", cmp.Or(pathNames[p.Path], string(p.Path)), p.Read, p.Write),
	}}
	for _, a := range slices.Concat(p.Gates, p.Checks) {
		if a.Gate == p.Gate || a.Gate.Path != "" && a.Verdict != predict.Yes {
			out = append(out, Evidence{What: a.Gate.ID + ": " + a.Gate.Question, Where: a.Gate.Source + releases(a.Gate), Raw: fmt.Sprintf("%s, %s", a.Verdict, a.Reason)})
		}
	}
	return out
}

// releases words for which branches of the driver a rule holds.
func releases(g *predict.Gate) string {
	var words []string
	for _, r := range g.Releases {
		words = append(words, r.String())
	}
	return ", releases " + strings.Join(words, ", ")
}

// opens says what would change the first refusal, or the first reason why the
// path that is granted does not work.
func opens(p predict.Prediction) string {
	if p.Works == predict.No {
		i := slices.IndexFunc(p.Checks, func(a predict.Answer) bool { return a.Verdict == predict.No })
		return p.Checks[i].Gate.Opens
	}
	if p.Gate != nil && p.Gate.Opens != "" {
		return p.Gate.Opens
	}
	return "Rely on the measured bandwidth with verified data."
}
