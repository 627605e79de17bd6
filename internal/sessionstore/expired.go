package sessionstore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"paddock/internal/lock"
	"paddock/internal/workspace"
)

// mostExpired bounds the sessions that Expired names by the index.
const mostExpired = 10_000

// leftTime is how old the rest of a session has to be that a search removes: it may be
// about to become one.
const leftTime = 10 * time.Minute

// Expired names the sessions that seem to have expired, by the index; search: by a search
// through all sessions, as also where the index does not know. A search also removes what
// is left of sessions whose removal was interrupted. Who destroys them has to claim them,
// and look at the record again.
func (s *Store) Expired(ctx context.Context, now time.Time, search bool) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		rows, err := s.index.Expired(now, mostExpired)
		if search || err != nil {
			s.search(ctx, now, yield)
			return
		}
		for _, r := range rows {
			if ctx.Err() != nil {
				return
			}
			k := Key{r.Owner, r.ID}
			if _, err := os.Lstat(s.local.Session(k)); errors.Is(err, fs.ErrNotExist) {
				s.index.DeleteSession(k.Owner, k.ID)
				continue
			}
			if !yield(k) {
				return
			}
		}
	}
}

func (s *Store) search(ctx context.Context, now time.Time, yield func(Key) bool) {
	locks, err := filepath.Glob(filepath.Join(s.local.dir, ownersFolder, "*", "*", lockFile))
	if err != nil {
		s.log.Error("the state folder cannot be searched", "cause", err)
	}
	for _, path := range locks {
		if ctx.Err() != nil {
			return
		}
		dir := filepath.Dir(path)
		r, there := s.recordIn(dir)
		if !there {
			s.removeLeft(dir, now)
			continue
		}
		row, err := s.describe(r)
		if r.ID == "" || err != nil || now.Before(row.ExpiresAt) {
			continue
		}
		if k := (Key{r.Owner, r.ID}); s.local.Session(k) == dir && !yield(k) {
			return
		}
	}
}

// removeLeft removes what is left of a session whose removal was interrupted.
func (s *Store) removeLeft(dir string, now time.Time) {
	info, err := os.Stat(dir)
	if err != nil || now.Sub(info.ModTime()) < leftTime {
		return // it may be in the making
	}
	unlock, err := lock.Try(filepath.Join(dir, lockFile), os.O_RDWR)
	if err != nil || unlock == nil {
		return
	}
	if _, there := s.recordIn(dir); there {
		unlock()
		return
	}
	if err := workspace.RemoveLocked(dir, lockFile, unlock); err != nil {
		s.log.Warn("the rest of a session cannot be removed", "cause", err)
	}
}

// recordIn reads the record in a session's folder, and reports whether the session
// exists: also where its record cannot be read, or its group is being made.
func (s *Store) recordIn(home string) (r Record, there bool) {
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false
	}
	if err != nil {
		return Record{}, true
	}
	if r, err = decode(data); err != nil {
		return Record{}, true
	}
	if s.committed(r) {
		return r, true
	}
	place := Place(filepath.Base(filepath.Dir(home)))
	return r, lock.Held(filepath.Join(s.local.groups(place), filepath.Base(r.Group)+makingSuffix))
}
