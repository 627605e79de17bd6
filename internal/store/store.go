// Package store keeps the index of sessions: a SQLite file in the state folder
// that several processes share.
//
// The truth is in the folders, in sessions' records and checkpoints'
// manifests; the index only makes it quick to find. So it is never in the way.
// Putting and deleting return at once and cannot fail: a goroutine writes, and
// what cannot be written is tried again until it can, or until there is so
// much of it that the index is better rebuilt. Reading gives the truth's
// shadow, or an error ([ErrIncomplete], [ErrUnavailable]) that means: look into
// the folders. The Store itself logs why.
//
// The file may be deleted at any moment, with its -wal and -shm or without, be
// damaged, or come from a newer paddock: it is noticed at the next use, and
// another is made, which is not complete until somebody has rebuilt it (see
// [Store.Rebuild]).
//
// What the index does not know, a reader has to expect. After a kill the rows
// of the last instant may be missing, after a loss of power those of the last
// seconds: a row may then be of a session that is gone, show an older state of
// it, or not be there at all. [Totals.NameSum] beside the names in the folders
// shows cheaply whether a session is missing or too many. A row that is older
// than the truth heals with the session's next put; who destroys what
// [Store.Expired] gives asks the truth first.
//
// SQLite's locks and its log's index need a local file system.
//
// Locks: Store.reading, then Store.mu; the file's lock (Store.locked) is taken
// under the first or none.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/fault"
)

// ErrUnavailable says that the index cannot be used now.
var ErrUnavailable error = fault.New(fault.Unavailable, "the index of sessions cannot be used now").WithHint("the server's log says more")

// ErrIncomplete says that the index does not hold everything yet.
var ErrIncomplete error = fault.New(fault.Unavailable, "the index of sessions is not complete yet").WithHint("it is being rebuilt; try again later")

// Store is an open index. It is safe for concurrent use, by several Stores of
// the same file too, in one process or in many.
type Store struct {
	path  string
	log   *slog.Logger
	terms options

	stop   context.CancelFunc // ends the writer
	ctx    context.Context
	opened chan struct{} // closed when the file has been opened, or that was tried
	wake   chan struct{} // holds a token when there is something to write
	writer sync.WaitGroup

	reading sync.Mutex // guards what follows
	reader  *conn      // nil: there is none
	rested  time.Time  // the reader connects again from then on

	mu       sync.Mutex // guards what follows
	closed   bool
	retired  bool // a newer paddock has changed the file: it is no longer used
	troubled bool // the last use failed, and that is logged
	queue    queue
}

// Open begins to open the index at path, and to make it when it is missing; log
// may be nil. It always gives a Store, at once: one whose file cannot be used
// reads nothing and tries again. A file that is damaged, newer, or no index is kept under
// another name (".damaged", ".newer").
func Open(path string, log *slog.Logger) *Store { return open(path, log, usual) }

// options are what a Store goes by, other ones in tests.
type options struct {
	schema []migration
	// How long other processes' transactions are waited for by the writer, whom
	// nobody waits for, and by who reads.
	writeTimeout, readTimeout time.Duration
	// How long the writer rests when it could not write because of another
	// process's transaction, and because of anything else: a full disk, a folder
	// that cannot be written; and reading when the file cannot be read.
	busyRest, otherRest, readRest time.Duration
}

var usual = options{migrations, 2 * time.Second, 250 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second, time.Second}

func open(path string, log *slog.Logger, terms options) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	s := &Store{path: path, log: log, terms: terms, opened: make(chan struct{}), wake: make(chan struct{}, 1), queue: newQueue()}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.writer.Go(s.run)
	return s
}

// Close writes what is still to be written, as far as that can be done within
// seconds, and closes the index. It works twice; a closed Store takes nothing
// and reads nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.writer.Wait()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.release(s.reader)
	s.reader = nil
	return nil
}

// PutSession adds a session or replaces what is known of it, unless that is
// newer: of the same session (by CreatedAt) a greater Head is newer, and with
// the same Head a later LastUsedAt.
func (s *Store) PutSession(r Session) {
	r.Record = bytes.Clone(r.Record)
	s.put(key{r.Owner, r.ID}, func(c *conn) error { return c.exec(putSession, r.values()...) })
}

// DeleteSession forgets a session.
func (s *Store) DeleteSession(owner, id string) {
	now := time.Now()
	s.end(key{owner, id}, func(c *conn) error {
		// A rebuild that read the session before must not bring it back; none
		// takes a day.
		return errors.Join(
			c.exec(putGone, owner, id, stamp(now)), c.exec(deleteGone, stamp(now.Add(-24*time.Hour))),
			c.exec(deleteSession, owner, id))
	})
}

// trouble logs why the index cannot be used, once until it can be again.
func (s *Store) trouble(err error) {
	s.mu.Lock()
	first := !s.troubled
	s.troubled = true
	s.mu.Unlock()
	if first {
		s.log.Warn("the index of sessions cannot be used; paddock goes on without it", "path", s.path, "cause", err)
	}
}

func (s *Store) fine() {
	s.mu.Lock()
	was := s.troubled
	s.troubled = false
	s.mu.Unlock()
	if was {
		s.log.Info("the index of sessions can be used again")
	}
}

// retire stops the use of a file whose schema a newer paddock has changed.
func (s *Store) retire() {
	s.mu.Lock()
	first := !s.retired
	s.retired = true
	s.queue.drop()
	s.mu.Unlock()
	if first {
		s.log.Warn("a newer paddock has changed the index of sessions; this one goes on without it")
	}
}

func unavailable(doing string) error { return fmt.Errorf("%s: %w", doing, ErrUnavailable) }
