package session

import (
	"context"
	"fmt"

	"paddock/internal/fault"
)

var (
	errReset     = fault.New(fault.Cancelled, "the session was reset")
	errDestroyed = fault.New(fault.Cancelled, "the session was destroyed")
	errExpired   = fault.New(fault.Cancelled, "the session has expired")
)

// Reset stops what runs or waits, ends the interpreters and deletes all files.
// The session and its settings stay. It gives the number of files deleted.
func (m *Manager) Reset(ctx context.Context, owner Owner, id ID) (files int, err error) {
	s, t, err := m.takeTurn(ctx, owner, id, errReset)
	if err != nil {
		return 0, fmt.Errorf("waiting to reset the session: %w", err)
	}
	defer s.turns.leave(t)
	defer func() { m.recordAction(ctx, Resetting, s, err) }()
	waited := s.suspension.waits()
	stopped := s.residence.stopAll("its machine was stopped to reset the session, and " + filesOnly)
	if files, err = s.checkpoints.empty(t.ctx); err != nil {
		s.addNotice(stopped)
		return files, fmt.Errorf("clearing the workspace: %w", err)
	}
	if waited != nil {
		s.suspension.notifyAbandoned(waited.Execution)
	}
	clear(s.lostReasons)
	s.pending = "" // of what was before
	s.mu.Lock()
	s.record.Runtimes, s.record.Unkept = nil, nil // there is nothing of them to miss
	s.mu.Unlock()
	if err := s.save(); err != nil {
		return files, unusable(err)
	}
	s.residence.refill()
	return files, nil
}

// empty deletes all files and makes that a checkpoint, which can be undone. It
// gives the number of files of the workspace. All interpreters have ended.
func (c *checkpoints) empty(ctx context.Context) (int, error) {
	s := c.s
	ctx, cancel := lasting(ctx)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.repo.Empty(ctx)
	if err != nil || s.isEphemeral() {
		return len(files), err
	}
	clear(c.dirty)
	c.setKept(nil)
	return len(files), nil
}
