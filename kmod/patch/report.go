package patch

import _ "embed"

// ReportVersion is the version of the report's layout.
const ReportVersion = 1

// ReportSchema is the JSON schema of [Report].
//
//go:embed schema.json
var ReportSchema []byte

// Report is what patch-report.json holds.
type Report struct {
	Version int `json:"version"`
	// Driver is the release that the tree says it is.
	Driver string `json:"driver"`
	// Mode is the mode by which P2P edits were chosen, if there are any.
	Mode Mode `json:"mode,omitempty"`
	// Why says what was chosen and why.
	Why string `json:"why,omitempty"`
	// Families tell for each GPU family that the driver knows which edits matter.
	Families []FamilyNeeds `json:"families,omitempty"`
	// Edits are the edits in the order they were tried.
	Edits []ReportEdit `json:"edits"`
	// Files are the changed files, sorted by path.
	Files []ReportFile `json:"files"`
}

// ReportEdit tells what became of an edit.
type ReportEdit struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Why      string `json:"why"`
	Replaces string `json:"replaces"`
	// Seed is the section of the original article that asks for the edit.
	Seed string `json:"seed,omitempty"`
	// Role says how much depends on the edit.
	Role Role `json:"role"`
	// Families are the GPU families whose peer-to-peer it serves.
	Families []Family `json:"families,omitempty"`
	Status   Status   `json:"status"`
	// Reason says why an edit is not needed or refused.
	Reason string `json:"reason,omitempty"`
	// Evidence are the answers of the source to the edit's tests.
	Evidence []string `json:"evidence,omitempty"`
	File     string   `json:"file"`
	Function string   `json:"function,omitempty"`
	Anchor   string   `json:"anchor"`
	// LineBefore and LineAfter are 1-based lines in the file as it was and as it became.
	LineBefore int `json:"line_before,omitempty"`
	LineAfter  int `json:"line_after,omitempty"`
	// Proofs are what holds in the edited function.
	Proofs []string `json:"proofs,omitempty"`
	// Candidates are the lines nearest to a refused edit's anchor.
	Candidates []string `json:"candidates,omitempty"`
}

// ReportFile is a changed file with its SHA-256 before and after.
type ReportFile struct {
	Path   string `json:"path"`
	Before string `json:"sha256_before"`
	After  string `json:"sha256_after"`
}

// Report returns the result as data.
func (r *Result) Report() *Report {
	rep := &Report{
		Version: ReportVersion, Driver: r.Driver, Mode: r.mode(), Why: r.Summary(),
		Edits: []ReportEdit{}, Files: []ReportFile{},
	}
	if rep.Mode != "" {
		rep.Families = r.families()
	}
	for _, o := range r.Edits {
		e := ReportEdit{
			ID: o.Edit.ID, Title: o.Edit.Title, Why: o.Edit.Why, Replaces: o.Edit.Replaces, Seed: o.Edit.Seed,
			Role: o.Edit.Role, Families: o.Edit.serves(),
			Status: o.Status, Reason: o.Reason, Evidence: o.Evidence,
			File: o.Edit.File, Function: o.Edit.Func, Anchor: o.Edit.Anchor.String(),
			LineBefore: o.LineBefore, LineAfter: o.LineAfter, Candidates: o.Candidates,
		}
		if o.In() {
			for _, p := range o.Edit.Proofs {
				e.Proofs = append(e.Proofs, p.What)
			}
		}
		rep.Edits = append(rep.Edits, e)
	}
	for _, name := range r.Changed() {
		f := r.src.files[name]
		rep.Files = append(rep.Files, ReportFile{name, digest(f.old.src), digest(f.new.src)})
	}
	return rep
}
