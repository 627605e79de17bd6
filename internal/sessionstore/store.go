// Package sessionstore keeps sessions where all processes of a state folder find them:
// their records, who has which of them open, their index, and what is left of them to
// collect.
//
// A session exists when its record does. A process that changes or removes one has its
// [Claim], which no other process has meanwhile, and which ends with the process. The
// store reads of a record only its [Identity] and its [Signature]; all else is package
// session's.
//
// [Store] keeps all of that in a folder of this machine:
//
//	owners/OWNER/ID/session.json          the record; lock beside it is the claim
//	checkpoints/OWNER/ID/NUMBER           the manifests, the newest with a copy of the record
//	checkpoints/OWNER/.groups/GROUP       the marker of forks that exist together
//	blobs/OWNER/                          the contents
//	log/                                  what was committed and is not synced at its place yet
//	index.db                              the index, which may be removed at any time
//	format                                the version of all that
//
// No method of Store or Claim names a folder or a file: a store that several machines
// share has the same. What a session needs of this machine's folder, such as its
// workspace, [Store.Local] tells.
//
// Locks: Store.mu and Local.mu are leaves: nothing else is locked while one is held.
// Local.mu is held during disk access.
package sessionstore

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"paddock/internal/blob"
	"paddock/internal/commitlog"
	"paddock/internal/history"
	"paddock/internal/lock"
	"paddock/internal/quota"
	"paddock/internal/store"
	"paddock/internal/workspace"
)

// Key names a session: whose it is, and its id.
type Key struct{ Owner, ID string }

// Config says where a Store is. It is copied.
type Config struct {
	// Dir is the state folder, an absolute path; it is made when it is missing.
	Dir string
	// Files are the file operations of what has to last; nil: the system's.
	Files blob.Files
	// Life is this process's; nil: it starts no process that could outlive it.
	Life *lock.Liveness
	// Describe returns what the index holds of a session, by its record; the store fills in
	// Owner, ID, Folder, Record, Checkpoints and Head. It is called from any goroutine.
	Describe func(Record) (Row, error)
	// Log takes what an operator should see.
	Log *slog.Logger
}

// Row is what the index holds of a session.
type Row = store.Session

// Store is a store of sessions in a folder of this machine. It is safe for concurrent
// use, also by several processes.
type Store struct {
	local    *Local
	commits  *commitlog.Log
	files    blob.Files // the log's
	shared   blob.Files // also with what other processes have in their logs
	life     *lock.Liveness
	describe func(Record) (Row, error)
	log      *slog.Logger
	index    *store.Store
	claims   atomic.Uint64 // how many this process has had

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	jobs sync.WaitGroup

	mu         sync.Mutex // guards the fields below
	closed     bool
	rebuilding bool     // the index is
	unreleased []func() // claims whose files could not be synced
}

// Open opens the state folder, makes it when it is missing, and brings one of an older
// paddock forward. It begins to rebuild the index where that is not complete.
func Open(c Config) (*Store, error) {
	if c.Files == nil {
		c.Files = blob.OS
	}
	if err := os.MkdirAll(filepath.Join(c.Dir, ownersFolder), 0o700); err != nil {
		return nil, lock.ErrFolder(c.Dir, err)
	}
	if err := checkFormat(c.Dir, c.Files); err != nil {
		return nil, err
	}
	boot := workspace.Boot()
	if disk, ok := c.Files.(interface{ Boot() string }); ok {
		boot = disk.Boot()
	}
	log, err := commitlog.Open(commitlog.Options{Dir: c.Dir, Files: c.Files, Boot: boot, Log: c.Log})
	if err != nil {
		return nil, err
	}
	s := &Store{
		local: newLocal(c.Dir, log), commits: log, files: log.Files(), shared: log.Shared(), life: c.Life, describe: c.Describe, log: c.Log,
		index: store.Open(filepath.Join(c.Dir, indexFile), c.Log),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.rebuildSoon()
	return s, nil
}

// Close writes what is still to be written of the index, and closes it. It waits, and
// works twice. Claims are not released by it: they have to be before.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.jobs.Wait()
	err := errors.Join(s.index.Close(), s.commits.Close())
	s.mu.Lock()
	left := s.unreleased
	s.unreleased = nil
	s.mu.Unlock()
	for _, release := range left {
		release()
	}
	return err
}

// Local returns where this machine has the local parts of sessions.
func (s *Store) Local() *Local { return s.local }

// DiskConfig says how the disk use of owners is measured in this machine's folder.
func (s *Store) DiskConfig() quota.DiskConfig {
	return quota.DiskConfig{
		Index:  s.index,
		Folder: s.local.ownerFolder,
		IDs:    s.IDs,
		Bytes: func(owner, id string) (int64, error) {
			r, err := s.Read(Key{owner, id})
			if err != nil {
				return 0, err
			}
			row, err := s.describe(r)
			return row.TreeBytes, err
		},
		All: func(owner string) (map[string]int64, error) {
			all, err := s.Records(owner)
			sizes := map[string]int64{}
			for _, r := range all {
				if row, err := s.describe(r); err == nil {
					sizes[r.ID] = row.TreeBytes
				}
			}
			return sizes, err
		},
		Incomplete: s.rebuildSoon,
		Log:        s.log,
	}
}

// Owners lists who has sessions, in the order of their names.
func (s *Store) Owners() ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(s.local.dir, ownersFolder, "*", "*", recordFile))
	if err != nil {
		return nil, Unusable(err)
	}
	var all []string
	for _, path := range folders {
		var r header
		data, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(data, &r) != nil || s.local.ownerFolder(r.Owner) != filepath.Dir(filepath.Dir(path)) {
			continue // it was removed just now, or its record is not of this folder
		}
		all = append(all, r.Owner)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// IDs lists the ids of an owner's sessions, and of what may be one: it is being made or
// removed.
func (s *Store) IDs(owner string) ([]string, error) {
	entries, err := os.ReadDir(s.local.ownerFolder(owner))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Unusable(err)
	}
	var ids []string
	for _, e := range entries {
		if id := e.Name(); e.IsDir() && CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Newest reads a session's newest checkpoint, whoever has the session; nil: it has none.
func (s *Store) Newest(k Key) (*history.Manifest, error) {
	line, err := history.Open(s.local.Checkpoints(k), s.shared)
	if err != nil {
		return nil, err
	}
	numbers := line.Numbers()
	if len(numbers) == 0 {
		return nil, nil
	}
	return line.Get(numbers[len(numbers)-1])
}

// EachCheckpoint calls visit with every checkpoint of all sessions.
func (s *Store) EachCheckpoint(visit func(*history.Manifest)) error {
	for _, p := range s.Places() {
		err := history.Each(s.local.place(checkpointsFolder, p), s.shared, func(m *history.Manifest, _ bool) error {
			visit(m)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
