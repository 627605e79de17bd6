package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/blob"
	"paddock/internal/lock"
)

// Forks that are made together are there together or not at all: their records name a
// group, and count when that has its marker.

// leaveGroup has a fork whose group is there stand for itself, as far as the disk
// takes that now.
func (s *session) leaveGroup() {
	t := s.turns.try(context.Background())
	if t == nil {
		return // it is asleep or in use, and does so later
	}
	defer s.turns.leave(t)
	s.mu.Lock()
	s.record.Group = ""
	s.mu.Unlock()
	// Durably: the marker goes when no record names it.
	if err := s.write(true); err != nil {
		s.manager.log.Warn("a session's record cannot be written", "session", s.id, "cause", err)
	}
}

// groupPath is the marker of the forks of a group, which are there when it is.
func (m *Manager) groupPath(o Owner, group string) string {
	return filepath.Join(m.groupsFolder(filepath.Base(m.ownerFolder(o))), group)
}

func (m *Manager) groupsFolder(folder string) string {
	return filepath.Join(m.config.Dir, "checkpoints", folder, ".groups")
}

// makingSuffix ends the name of a file that is locked while a group is made: some
// of its forks may be asleep by then, and nobody has theirs.
const makingSuffix = ".making"

func (m *Manager) making(o Owner, group string) (done func(), err error) {
	path := m.groupPath(o, group) + makingSuffix
	if err := blob.MakeFolder(m.config.files(), filepath.Dir(path)); err != nil {
		return nil, err
	}
	unlock, err := lock.Acquire(path, ephemeralLockTimeout) // who tidies up looks at it for an instant
	if err != nil {
		return nil, unusable(fmt.Errorf("locking a group of forks: %w", err))
	}
	return func() {
		_ = os.Remove(path) // what stays is removed when somebody tidies up
		_ = unlock()
	}, nil
}

// commit makes the forks of a group be there, all at once. Group "" is one
// session, which is there already.
func (m *Manager) commit(o Owner, group string) error {
	if group == "" {
		return nil
	}
	path, files := m.groupPath(o, group), m.config.files()
	if err := blob.MakeFolder(files, filepath.Dir(path)); err != nil {
		return err
	}
	if err := blob.WriteFile(files, path, nil); err != nil {
		_ = files.Remove(path) // as far as it got its name: they go one by one
		return err
	}
	return nil
}

// committed tells whether a record is of a session that is there.
func (m *Manager) committed(r record) bool {
	if r.Group == "" {
		return true
	}
	if filepath.Base(r.Group) != r.Group {
		return false
	}
	_, err := m.config.files().Stat(m.groupPath(r.Owner, r.Group))
	return err == nil
}

// removeMarkers removes markers that no record names, and what an interrupted
// writing of one left: not while there is a group in the making, for it may be
// its.
func (m *Manager) removeMarkers(dir string, markers []fs.DirEntry) error {
	inUse := func(e fs.DirEntry) bool { return locked(filepath.Join(dir, e.Name())) }
	making := slices.ContainsFunc(markers, inUse)
	for _, e := range markers {
		if inUse(e) || making && strings.HasPrefix(e.Name(), blob.TempPrefix) {
			continue
		}
		if err := m.config.files().Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unusable(err)
		}
	}
	return nil
}
