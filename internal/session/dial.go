package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// wakeTime bounds how long a machine that was saved may take to be there again for
// somebody who connects to it.
const wakeTime = 30 * time.Second

// Dial connects to a port at which a program of the session's machine listens, at its
// loopback address; ctx bounds only that. Until the connection is closed the session
// does not fall asleep by itself. One that sleeps is woken where its machine was saved;
// where it was not nobody would listen in the one that was booted afresh, so none is,
// and that is a fault.Unavailable like a port at which nobody listens. A session whose
// isolation has no machines, or that another process has open, is fault.Unsupported and
// fault.Conflict.
func (m *Manager) Dial(ctx context.Context, owner Owner, id ID, port uint16) (sandbox.Stream, error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial(ctx, port)
	if err != nil {
		done()
		return nil, err
	}
	return &connection{Stream: conn, done: sync.OnceFunc(done)}, nil
}

// connection is one for whose time a session does not fall asleep.
type connection struct {
	sandbox.Stream
	done func()
}

// Close works twice.
func (c *connection) Close() error {
	defer c.done()
	return c.Stream.Close()
}

func (s *session) dial(ctx context.Context, port uint16) (sandbox.Stream, error) {
	if s.backend == nil {
		return nil, s.backendErr
	}
	if err := s.checkNotHalted(); err != nil {
		return nil, err
	}
	return s.residence.dial(ctx, port)
}

// dial wakes a machine that was saved when nobody answers.
func (r *machineResidence) dial(ctx context.Context, port uint16) (sandbox.Stream, error) {
	s := r.s
	dialer, err := r.dialer()
	if err != nil {
		return nil, err
	}
	connect := func() (sandbox.Stream, error) {
		return guard("connecting", func() (sandbox.Stream, error) { return dialer.Dial(ctx, string(s.owner), string(s.id), port) })
	}
	conn, err := connect()
	if fault.KindOf(err) != fault.NotFound {
		return conn, err
	}
	if err := r.wake(ctx); err != nil {
		return nil, err
	}
	if conn, err = connect(); fault.KindOf(err) == fault.NotFound {
		return nil, errNobodyListens(s.id)
	}
	return conn, err
}

// Listens tells about a session whose programs can be connected to; where they cannot,
// that is a fault.Unsupported. It does not open the session.
func (m *Manager) Listens(owner Owner, id ID) (Info, error) {
	i, err := m.Info(owner, id)
	if err != nil {
		return Info{}, err
	}
	b, err := m.backends.named(i.Isolation)
	if err == nil {
		_, err = m.traitsOf(b).dialer()
	}
	return i, err
}

func (r *machineResidence) dialer() (sandbox.Dialer, error) {
	dialer, ok := r.backend.(sandbox.Dialer)
	if !ok {
		return nil, errNoPorts(r.backend)
	}
	return dialer, nil
}

func errNobodyListens(id ID) error {
	return fault.New(fault.Unavailable, "no machine of the session %q is running, so no program listens", id).
		WithHint("start the program again: its files are there")
}

// wake has the session's machine go on that was saved, unless somebody else
// boots it meanwhile.
func (r *machineResidence) wake(ctx context.Context) error {
	s := r.s
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	t, err := s.turns.take(ctx, "", nil)
	if err != nil {
		return fmt.Errorf("waiting to wake the session: %w", err)
	}
	defer s.turns.leave(t)
	if err := s.checkNotHalted(); err != nil {
		return err
	}
	if err := s.reconcile(t.ctx); err != nil {
		return err
	}
	if s.interpreters.count() > 0 {
		return nil
	}
	if r.savedState() == nil {
		return errNobodyListens(s.id)
	}
	if r.waitsAsleep() {
		return errWaitsAsleep(s.id)
	}
	return r.boot(t)
}

func errWaitsAsleep(id ID) error {
	return fault.New(fault.Conflict, "a program of the session %q waits for a person, and its machine sleeps until then", id).
		WithHint("decide about what it asked for, or cancel it")
}

// waitsAsleep reports whether the machine that was saved has a run in it that waits: only
// that goes on in it.
func (r *machineResidence) waitsAsleep() bool {
	r.s.checkpoints.mu.Lock()
	defer r.s.checkpoints.mu.Unlock()
	return r.waitsInHead()
}
