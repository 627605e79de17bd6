package session

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"sync"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sessionstore"
	"paddock/internal/workspace"
)

// session is one session that this process has open. Four may touch its state: who opens it,
// the first in the queue, who makes or reads checkpoints, and anybody with mu. Each part says
// to whom it belongs.
type session struct {
	key
	manager *Manager
	dir     string

	opened  chan struct{} // closed when opening is over
	openErr error         // set before

	// Set while it is opened:
	backend    sandbox.Backend
	backendErr error     // why there is none
	residence  residence // where its interpreters live
	mounts     mounts    // what they see beside the workspace
	tree, tmp  *workspace.Tree
	claim      sessionstore.Claim // nil: it is not claimed

	turns        *turns       // who may work in it
	interpreters interpreters // what lives in it
	checkpoints  checkpoints  // what of it is on disk
	suspension   suspension   // the run that waits for a person
	egress       egress       // what its programs send and receive
	notices                   // what the next result has to tell

	ended string // the run that waited and was given up when it was opened; empty: none

	mu     sync.Mutex // guards what follows
	record record
	endErr error // what was left undone at the end
}

func newSession(m *Manager, k key) *session {
	s := &session{
		key: k, manager: m, dir: m.local.Session(k.stored()), opened: make(chan struct{}),
		notices: notices{lostReasons: map[string]string{}},
	}
	s.interpreters = interpreters{s: s, mustReseed: map[string]bool{}}
	s.checkpoints = checkpoints{s: s, dirty: map[string]bool{}, needsFull: map[string]bool{}}
	s.turns = newTurns(k.id, s.noteUsed)
	s.suspension = suspension{k, &s.checkpoints, s.turns, m.config.Tools, m.log}
	s.egress.key, s.egress.network, s.egress.log = k, m.config.Network, m.log
	s.setBackend(nil, nil)
	return s
}

// setBackend says what runs the session's programs, or why nothing does.
func (s *session) setBackend(b sandbox.Backend, err error) {
	s.backend, s.backendErr, s.residence = b, err, newResidence(s, b)
	s.mounts = newMounts(s, s.residence)
}

// noteUsed has the record say that the session was used just now.
func (s *session) noteUsed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.LastUsedAt = time.Now()
}

// lastUsed is when the session was used last.
func (s *session) lastUsed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.LastUsedAt
}

// expiresAt is when the session expires if it is not used until then.
func (s *session) expiresAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager.records.expiresAt(s.record)
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IsGenerated reports whether an id looks like one that a Manager made up, be it cut short or
// mistyped: it begins as they do.
func (id ID) IsGenerated() bool { return strings.HasPrefix(string(id), "s-") }

// newID makes a name that cannot be guessed: 26 characters, 130 random bits.
func newID(prefix string) string {
	random := make([]byte, 17)
	rand.Read(random) // never fails
	return prefix + lower.EncodeToString(random)[:26]
}

func (s *session) info() (Info, error) {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	if err := s.turns.awakeLocked(); err != nil {
		return Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.manager.records.describe(s.record)
	i.State, i.Checkpoints = Idle, int(s.record.checkpoints)
	switch {
	case len(s.turns.queue) > 1:
		i.State = Queued
	case len(s.turns.queue) == 1:
		i.State = Running
	case i.Waiting != nil:
		i.State = Waiting
	case s.interpreters.anyLives():
		i.State = Live
	}
	return i, nil
}

// enumerate gives names as a sentence holds them.
func enumerate(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
