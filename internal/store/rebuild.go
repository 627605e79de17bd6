package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"paddock/internal/fault"
)

// The names in the table meta.
const (
	metaComplete   = "complete"   // "1": the index holds everything
	metaGeneration = "generation" // another one for each time it had to be begun again
)

func isComplete(c *conn) (bool, error) {
	var value string
	err := c.one(&value, getMeta, metaComplete)
	return value == "1", err
}

// spoil marks the index as one that misses something, also for a rebuild that
// is under way.
func spoil(c *conn) error {
	if err := c.exec(setMeta, metaComplete, "0"); err != nil {
		return err
	}
	return c.exec(setMeta, metaGeneration, rand.Text())
}

// state is how a row is told from a later one of the same session.
type state struct{ created, head, used int64 }

// Rebuild fills the index from the truth while it is in use: what is put and
// deleted meanwhile, by any process, is not undone by what the rebuild read
// before. Several may rebuild at once. It is used by one goroutine.
type Rebuild struct {
	store      *Store
	generation string
	began      time.Time
	before     map[key]state // the rows when it began
	owners     map[string]bool
}

var errBegunAnew = fault.New(fault.Conflict, "the index of sessions was reset while it was rebuilt").WithHint("rebuild it again")

// Rebuild begins to rebuild the index. It has to be called before the truth
// that is put into it is read.
func (s *Store) Rebuild(ctx context.Context) (*Rebuild, error) {
	r := &Rebuild{store: s, began: time.Now(), owners: map[string]bool{}}
	err := s.do(ctx, func(c *conn) (err error) {
		if err := c.one(&r.generation, getMeta, metaGeneration); err != nil {
			return err
		}
		r.before, err = states(c, getStates)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("beginning to rebuild the index: %w", err)
	}
	return r, nil
}

func states(c *conn, text string, args ...any) (map[key]state, error) {
	all := map[key]state{}
	err := c.each(func(scan func(...any) error) error {
		var k key
		var s state
		err := scan(&k.owner, &k.id, &s.created, &s.head, &s.used)
		all[k] = s
		return err
	}, text, args...)
	return all, err
}

// Owner replaces all that is known of an owner's sessions, in one transaction.
// Their Owner fields are not looked at.
func (r *Rebuild) Owner(ctx context.Context, owner string, sessions []Session) error {
	err := r.do(ctx, func(c *conn) error {
		now, err := states(c, getOwnerStates, owner)
		if err != nil {
			return err
		}
		if err := r.forget(c, now); err != nil {
			return err
		}
		for _, s := range sessions {
			s.Owner = owner
			if err := c.exec(restoreSession, append(s.values(), stamp(r.began))...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("rebuilding the index: %w", err)
	}
	r.owners[owner] = true
	return nil
}

// forget deletes the rows that are as they were when the rebuild began.
func (r *Rebuild) forget(c *conn, rows map[key]state) error {
	for k, now := range rows {
		if r.before[k] != now {
			continue
		}
		if err := c.exec(deleteSession, k.owner, k.id); err != nil {
			return err
		}
	}
	return nil
}

// Finish forgets the owners that were not replaced, and marks the index as
// complete. A fault.Conflict says that the file was lost or had to be begun
// again meanwhile: the rebuild has to be done again.
func (r *Rebuild) Finish(ctx context.Context) error {
	err := r.do(ctx, func(c *conn) error {
		others, err := states(c, getStates)
		if err != nil {
			return err
		}
		maps.DeleteFunc(others, func(k key, _ state) bool { return r.owners[k.owner] })
		if err := r.forget(c, others); err != nil {
			return err
		}
		return c.exec(setMeta, metaComplete, "1")
	})
	if err != nil {
		return fmt.Errorf("finishing the rebuild of the index: %w", err)
	}
	return nil
}

// do runs a transaction on the file that the rebuild began with.
func (r *Rebuild) do(ctx context.Context, f change) error {
	return r.store.do(ctx, func(c *conn) error {
		var generation string
		if err := c.one(&generation, getMeta, metaGeneration); err != nil {
			return err
		}
		if generation != r.generation {
			return errBegunAnew
		}
		return f(c)
	})
}
