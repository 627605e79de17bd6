package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"paddock/internal/atomicfile"
	"paddock/internal/fault"
)

// line is one line of a run's file.
type line struct {
	Number int    `json:"n"`
	Digest string `json:"digest,omitempty"` // the call begins
	Unsent bool   `json:"unsent,omitempty"` // it did not
	Answer []byte `json:"answer,omitempty"` // it has ended
}

// run is what is known of a run's file.
type run struct {
	path  string
	users int // who has taken it; guarded by Journal.mu

	mu     sync.Mutex // guards what follows, and is held while lines are added
	size   int64      // of the lines that are known and whole
	read   bool
	calls  map[int]begun
	synced int64 // what is on the disk; guarded by mu, too

	syncing sync.Mutex // held by who brings lines to the disk, for all who wait
}

// begun is a call that began: where the line with its answer lies.
type begun struct {
	digest string
	ended  bool
	at     int64
	length int
}

func (r *run) begin(c Call) (*Outcome, error) {
	r.mu.Lock()
	known, end, err := r.beginLocked(c)
	r.mu.Unlock()
	if known != nil || err != nil {
		return known, err
	}
	return nil, r.sync(end)
}

func (r *run) look(c Call) (*Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookLocked(c)
}

func (r *run) lookLocked(c Call) (*Outcome, error) {
	if err := r.loadLocked(); err != nil {
		return nil, err
	}
	was, ok := r.calls[c.Number]
	if !ok {
		return nil, nil
	}
	if was.digest != c.Digest {
		return nil, fault.New(fault.Conflict, "call %d of the run was another one before", c.Number).
			WithHint("what waits cannot be gone on with; run the program again")
	}
	return r.outcomeLocked(was)
}

func (r *run) beginLocked(c Call) (*Outcome, int64, error) {
	known, err := r.lookLocked(c)
	if known != nil || err != nil {
		return known, 0, err
	}
	end, err := r.addLocked(line{Number: c.Number, Digest: c.Digest})
	return nil, end, err
}

func (r *run) end(c Call, o Outcome) error {
	r.mu.Lock()
	end, err := r.endLocked(c, o)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	return r.sync(end)
}

func (r *run) endLocked(c Call, o Outcome) (int64, error) {
	if err := r.loadLocked(); err != nil {
		return 0, err
	}
	if was, ok := r.calls[c.Number]; !ok || was.digest != c.Digest || was.ended {
		return 0, fault.New(fault.Conflict, "call %d of the run has not begun, or has ended", c.Number)
	}
	if o.Unsent {
		return r.addLocked(line{Number: c.Number, Unsent: true})
	}
	if len(o.Answer) == 0 {
		return 0, fault.New(fault.Invalid, "call %d of the run has no answer", c.Number)
	}
	return r.addLocked(line{Number: c.Number, Answer: o.Answer})
}

// outcomeLocked reads what came of a call.
func (r *run) outcomeLocked(was begun) (*Outcome, error) {
	if !was.ended {
		return &Outcome{Unknown: true}, nil
	}
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, was.length)
	if _, err := f.ReadAt(text, was.at); err != nil {
		return nil, err
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	return &Outcome{Answer: l.Answer}, nil
}

// loadLocked reads the file where it is not what is known. The end of a line that was
// not written whole is cut off: whoever wrote it was not told that it was.
func (r *run) loadLocked() error {
	info, err := os.Stat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.calls, r.size, r.synced, r.read = map[int]begun{}, 0, 0, true
		return nil
	case err != nil:
		return err
	case r.read && info.Size() == r.size:
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	r.calls, r.size, r.read = map[int]begun{}, 0, false
	lines := bufio.NewReader(io.LimitReader(f, maxFile))
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if isTorn(text) {
			break
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil || l.Number < 1 {
			return fault.New(fault.Internal, "the journal of the run's calls cannot be read").
				WithHint("what waits cannot be gone on with; run the program again").WithCause(err)
		}
		r.noteLocked(l, len(text))
	}
	if err := f.Truncate(r.size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil { // what is read is what there will be
		return err
	}
	r.synced, r.read = r.size, true
	return nil
}

// noteLocked takes note of a line that lies behind those that are known.
func (r *run) noteLocked(l line, length int) {
	switch {
	case l.Unsent:
		delete(r.calls, l.Number)
	case l.Answer != nil:
		was := r.calls[l.Number]
		was.ended, was.at, was.length = true, r.size, length
		r.calls[l.Number] = was
	default:
		r.calls[l.Number] = begun{digest: l.Digest}
	}
	r.size += int64(length)
}

// addLocked writes a line, and gives where it ends.
func (r *run) addLocked(l line) (end int64, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	text = append(text, '\n')
	if r.size+int64(len(text)) > maxFile {
		return 0, fault.New(fault.Exhausted, "the run's calls and their answers are too large to be kept")
	}
	fresh := r.size == 0
	if fresh {
		if err := os.MkdirAll(filepath.Dir(r.path), 0o700); err != nil {
			return 0, err
		}
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(text, r.size); err != nil {
		r.read = false // what was written of it is cut off
		return 0, fmt.Errorf("adding a line: %w", err)
	}
	r.noteLocked(l, len(text))
	if fresh {
		// The folders' own names have to last as the lines do.
		for _, dir := range []string{filepath.Dir(r.path), filepath.Dir(filepath.Dir(r.path))} {
			if err := atomicfile.SyncDir(dir); err != nil {
				return 0, fmt.Errorf("bringing a folder to the disk: %w", err)
			}
		}
	}
	return r.size, nil
}

// sync returns when the file is on the disk up to end. Who comes while somebody else
// does it waits, and finds it done for both as a rule.
func (r *run) sync(end int64) error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.mu.Lock()
	done, size := r.synced >= end, r.size
	r.mu.Unlock()
	if done {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = max(r.synced, size)
	return nil
}
