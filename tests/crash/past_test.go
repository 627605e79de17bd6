package crash

import (
	"fmt"
	"maps"
	"slices"
)

// mostLabels bounds the labels of a session: a list holds 50 checkpoints.
const mostLabels = 20

// equal tells whether two states are the same.
func (s *state) equal(other *state) bool {
	same := func(a, b interpreter) bool { return slices.Equal(a.log, b.log) && a.block == b.block }
	return same(s.python, other.python) && same(s.javascript, other.javascript) && maps.Equal(s.files, other.files)
}

// checkpoints lists them, and checks and notes what is known of them.
func (a *actor) checkpoints(p *process, s *session) (all []checkpoint, current checkpoint, ok bool) {
	got, err := p.call("list_checkpoints", map[string]any{"session_id": s.id})
	if err != nil || got.failed() != nil {
		a.bad(p, s, "list_checkpoints", got, err)
		return nil, current, false
	}
	a.w.count("list_checkpoints")
	labels := map[string]bool{}
	for _, c := range got.Checkpoints {
		labels[c.Label] = true
		if known := s.labels[c.Label]; known != nil {
			s.points[c.Checkpoint] = known
		}
		if c.Current {
			current = c
		}
	}
	for label := range s.labels {
		if !labels[label] {
			a.w.fail("%s has lost the checkpoint %q", s.id, label)
			delete(s.labels, label)
		}
	}
	switch was := s.points[current.Checkpoint]; {
	case current.Checkpoint == "":
		a.w.fail("%s is at no checkpoint", s.id)
		return nil, current, false
	case was == nil:
		s.points[current.Checkpoint] = s.known()
	case !was.equal(s.known()):
		a.w.fail("%s is at the checkpoint %s, as it was in another state", s.id, current.Checkpoint)
	}
	return got.Checkpoints, current, true
}

// label keeps a state under a name.
func (a *actor) label(p *process, s *session) {
	if len(s.labels) >= mostLabels || a.rng.IntN(2) == 0 {
		a.checkpoints(p, s)
		return
	}
	label := fmt.Sprintf("label-%d", a.w.op())
	known := s.known()
	if got, ok := a.try(p, s, func(*state) {}, "checkpoint_session", map[string]any{"session_id": s.id, "label": label}); ok {
		s.labels[label], s.points[got.Checkpoint] = known, known
	} else {
		s.may = []*state{known}
	}
}

// back takes a session to a state that it had.
func (a *actor) back(p *process, s *session) {
	all, current, ok := a.checkpoints(p, s)
	if !ok {
		return
	}
	if s.points[current.Previous] == nil && a.rng.IntN(2) == 0 { // then to where it is now
		if a.python(p, s); s.known() == nil {
			return
		}
		if all, current, ok = a.checkpoints(p, s); !ok {
			return
		}
	}
	// What was gone back to may be the oldest that is kept.
	leads := slices.ContainsFunc(all, func(c checkpoint) bool { return c.Checkpoint == current.Previous })
	if target := s.points[current.Previous]; leads && target != nil && a.rng.IntN(2) == 0 {
		got, ok := a.try(p, s, become(target), "undo", map[string]any{"session_id": s.id})
		if ok && got.Checkpoint != current.Previous {
			a.w.fail("undo in %s led to %s and not %s", s.id, got.Checkpoint, current.Previous)
		}
		return
	}
	all = slices.DeleteFunc(all, func(c checkpoint) bool { return s.points[c.Checkpoint] == nil })
	if len(all) == 0 {
		return
	}
	c := all[a.rng.IntN(len(all))]
	name := c.Checkpoint
	if s.labels[c.Label] != nil && a.rng.IntN(2) == 0 {
		name = c.Label
	}
	a.try(p, s, become(s.points[c.Checkpoint]), "restore_session", map[string]any{"session_id": s.id, "checkpoint": name})
}

func become(target *state) func(*state) {
	return func(s *state) { *s = *target.clone() }
}

// fork doubles a session, as it is or was.
func (a *actor) fork(p *process, s *session) {
	if len(a.sessions) >= mostSessions || a.forking != nil {
		a.destroy(p, s)
		return
	}
	count := 1 + a.rng.IntN(3)
	arguments := map[string]any{"session_id": s.id, "count": count}
	from := s.known()
	if a.rng.IntN(2) == 0 {
		all, _, ok := a.checkpoints(p, s)
		if !ok {
			return
		}
		c := all[a.rng.IntN(len(all))]
		if known := s.points[c.Checkpoint]; known != nil {
			arguments["checkpoint"], from = c.Checkpoint, known
		}
	}
	got, err := p.answer(a.send(p, "fork_session", arguments))
	if err != nil || got.failed() != nil {
		a.forking = &forking{from, count}
		a.bad(p, s, "fork_session", got, err)
		return
	}
	a.w.count("fork_session")
	if len(got.Forks) != count {
		a.w.fail("%d forks of %s were asked for, and %v are there", count, s.id, got.Forks)
	}
	for _, id := range got.Forks {
		a.sessions = append(a.sessions, newSession(id, from.clone()))
	}
	for _, one := range a.sessions[len(a.sessions)-len(got.Forks):] { // none may draw what the others do
		a.resolve(p, one)
	}
	a.resolve(p, s)
}

func (a *actor) create(p *process) {
	s := newSession(fmt.Sprintf("%s-%d", a.name, a.w.op()), nil, empty())
	a.sessions = append(a.sessions, s)
	got, err := p.answer(a.send(p, "create_session", map[string]any{"session_id": s.id, "name": a.name}))
	if err != nil || got.failed() != nil {
		a.bad(p, s, "create_session", got, err)
		return
	}
	a.w.count("create_session")
	s.may = []*state{empty()}
}

func (a *actor) destroy(p *process, s *session) {
	got, err := p.answer(a.send(p, "destroy_session", map[string]any{"session_id": s.id}))
	if err != nil || got.failed() != nil {
		s.may = append(s.may, nil)
		a.bad(p, s, "destroy_session", got, err)
		return
	}
	a.w.count("destroy_session")
	a.forget(s)
}

// haunt tries to get something of a session that was destroyed.
func (a *actor) haunt(p *process) {
	if len(a.gone) == 0 {
		return
	}
	s := newSession(a.gone[a.rng.IntN(len(a.gone))])
	for tool, more := range map[string]map[string]any{
		"execute_code": {"code": "1"}, "restore_session": {"checkpoint": "1"}, "undo": {}, "fork_session": {}, "list_checkpoints": {}, "read_file": {"path": "a.txt"},
	} {
		more["session_id"] = s.id
		got, err := p.call(tool, more)
		switch {
		case err != nil:
			a.bad(p, s, tool, got, err)
			return
		case got.failed() == nil || got.failed().Code != "not_found":
			a.w.fail("%s in %s, which was destroyed, gave %+v", tool, s.id, got)
		}
	}
	a.w.count("haunt")
}
