package sessionstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"paddock/internal/atomicfile"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/lock"
	"paddock/internal/workspace"
)

// Claim is a process's hold on a session: until Release or Discard no other process
// opens, changes or removes the session. It ends with the process. It is safe for
// concurrent use.
//
// A store in which a claim can be lost, because its holder did not renew it, refuses each
// Write and Remove of a lost one, whatever the holder's clock says.
type Claim interface {
	// Generation grows with each claim of a session. A later claim's is greater.
	Generation() uint64
	// Sign returns the signature of a record that says that this process has the session.
	// A reader believes it only while the claim is held.
	Sign(Signature) Signature
	// Unsign returns the signature of a record that says that no process has the session;
	// clean: its files are as they were left. A fork whose group is committed then leaves it.
	Unsign(s Signature, clean bool) Signature
	// Write replaces the session's record. durably: it is on disk when Write returns; else
	// a power cut may bring the earlier one back. After an error of a new session's first
	// Write there is no session.
	Write(record []byte, durably bool) error
	// Remove removes the session: from then on it does not exist, also after a power cut.
	// The claim is still held, so its id is not free yet.
	Remove() error
	// Discard removes what is left of a removed session, and releases the claim, also
	// after an error.
	Discard() error
	// Release gives the session up. It works twice.
	Release()
}

// lockTimeout is how long a session's lock is tried: others hold it for an instant when
// they list sessions. openTimeout is how long it is tried when the session's record says
// that no process has it open: then the one with the lock is opening, closing or removing
// it, and waits for the disk.
const lockTimeout, openTimeout = 200 * time.Millisecond, 5 * time.Second

// endTimeout bounds the wait for the workers of a process that was killed: they end when
// they notice, within milliseconds as a rule. It takes seconds where a machine's memory is
// freed while others need the processor.
const endTimeout = 20 * time.Second

var errReleased = errors.New("sessionstore: the claim was released")

// spareSuffix ends the name of the file into which a record is written.
const spareSuffix = ".spare"

// fileClaim is a claim by a locked file. The lock is the fence: it is lost only with the
// process, so a generation has to be unique only within one.
type fileClaim struct {
	store      *Store
	key        Key
	generation uint64

	mu     sync.Mutex   // guards the fields below
	unlock func() error // nil: it was released
	fresh  bool         // no record was written yet
	gone   bool         // the session was removed
}

var _ Claim = (*fileClaim)(nil)

// Held reports whether a live process has a claim on a session.
func (s *Store) Held(k Key) bool { return lock.Held(s.lockPath(k)) }

func (s *Store) lockPath(k Key) string { return filepath.Join(s.local.Session(k), lockFile) }

// Create claims a session that does not exist yet. It does so from the first Write on.
func (s *Store) Create(k Key) (Claim, error) {
	dir := s.local.Session(k)
	var c *fileClaim
	for try := 0; ; try++ {
		err := blob.MakeFolder(s.files, dir) // durably, as there will be more in it than the store's
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, Unusable(err)
		}
		if c, err = s.acquire(k); err == nil {
			break
		}
		if fault.KindOf(err) != fault.NotFound || try == 5 { // else the rest of a removed session was removed just now
			return nil, err
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, recordFile)); err == nil {
		c.Release()
		return nil, Exists(k.ID)
	}
	if err := history.RemoveAll(s.local.Checkpoints(k), s.files); err != nil {
		c.Release()
		return nil, Unusable(err)
	}
	c.fresh = true
	return c, nil
}

// Claim claims a session that exists, whether or not its record can be read.
func (s *Store) Claim(k Key) (Claim, error) {
	if _, err := s.Read(k); fault.KindOf(err) == fault.NotFound {
		return nil, err
	}
	c, err := s.acquire(k)
	if err != nil {
		return nil, err
	}
	if _, err := s.Read(k); fault.KindOf(err) == fault.NotFound { // it was removed just now
		c.Release()
		return nil, err
	}
	return c, nil
}

// Open claims a session to go on in it, and reads its record. It waits until nothing is
// left of the process that had the session before.
func (s *Store) Open(k Key) (Claim, Record, error) {
	if _, err := s.Read(k); err != nil {
		return nil, Record{}, err
	}
	c, err := s.acquire(k)
	if err != nil {
		return nil, Record{}, err
	}
	r, err := s.Read(k) // it may have been removed just now
	if err == nil {
		err = s.awaitEnd(r)
	}
	if err != nil {
		c.Release()
		return nil, Record{}, err
	}
	if err := c.sweep(); err != nil {
		s.log.Warn("what an interrupted write left cannot be removed", "session", k.ID, "cause", fault.CauseOf(err))
	}
	return c, r, nil
}

// acquire takes a session's lock.
func (s *Store) acquire(k Key) (*fileClaim, error) {
	path, late := s.lockPath(k), time.Now().Add(openTimeout)
	unlock, err := lock.Acquire(path, lockTimeout)
	for errors.Is(err, lock.ErrHeld) && s.holder(k) == 0 && time.Now().Before(late) {
		unlock, err = lock.Acquire(path, lockTimeout)
	}
	switch {
	case err == nil:
		if err := s.commits.Recover(); err != nil { // of who had the session before
			_ = unlock()
			return nil, err
		}
		s.commits.Prepare()
		return &fileClaim{store: s, key: k, generation: s.claims.Add(1), unlock: unlock}, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, NotFound(k.ID)
	case errors.Is(err, lock.ErrHeld):
		return nil, s.errHeld(k)
	}
	return nil, Unusable(fmt.Errorf("locking a session: %w", err))
}

// holder is the process that has a session open, by its record; 0: none.
func (s *Store) holder(k Key) int {
	if r, err := s.Read(k); err == nil {
		return r.Process
	}
	return 0
}

func (s *Store) errHeld(k Key) error {
	if pid := s.holder(k); pid != 0 {
		return fault.New(fault.Conflict, "the session %q is open in another process (pid %d)", k.ID, pid).
			WithHint("end that process, or create a new session")
	}
	return fault.New(fault.Conflict, "the session %q is being opened or removed by another process", k.ID).
		WithHint("try again, or create a new session")
}

// awaitEnd waits until nothing is left of the process that had a session.
func (s *Store) awaitEnd(r Record) error {
	if r.Life == s.life.Name() {
		return nil
	}
	err := lock.Await(s.local.dir, r.Life, endTimeout)
	if errors.Is(err, lock.ErrHeld) {
		return fault.New(fault.Conflict, "the session %q was another process's, which has ended, but not all that it started has", r.ID).
			WithHint("try again; if it stays so, end the processes called paddock-worker")
	}
	return err
}

func (c *fileClaim) Generation() uint64 { return c.generation }

func (c *fileClaim) Sign(s Signature) Signature {
	s.Process, s.Life, s.Boot = os.Getpid(), c.store.life.Name(), ""
	return s
}

func (c *fileClaim) Unsign(s Signature, clean bool) Signature {
	if c.store.groupExists(c.key.Owner, s.Group) {
		s.Group = "" // from now on the session exists by itself
	}
	s.Process, s.Life, s.Boot = 0, "", ""
	if clean {
		s.Boot = workspace.Boot()
	}
	return s
}

func (c *fileClaim) dir() string { return c.store.local.Session(c.key) }

func (c *fileClaim) Write(record []byte, durably bool) error {
	c.mu.Lock()
	held, fresh := c.unlock != nil, c.fresh
	c.mu.Unlock()
	if !held {
		return errReleased
	}
	path := filepath.Join(c.dir(), recordFile)
	var err error
	if durably {
		err = blob.Commit(c.store.files, []blob.Write{{Name: path, Data: record}})
	} else {
		err = atomicfile.Alternate(path, path+spareSuffix, record)
	}
	if err != nil && fresh {
		_ = c.store.files.Remove(path) // it may have its name already
	}
	if err == nil && fresh {
		c.mu.Lock()
		c.fresh = false
		c.mu.Unlock()
	}
	return err
}

// sweep removes what interrupted writes of the record left.
func (c *fileClaim) sweep() error {
	entries, err := os.ReadDir(c.dir())
	errs := []error{err}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, recordFile+".") || strings.HasPrefix(name, blob.TempPrefix) {
			errs = append(errs, os.Remove(filepath.Join(c.dir(), name)))
		}
	}
	return errors.Join(errs...)
}

func (c *fileClaim) Remove() error {
	s := c.store
	err := s.files.Remove(filepath.Join(c.dir(), recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil { // else it might come back, without what belongs to it
		err = s.files.SyncDir(c.dir())
	}
	if err != nil {
		s.index.DeleteSession(c.key.Owner, c.key.ID)
		return err
	}
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	return nil
}

func (c *fileClaim) Discard() error {
	s := c.store
	err := history.RemoveAll(s.local.Checkpoints(c.key), s.files)
	err = errors.Join(err, workspace.RemoveLocked(c.dir(), lockFile, c.Release))
	s.index.DeleteSession(c.key.Owner, c.key.ID)
	return err
}

func (c *fileClaim) Release() {
	c.mu.Lock()
	unlock := c.unlock
	c.unlock = nil
	c.mu.Unlock()
	if unlock == nil {
		return
	}
	// Another process may have the session from then on, and must not find newer files of
	// it in this one's log.
	if err := c.settle(); err != nil {
		c.store.log.Error("a session's files cannot be synced; it stays this process's until they are", "session", c.key.ID, "cause", err)
		c.store.jobs.Go(func() { c.releaseLater(unlock) })
		return
	}
	c.release(unlock)
}

// settle has the log not hold the session's files: also not the contents of its owner,
// which its checkpoints may name.
func (c *fileClaim) settle() error {
	c.mu.Lock()
	folders := []string{c.dir(), c.store.local.Checkpoints(c.key)}
	if !c.gone {
		folders = append(folders, c.store.local.contents(c.key.Owner))
	}
	c.mu.Unlock()
	return c.store.commits.Settle(folders...)
}

// releaseLater releases the session once its files can be synced. Where that is not so
// before the store is closed, it is released when the log is another process's to recover.
func (c *fileClaim) releaseLater(unlock func() error) {
	s := c.store
	_, err := backoff.Retry(s.ctx, func() (struct{}, error) { return struct{}{}, c.settle() }, backoff.WithMaxElapsedTime(0))
	if err == nil {
		c.release(unlock)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreleased = append(s.unreleased, func() { c.release(unlock) })
}

func (c *fileClaim) release(unlock func() error) {
	if err := unlock(); err != nil {
		c.store.log.Warn("a session's lock cannot be released", "session", c.key.ID, "cause", err)
	}
}
