package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/lock"
)

// lockTimeout is how long the lock is tried: others hold it for milliseconds.
const lockTimeout = 2 * time.Second

// locked runs f while no other process makes, opens, closes or sets aside the
// index. Transactions do not need it. Where somebody deletes the lock's file
// meanwhile that is no longer so, and held is false.
func (s *Store) locked(f func(held func() bool) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	l, err := lock.Take(ctx, s.path+".lock", 0)
	if err != nil {
		return fmt.Errorf("locking the index: %w", err)
	}
	defer l.Close()
	return f(l.Current)
}

// connect opens the index, and makes it again where it is missing or no good.
// first is the opening of the Store: only then a newer paddock's is set aside
// (later it would be taken from that paddock again and again), and only then
// all of the file is looked at.
func (s *Store) connect(timeout time.Duration, first bool) (c *conn, err error) {
	err = s.locked(func(held func() bool) error {
		for range 3 {
			if c, err = s.connectLocked(held, timeout, first); err == nil {
				return nil
			}
			what := remedyOf(err)
			switch {
			case what == replace:
				err = errors.Join(err, s.setAsideLocked("damaged", err, nil))
			case what == retire && first:
				err = errors.Join(err, s.setAsideLocked("newer", err, nil))
			case what == forget: // which is not a verdict on what was to be written
				return fmt.Errorf("opening the index: %v", err)
			case !errors.Is(err, fs.ErrNotExist): // else it was deleted just now
				return err
			}
		}
		return err
	})
	return c, err
}

func (s *Store) connectLocked(held func() bool, timeout time.Duration, thorough bool) (*conn, error) {
	before, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeLocked(held); err != nil {
			return nil, fmt.Errorf("making the index: %w", err)
		}
		before, err = os.Lstat(s.path)
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errForeign
	}
	c, err := dial(s.path, "rw", timeout)
	if err != nil {
		return nil, errors.Join(err, s.missing())
	}
	err = c.fit(s.terms.schema, thorough)
	if err == nil {
		err = c.identify()
	}
	if err == nil && !os.SameFile(before, c.files[0]) {
		err = fs.ErrNotExist // another was put in its place
	}
	if err != nil {
		c.close()
		return nil, errors.Join(err, s.missing())
	}
	return c, nil
}

// missing tells whether the file has been deleted.
func (s *Store) missing() error {
	if _, err := os.Lstat(s.path); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeLocked makes an empty index under another name, so that there is only
// ever a whole one under its own. A log that was left of one that was deleted
// goes first: SQLite would take it for the new one's.
func (s *Store) makeLocked(held func() bool) error {
	if err := s.sweepLocked(); err != nil {
		return err
	}
	fresh := s.path + newSuffix + rand.Text()
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600) // SQLite's own files get its mode
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	c, err := dial(fresh, "rwc", s.terms.writeTimeout)
	if err == nil {
		if err = c.run(fmt.Sprintf(`PRAGMA application_id = %d; PRAGMA journal_mode = WAL`, applicationID)); err == nil {
			err = c.migrate(s.terms.schema)
		}
		c.close()
	}
	if err == nil && !held() {
		err = errors.New("the lock was deleted")
	}
	if err == nil {
		err = os.Rename(fresh, s.path)
	}
	if err != nil {
		_ = os.Remove(fresh) // the next one sweeps
	}
	return err
}

// newSuffix begins what is added to the name of an index in the making.
const newSuffix = ".new-"

// sweepLocked removes what is left of an index that is gone, and of those in
// whose making somebody was killed.
func (s *Store) sweepLocked() error {
	dir, name := filepath.Split(s.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), name)
		if !ok || rest != walSuffix && rest != shmSuffix && rest != "-journal" && !strings.HasPrefix(rest, newSuffix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// setAside keeps a file that is no good under another name, unless somebody
// else has put another one in its place: bad is which one it was.
func (s *Store) setAside(cause error, bad fs.FileInfo) error {
	return s.locked(func(func() bool) error { return s.setAsideLocked("damaged", cause, bad) })
}

func (s *Store) setAsideLocked(why string, cause error, bad fs.FileInfo) error {
	now, err := os.Lstat(s.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && bad != nil && !os.SameFile(now, bad) {
		return nil
	}
	aside := s.path + "." + why
	if err := errors.Join(os.RemoveAll(aside), os.RemoveAll(aside+walSuffix)); err != nil {
		return err
	}
	if err := os.Rename(s.path, aside); err != nil {
		return err
	}
	_ = os.Rename(s.path+walSuffix, aside+walSuffix) // what is left goes when the next index is made
	s.log.Warn("the index of sessions was set aside and is rebuilt", "reason", why, "kept", filepath.Base(aside), "cause", cause)
	return nil
}

// renew gives a connection to the file as it is now: c, or another one where
// there is none or the file is no longer the same.
func (s *Store) renew(c *conn, timeout time.Duration) (*conn, error) {
	if c != nil && c.current() {
		return c, nil
	}
	if c != nil {
		s.release(c)
		// Where only its log was deleted, who opens the file again and who has it
		// open would each write a log of their own.
		if err := s.setAside(errLogGone, c.files[0]); err != nil {
			return nil, err
		}
	}
	return s.connect(timeout, false)
}

// after gives the connection to go on with after a transaction that ended with
// err, and whether to do it again on it: then the file was no good.
func (s *Store) after(c *conn, err error) (next *conn, again bool, _ error) {
	switch {
	case err == nil, isBusy(err), errors.Is(err, ErrIncomplete), errors.Is(err, errBegunAnew):
		return c, false, err
	}
	bad := c.files[0]
	s.release(c) // whatever it was: the next one begins again
	if remedyOf(err) != replace {
		return nil, false, err
	}
	if aside := s.setAside(err, bad); aside != nil {
		return nil, false, errors.Join(err, aside)
	}
	return nil, true, err
}

// release closes a connection; nil: there is none. Without the lock another
// process's new log could be removed with the old one.
func (s *Store) release(c *conn) {
	if c == nil {
		return
	}
	closed := false
	err := s.locked(func(func() bool) error {
		c.close()
		closed = true
		return nil
	})
	if !closed {
		s.log.Warn("the index of sessions is closed without its lock", "cause", err)
		c.close()
	}
}
