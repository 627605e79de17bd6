package sessionstore

import (
	"context"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/store"
)

// The index makes sessions quick to find. The folders are the truth, and are read where
// it does not know.

// Index puts what the index holds of a session.
func (s *Store) Index(row Row) { s.index.PutSession(row) }

// rebuildSoon begins a rebuild of the index where none is under way.
func (s *Store) rebuildSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.rebuilding {
		return
	}
	s.rebuilding = true
	s.jobs.Go(func() {
		s.rebuild()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rebuilding = false
	})
}

// rebuild fills the index from the folders, if it is not complete.
func (s *Store) rebuild() {
	if s.index.Complete() {
		return
	}
	if err := s.rebuildIndex(s.ctx); err != nil && s.ctx.Err() == nil {
		s.log.Warn("the index of sessions cannot be rebuilt", "cause", fault.CauseOf(err))
	}
}

func (s *Store) rebuildIndex(ctx context.Context) error {
	r, err := s.index.Rebuild(ctx)
	if err != nil {
		return err
	}
	owners, err := s.Owners()
	if err != nil {
		return err
	}
	for _, owner := range owners {
		rows, err := s.rowsOnDisk(ctx, owner)
		if err == nil {
			err = r.Owner(ctx, owner, rows)
		}
		if err != nil {
			return err
		}
	}
	return r.Finish(ctx)
}

// rowsOnDisk returns what the index should hold of an owner's sessions.
func (s *Store) rowsOnDisk(ctx context.Context, owner string) (rows []store.Session, err error) {
	ids, err := s.IDs(owner)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		k := Key{owner, id}
		record, err := s.Read(k)
		if err != nil {
			continue // it is being made or removed, or is a newer paddock's
		}
		row, err := s.describe(record)
		if err != nil {
			continue
		}
		if row.Checkpoints, row.Head, err = s.steps(k); err != nil {
			return nil, err
		}
		row.Owner, row.ID, row.Folder, row.Record = owner, id, id, record.Data
		rows = append(rows, row)
	}
	return rows, nil
}

// steps returns how many checkpoints a session can go back to, and the number of its
// newest one.
func (s *Store) steps(k Key) (count, head int64, err error) {
	line, err := history.Open(s.local.Checkpoints(k), s.shared)
	if err != nil {
		return 0, 0, err
	}
	var newest *history.Manifest
	if numbers := line.Numbers(); len(numbers) > 0 {
		head = numbers[len(numbers)-1]
		// One that cannot be read may be gone by now: the session's next row is right.
		newest, _ = line.Get(head)
	}
	return line.Steps(newest), head, nil
}
