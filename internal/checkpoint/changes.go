package checkpoint

import (
	"slices"
	"strings"

	"paddock/internal/history"
	"paddock/internal/workspace"
)

// mostChanges bounds the lists of changes in a checkpoint: they are for people.
const mostChanges = 200

// variableChanges tells what differs between two sets of interpreters.
func variableChanges(before, after *history.Manifest) []history.Change {
	was, now := variablesOf(before), variablesOf(after)
	var changes []history.Change
	for name, v := range now {
		old, there := was[name]
		switch {
		case !there:
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Added})
		case old != v:
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Modified})
		}
	}
	for name, v := range was {
		if _, there := now[name]; !there {
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Removed})
		}
	}
	slices.SortFunc(changes, func(a, b history.Change) int { return strings.Compare(a.Name, b.Name) })
	return changes[:min(len(changes), mostChanges)]
}

func variablesOf(m *history.Manifest) map[[2]string]history.Variable {
	vars := map[[2]string]history.Variable{}
	add := func(all map[string]history.Interpreter) {
		for runtime, in := range all {
			for _, v := range in.Variables {
				vars[[2]string{runtime, v.Name}] = v
			}
		}
	}
	add(m.Interpreters)
	if m.Machine != nil {
		add(m.Machine.Interpreters)
	}
	return vars
}
