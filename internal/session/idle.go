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

// unsaved notes that a run has changed what is in the machine.
func (s *session) unsaved() {
	s.mu.Lock()
	first := s.unsavedSince.IsZero()
	s.unsavedSince = time.Now()
	s.mu.Unlock()
	if !first || s.machineSaver() == nil {
		return
	}
	select {
	case s.manager.wake <- struct{}{}: // the janitor has to know when it is due
	default:
	}
}

// saveIdle saves the machines of the sessions in which nothing has run for
// Config.SaveAfter, one after the other, and gives the time until it should look
// again. One in which something works in the background is looked at again after
// that time, and so is one that somebody came to use meanwhile.
func (m *Manager) saveIdle(now time.Time) time.Duration {
	next, after := maxRest, m.config.SaveAfter
	if after < 0 || m.config.MachineStateBytes < 0 {
		return next
	}
	for _, s := range m.open("") {
		if s.machineSaver() == nil {
			continue
		}
		s.mu.Lock()
		since, restful := s.unsavedSince, s.canSleepLocked()
		s.mu.Unlock()
		switch left := since.Add(after).Sub(now); {
		case since.IsZero():
			continue
		case left > 0:
			next = min(next, left)
			continue
		case !restful:
			next = min(next, after)
			continue
		}
		if t := s.tryTurn(m.ctx); t != nil {
			s.saveNow(t)
			s.leave(t)
		}
		next = min(next, after)
	}
	return next
}

// saveNow saves the machine of a session that nobody uses. It is the caller's turn.
func (s *session) saveNow(t *turn) {
	ctx, cancel := lasting(t.ctx)
	defer cancel()
	s.reapDead(ctx)
	again := time.Now()
	if len(s.backgroundProcesses(ctx)) == 0 {
		// What a thread wrote is a step of its own, which keeps no machine.
		if _, err := s.keep(ctx, checkpoint.Note{Cause: history.CauseFiles}, nil); err != nil {
			s.manager.log.WarnContext(ctx, "files could not be kept", "session", s.id, "cause", fault.CauseOf(err))
		}
		again = time.Time{} // one that cannot be saved is not tried again until something runs in it
		if s.checkpointMachine(ctx, checkpoint.Note{Cause: history.CauseIdle}) {
			s.noteUnsaved()
			if err := s.save(); err != nil {
				s.manager.log.WarnContext(ctx, "a session's record cannot be written", "session", s.id, "cause", err)
			}
		} else if s.hasWaiters() {
			again = time.Now()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsavedSince = again
}

// hasWaiters tells whether somebody waits for the one whose turn it is, be it to end the
// session.
func (s *session) hasWaiters() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 1 || s.phase == leaving
}

// unlessWaiters gives up what save writes as soon as somebody waits.
func (s *session) unlessWaiters(save checkpoint.SaveMachine) checkpoint.SaveMachine {
	return func(ctx context.Context, w io.Writer, still func() error) ([]byte, map[string]*sandbox.Inspection, error) {
		return save(ctx, &patientWriter{s, w}, still)
	}
}

type patientWriter struct {
	s *session
	w io.Writer
}

func (p *patientWriter) Write(data []byte) (int, error) {
	if p.s.hasWaiters() {
		return 0, errTurnAwaited
	}
	return p.w.Write(data)
}
