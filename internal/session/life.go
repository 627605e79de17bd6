package session

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// livesFolder holds a file for each process that has sessions open, locked by it
// and by the processes that it started.
const livesFolder = "lives"

// lifePatience bounds the wait for the workers of a process that was killed:
// they end when they notice, within milliseconds as a rule.
const lifePatience = 5 * time.Second

// Life shows other processes that this one, or one that it started, may still
// write into sessions' files. A killed server's session locks are free at once,
// but its workers may live a moment longer: whoever takes a session over waits
// until the life has ended. The nil Life is that of a process that starts none,
// or of a system where locks are not inherited.
type Life struct {
	file *os.File
	path string
}

// NewLife begins one in a state folder, and removes those that have ended.
func NewLife(dir string) (*Life, error) {
	if !lives {
		return nil, nil
	}
	folder := filepath.Join(dir, livesFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "the state folder cannot be made").WithHint("check that %s can be written", dir).WithCause(err)
	}
	removeEnded(folder)
	l := &Life{path: filepath.Join(folder, rand.Text())}
	// It has its name when it is locked: else whoever begins just now removes it.
	// A worker can do nothing with it: it is open for reading, and empty.
	temp := filepath.Join(folder, blob.TempPrefix+rand.Text())
	var err error
	if l.file, err = os.OpenFile(temp, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		err = lockFileOf(l.file)
	}
	if err == nil {
		err = os.Rename(temp, l.path)
	}
	if err != nil {
		_ = os.Remove(temp)
		l.Close()
		return nil, fault.New(fault.Unavailable, "a lock in the state folder cannot be taken").WithHint("the state folder has to be on a local disk").WithCause(err)
	}
	return l, nil
}

// removeEnded removes the files of lives that have ended.
func removeEnded(folder string) {
	entries, _ := os.ReadDir(folder) // what cannot be read is left
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		info, err := e.Info()
		if err != nil || !lifeName.MatchString(e.Name()) && time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if f, err := os.Open(path); err == nil {
			if lockFileOf(f) == nil {
				_ = os.Remove(path) // or somebody else was faster
			}
			f.Close()
		}
	}
}

// File is what processes have to inherit that may write into sessions' files;
// nil: nothing.
func (l *Life) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Close ends it, when the processes that inherited it have ended.
func (l *Life) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	_ = os.Remove(l.path) // what stays is removed by the next process
	err := l.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (l *Life) name() string {
	if l == nil {
		return ""
	}
	return filepath.Base(l.path)
}

var lifeName = regexp.MustCompile(`^[A-Z2-7]+$`)

// waitForEnd waits until nothing is left of the process that had a session.
func (m *Manager) waitForEnd(r record) error {
	if !lives || r.Life == "" || r.Life == m.config.Life.name() || !lifeName.MatchString(r.Life) {
		return nil
	}
	f, err := os.Open(filepath.Join(m.config.Dir, livesFolder, r.Life))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for deadline := time.Now().Add(lifePatience); lockFileOf(f) != nil; {
		if time.Now().After(deadline) {
			return fault.New(fault.Conflict, "the session %q was another process's, which has ended, but not all that it started has", r.ID).
				WithHint("try again; if it stays so, end the processes called paddock-worker")
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
