package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
)

// onMachineBooted does what there is to do when a machine has been booted.
func (m *Manager) onMachineBooted() {
	m.peers.open()
	m.janitor.wakeUp() // it has to know when the machine has to end
}

// ended does what is left to do when no interpreter lives any more, and the machine with
// it has ended.
func (r *machineResidence) ended() {
	if r.s.interpreters.count() > 0 {
		return
	}
	r.dropPrestarted()
	r.mu.Lock()
	r.booted = time.Time{}
	r.mu.Unlock()
	r.unpublish()
}

// stopAll ends the machine, with all that lives in it.
func (r *machineResidence) stopAll(why string) (notice string) { return r.stop(why, nil) }

// stop ends the machine with all that lives in it. The next result of each
// interpreter says that its variables are gone, because of why; what is given says
// that they are, and which processes were stopped; those of the runtimes in back come
// back. It is the caller's turn.
func (r *machineResidence) stop(why string, back map[string]history.Interpreter) string {
	s := r.s
	variables := slices.DeleteFunc(s.interpreters.unsavable(), func(runtime string) bool { _, comes := back[runtime]; return comes })
	processes := s.interpreters.nameProcesses()
	s.interpreters.dropAll()
	for _, runtime := range variables {
		s.lostReasons[runtime] = why
	}
	notice := ""
	if len(variables) > 0 {
		notice = "Variables are gone (" + enumerate(variables) + "): " + filesOnly + "."
	}
	if processes != "" {
		notice = joinNotices(notice, "Processes in the background were stopped: "+processes+".")
	}
	return notice
}

// lifetimeLeft is for how long the machine may still run; false: there is none, or it may
// run for as long as it is used.
func (r *machineResidence) lifetimeLeft(now time.Time) (left time.Duration, bounded bool) {
	most := r.s.manager.config.MaxLifetime
	r.mu.Lock()
	defer r.mu.Unlock()
	if most <= 0 || r.booted.IsZero() {
		return 0, false
	}
	return most - now.Sub(r.booted), true
}

// beforeRun ends a machine that has run for as long as it may: the next interpreter starts
// in a new one, and the next result says so.
func (r *machineResidence) beforeRun(ctx context.Context) { r.endOverdue(ctx, time.Now()) }

func (r *machineResidence) endOverdue(ctx context.Context, now time.Time) {
	if left, bounded := r.lifetimeLeft(now); !bounded || left > 0 {
		return
	}
	s, most := r.s, r.s.manager.config.MaxLifetime
	s.manager.log.InfoContext(ctx, "a machine has run for as long as it may", "session", s.id)
	s.noteStoppedProcesses(fmt.Sprintf("The session's machine was stopped when it had run for %v, the most that is allowed", most))
	r.stop(fmt.Sprintf("its machine had run for %v, the most that is allowed", most), nil) // the next result tells
	if err := r.forgetSaved(ctx); err != nil {
		s.manager.log.WarnContext(ctx, "a machine's state cannot be given up", "session", s.id, "cause", fault.CauseOf(err))
	}
	s.noteUnsaved()
	if err := s.save(); err != nil {
		s.manager.log.WarnContext(ctx, "a session's record cannot be written", "session", s.id, "cause", err)
	}
}

// enforceLifetime ends the machine when it has run for as long as it may. One in which a
// program runs is ended when that has ended.
func (r *machineResidence) enforceLifetime(now time.Time) time.Duration {
	left, bounded := r.lifetimeLeft(now)
	switch {
	case !bounded:
		return maxRest
	case left > 0:
		return left
	}
	if t := r.s.turns.try(r.s.manager.ctx); t != nil {
		r.endOverdue(t.ctx, now)
		r.s.turns.leave(t)
	}
	return maxRest
}
