package session

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"paddock/internal/blob"
	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/workspace"
)

// pruneTo gives up the oldest checkpoints that have no label, where there are more
// than most.
func (s *session) pruneTo(most int) {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	s.repo.Prune(most)
}

// muchLitter is how many checkpoints and sessions of an owner are removed before
// it is tidied up after them, at most every tidyEvery; fewer wait for the sweep.
const (
	muchLitter = 1000
	tidyEvery  = 30 * time.Second
)

// gcThreshold is how much of a saved machine weighs as much as a checkpoint: no more
// than a GiB of such is left until the next sweep.
const gcThreshold = 1 << 20

// noteGarbage notes that an owner has something to collect.
func (m *Manager) noteGarbage(o Owner) { m.noteGarbageBytes(o, 0) }

// noteGarbageBytes is littered with so many bytes of a saved machine.
func (m *Manager) noteGarbageBytes(o Owner, bytes int64) {
	n := 1 + int(bytes/gcThreshold)
	m.storing.Lock()
	was := m.garbage[o]
	m.garbage[o] += n
	much := was < muchLitter && was+n >= muchLitter
	m.storing.Unlock()
	if much {
		select {
		case m.wake <- struct{}{}:
		default:
		}
	}
}

// needsGC tells whether somebody has much to collect.
func (m *Manager) needsGC() bool {
	m.storing.Lock()
	defer m.storing.Unlock()
	for _, n := range m.garbage {
		if n >= muchLitter {
			return true
		}
	}
	return false
}

// gc collects what this process left of those who have something to collect;
// whole: what any process left. What does not work now is done the next time.
func (m *Manager) gc(whole bool) {
	m.storing.Lock()
	litter := m.garbage
	m.garbage = map[Owner]int{}
	m.storing.Unlock()
	folders := map[string]bool{}
	for o := range litter {
		folders[filepath.Base(m.ownerFolder(o))] = true
	}
	if whole {
		m.sweepScratch()
		m.sweepPools()
		for _, f := range m.ownerFolders() {
			folders[f] = true
		}
	}
	for f := range folders {
		_, err := m.removeOrphans(f)
		if err == nil {
			_, _, err = m.collectOwner(m.ctx, f)
		}
		if err != nil && m.ctx.Err() == nil {
			m.log.Info("what is no longer needed was not collected", "cause", fault.CauseOf(err))
		}
	}
	for o := range litter {
		m.disk.Forget(string(o))
	}
}

// Collect removes expired sessions and what no checkpoint refers to any more,
// beside running processes, which it lets in between where there is much.
func (m *Manager) Collect(ctx context.Context) (Collected, error) {
	var sum Collected
	sum.Sessions = m.sweep(time.Now(), true)
	m.sweepScratch()
	m.sweepPools()
	var errs []error
	for _, folder := range m.ownerFolders() {
		if err := context.Cause(ctx); err != nil {
			return sum, errors.Join(append(errs, err)...)
		}
		n, err := m.removeOrphans(folder)
		sum.Checkpoints += n
		if err == nil {
			var blobs int
			var bytes int64
			for more := true; more && err == nil; {
				blobs, bytes, more, err = m.collectSome(ctx, folder)
				sum.Blobs, sum.Bytes = sum.Blobs+blobs, sum.Bytes+bytes
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return sum, errors.Join(errs...)
}

// ownerFolders are the names of the owners' folders that hold blobs or
// checkpoints.
func (m *Manager) ownerFolders() []string {
	var names []string
	for _, kind := range []string{"blobs", "checkpoints"} {
		entries, _ := os.ReadDir(filepath.Join(m.config.Dir, kind)) // what cannot be read is not collected
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// collectOwner removes the blobs that no checkpoint of an owner refers to, as many as it
// can without keeping others waiting for long.
func (m *Manager) collectOwner(ctx context.Context, folder string) (n int, bytes int64, err error) {
	n, bytes, _, err = m.collectSome(ctx, folder)
	return n, bytes, err
}

// collectSome is collectOwner, and tells whether another time may remove more.
func (m *Manager) collectSome(ctx context.Context, folder string) (n int, bytes int64, more bool, err error) {
	store, err := blob.Open(filepath.Join(m.config.Dir, "blobs", folder), blob.Options{Files: m.config.Files})
	if err != nil {
		return 0, 0, false, unusable(err)
	}
	n, bytes, err = checkpoint.Collect(ctx, store, filepath.Join(m.config.Dir, "checkpoints", folder), m.config.files())
	return n, bytes, n > 0 && store.Unfinished(), err
}

// removeOrphans removes what belongs to no session of an owner: checkpoints,
// folders that were left in the making, and the markers of forks that stand for
// themselves by now. It gives the number of checkpoints.
func (m *Manager) removeOrphans(folder string) (n int, err error) {
	markers, err := m.config.files().ReadDir(m.groupsFolder(folder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, unusable(err)
	}
	names := map[string]bool{}
	for _, kind := range []string{"checkpoints", "owners"} {
		entries, err := os.ReadDir(filepath.Join(m.config.Dir, kind, folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, unusable(err)
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	groups, unknown := map[string]bool{}, false
	for name := range names {
		if ID(name).check() != nil {
			continue
		}
		home := filepath.Join(m.config.Dir, "owners", folder, name)
		if r, there := m.recordIn(home); there {
			groups[r.Group] = true
			unknown = unknown || r.ID == ""
			continue
		}
		k, err := m.removeOrphan(home, filepath.Join(m.config.Dir, "checkpoints", folder, name))
		if n += k; err != nil {
			return n, err
		}
	}
	if unknown {
		return n, nil
	}
	return n, m.removeMarkers(m.groupsFolder(folder), slices.DeleteFunc(markers, func(e fs.DirEntry) bool { return groups[e.Name()] }))
}

// recordIn reads the record in a session's folder, and tells whether the session
// is there: also where its record cannot be read.
func (m *Manager) recordIn(home string) (r record, there bool) {
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false
	}
	if err != nil || json.Unmarshal(data, &r) != nil {
		return record{}, true
	}
	if m.committed(r) {
		return r, true
	}
	making := filepath.Join(m.groupsFolder(filepath.Base(filepath.Dir(home))), filepath.Base(r.Group)+makingSuffix)
	return r, locked(making)
}

// removeOrphan removes a folder of checkpoints unless somebody is about to make
// a session that it belongs to: whoever does has the session's lock.
func (m *Manager) removeOrphan(home, checkpoints string) (int, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, unusable(err)
	}
	unlock, err := tryLock(filepath.Join(home, lockFile), os.O_RDWR|os.O_CREATE)
	if err != nil || unlock == nil {
		return 0, err
	}
	if _, there := m.recordIn(home); there {
		unlock()
		return 0, nil
	}
	if err := os.Remove(filepath.Join(home, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		unlock()
		return 0, unusable(err)
	}
	line, err := history.Open(checkpoints, m.config.files())
	n := 0
	if err == nil {
		n, err = line.Len(), history.RemoveAll(checkpoints, m.config.files())
	}
	err = errors.Join(err, workspace.RemoveLocked(home, lockFile, unlock))
	if err != nil {
		return 0, fault.New(fault.Unavailable, "the rest of a removed session cannot be removed").WithHint("the server's log says more").WithCause(err)
	}
	return n, nil
}
