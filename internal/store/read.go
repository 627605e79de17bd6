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

// Totals adds up an owner's sessions, which takes as long for ten thousand as for
// one. sizes are the TreeBytes in it of those of the ids that it has.
func (s *Store) Totals(owner string, ids ...string) (t Totals, sizes map[string]int64, err error) {
	err = s.read(func(c *conn) error {
		t, sizes = Totals{}, make(map[string]int64, len(ids))
		err := c.each(func(scan func(...any) error) error { return scan(&t.Sessions, &t.TreeBytes, &t.NameSum) }, getTotals, owner)
		for _, id := range ids {
			if err != nil {
				break
			}
			err = c.each(func(scan func(...any) error) error {
				var bytes int64
				err := scan(&bytes)
				sizes[id] = bytes
				return err
			}, getSize, owner, id)
		}
		return err
	})
	if err != nil {
		return Totals{}, nil, err
	}
	return t, sizes, nil
}

// Sizes gives the TreeBytes of each of an owner's sessions, by id.
func (s *Store) Sizes(owner string) (sizes map[string]int64, err error) {
	err = s.read(func(c *conn) error {
		sizes = map[string]int64{}
		return c.each(func(scan func(...any) error) error {
			var id string
			var bytes int64
			err := scan(&id, &bytes)
			sizes[id] = bytes
			return err
		}, getSizes, owner)
	})
	if err != nil {
		return nil, err
	}
	return sizes, nil
}

// read runs f on one state of a complete index. f may be called again.
func (s *Store) read(f change) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.terms.readTimeout)
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
// again, and is not complete then.
func (s *Store) readLocked(f change) (err error) {
	s.mu.Lock()
	over := s.closed || s.retired
	s.mu.Unlock()
	if over || time.Now().Before(s.rested) {
		return unavailable("reading the index")
	}
	for range 2 {
		if s.reader, err = s.renew(s.reader, s.terms.readTimeout); err != nil {
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
