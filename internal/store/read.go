package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

func isBusy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// Complete tells whether the index holds everything. One that was just made
// does not, until it has been rebuilt.
func (s *Store) Complete() bool {
	return s.read(func(*conn) error { return nil }) == nil
}

// Sessions lists an owner's sessions by the time they were made, then by id.
//
// This and all other reading sees what this Store was told before, and what
// other processes have written. It fails with [ErrIncomplete] or
// [ErrUnavailable], after some 300 ms at most in which others were waited for.
func (s *Store) Sessions(owner string) ([]Session, error) {
	all, err := s.sessions(getSessions, owner)
	slices.SortFunc(all, func(a, b Session) int { // which SQLite would copy the rows for
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, err
}

// Expired lists sessions of any owner whose ExpiresAt is not after now, those
// that expired first, at most limit.
func (s *Store) Expired(now time.Time, limit int) ([]Session, error) {
	return s.sessions(getExpired, stamp(now), limit)
}

func (s *Store) sessions(text string, args ...any) (all []Session, err error) {
	err = s.read(func(c *conn) error {
		all = nil
		return c.each(func(scan func(...any) error) error {
			r, err := scanSession(scan)
			all = append(all, r)
			return err
		}, text, args...)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Owners lists who has sessions, in the order of their names.
func (s *Store) Owners() (all []string, err error) {
	err = s.read(func(c *conn) error {
		all = nil
		return c.each(func(scan func(...any) error) error {
			var owner string
			err := scan(&owner)
			all = append(all, owner)
			return err
		}, getOwners)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Heads gives the number of the current checkpoint of each of an owner's
// sessions, by id: enough to see which rows are missing or behind.
func (s *Store) Heads(owner string) (heads map[string]int64, err error) {
	err = s.read(func(c *conn) error {
		heads = map[string]int64{}
		return c.each(func(scan func(...any) error) error {
			var id string
			var head int64
			err := scan(&id, &head)
			heads[id] = head
			return err
		}, getHeads, owner)
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

// Totals adds up an owner's sessions.
func (s *Store) Totals(owner string) (t Totals, err error) {
	err = s.read(func(c *conn) error {
		return c.each(func(scan func(...any) error) error {
			return scan(&t.Sessions, &t.TreeBytes, &t.Checkpoints)
		}, getTotals, owner)
	})
	if err != nil {
		return Totals{}, err
	}
	return t, nil
}

// Checkpoints lists the checkpoints of a session, by number.
func (s *Store) Checkpoints(owner, session string) (all []Checkpoint, err error) {
	err = s.read(func(c *conn) error {
		all = nil
		return c.each(func(scan func(...any) error) error {
			r, err := scanCheckpoint(scan)
			all = append(all, r)
			return err
		}, getCheckpoints, owner, session)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// read runs f on one state of a complete index. f may be called again.
func (s *Store) read(f change) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.terms.readPatience)
	defer cancel()
	select {
	case <-s.opened:
	case <-ctx.Done():
		return unavailable("opening the index")
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	err := s.readLocked(f)
	switch {
	case err == nil:
		s.fine()
		return nil
	case errors.Is(err, ErrIncomplete) || errors.Is(err, ErrUnavailable):
		return err
	case remedyOf(err) == retire:
		s.retire()
	default:
		s.trouble(err)
		if !isBusy(err) {
			s.rested = time.Now().Add(s.terms.readRest)
		}
	}
	return unavailable("reading the index")
}

// readLocked reads from the file as it is now; one that is no good is made
// anew, and is not complete then.
func (s *Store) readLocked(f change) (err error) {
	s.mu.Lock()
	over := s.closed || s.retired
	s.mu.Unlock()
	if over || time.Now().Before(s.rested) {
		return unavailable("reading the index")
	}
	for range 2 {
		if s.reader, err = s.renew(s.reader, s.terms.readPatience); err != nil {
			return err
		}
		c := s.reader
		err = c.within(begin, func() error {
			if err := c.checkVersion(len(s.terms.schema)); err != nil {
				return err
			}
			if whole, err := isComplete(c); err != nil {
				return err
			} else if !whole {
				return ErrIncomplete
			}
			return f(c)
		})
		again := false
		if s.reader, again, err = s.after(c, err); !again {
			return err
		}
	}
	return err
}
