package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/lock"
	"paddock/internal/pool"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// The files and folders of a session's folder. Without its record a folder is
// no session: it is being made or removed.
const (
	recordFile      = "session.json"
	lockFile        = "lock"
	workspaceFolder = "workspace"
	tmpFolder       = "tmp"
)

// lockTimeout is how long a session's lock is tried: others hold it for an
// instant when they list sessions. ephemeralLockTimeout is how long it is where its record
// says that no process has it open: who has the lock is opening, closing or removing it,
// and waits for the disk.
const lockTimeout, ephemeralLockTimeout = 200 * time.Millisecond, 5 * time.Second

func (m *Manager) ownerFolder(o Owner) string {
	name := string(Local)
	if o != Local {
		sum := sha256.Sum256([]byte(o))
		name = hex.EncodeToString(sum[:16])
	}
	return filepath.Join(m.config.Dir, "owners", name)
}

func (m *Manager) folder(k key) string { return filepath.Join(m.ownerFolder(k.owner), string(k.id)) }

// fileOwner is as whom the backend's guests touch files; zeros: as us.
func fileOwner(b sandbox.Backend) (uid, gid int) {
	if o, ok := b.(interface{ FileOwner() (uid, gid int) }); ok {
		return o.FileOwner()
	}
	return 0, 0
}

// create makes the session's folder, which must not hold a session yet, and its
// first checkpoint; from nil: an empty one.
func (s *session) create(from *beginning) error {
	uid, _ := fileOwner(s.backend)
	mode := fs.FileMode(0o700)
	if uid != 0 {
		mode = 0o755 // the guest's user opens each folder on the way to its own
	}
	for try := 0; ; try++ {
		err := errors.Join(blob.MakeFolder(s.manager.config.files(), s.dir), os.Chmod(filepath.Dir(s.dir), mode), os.Chmod(s.dir, mode))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(err)
		}
		err = s.acquire()
		if err == nil {
			break
		}
		if fault.KindOf(err) != fault.NotFound || try == 5 { // else what was left of another session was swept just now
			return err
		}
	}
	if _, err := os.Lstat(filepath.Join(s.dir, recordFile)); err == nil {
		s.releaseAll()
		return errExists(s.id)
	}
	if err := s.giveSecrets(from); err != nil {
		s.releaseAll()
		return err
	}
	var ahead *pool.Slot // booted before anybody asked
	if from.fresh() {
		ahead = s.residence.takePooled()
	}
	for _, name := range []string{workspaceFolder, tmpFolder} {
		if err := s.makeFolder(name, ahead); err != nil {
			ahead.Discard()
			s.releaseAll()
			return unusable(err)
		}
	}
	err := s.adoptOrCreateMounts(ahead)
	if err == nil {
		err = s.openTrees()
	}
	if err == nil {
		err = history.RemoveAll(s.manager.checkpointsFolder(s.key), s.manager.config.files())
	}
	if err == nil {
		err = s.openKept()
	}
	if err == nil {
		err = s.firstCheckpoint(from)
	}
	if err == nil {
		if err = s.writeOpened(); err != nil { // from now on it exists
			_ = s.manager.config.files().Remove(filepath.Join(s.dir, recordFile)) // as far as it got its name
		}
	}
	if err != nil {
		ahead.Discard()
		s.releaseAll()
		return unusable(err)
	}
	s.residence.adopt(ahead)
	return nil
}

// load opens the folder of a session that exists.
func (s *session) load() error {
	if _, err := s.manager.readRecord(s.key); err != nil {
		return err
	}
	if err := s.acquire(); err != nil {
		return err
	}
	r, err := s.manager.readRecord(s.key) // it may have been removed just now
	if err != nil {
		s.releaseAll()
		return err
	}
	// Without its backend the session can still be read and destroyed.
	s.setBackend(s.manager.backend(r.Isolation))
	s.record, s.pending, s.calls = r, r.News, r.Calls
	s.record.Group = "" // it is there, so the others of it are
	for _, runtime := range r.Anew {
		s.mustReseed[runtime] = true
	}
	if err := s.manager.waitForEnd(r); err != nil {
		s.unlock()
		return err
	}
	if err = errors.Join(s.createMounts(), s.openTrees()); err == nil {
		err = s.openKept()
	}
	if err == nil {
		if err := s.sweep(); err != nil {
			s.manager.log.Warn("what an interrupted write left cannot be removed", "session", s.id, "cause", fault.CauseOf(err))
		}
		err = s.recoverState(r.Process == 0 && r.Boot == workspace.Boot())
	}
	told := func() {}
	if err == nil {
		told = s.askInterruptedCalls()
		err = s.writeOpened()
	}
	if err != nil {
		s.releaseAll()
		return unusable(err)
	}
	told()
	if s.ended != "" {
		s.notifyAbandoned(s.ended)
	}
	return nil
}

// sweep removes what the writes of a process that was killed left in the session's
// folders. It is for who opens them: nobody else writes there.
func (s *session) sweep() error {
	errs := []error{s.tree.Sweep(), s.tmp.Sweep(), s.repo.Sweep()}
	entries, err := os.ReadDir(s.dir)
	errs = append(errs, err)
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, recordFile+".") || strings.HasPrefix(name, blob.TempPrefix) {
			errs = append(errs, os.Remove(filepath.Join(s.dir, name)))
		}
	}
	return errors.Join(errs...)
}

// openTrees opens the session's folders of files.
func (s *session) openTrees() (err error) {
	disk := s.manager.config.DiskBytes
	options := s.treeOptions(disk)
	options.Keep = s.keepPaths
	if s.tree, err = workspace.Open(filepath.Join(s.dir, workspaceFolder), options); err != nil {
		return err
	}
	s.tmp, err = workspace.Open(filepath.Join(s.dir, tmpFolder), s.treeOptions(disk/4))
	return err
}

func unusable(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Kind != fault.Internal {
		return err
	}
	return fault.New(fault.Unavailable, "the session's folder cannot be used").WithHint("the server's log says more").WithCause(err)
}

// acquire takes the session's lock.
func (s *session) acquire() error {
	path, late := filepath.Join(s.dir, lockFile), time.Now().Add(ephemeralLockTimeout)
	release, err := lock.Acquire(path, lockTimeout)
	for errors.Is(err, lock.ErrHeld) && s.opener() == 0 && time.Now().Before(late) {
		release, err = lock.Acquire(path, lockTimeout)
	}
	switch {
	case err == nil:
		s.release = release
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return errNotFound(s.id)
	case errors.Is(err, lock.ErrHeld):
		return s.errHeld()
	}
	return unusable(fmt.Errorf("locking a session: %w", err))
}

// opener is the process that has the session open, by its record; 0: none.
func (s *session) opener() int {
	if r, err := s.manager.readRecord(s.key); err == nil {
		return r.Process
	}
	return 0
}

func (s *session) errHeld() error {
	if pid := s.opener(); pid != 0 {
		return fault.New(fault.Conflict, "the session %q is open in another process (pid %d)", s.id, pid).WithHint("end that process, or create a new session")
	}
	return fault.New(fault.Conflict, "the session %q is being opened or removed by another process", s.id).WithHint("try again, or create a new session")
}

// releaseAll closes what acquire and openTrees opened; nil fields are left out.
func (s *session) releaseAll() {
	s.closeTrees()
	s.unlock()
}

func (s *session) closeTrees() {
	for _, t := range []*workspace.Tree{s.tree, s.tmp} {
		if t != nil {
			_ = t.Close() // a folder that was only looked up in
		}
	}
}

func (s *session) unlock() {
	if s.release != nil {
		if err := s.release(); err != nil {
			s.manager.log.Warn("a session's lock cannot be released", "session", s.id, "cause", err)
		}
	}
}

// idsOnDisk lists the owner's folders, sessions or not.
func (m *Manager) idsOnDisk(o Owner) ([]ID, error) {
	entries, err := os.ReadDir(m.ownerFolder(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unusable(err)
	}
	var ids []ID
	for _, e := range entries {
		if id := ID(e.Name()); e.IsDir() && id.check() == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Owners lists who has sessions in the state folder, this process's or not, in
// the order of their IDs.
func (m *Manager) Owners() ([]Owner, error) {
	folders, err := filepath.Glob(filepath.Join(m.config.Dir, "owners", "*", "*", recordFile))
	if err != nil {
		return nil, unusable(err)
	}
	var all []Owner
	for _, path := range folders {
		var r record
		data, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(data, &r) != nil || m.ownerFolder(r.Owner) != filepath.Dir(filepath.Dir(path)) {
			continue // it was removed just now, or it is nobody's
		}
		all = append(all, r.Owner)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// infoOnDisk tells about a session that this process does not have open.
func (m *Manager) infoOnDisk(k key) (Info, error) {
	r, err := m.readRecord(k)
	if err != nil {
		return Info{}, err
	}
	return m.describeOnDisk(r), nil
}

// describeOnDisk is describe for a session that this process does not have open.
func (m *Manager) describeOnDisk(r record) Info {
	k := key{r.Owner, r.ID}
	now, err := m.readRecord(k)
	if err == nil { // the index knows no processes, and is behind after a kill
		r.Process, r.Waiting = now.Process, now.Waiting
	}
	if r.Waiting != nil || err != nil || now.Process != 0 {
		r.Waiting = m.waitingOnDisk(r)
	}
	if !held(m.folder(k)) {
		r.Process = 0
	}
	i := m.describe(r)
	switch {
	case i.Waiting != nil:
		i.State = Waiting
	case r.Process == 0:
		i.State = Asleep
	}
	i.Checkpoints = int(r.checkpoints)
	return i
}

// held tells whether a live process has the session of this folder open.
func held(dir string) bool { return locked(filepath.Join(dir, lockFile)) }

// locked tells whether a live process has a file locked.
func locked(path string) bool { return lock.Held(path) }

// tryLock takes the lock of a file that nobody has; see [lock.Try].
func tryLock(path string, flag int) (unlock func(), err error) { return lock.Try(path, flag) }
