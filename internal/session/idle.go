package session

import (
	"context"
	"errors"
	"io"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// A machine is saved once more when nobody has used it for a while, so that of a
// session in which nothing happens a server that is killed loses nothing.

// errTurnAwaited ends the saving of a machine that somebody waits for.
var errTurnAwaited = errors.New("session: somebody waits for it")

// afterRun notes that a run has changed what is in the machine.
func (r *machineResidence) afterRun() {
	r.mu.Lock()
	first := r.unsavedSince.IsZero()
	r.unsavedSince = time.Now()
	r.mu.Unlock()
	if !first || r.machineSaver == nil {
		return
	}
	r.s.manager.janitor.wakeUp() // it has to know when the machine is due
}

// saveIdle saves the machine when nothing has run in it for Config.SaveAfter. One in which
// something works in the background is looked at again after that time, and so is one that
// somebody came to use meanwhile.
func (r *machineResidence) saveIdle(now time.Time) time.Duration {
	after := r.s.manager.config.SaveAfter
	if after < 0 || !r.canSave() {
		return maxRest
	}
	r.mu.Lock()
	since := r.unsavedSince
	r.mu.Unlock()
	left := since.Add(after).Sub(now)
	switch {
	case since.IsZero():
		return maxRest
	case left > 0:
		return left
	case !r.s.canSleep():
		return after
	}
	if t := r.s.turns.try(r.s.manager.ctx); t != nil {
		r.saveNow(t)
		r.s.turns.leave(t)
	}
	return after
}

// saveNow saves the machine of a session that nobody uses. It is the caller's turn.
func (r *machineResidence) saveNow(t *turn) {
	s := r.s
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	s.interpreters.reapDead(ctx)
	again := time.Now()
	if len(s.interpreters.background(ctx)) == 0 {
		// What a thread wrote is a step of its own, which keeps no machine.
		if _, err := s.checkpoints.keep(ctx, checkpoint.Note{Cause: history.CauseFiles}, nil); err != nil {
			s.manager.log.WarnContext(ctx, "files could not be kept", "session", s.id, "cause", fault.CauseOf(err))
		}
		again = time.Time{} // one that cannot be saved is not tried again until something runs in it
		if r.checkpoint(ctx, checkpoint.Note{Cause: history.CauseIdle}) {
			s.noteUnsaved()
			if err := s.save(); err != nil {
				s.manager.log.WarnContext(ctx, "a session's record cannot be written", "session", s.id, "cause", err)
			}
		} else if s.turns.hasWaiters() {
			again = time.Now()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsavedSince = again
}

// unlessWaiters gives up what save writes as soon as somebody waits.
func (q *turns) unlessWaiters(save checkpoint.SaveMachine) checkpoint.SaveMachine {
	return func(ctx context.Context, w io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return save(ctx, &patientWriter{q, w}, still)
	}
}

type patientWriter struct {
	turns *turns
	w     io.Writer
}

func (p *patientWriter) Write(data []byte) (int, error) {
	if p.turns.hasWaiters() {
		return 0, errTurnAwaited
	}
	return p.w.Write(data)
}
