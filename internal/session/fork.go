package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/sessionstore"
)

// maxForks bounds how many sessions one Fork makes.
const maxForks = 100

// Fork makes new sessions that begin with the state of a session at a
// checkpoint, "" for the current one: all of them, or none. It waits for no
// program: one that runs has no part in it yet.
func (m *Manager) Fork(ctx context.Context, owner Owner, id ID, checkpoint string, count int) (forks []Info, err error) {
	if count < 1 || count > maxForks {
		return nil, fault.New(fault.Invalid, "a session is forked 1 to %d times at once", maxForks)
	}
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, err
	}
	defer done()
	if s.isEphemeral() {
		return nil, errEphemeral
	}
	defer func() { m.recordAction(ctx, Forking, s, err) }()
	if err := m.disk.reclaim(ctx, owner); err != nil {
		return nil, err
	}
	if checkpoint == "" {
		s.residence.saveForFork(ctx)
	}
	// While it is held, nothing that the checkpoint refers to is collected.
	store, err := m.local.Blobs(string(owner))
	if err != nil {
		return nil, err
	}
	batch, err := store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer batch.Close()
	target, err := s.checkpoints.target(checkpoint)
	if err != nil {
		return nil, err
	}
	f := &forking{m: m, from: s, target: target}
	return f.fork(ctx, count)
}

// forking is one Fork.
type forking struct {
	m      *Manager
	from   *session
	target *history.Manifest // of which the forks begin
	group  string            // in which the forks are; "": there is one
	made   []*session
}

// fork makes the forks: all of them, or none.
func (f *forking) fork(ctx context.Context, count int) (forks []Info, err error) {
	owner := f.from.owner
	if count > 1 {
		f.group = newID("g-")
		end, err := f.m.store.BeginGroup(string(owner), f.group)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	defer func() {
		if err != nil {
			forks, err = nil, f.undo(ctx, err)
		}
	}()
	for range count {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		one, err := f.one(ctx)
		if err != nil {
			return nil, fmt.Errorf("forking the session: %w", err)
		}
		f.made = append(f.made, one)
	}
	if err := f.m.store.CommitGroup(string(owner), f.group); err != nil {
		return nil, err
	}
	for _, one := range f.made {
		if f.group != "" {
			one.leaveGroup()
		}
		i, err := f.m.Info(owner, one.id) // it may be asleep already
		if err != nil {
			return nil, err
		}
		forks = append(forks, i)
	}
	return forks, nil
}

// undo destroys the forks when not all came to be, and returns why, with what of them is
// left. One that is asleep by now does not exist without its group, and is collected.
func (f *forking) undo(ctx context.Context, err error) error {
	for _, one := range f.made {
		left := f.m.Destroy(context.WithoutCancel(ctx), f.from.owner, one.id)
		if fault.KindOf(left) != fault.NotFound {
			err = errors.Join(err, left)
		}
	}
	return err
}

// leaveGroup has a fork whose group is committed exist by itself, as far as the disk
// takes that now.
func (s *session) leaveGroup() {
	t := s.turns.try(context.Background())
	if t == nil {
		return // it is asleep or in use, and does so later
	}
	defer s.turns.leave(t)
	s.mu.Lock()
	s.record.Group = ""
	s.mu.Unlock()
	// Durably: the marker goes when no record names it.
	if err := s.write(true); err != nil {
		s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
	}
}

// target is the checkpoint to fork from, checked for being whole.
func (c *checkpoints) target(name string) (*history.Manifest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == "" && c.err != nil {
		return nil, fault.New(fault.Unavailable, "the session's last call could not be kept, so it cannot be forked").
			WithHint("run something in it, which tries again, or fork an earlier checkpoint").WithCause(c.err)
	}
	target := c.repo.Head()
	if name != "" {
		var err error
		if target, err = c.repo.Find(name); err != nil {
			return nil, unusable(err)
		}
	}
	return target, c.repo.Verify(target)
}

// one makes one fork.
func (f *forking) one(ctx context.Context) (*session, error) {
	m, from, target := f.m, f.from, f.target
	from.mu.Lock()
	settings := from.record.Settings
	forgotten := slices.Clone(from.record.Unkept) // of which nobody was told yet
	from.mu.Unlock()
	settings.Machine = settings.Machine.Another()
	for _, runtime := range from.interpreters.unsavable() {
		if !slices.Contains(forgotten, runtime) {
			forgotten = append(forgotten, runtime)
		}
	}
	forgotten = slices.DeleteFunc(forgotten, func(runtime string) bool { return target.Machine.Holds(runtime) })
	var doubling sync.WaitGroup
	begin := &beginning{cause: history.CauseFork, state: target, parent: from.id, then: func(s *session) {
		for _, runtime := range forgotten {
			s.lostReasons[runtime] = "the session is a fork, and " + filesOnly
		}
		s.record.Unkept = forgotten
		if w := target.Waits(); w != nil {
			s.addNotice(fmt.Sprintf("The session is a fork: the run %s, which waits for a person, does so in the session that it was forked from.", w.Execution))
		}
		doubling.Go(func() { s.interpreters.copyFrom(ctx, from, target) }) // while the disk is waited for
	}}
	s, err := m.newSessionAt(key{from.owner, ID(newID("s-"))}, from.backend, from.backendErr, settings, f.group, begin, doubling.Wait)
	if err != nil {
		return nil, err
	}
	m.record(ctx, Event{Action: Creating, Owner: s.owner, Session: s.id, Parent: from.id, Language: settings.Language, Isolation: s.backendName()})
	return s, nil
}

// copyFrom doubles the live interpreters of the session that this one is forked
// from, so that the first call need not wait for them. What cannot be doubled is
// read from disk then. Nobody else has the session yet.
func (i *interpreters) copyFrom(ctx context.Context, from *session, target *history.Manifest) {
	s := i.s
	for runtime, in := range from.interpreters.list() {
		want, there := target.Interpreters[runtime]
		forker, can := in.(sandbox.Forker)
		spec := i.spec(runtime)
		if !there || !can || i.reserveMemory(runtime, spec.Limits.MemoryBytes) != nil {
			continue
		}
		spec.Resume = nil
		double, err := guard("forking", func() (sandbox.Instance, error) { return forker.Fork(ctx, want.Mark, spec) })
		if err != nil {
			i.releaseMemory(runtime)
			if fault.KindOf(err) != fault.NotFound && fault.KindOf(err) != fault.Conflict && !errors.Is(err, context.Canceled) {
				s.manager.log.Warn("an interpreter could not be doubled", "session", s.id, "cause", fault.CauseOf(err))
			}
			continue
		}
		i.put(runtime, double)
		s.manager.memory.Set(s.residence.holder(runtime), max(want.Memory, 1))
	}
}

// newSessionAt makes a session, of a group of forks or of none; from nil: an empty one. It is
// there for others when what from began in the background has ended, for which these
// wait.
func (m *Manager) newSessionAt(k key, b sandbox.Backend, backendErr error, settings Settings, group string, from *beginning, wait ...func()) (*session, error) {
	if b == nil {
		return nil, backendErr
	}
	if err := cmp.Or(m.disk.check(k.owner, 1), m.disk.checkSessions(k.owner)); err != nil {
		return nil, err
	}
	s, err := m.reserve(k)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s.record = record{
		Identity: sessionstore.Identity{Version: sessionstore.RecordVersion, ID: string(k.id), Owner: string(k.owner)},
		Settings: settings, Isolation: b.Name(), CreatedAt: now, LastUsedAt: now, Signature: sessionstore.Signature{Group: group},
	}
	s.setBackend(b, nil)
	err = s.create(from)
	for _, w := range wait {
		w()
	}
	if err != nil {
		s.interpreters.dropAll()
	}
	if err = m.opened(s, err); err == nil {
		m.disk.note(s)
	}
	return s, err
}
