package sessionstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/lock"
	"paddock/internal/workspace"
)

// Place is where the store has one owner's checkpoints and contents, also those of an
// owner without sessions, whose name is not known then.
type Place string

// PlaceOf returns an owner's.
func (s *Store) PlaceOf(owner string) Place { return s.local.placeOf(owner) }

// Places lists all places in which there is something.
func (s *Store) Places() []Place {
	var all []Place
	for _, kind := range []string{blobsFolder, checkpointsFolder} {
		entries, _ := os.ReadDir(s.local.Of(kind)) // what cannot be read is not collected
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, Place(e.Name()))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// RemoveContents removes the contents in a place that no checkpoint names: as many as it
// can without keeping others waiting for long. more reports whether another call may
// remove more.
func (s *Store) RemoveContents(ctx context.Context, p Place) (n int, bytes int64, more bool, err error) {
	contents, err := blob.Open(s.local.place(blobsFolder, p), blob.Options{Files: s.shared})
	if err != nil {
		return 0, 0, false, Unusable(err)
	}
	n, bytes, err = checkpoint.Collect(ctx, contents, s.local.place(checkpointsFolder, p), s.shared)
	return n, bytes, n > 0 && contents.Unfinished(), err
}

// RemoveOrphans removes what is in a place and belongs to no session: checkpoints, what
// was left in the making, and the markers of groups whose forks no longer name them. It
// returns the number of checkpoints.
func (s *Store) RemoveOrphans(p Place) (checkpoints int, err error) {
	markers, err := s.files.ReadDir(s.local.groups(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, Unusable(err)
	}
	names := map[string]bool{}
	for _, kind := range []string{checkpointsFolder, ownersFolder} {
		entries, err := os.ReadDir(s.local.place(kind, p))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, Unusable(err)
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	groups, unknown := map[string]bool{}, false
	for name := range names {
		if CheckID(name) != nil {
			continue
		}
		home := filepath.Join(s.local.place(ownersFolder, p), name)
		if r, there := s.recordIn(home); there {
			groups[r.Group] = true
			unknown = unknown || r.ID == ""
			continue
		}
		n, err := s.removeOrphan(home, filepath.Join(s.local.place(checkpointsFolder, p), name))
		if checkpoints += n; err != nil {
			return checkpoints, err
		}
	}
	if unknown {
		return checkpoints, nil
	}
	markers = slices.DeleteFunc(markers, func(e fs.DirEntry) bool { return groups[e.Name()] })
	return checkpoints, s.removeMarkers(s.local.groups(p), markers)
}

// removeOrphan removes a folder of checkpoints unless a process is about to make a
// session that it belongs to: that has the session's lock.
func (s *Store) removeOrphan(home, checkpoints string) (int, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, Unusable(err)
	}
	unlock, err := lock.Try(filepath.Join(home, lockFile), os.O_RDWR|os.O_CREATE)
	if err != nil || unlock == nil {
		return 0, err
	}
	if _, there := s.recordIn(home); there {
		unlock()
		return 0, nil
	}
	if err := os.Remove(filepath.Join(home, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		unlock()
		return 0, Unusable(err)
	}
	line, err := history.Open(checkpoints, s.files)
	n := 0
	if err == nil {
		n, err = line.Len(), history.RemoveAll(checkpoints, s.files)
	}
	err = errors.Join(err, workspace.RemoveLocked(home, lockFile, unlock))
	if err != nil {
		return 0, fault.New(fault.Unavailable, "the rest of a removed session cannot be removed").
			WithHint("the server's log says more").WithCause(err)
	}
	return n, nil
}
