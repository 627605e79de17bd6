package cli

import (
	"fmt"
	"path/filepath"

	"paddock/internal/approval"
	"paddock/internal/session"
	"paddock/internal/skill"
)

// examineSkills looks at the skills of who runs this, and at what models may fetch.
func (cmd doctorCommand) examineSkills(d *diagnosis) {
	s, err := cmd.NewSkills(nil)
	if err != nil {
		d.fail("skills", err)
		return
	}
	defer s.Close()
	all, err := s.List(string(session.Local))
	if err != nil {
		d.fail("skills", err)
		return
	}
	builtin := 0
	for _, r := range all {
		if r.Source.Kind == skill.Builtin {
			builtin++
		}
	}
	detail := fmt.Sprintf("%d of paddock's own and %d installed or saved", builtin, len(all)-builtin)
	if n := len(cmd.Config.Skills.Allow); n > 0 {
		detail += fmt.Sprintf("; models may fetch what %d rules allow (skills.allow)", n)
	} else {
		detail += "; models may fetch none themselves (skills.allow)"
	}
	d.add("skills", good, detail, "")
}

// examineApprovals tells how many calls wait for a person.
func (cmd doctorCommand) examineApprovals(d *diagnosis) {
	all, err := approval.Open(filepath.Join(cmd.StateDir, "approvals"), approval.Options{Log: cmd.Log}).All()
	if err != nil {
		d.fail("approvals", err)
		return
	}
	waiting := 0
	for _, a := range all {
		if a.State == approval.Pending {
			waiting++
		}
	}
	hint := ""
	if waiting > 0 {
		hint = "paddock approvals ls --all lists them"
	}
	d.add("approvals", good, fmt.Sprintf("%d calls of tools wait for a person", waiting), hint)
}
