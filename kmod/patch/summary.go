package patch

import (
	"fmt"
	"strings"
)

// mode is the mode by which the P2P edits were chosen, or "" if there are none.
func (r *Result) mode() Mode {
	for _, o := range r.Edits {
		if o.Edit.Mode != "" {
			return o.Edit.Mode
		}
	}
	return ""
}

// serves are the families that the edit serves, by name.
func (e Edit) serves() []Family {
	switch {
	case e.Role == Kernel:
		return nil
	case e.Families == nil:
		return Families()
	}
	return e.Families
}

// In reports whether the tree has the edit, or will have it once it is written.
func (o Outcome) In() bool { return o.Status == Applied || o.Status == AlreadyApplied }

// Summary says in a line which edits the mode chose and which it left out.
func (r *Result) Summary() string {
	if r.mode() == "" {
		return ""
	}
	var chosen, left, beside []string
	already, elsewhere := 0, 0
	for _, role := range []struct {
		role            Role
		is, are, option string
	}{
		{Core, "that peer-to-peer can't work without", "that peer-to-peer can't work without", ""},
		{Guard, "that guards what it would break", "that guard what it would break", ""},
		{Default, "that sets a default", "that set defaults", ", which module options set as well"},
	} {
		what := func(n int) string {
			if n == 1 {
				return role.is
			}
			return role.are
		}
		files := map[string]bool{}
		in, out, more := 0, 0, 0
		for _, o := range r.Edits {
			switch {
			case o.Edit.Role != role.role:
			case o.In() && o.Edit.Skip != "":
				more++
			case o.In():
				in++
				if o.Status == AlreadyApplied {
					already++
				}
				files[o.Edit.File] = true
			case o.Edit.OtherGPUs && o.LeftOut:
				elsewhere++
			case o.LeftOut:
				out++
			}
		}
		if in > 0 || role.role == Core {
			chosen = append(chosen, fmt.Sprintf("%s %s (%s)", count(in, "edit"), what(in), count(len(files), "file")))
		}
		if out > 0 {
			left = append(left, fmt.Sprintf("%d %s%s", out, what(out), role.option))
		}
		if more > 0 {
			beside = append(beside, fmt.Sprintf("%d %s", more, what(more)))
		}
	}
	if elsewhere > 0 {
		left = append(left, fmt.Sprintf("%d for GPUs that were not named", elsewhere))
	}
	text := string(r.mode()) + ": " + strings.Join(chosen, ", ")
	if already > 0 {
		text += fmt.Sprintf("; in the tree before: %d of them", already)
	}
	if beside != nil {
		text += "; in the tree before, and not asked for: " + strings.Join(beside, ", ")
	}
	if left != nil {
		text += "; left out: " + strings.Join(left, ", ")
	}
	return text
}

// count is "1 edit", "2 edits".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
