package session

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/loopback"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
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

// session is one session that this process has open. What belongs to the first
// in the queue is used by it alone, and by the opening and the end.
type session struct {
	key
	manager *Manager
	dir     string

	opened  chan struct{} // closed when opening is over
	openErr error         // set before
	drained chan struct{} // closed when the queue is empty after the end was ordered
	closed  chan struct{} // closed at gone

	// Set while it is opened:
	backend    sandbox.Backend
	backendErr error // why there is none
	tree, tmp  *workspace.Tree
	release    func() error // lets go of the lock; nil: it is not held

	keeping sync.Mutex       // held by whoever makes a checkpoint or reads them; guards what follows
	kept    *checkpoint.Kept // set while it is opened
	keepErr error            // why what lives could not be kept; nil: it is on disk
	unsure  map[string]bool  // runtimes whose live interpreter is not what the head says
	apart   map[string]bool  // those whose live interpreter wrote what is in no checkpoint: what it writes next has to be whole

	mu           sync.Mutex // guards what follows
	phase        phase
	sleeping     bool    // it leaves only to be opened again
	loose        bool    // what lives is not on disk as it is: it does not sleep
	users        int     // who uses its files: it does not sleep meanwhile
	queue        []*turn // in order of arrival; the first is at work
	record       record
	interpreters map[string]sandbox.Instance // by runtime; changed by the first in the queue
	lost         map[string]string           // runtimes whose variables are gone, and why; belongs to the first in the queue
	anew         map[string]bool             // runtimes whose state on disk has been gone on from; likewise
	news         string                      // what the next result has to tell; likewise
	endErr       error                       // what was left undone at the end
	metered      metered                     // what its machine had used when somebody last looked
	booted       time.Time                   // when its machine began; zero: it has none
	unsavedSince time.Time                   // when something last ran in its machine, and was not saved; zero: nothing did
	ports        *loopback.Ports             // of its machine; belongs to the first in the queue
	spare        *spare                      // that nobody has used; nil: there is none; likewise
}

// turn is one place in a session's queue.
type turn struct {
	execution string // "" for what is not an execution
	ready     chan struct{}
	ctx       context.Context
	cancel    context.CancelCauseFunc
	over      bool // too late to stop it: guarded by the session's mu
	// How long it waited, and what starting an interpreter took; they belong to
	// the first in the queue.
	queued, start time.Duration
	later         func() // what is left to do before the next turn; nil: nothing
}

func newSession(m *Manager, k key) *session {
	return &session{
		key: k, manager: m, dir: m.folder(k),
		opened: make(chan struct{}), drained: make(chan struct{}), closed: make(chan struct{}),
		interpreters: map[string]sandbox.Instance{}, lost: map[string]string{}, anew: map[string]bool{},
		unsure: map[string]bool{}, apart: map[string]bool{},
	}
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

func (id ID) check() error {
	if !idPattern.MatchString(string(id)) {
		return fault.New(fault.Invalid, "a session id has 1 to 100 letters, digits, - and _")
	}
	return nil
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// mint makes a name that cannot be guessed: 26 characters, 130 random bits.
func mint(prefix string) string {
	random := make([]byte, 17)
	rand.Read(random) // never fails
	return prefix + lower.EncodeToString(random)[:26]
}

// errNotFound says the same whether a session never was, is gone, or belongs
// to somebody else.
func errNotFound(id ID) error {
	return fault.New(fault.NotFound, "there is no session %q", id).WithHint("it may have expired or been destroyed; create a new session")
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
	if err := s.enter(t, stop); err != nil {
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

func (s *session) enter(t *turn, stop error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.awakeLocked(); err != nil {
		return err
	}
	switch {
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
		s.shiftLocked(working)
		close(t.ready)
	}
	return nil
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
		s.shiftLocked(working)
		close(s.queue[0].ready)
	}
}

// tooLate marks a turn as one that can no longer be stopped.
func (s *session) tooLate(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.over = true
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

func (s *session) info() (Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.awakeLocked(); err != nil {
		return Info{}, err
	}
	i := s.manager.describe(s.record)
	i.State, i.Checkpoints = Idle, int(s.record.checkpoints)
	switch {
	case len(s.queue) > 1:
		i.State = Queued
	case len(s.queue) == 1:
		i.State = Running
	case s.liveLocked():
		i.State = Live
	}
	return i, nil
}

// liveLocked tells whether any interpreter lives.
func (s *session) liveLocked() bool {
	for _, in := range s.interpreters {
		select {
		case <-in.Done():
		default:
			return true
		}
	}
	return false
}

// enumerate gives names as a sentence holds them.
func enumerate(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
