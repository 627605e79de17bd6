package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"paddock/internal/fault"
	"paddock/internal/pool"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// The folders of a session's folder.
const (
	workspaceFolder = "workspace"
	tmpFolder       = "tmp"
)

// fileOwner is as whom the backend's guests touch files; zeros: as us.
func fileOwner(b sandbox.Backend) (uid, gid int) {
	if o, ok := b.(interface{ FileOwner() (uid, gid int) }); ok {
		return o.FileOwner()
	}
	return 0, 0
}

// create makes the session's folder, which must not hold a session yet, and its
// first checkpoint; from nil: an empty one.
func (s *session) create(from *beginning) (err error) {
	if s.claim, err = s.manager.store.Create(s.stored()); err != nil {
		return err
	}
	if err := s.showFolder(); err != nil {
		s.releaseAll()
		return unusable(err)
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
	err = s.createMounts(ahead)
	if err == nil {
		err = s.openTrees()
	}
	if err == nil {
		err = s.checkpoints.open()
	}
	if err == nil {
		err = s.checkpoints.begin(from)
	}
	if err == nil {
		err = s.writeOpened() // from now on it exists
	}
	if err != nil {
		ahead.Discard()
		s.releaseAll()
		return unusable(err)
	}
	s.residence.adopt(ahead)
	return nil
}

// showFolder lets the guests' user open each folder on the way to its own, where the
// backend has one.
func (s *session) showFolder() error {
	mode := fs.FileMode(0o700)
	if uid, _ := fileOwner(s.backend); uid != 0 {
		mode = 0o755
	}
	return errors.Join(os.Chmod(filepath.Dir(s.dir), mode), os.Chmod(s.dir, mode))
}

// remakeFolders makes the folders of a session that exists as they were made: a power cut
// may have taken new ones, and what is in them is in the checkpoints.
func (s *session) remakeFolders() error {
	err := s.showFolder()
	for _, name := range []string{workspaceFolder, tmpFolder} {
		if _, missing := os.Lstat(filepath.Join(s.dir, name)); errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, s.makeFolder(name, nil))
		}
	}
	return err
}

// load opens the folder of a session that exists.
func (s *session) load() error {
	claim, stored, err := s.manager.store.Open(s.stored())
	if err != nil {
		return err
	}
	s.claim = claim
	r, err := decodeRecord(stored)
	if err != nil {
		s.releaseAll()
		return err
	}
	// Without its backend the session can still be read and destroyed.
	s.setBackend(s.manager.backends.named(r.Isolation))
	s.record, s.pending, s.calls, s.egress.last = r, r.News, r.Calls, r.Traffic
	s.record.Group = "" // it is there, so the others of it are
	for _, runtime := range r.Anew {
		s.interpreters.mustReseed[runtime] = true
	}
	if err = s.remakeFolders(); err == nil {
		err = errors.Join(s.createMounts(nil), s.openTrees())
	}
	if err == nil {
		err = s.checkpoints.open()
	}
	if err == nil {
		if err := s.sweep(); err != nil {
			s.manager.log.Warn("what an interrupted write left cannot be removed", "session", s.id, "cause", fault.CauseOf(err))
		}
		err = s.recoverState(r.Clean())
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
		s.suspension.notifyAbandoned(s.ended)
	}
	return nil
}

// sweep removes what the writes of a process that was killed left in the session's
// folders. It is for who opens them: nobody else writes there.
func (s *session) sweep() error {
	return errors.Join(s.tree.Sweep(), s.tmp.Sweep(), s.checkpoints.repo.Sweep())
}

// openTrees opens the session's folders of files.
func (s *session) openTrees() (err error) {
	disk := s.manager.config.DiskBytes
	options := s.treeOptions(disk)
	options.Keep = s.checkpoints.keepPaths
	if s.tree, err = workspace.Open(filepath.Join(s.dir, workspaceFolder), options); err != nil {
		return err
	}
	s.tmp, err = workspace.Open(filepath.Join(s.dir, tmpFolder), s.treeOptions(disk/4))
	return err
}

// releaseAll closes what openTrees opened, and releases the claim; nil fields are left out.
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

// unlock releases the claim; nil: there is none.
func (s *session) unlock() {
	if s.claim != nil {
		s.claim.Release()
	}
}
