// Package journal keeps on the disk which calls of tools a run has made and what came
// of them, so that a run that goes on after a crash makes none twice.
//
// Each run has a file, to which a line is added when a call begins, before it is sent,
// and when it has ended, before its answer is given to the program. What a call that
// began and did not end has done nobody knows. Beside it are notes of what calls are
// called, so that a person can be told of a run that was cut short (notes.go).
//
// Locks: Journal.mu before run.mu before run.syncing; a disk is never waited for under
// Journal.mu.
package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"paddock/internal/fault"
)

// Run names a run.
type Run struct{ Owner, Session, Execution string }

// Call is one call of a run. Two calls with one number are the same if their digests,
// which are of all that is sent and to whom, are.
type Call struct {
	Run
	Number int
	Digest string
}

// Outcome is what came of a call.
type Outcome struct {
	// Answer is what the program is told, JSON.
	Answer []byte
	// Unknown: the call began, and how it ended nobody wrote down. Begin gives it.
	Unknown bool
	// Unsent: nothing has reached the server, and the call may be made again. End takes it.
	Unsent bool
}

const (
	// maxFile bounds a run's file, in bytes: four of the largest answers.
	maxFile = 88 << 20
	// maxRuns is how many runs are kept in mind besides those that are in use; the files
	// of others are read again.
	maxRuns = 1000
	// keep is how long a run is kept that nobody has gone on with.
	keep = 30 * 24 * time.Hour
)

// Journal is a folder of such files. It may be used by several goroutines. Several
// processes may share a folder, but a run is one process's at a time.
type Journal struct {
	dir string

	mu   sync.Mutex // guards what follows
	runs map[Run]*run
}

// Open makes a journal of a folder, which is made where it is missing, and removes what
// is too old.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "the folder for the journal of calls cannot be made").WithCause(err)
	}
	j := &Journal{dir: dir, runs: map[Run]*run{}}
	j.sweep(time.Now().Add(-keep))
	return j, nil
}

// sweep removes runs that nobody has written to since then.
func (j *Journal) sweep(since time.Time) {
	folders, _ := os.ReadDir(j.dir) // what cannot be read is left
	for _, folder := range folders {
		path := filepath.Join(j.dir, folder.Name())
		files, _ := os.ReadDir(path)
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.ModTime().Before(since) {
				_ = os.Remove(filepath.Join(path, f.Name()))
			}
		}
		if info, err := folder.Info(); err == nil && info.ModTime().Before(since) {
			_ = os.Remove(path) // works where it is empty
		}
	}
}

func (j *Journal) folder(owner, session string) string {
	return filepath.Join(j.dir, digest(owner, session))
}

func (j *Journal) path(r Run) string { return j.pathTo(r, callsEnd) }

func (j *Journal) pathTo(r Run, end string) string {
	return filepath.Join(j.folder(r.Owner, r.Session), digest(r.Execution)+end)
}

// digest makes a file's name of any text.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Has tells whether calls of the run are kept.
func (j *Journal) Has(r Run) bool {
	_, err := os.Stat(j.path(r))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// Look gives what is known of a call; nil: it has not begun. An error is a fault of kind
// Conflict where its number is another call's.
func (j *Journal) Look(_ context.Context, c Call) (*Outcome, error) {
	one := j.take(c.Run)
	defer j.give(one)
	known, err := one.look(c)
	if err != nil {
		return nil, fmt.Errorf("looking what came of a call: %w", err)
	}
	return known, nil
}

// Begin writes down that a call is about to be made, and returns when that is on the
// disk. Where the call began before, it is not written again and not to be made: known
// says what came of it. An error says that it must not be made either: it is a fault
// of kind Conflict where the number was another call's.
func (j *Journal) Begin(ctx context.Context, c Call) (known *Outcome, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	one := j.take(c.Run)
	defer j.give(one)
	known, err = one.begin(c)
	if err != nil {
		return nil, fmt.Errorf("writing down that a call begins: %w", err)
	}
	return known, nil
}

// End writes down what came of a call that began, and returns when that is on the disk.
// After an error it is as if the call had not ended.
func (j *Journal) End(_ context.Context, c Call, o Outcome) error {
	one := j.take(c.Run)
	defer j.give(one)
	if err := one.end(c, o); err != nil {
		return fmt.Errorf("writing down how a call ended: %w", err)
	}
	return nil
}

// Remove lets go of a run, when it has ended.
func (j *Journal) Remove(r Run) error {
	j.mu.Lock()
	if one := j.runs[r]; one != nil {
		j.dropLocked(r, one)
	}
	j.mu.Unlock()
	dir := j.folder(r.Owner, r.Session)
	if err := removed(filepath.Join(dir, digest(r.Execution))); err != nil {
		return err
	}
	_ = os.Remove(dir) // works where it is empty
	return nil
}

// Forget lets go of all runs of a session, when it has ended.
func (j *Journal) Forget(owner, session string) error {
	j.mu.Lock()
	for r, one := range j.runs {
		if r.Owner == owner && r.Session == session {
			j.dropLocked(r, one)
		}
	}
	j.mu.Unlock()
	if err := os.RemoveAll(j.folder(owner, session)); err != nil {
		return fmt.Errorf("removing the calls of a session: %w", err)
	}
	return nil
}

// take gives a run's place, for as long as nobody gives it back: no two of them write
// one file. Where too many are kept in mind, those go that nobody has taken.
func (j *Journal) take(r Run) *run {
	j.mu.Lock()
	defer j.mu.Unlock()
	one := j.runs[r]
	if one == nil {
		for other, its := range j.runs {
			if len(j.runs) < maxRuns {
				break
			}
			j.dropLocked(other, its) // its file is read again
		}
		one = &run{path: j.path(r)}
		j.runs[r] = one
	}
	one.users++
	return one
}

// give gives it back.
func (j *Journal) give(one *run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.users--
}

// dropLocked lets go of a place that nobody has taken: whoever has finds out by itself
// that its file is gone.
func (j *Journal) dropLocked(r Run, one *run) {
	if one.users == 0 {
		delete(j.runs, r)
	}
}

// isTorn tells whether a line was not written to its end.
func isTorn(line []byte) bool { return !bytes.HasSuffix(line, []byte{'\n'}) }
