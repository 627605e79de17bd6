package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
)

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

// turns is a session's queue: who may work in the session, one at a time, in order of
// arrival. Whoever has the turn is alone with the interpreters and with what is said to
// belong to the first in the queue. Others may keep the session awake without a turn
// (hold), to use its files. Its methods may be called from any goroutine.
type turns struct {
	id   ID
	used func() // notes that the session was used just now; called with mu held

	drained chan struct{} // closed when the queue is empty after the end was ordered
	closed  chan struct{} // closed at gone

	mu       sync.Mutex // guards what follows; session.mu may be taken while it is held
	phase    phase
	sleeping bool    // the session leaves only to be opened again
	users    int     // who uses its files: it does not sleep meanwhile
	queue    []*turn // in order of arrival; the first is at work
}

func newTurns(id ID, used func()) *turns {
	return &turns{id: id, used: used, drained: make(chan struct{}), closed: make(chan struct{})}
}

// turn is one place in a session's queue.
type turn struct {
	execution string // "" for what is not an execution
	ready     chan struct{}
	ctx       context.Context
	cancel    context.CancelCauseFunc
	since     time.Time // when it came first; guarded by turns.mu, zero before
	over      bool      // too late to stop it: guarded by turns.mu
	// How long it waited, and what starting an interpreter took; they belong to
	// the first in the queue.
	queued, start time.Duration
	later         func() // what is left to do before the next turn; nil: nothing
}

// shiftLocked makes every change of the slot's phase.
func (q *turns) shiftLocked(to phase) {
	if !slices.Contains(following[q.phase], to) {
		panic("session: an impossible change of phase")
	}
	q.phase = to
}

// open ends the opening: turns can be taken, or where it failed the session is gone.
func (q *turns) open(failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !failed {
		q.shiftLocked(free)
		return
	}
	q.shiftLocked(gone)
	close(q.closed)
}

// finishEnd says that the session whose end was ordered is gone.
func (q *turns) finishEnd() {
	q.mu.Lock()
	q.shiftLocked(gone)
	q.mu.Unlock()
	close(q.closed)
}

// take gets in the queue and waits until it is the caller's turn. stop, when
// set, stops every execution in the queue, whose bound does not hold then. After
// an error the caller is not in the queue; else it calls leave.
func (q *turns) take(ctx context.Context, execution string, stop error) (*turn, error) {
	t := &turn{execution: execution, ready: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	if err := q.join(t, stop); err != nil {
		t.cancel(nil)
		return nil, err
	}
	select {
	case <-t.ready:
	case <-t.ctx.Done():
	}
	if t.ctx.Err() != nil { // also when both happened: it does not begin
		err := context.Cause(t.ctx)
		q.leave(t)
		return nil, err
	}
	return t, nil
}

func (q *turns) join(t *turn, stop error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.awakeLocked(); err != nil {
		return err
	}
	switch {
	case t.execution != "" && q.hasLocked(t.execution):
		return errAlreadyRunning(t.execution)
	case stop != nil:
		q.stopLocked(stop, "")
	case len(q.queue) > maxWaiting:
		full := *fault.New(fault.Exhausted, "%d executions are waiting in this session already", maxWaiting).WithHint("wait for them, cancel some, or use another session")
		full.RetryAfter = time.Second
		return &full
	}
	q.used()
	q.queue = append(q.queue, t)
	if q.phase == free {
		q.beginLocked(t)
	}
	return nil
}

// try takes a turn if nobody is in the queue; nil when somebody is.
func (q *turns) try(ctx context.Context) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != free {
		return nil
	}
	t := &turn{ready: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	q.queue = append(q.queue, t)
	q.beginLocked(t)
	return t
}

// beginLocked gives the first in the queue its turn.
func (q *turns) beginLocked(t *turn) {
	q.shiftLocked(working)
	t.since = time.Now()
	close(t.ready)
}

// errBusy refuses to wait for an execution that has been running for longer than that: its
// client may have given up without a word, and nobody else would stop it. Zero waits for
// any.
func (q *turns) errBusy(timeout time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if timeout <= 0 || q.phase != working || q.queue[0].execution == "" || q.queue[0].over {
		return nil
	}
	running := time.Since(q.queue[0].since)
	if running < timeout {
		return nil
	}
	f := *fault.New(fault.Conflict, "the session is busy: the execution %s has been running for %s", q.queue[0].execution, running.Round(time.Second)).
		WithHint("call again with interrupt: true to stop it, keeping the variables, or wait for it, or use another session")
	f.RetryAfter = timeout
	return &f
}

// leave gives the turn to the next in the queue, or steps out of it.
func (q *turns) leave(t *turn) {
	t.cancel(nil)
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.queue[0] == t
	q.queue = slices.DeleteFunc(q.queue, func(other *turn) bool { return other == t })
	if first && t.execution != "" {
		q.used()
	}
	switch {
	case q.phase == leaving:
		if len(q.queue) == 0 {
			close(q.drained)
		}
	case len(q.queue) == 0:
		q.shiftLocked(free)
	case first:
		q.beginLocked(q.queue[0])
	}
}

// finish ends a turn, after what is left to do in it.
func (q *turns) finish(t *turn) {
	if t.later == nil {
		q.leave(t)
		return
	}
	go func() { // the session's end waits for the turn's
		t.later()
		q.leave(t)
	}()
}

// setUncancellable marks a turn as one that can no longer be stopped.
func (q *turns) setUncancellable(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.over = true
}

// setCancellable takes setUncancellable back.
func (q *turns) setCancellable(t *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.over = t.ctx.Err() != nil
}

// stop stops the executions in the queue: one, or all when execution is "". It gives how
// many were stopped that had not been before.
func (q *turns) stop(cause error, execution string) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.awakeLocked(); err != nil {
		return 0, err
	}
	return q.stopLocked(cause, execution), nil
}

func (q *turns) stopLocked(cause error, execution string) (n int) {
	for _, t := range q.queue {
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
// allow (nil: always), which is asked under the lock. It reports whether the
// caller is the one who has to dismantle it.
func (q *turns) end(cause error, allow func() bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != free && q.phase != working || allow != nil && !allow() {
		return false
	}
	q.shiftLocked(leaving)
	for _, t := range q.queue {
		t.over = true
		t.cancel(cause)
	}
	if len(q.queue) == 0 {
		close(q.drained)
	}
	return true
}

// hold keeps an open session awake until done is called, which works twice.
func (q *turns) hold() (done func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.awakeLocked(); err != nil {
		return nil, err
	}
	q.used()
	q.users++
	held := true
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if held {
			held = false
			q.users--
			q.used()
		}
	}, nil
}

// awakeLocked tells why a session cannot be used; nil: it can.
func (q *turns) awakeLocked() error {
	switch {
	case q.phase == free || q.phase == working:
		return nil
	case q.sleeping:
		return errAsleep
	}
	return errNotFound(q.id)
}

// unusedLocked reports whether no work is done in the session and its files are not used.
func (q *turns) unusedLocked() bool { return q.phase == free && q.users == 0 }

// isSleeping reports whether a session is going to sleep, or has.
func (q *turns) isSleeping() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sleeping && (q.phase == leaving || q.phase == gone)
}

// isIdle reports whether no work is done in the session.
func (q *turns) isIdle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == free
}

// isEnding reports whether the session's end was ordered, or it has ended.
func (q *turns) isEnding() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == leaving || q.phase == gone
}

// isOpen reports whether turns can be taken.
func (q *turns) isOpen() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.phase == free || q.phase == working
}

// hasWaiters reports whether somebody waits for the one whose turn it is, be it to end the
// session.
func (q *turns) hasWaiters() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 1 || q.phase == leaving
}

// has reports whether an execution is in the queue.
func (q *turns) has(execution string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hasLocked(execution)
}

func (q *turns) hasLocked(execution string) bool {
	return slices.ContainsFunc(q.queue, func(t *turn) bool { return t.execution == execution })
}

// counts are how many executions are at work, which is one at most, and wait.
func (q *turns) counts() (running, queued int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, t := range q.queue {
		switch {
		case t.execution == "":
		case n == 0:
			running++
		default:
			queued++
		}
	}
	return running, queued
}

// Cancel stops an execution, running or in the queue, or all of the session when
// execution is "", and gives up what waits for a person. It gives how many it stopped: 0
// when it came too late.
func (m *Manager) Cancel(owner Owner, id ID, execution string) (int, error) {
	if err := id.check(); err != nil {
		return 0, err
	}
	s := m.sessions.get(key{owner, id})
	if s != nil {
		if <-s.opened; s.openErr == nil {
			if n, err := s.cancel(execution); !errors.Is(err, errAsleep) {
				return n, err
			}
			<-s.turns.closed
		}
	}
	i, err := m.records.info(key{owner, id})
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
	n, err := s.turns.stop(errStopped, execution)
	if err != nil {
		return 0, err
	}
	w, err := s.suspension.abandon(s.manager.ctx, execution)
	if w != nil {
		n++
	}
	if err != nil {
		return n, fmt.Errorf("giving up the run that waits: %w", err)
	}
	return n, nil
}
