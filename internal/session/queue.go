package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"paddock/internal/fault"
)

// A session's queue is who may work in it: one at a time, in order of arrival. Whoever
// has the turn is alone with the interpreters and with what is said to belong to the
// first in the queue.

// maxWaiting bounds how many executions wait for the one that runs.
const maxWaiting = 64

// phase is what a session's slot, the right to work in it, is at.
type phase uint8

const (
	opening phase = iota // its folder is being opened
	free                 // nobody is at work
	working              // the first in the queue is at work
	leaving              // it ends: who is in the queue is stopped, and nobody may enter
	gone                 // it has ended, or was never opened
)

// following are the phases that may follow each.
var following = [...][]phase{opening: {free, gone}, free: {working, leaving}, working: {working, free, leaving}, leaving: {gone}, gone: nil}

// turn is one place in a session's queue.
type turn struct {
	execution string // "" for what is not an execution
	ready     chan struct{}
	ctx       context.Context
	cancel    context.CancelCauseFunc
	since     time.Time // when it came first; guarded by the session's mu, zero before
	over      bool      // too late to stop it: guarded by the session's mu
	// How long it waited, and what starting an interpreter took; they belong to
	// the first in the queue.
	queued, start time.Duration
	later         func() // what is left to do before the next turn; nil: nothing
}

// shiftLocked makes every change of the slot's phase.
func (s *session) shiftLocked(to phase) {
	if !slices.Contains(following[s.phase], to) {
		panic("session: an impossible change of phase")
	}
	s.phase = to
}

// takeTurn gets in the queue and waits until it is the caller's turn. stop, when
// set, stops every execution in the queue, whose bound does not hold then. After
// an error the caller is not in the queue; else it calls leave.
func (s *session) takeTurn(ctx context.Context, execution string, stop error) (*turn, error) {
	t := &turn{execution: execution, ready: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	if err := s.joinQueue(t, stop); err != nil {
		t.cancel(nil)
		return nil, err
	}
	select {
	case <-t.ready:
	case <-t.ctx.Done():
	}
	if t.ctx.Err() != nil { // also when both happened: it does not begin
		err := context.Cause(t.ctx)
		s.leave(t)
		return nil, err
	}
	return t, nil
}

func (s *session) joinQueue(t *turn, stop error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.awakeLocked(); err != nil {
		return err
	}
	switch {
	case t.execution != "" && slices.ContainsFunc(s.queue, func(other *turn) bool { return other.execution == t.execution }):
		return errAlreadyRunning(t.execution)
	case stop != nil:
		s.stopLocked(stop, "")
	case len(s.queue) > maxWaiting:
		full := *fault.New(fault.Exhausted, "%d executions are waiting in this session already", maxWaiting).WithHint("wait for them, cancel some, or use another session")
		full.RetryAfter = time.Second
		return &full
	}
	s.record.LastUsedAt = time.Now()
	s.queue = append(s.queue, t)
	if s.phase == free {
		s.beginLocked(t)
	}
	return nil
}

// beginLocked gives the first in the queue its turn.
func (s *session) beginLocked(t *turn) {
	s.shiftLocked(working)
	t.since = time.Now()
	close(t.ready)
}

// errBusy refuses to wait for an execution that has been running for longer than that: its
// client may have given up without a word, and nobody else would stop it. Zero waits for
// any.
func (s *session) errBusy(timeout time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if timeout <= 0 || s.phase != working || s.queue[0].execution == "" || s.queue[0].over {
		return nil
	}
	running := time.Since(s.queue[0].since)
	if running < timeout {
		return nil
	}
	f := *fault.New(fault.Conflict, "the session is busy: the execution %s has been running for %s", s.queue[0].execution, running.Round(time.Second)).
		WithHint("call again with interrupt: true to stop it, keeping the variables, or wait for it, or use another session")
	f.RetryAfter = timeout
	return &f
}

// leave gives the turn to the next in the queue, or steps out of it.
func (s *session) leave(t *turn) {
	t.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.queue[0] == t
	s.queue = slices.DeleteFunc(s.queue, func(other *turn) bool { return other == t })
	if first && t.execution != "" {
		s.record.LastUsedAt = time.Now()
	}
	switch {
	case s.phase == leaving:
		if len(s.queue) == 0 {
			close(s.drained)
		}
	case len(s.queue) == 0:
		s.shiftLocked(free)
	case first:
		s.beginLocked(s.queue[0])
	}
}

// setUncancellable marks a turn as one that can no longer be stopped.
func (s *session) setUncancellable(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.over = true
}

// setCancellable takes setUncancellable back.
func (s *session) setCancellable(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.over = t.ctx.Err() != nil
}

// stopLocked stops the executions in the queue: one, or all when execution is "".
// It gives how many were stopped that had not been before.
func (s *session) stopLocked(cause error, execution string) (n int) {
	for _, t := range s.queue {
		if t.over || t.execution == "" || execution != "" && t.execution != execution {
			continue
		}
		n++
		t.over = true
		t.cancel(cause)
	}
	return n
}

// end orders the end of the session when it may end and still says yes to
// allow (nil: always), which is asked under the lock. It tells whether the
// caller is the one who has to dismantle it.
func (s *session) end(cause error, allow func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != free && s.phase != working || allow != nil && !allow() {
		return false
	}
	s.shiftLocked(leaving)
	for _, t := range s.queue {
		t.over = true
		t.cancel(cause)
	}
	if len(s.queue) == 0 {
		close(s.drained)
	}
	return true
}

// tryTurn takes a turn if nobody is in the queue; nil when somebody is.
func (s *session) tryTurn(ctx context.Context) *turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != free {
		return nil
	}
	t := &turn{ready: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	s.queue = append(s.queue, t)
	s.beginLocked(t)
	return t
}

// Cancel stops an execution, running or in the queue, or all of the session when
// execution is "", and gives up what waits for a person. It gives how many it stopped: 0
// when it came too late.
func (m *Manager) Cancel(owner Owner, id ID, execution string) (int, error) {
	if err := id.check(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	s := m.sessions[key{owner, id}]
	m.mu.Unlock()
	if s != nil {
		if <-s.opened; s.openErr == nil {
			if n, err := s.cancel(execution); !errors.Is(err, errAsleep) {
				return n, err
			}
			<-s.closed
		}
	}
	i, err := m.infoOnDisk(key{owner, id})
	if err != nil {
		return 0, err
	}
	if i.Process != 0 {
		return 0, fault.New(fault.Conflict, "the session %q is open in another process (pid %d)", id, i.Process).WithHint("only that process can cancel its executions")
	}
	if i.Waiting == nil || execution != "" && execution != i.Waiting.Execution {
		return 0, nil
	}
	s, done, err := m.use(owner, id)
	if err != nil {
		return 0, err
	}
	defer done()
	return s.cancel(execution)
}

// cancel is Cancel for a session that is open.
func (s *session) cancel(execution string) (int, error) {
	s.mu.Lock()
	err := s.awakeLocked()
	n := 0
	if err == nil {
		n = s.stopLocked(errStopped, execution)
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	w, err := s.abandonWaiting(s.manager.ctx, execution)
	if w != nil {
		n++
	}
	if err != nil {
		return n, fmt.Errorf("giving up the run that waits: %w", err)
	}
	return n, nil
}
