package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"mkp2pimg/kmod/patch"
)

// report prints what became of the edits: as JSON, or in words.
func (p *patcher) report(r *patch.Result, fits bool) error {
	rep := r.Report()
	if p.json {
		return printJSON(p.stdout, rep)
	}
	fmt.Fprintf(p.stdout, "driver %s\nedits %s\n\n", rep.Driver, strings.ReplaceAll(rep.Why, "; ", "\n"))
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, e := range rep.Edits {
		where := e.File
		if e.LineAfter > 0 {
			where += fmt.Sprintf(":%d", e.LineAfter)
		}
		if e.Status != patch.NotNeeded {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", e.ID, p.status(e.Status, fits), serves(e), where)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, reason := range grouped(rep.Edits, func(e patch.ReportEdit) string { return e.Reason }) {
		var ids []string
		for _, e := range rep.Edits {
			if e.Status == patch.NotNeeded && e.Reason == reason {
				ids = append(ids, e.ID)
			}
		}
		if ids != nil {
			fmt.Fprintf(p.stdout, "  not needed: %s\n      %s\n", reason, strings.Join(ids, " "))
		}
	}
	fmt.Fprintln(p.stdout)
	for _, what := range grouped(rep.Families, familyLine) {
		var names []string
		for _, f := range rep.Families {
			if familyLine(f) == what {
				names = append(names, string(f.Family))
			}
		}
		fmt.Fprintf(p.stdout, "%s: %s\n", strings.Join(names, ", "), what)
	}
	if fits {
		p.conclude(rep)
	}
	return nil
}

// grouped returns the keys of list, each once, in the order in which they come.
func grouped[E any](list []E, key func(E) string) []string {
	var keys []string
	for _, e := range list {
		if k := key(e); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// status names an edit's status in the table. If fits is false nothing is written.
func (p *patcher) status(s patch.Status, fits bool) string {
	switch {
	case s == patch.Applied && (p.checkOnly || p.diff || !fits):
		return "fits"
	case s == patch.AlreadyApplied:
		return "is there"
	}
	return string(s)
}

// serves says for which GPUs an edit is.
func serves(e patch.ReportEdit) string {
	var names []string
	for _, f := range e.Families {
		names = append(names, string(f))
	}
	who := strings.Join(names, ", ")
	if slices.Equal(e.Families, patch.Families()) {
		who = "all"
	}
	switch e.Role {
	case patch.Kernel:
		return "the kernel"
	case patch.Core:
		return who
	}
	return fmt.Sprintf("%s (%s)", who, e.Role)
}

// familyLine says what a GPU family needs.
func familyLine(f patch.FamilyNeeds) string {
	what := fmt.Sprintf("%d edits are needed", len(f.Core))
	switch {
	case len(f.LeftOut) > 0:
		what = fmt.Sprintf("peer-to-peer does not work, %d edits that it needs are left out", len(f.LeftOut))
	case len(f.Core) == 0:
		what = "no edit is needed, module options are enough"
	}
	if len(f.Guards) > 0 {
		what += fmt.Sprintf(" (and %d guard it or others)", len(f.Guards))
	}
	return what
}

// conclude says what changed and what to do next.
func (p *patcher) conclude(rep *patch.Report) {
	if len(rep.Files) == 0 {
		why := "the tree needs none of these edits"
		if slices.ContainsFunc(rep.Edits, func(e patch.ReportEdit) bool { return e.Status == patch.AlreadyApplied }) {
			why = "the edits are in the tree already"
		}
		fmt.Fprintf(p.stdout, "\nnothing to change: %s\n", why)
		return
	}
	tree := p.source
	if p.tarball {
		tree = p.output
	}
	switch {
	case p.checkOnly:
		fmt.Fprintf(p.stdout, "\n%s: these files would change:\n", p.source)
	case p.diff:
		fmt.Fprintf(p.stdout, "\n%s: changes these files:\n", p.output)
	default:
		fmt.Fprintf(p.stdout, "\n%s: these files are changed:\n", tree)
	}
	for _, f := range rep.Files {
		fmt.Fprintf(p.stdout, "  %s\n", f.Path)
	}
	if !p.checkOnly && !p.diff {
		fmt.Fprintf(p.stdout, "\nmodule options to load it with: mkp2pimg options --driver %s --edits %s\n"+
			"to take the edits back:         mkp2pimg patch --revert %s\n", rep.Driver, rep.Mode, tree)
	}
}

// reportRevert prints what was taken back.
func (p *patcher) reportRevert(done *patch.Reverted) error {
	if p.json {
		return printJSON(p.stdout, done)
	}
	if len(done.Edits) == 0 {
		_, err := fmt.Fprintf(p.stdout, "%s: there are no edits to take back\n", p.source)
		return err
	}
	fmt.Fprintf(p.stdout, "%s: %d edits are taken back in these files:\n", p.source, len(done.Edits))
	for _, f := range done.Files {
		what := "as it was before the edits"
		if !f.Stock {
			what = "other changes are kept"
		}
		fmt.Fprintf(p.stdout, "  %s: %s\n", f.Path, what)
	}
	return nil
}
