// Package commitlog makes small files durable with one sync of the disk for all that are
// committed at that moment.
//
// A [Log] appends the files of a commit, with their contents, to a log, and syncs that once.
// So a commit costs one sync, and commits that come together share it. A deferred file
// ([blob.Write]) is then read from the log; any other gets its name without waiting for the
// disk. When the log begins another segment, what the old one holds is made and synced in the
// background; what was removed before never becomes a file. After a power cut [Open] makes the
// files from the log.
//
// What holds:
//
//   - A commit that returned nil outlasts a power cut, whole. A commit that did not return
//     is there whole, or its last file is not there.
//   - A file gets its name, or is seen through [Log.Files], only when the log holds its
//     content. So whoever sees a file, in this process or another one, may refer to it.
//   - After a failed sync nothing is written into that segment any more, and no sync of it
//     is tried again: its files are written anew, from what is known to be right.
//   - Where the log itself is lost, so are the syncs: files may be old or damaged after a
//     power cut, as their readers notice by their checksums.
//
// Each process has a log of its own, a folder below the state folder that it has locked:
//
//	log/lock               held while a process looks for logs of processes that have ended
//	log/NAME/lock          held by the process whose log that is
//	log/NAME/000001.log    a segment
//
// Two logs must not hold the same file, or it would be unclear which content is newer. So a
// process changes only files that it has a claim on (package sessionstore), it settles them
// before it gives the claim up ([Log.Settle]), and whoever gets a claim first takes over
// what ended processes left ([Log.Recover]). Contents that are named after their digest
// need none of that: they are the same in each log.
//
// Locks, in this order: the file locks, Log.writing, Log.mu.
package commitlog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/blob"
	"paddock/internal/lock"
)

const (
	logFolder = "log"
	lockFile  = "lock"
)

// lockTimeout bounds the wait for a process that recovers what another one left: a
// gigabyte of log takes seconds.
const lockTimeout = 5 * time.Minute

// Options say where a Log is.
type Options struct {
	// Dir is the state folder, an absolute path that is there. All files of the log are
	// below it.
	Dir string
	// Files is the disk; nil: the system's.
	Files blob.Files
	// Boot names the time since the disk last lost what was not synced: the run of the
	// operating system.
	Boot string
	// Log takes what an operator should see; nil: nothing.
	Log *slog.Logger
}

// Log is this process's log. It is safe for concurrent use.
type Log struct {
	root, base string // the state folder, and the folder of logs in it
	disk       blob.Files
	boot       bootID
	log        *slog.Logger

	background sync.WaitGroup
	others     others

	writing sync.Mutex // held while a group is written; guards what follows
	dir     string     // this process's folder; empty: there was no commit yet
	unlock  func() error
	number  int      // of the newest segment
	order   uint64   // of the use of a segment that began last
	current *segment // nil: there is none

	mu           sync.Mutex // guards what follows
	own          string     // Log.dir, for who does not hold Log.writing
	closed       bool
	prepared     bool
	group        *group               // what is written next
	holders      map[string]*held     // the newest content of each file that is not synced at its place
	unmade       tree[*held]          // the deferred ones of them
	forgetting   *group               // the newest one that forgets files, until that was waited for
	expected     map[uint64]time.Time // since when commits are, by numbers of theirs
	expectations uint64               // how many there were
	retirees     []*segment           // those that are to be retired, in the order of their use
	retiring     bool                 // a goroutine does it
	changed      *sync.Cond           // of retirees and retiring
	spare        *segment             // ready to be used; nil: none
	commits      int                  // since the log rested
	sparing      bool                 // a spare is being made, or could not be
	seen         int                  // commits, when shrinking was set
	shrinking    *time.Timer          // calls shrink; nil: there was no spare yet
}

// Open recovers what processes left that have ended, and gives this process's log. It
// makes nothing before the first commit.
func Open(o Options) (*Log, error) {
	if o.Files == nil {
		o.Files = blob.OS
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		root: filepath.Clean(o.Dir), base: filepath.Join(o.Dir, logFolder), disk: o.Files, boot: bootOf(o.Boot), log: o.Log,
		group: newGroup(), holders: map[string]*held{}, expected: map[uint64]time.Time{},
	}
	l.changed = sync.NewCond(&l.mu)
	return l, l.Recover()
}

// Close syncs all files, so that the log is not needed any more, and removes it. What
// cannot be synced stays in the log for the next process. Commits fail from then on. It
// works twice.
func (l *Log) Close() error {
	l.mu.Lock()
	was := l.closed
	l.closed = true
	if l.shrinking != nil {
		l.shrinking.Stop()
	}
	l.mu.Unlock()
	if was {
		return nil
	}
	for used := true; used; { // also by what began before
		l.writing.Lock()
		used = l.current != nil
		l.retireLocked()
		l.writing.Unlock()
		l.background.Wait()
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.dir == "" {
		return nil
	}
	l.mu.Lock()
	left := len(l.holders)
	for _, s := range l.retirees {
		_ = s.file.Close()
	}
	l.mu.Unlock()
	if left > 0 {
		l.log.Warn("files of the state are not synced yet; the next start does it", "files", left)
		return l.unlock()
	}
	done, err := l.lockAll()
	if err != nil {
		return errors.Join(err, l.unlock())
	}
	defer done()
	return errors.Join(l.unlock(), l.removeFolder(l.dir))
}

// lockAll keeps others from looking for logs.
func (l *Log) lockAll() (done func() error, err error) {
	if done, err = lock.Acquire(filepath.Join(l.base, lockFile), lockTimeout); err != nil {
		return nil, fmt.Errorf("locking the log: %w", err)
	}
	return done, nil
}

// Prepare makes this process's log in the background, before the first commit needs it.
func (l *Log) Prepare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.prepared {
		return
	}
	l.prepared = true
	l.background.Go(func() {
		l.writing.Lock()
		defer l.writing.Unlock()
		_, _ = l.roomLocked(0) // the first commit says why
	})
}

// ErrClosed is for what comes after Close.
var ErrClosed = errors.New("commitlog: the log is closed")

// name is a file's name in the log.
func (l *Log) name(path string) (string, error) {
	rel, err := filepath.Rel(l.root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("commitlog: %s is not in the state folder", path)
	}
	return filepath.ToSlash(rel), nil
}

// folder is this process's folder; empty: there was no commit yet.
func (l *Log) folder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

func (l *Log) path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

// beginLocked makes this process's folder. The caller holds Log.writing.
func (l *Log) beginLocked() error {
	if l.dir != "" {
		return nil
	}
	if err := blob.MakeFolder(l.disk, l.base); err != nil {
		return err
	}
	// While the folder is not locked, others would take it for an ended process's.
	done, err := l.lockAll()
	if err != nil {
		return err
	}
	defer done()
	dir := filepath.Join(l.base, rand.Text())
	if err := blob.MakeFolder(l.disk, dir); err != nil {
		return err
	}
	unlock, err := lock.Acquire(filepath.Join(dir, lockFile), lockTimeout)
	if err != nil {
		_ = l.disk.Remove(dir)
		return fmt.Errorf("locking the log: %w", err)
	}
	l.dir, l.unlock = dir, unlock
	l.mu.Lock()
	l.own = dir
	l.mu.Unlock()
	return nil
}

// removeFolder removes a log whose segments are not needed, and which is not locked. The
// caller has called lockAll.
func (l *Log) removeFolder(dir string) error {
	entries, err := l.disk.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockFile { // it is the operating system's, whatever the disk is
			err = os.Remove(filepath.Join(dir, lockFile))
		} else {
			err = l.disk.Remove(filepath.Join(dir, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.disk.Remove(dir)
}
