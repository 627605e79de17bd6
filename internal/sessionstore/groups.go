package sessionstore

import (
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

// Forks that are made together exist together or not at all: their records name a group,
// and count when that is committed.

// makingSuffix ends the name of a file that is locked while a group is made: some of its
// forks may be asleep by then, and no process has a claim on these.
const makingSuffix = ".making"

// groupPath is the marker of a committed group.
func (s *Store) groupPath(owner, group string) string {
	return filepath.Join(s.local.groups(s.local.placeOf(owner)), group)
}

// BeginGroup has the sessions of a group, which does not exist yet, not be collected
// until end is called.
func (s *Store) BeginGroup(owner, group string) (end func(), err error) {
	path := s.groupPath(owner, group) + makingSuffix
	if err := blob.MakeFolder(s.files, filepath.Dir(path)); err != nil {
		return nil, err
	}
	unlock, err := lock.Acquire(path, openTimeout) // a collection looks at it for an instant
	if err != nil {
		return nil, Unusable(fmt.Errorf("locking a group of forks: %w", err))
	}
	return func() {
		_ = os.Remove(path) // what stays is removed by a collection
		_ = unlock()
	}, nil
}

// CommitGroup makes the sessions of a group exist, all at once and durably. Group "" is
// one session, which exists already.
func (s *Store) CommitGroup(owner, group string) error {
	if group == "" {
		return nil
	}
	path := s.groupPath(owner, group)
	if err := blob.MakeFolder(s.files, filepath.Dir(path)); err != nil {
		return err
	}
	if err := blob.WriteFile(s.files, path, nil); err != nil {
		_ = s.files.Remove(path) // it may have its name already: its sessions go one by one
		return err
	}
	return nil
}

// committed reports whether a record is of a session that exists.
func (s *Store) committed(r Record) bool { return s.groupExists(r.Owner, r.Group) }

func (s *Store) groupExists(owner, group string) bool {
	if group == "" {
		return true
	}
	if filepath.Base(group) != group {
		return false
	}
	_, err := s.files.Stat(s.groupPath(owner, group))
	return err == nil
}

// removeMarkers removes markers that no record names, and what an interrupted write of
// one left: the latter not while a group is being made, whose it may be.
func (s *Store) removeMarkers(dir string, markers []fs.DirEntry) error {
	inUse := func(e fs.DirEntry) bool { return lock.Held(filepath.Join(dir, e.Name())) }
	making := slices.ContainsFunc(markers, inUse)
	for _, e := range markers {
		if inUse(e) || making && strings.HasPrefix(e.Name(), blob.TempPrefix) {
			continue
		}
		if err := s.files.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Unusable(err)
		}
	}
	return nil
}
