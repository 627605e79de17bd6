package journal

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Besides the file that says which calls are not to be made again, a run may have one of
// notes: what its calls are called, and whether they were answered, for a person to be
// told should the run be cut short. Notes are not waited for: they outlive the process,
// and a power cut may take them.

// The ends of the names of a run's files.
const (
	callsEnd = ".jsonl"
	notesEnd = ".notes"
)

// maxNotes bounds what is read of a run's notes, in bytes.
const maxNotes = 1 << 20

// note is one line of a run's notes.
type note struct {
	Number    int    `json:"n"`
	Name      string `json:"name,omitempty"`      // the call is about to be sent
	Execution string `json:"execution,omitempty"` // likewise: of which run
	Answered  bool   `json:"answered,omitempty"`
	Unsent    bool   `json:"unsent,omitempty"` // it did not reach anybody
}

// Note takes down that a call of this name is about to be sent, and does not wait for the
// disk.
func (j *Journal) Note(r Run, number int, name string) error {
	n := note{Number: number, Name: name, Execution: r.Execution}
	err := j.jot(r, n, os.O_CREATE)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(j.folder(r.Owner, r.Session), 0o700); err == nil {
			err = j.jot(r, n, os.O_CREATE)
		}
	}
	if err != nil {
		return fmt.Errorf("taking down that a call is made: %w", err)
	}
	return nil
}

// Answered takes down that a call which was noted has been answered, or that it was not
// sent after all. A run that is not kept any more is left alone.
func (j *Journal) Answered(r Run, number int, unsent bool) error {
	err := j.jot(r, note{Number: number, Answered: !unsent, Unsent: unsent}, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("taking down that a call was answered: %w", err)
	}
	return nil
}

// jot adds a line to a run's notes, at once or not at all.
func (j *Journal) jot(r Run, n note, flag int) (err error) {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(j.pathTo(r, notesEnd), os.O_WRONLY|os.O_APPEND|flag, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.Write(append(text, '\n'))
	return err
}

// Left is a run of which files are there.
type Left struct {
	Execution string // empty: it is not known
	Since     time.Time
	Calls     []Made // those that began and reached somebody, maybe, in their order

	name string // of its files, without their ends
}

// Made is a call that was made, or may have been.
type Made struct {
	Number   int
	Name     string // empty: it is not known
	Answered bool   // else nobody knows what came of it
}

// Left lists the runs of a session of which anything is kept, but for some executions:
// the earliest first. The caller has to know that none of them goes on.
func (j *Journal) Left(owner, session string, but ...string) ([]Left, error) {
	dir := j.folder(owner, session)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the calls of a session: %w", err)
	}
	spared := map[string]bool{}
	for _, execution := range but {
		spared[digest(execution)] = true
	}
	found := map[string]*Left{}
	for _, f := range files {
		name, isCalls := strings.CutSuffix(f.Name(), callsEnd)
		name, isNotes := strings.CutSuffix(name, notesEnd)
		info, err := f.Info()
		if spared[name] || !isCalls && !isNotes || err != nil {
			continue // it is another file, or gone
		}
		one := found[name]
		if one == nil {
			one = &Left{name: name, Since: info.ModTime()}
			found[name] = one
		}
		if info.ModTime().Before(one.Since) {
			one.Since = info.ModTime()
		}
	}
	var all []Left
	for _, one := range found {
		one.gather(dir)
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Left) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.name, b.name)) })
	return all, nil
}

// gather reads what is known of a run's calls. What cannot be read is left out.
func (l *Left) gather(dir string) {
	calls := map[int]Made{}
	eachLine(filepath.Join(dir, l.name+callsEnd), maxFile, func(text []byte) {
		var n line
		if json.Unmarshal(text, &n) != nil || n.Number < 1 {
			return
		}
		if n.Unsent {
			delete(calls, n.Number)
			return
		}
		calls[n.Number] = Made{Number: n.Number, Answered: n.Answer != nil}
	})
	eachLine(filepath.Join(dir, l.name+notesEnd), maxNotes, func(text []byte) {
		var n note
		if json.Unmarshal(text, &n) != nil || n.Number < 1 {
			return
		}
		was := calls[n.Number]
		switch {
		case n.Unsent:
			delete(calls, n.Number)
			return
		case n.Name != "":
			l.Execution = n.Execution
			was = Made{Number: n.Number, Name: n.Name} // an answer below says more than the other file: that has errors as answers
		case n.Answered:
			was.Number, was.Answered = n.Number, true
		}
		calls[n.Number] = was
	})
	l.Calls = slices.SortedFunc(maps.Values(calls), func(a, b Made) int { return cmp.Compare(a.Number, b.Number) })
}

// eachLine gives the whole lines of a file, as far as it can be read and is not larger
// than most bytes.
func eachLine(path string, most int64, f func(text []byte)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewReader(io.LimitReader(file, most))
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		f(text)
	}
}

// Drop lets go of runs that [Journal.Left] gave.
func (j *Journal) Drop(owner, session string, runs []Left) error {
	dir := j.folder(owner, session)
	j.mu.Lock()
	for r, one := range j.runs {
		if r.Owner == owner && r.Session == session && slices.ContainsFunc(runs, func(l Left) bool { return l.name == digest(r.Execution) }) {
			j.dropLocked(r, one)
		}
	}
	j.mu.Unlock()
	var errs []error
	for _, l := range runs {
		errs = append(errs, removed(filepath.Join(dir, l.name)))
	}
	_ = os.Remove(dir) // works where it is empty
	return errors.Join(errs...)
}

// removed removes a run's files; path is theirs without their ends.
func removed(path string) error {
	for _, end := range []string{callsEnd, notesEnd} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the calls of a run: %w", err)
		}
	}
	return nil
}
