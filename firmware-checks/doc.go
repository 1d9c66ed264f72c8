package checks

import "slices"

// Doc describes a kind of finding, whatever the machine.
type Doc struct {
	ID ID
	// Question is what the finding answers.
	Question string
	// Meaning says why the answer matters for peer-to-peer traffic.
	Meaning string
	// Fix says what helps in general; a finding has the steps for its machine.
	Fix string
	// Outcomes say when the finding has which status.
	Outcomes []Outcome
	// Weightless findings are for information: none of their statuses changes
	// the verdict.
	Weightless bool
}

// Outcome is a status that a kind of finding can have, and when it does.
type Outcome struct {
	Status Status
	When   string
}

// Docs returns the descriptions of all kinds of findings: those of [Run] in the
// order of the report, then those of a run that loads a driver or changes the
// machine.
func Docs() []Doc {
	var all []Doc
	for _, f := range families {
		all = append(all, f.doc)
	}
	return append(all, driverLoadDoc, driverUnloadDoc, measuredDoc, rmPathDoc, mailboxDoc, acsChangedDoc)
}

// Explain returns the description of a kind of finding; ok is false for an ID
// that no finding has.
func Explain(id ID) (doc Doc, ok bool) {
	all := Docs()
	i := slices.IndexFunc(all, func(d Doc) bool { return d.ID == id })
	if i < 0 {
		return Doc{}, false
	}
	return all[i], true
}

// weightless reports whether findings of a kind leave the verdict alone.
func weightless(id ID) bool {
	doc, _ := Explain(id)
	return doc.Weightless
}
