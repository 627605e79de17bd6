package session

import (
	"context"
	"unicode/utf8"

	"paddock/internal/fault"
)

// checkName says what is wrong with the name of a session.
func checkName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) {
		return fault.New(fault.Invalid, "the name has at most %d bytes of UTF-8", maxName)
	}
	return nil
}

// Rename gives a session another name, or none. Running programs do not hinder it.
func (m *Manager) Rename(ctx context.Context, owner Owner, id ID, name string) (info Info, err error) {
	if err := checkName(name); err != nil {
		return Info{}, err
	}
	s, done, err := m.use(owner, id)
	if err != nil {
		return Info{}, err
	}
	defer done()
	defer func() { m.recordAction(ctx, Renaming, s, err) }()
	s.mu.Lock()
	s.record.Settings.Name = name
	s.mu.Unlock()
	if err := s.checkSettled(); err != nil {
		return Info{}, err
	}
	return s.info()
}
