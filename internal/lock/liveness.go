package lock

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"paddock/internal/fault"
)

// livesFolder holds a file for each process that works in a state folder, locked
// by it and by the processes that it started.
const livesFolder = "lives"

// Liveness shows other processes that this one, or one that it started, may still
// write into what it has locked. A killed server's locks are free at once, but
// its workers may live a moment longer: whoever takes over what it had waits
// until the life has ended. The nil Life is that of a process that starts none,
// or of a system where locks are not inherited.
type Liveness struct {
	file *os.File
	path string
}

// newPrefix begins the names of files that are not locked yet.
const newPrefix = ".new-"

// ErrFolder says why the state folder cannot be made, or cannot be used as it is another
// user's.
func ErrFolder(dir string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Unavailable, "the state folder cannot be made").WithHint("check that %s can be written", dir).WithCause(err)
	}
	whose := ""
	if owner := ownerOf(dir); owner != "" {
		whose = ", which belongs to the user " + owner
	}
	return fault.New(fault.Unavailable, "this user has no permission to write the state folder %s%s", dir, whose).
		WithHint("run paddock as its owner, or name another folder with --state-dir or PADDOCK_STATE_DIR").WithCause(err)
}

// NewLiveness begins one in a state folder, and removes those that have ended.
func NewLiveness(dir string) (*Liveness, error) {
	if !inherited {
		return nil, nil
	}
	folder := filepath.Join(dir, livesFolder)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, ErrFolder(dir, err)
	}
	removeEnded(folder)
	l := &Liveness{path: filepath.Join(folder, rand.Text())}
	// It has its name when it is locked: else whoever begins just now removes it.
	// A worker can do nothing with it: it is open for reading, and empty.
	temp := filepath.Join(folder, newPrefix+rand.Text())
	var err error
	if l.file, err = os.OpenFile(temp, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		err = lockOpen(l.file)
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
			if lockOpen(f) == nil {
				_ = os.Remove(path) // or somebody else was faster
			}
			f.Close()
		}
	}
}

// File is what processes have to inherit that may write; nil: nothing.
func (l *Liveness) File() *os.File {
	if l == nil {
		return nil
	}
	return l.file
}

// Close ends it, when the processes that inherited it have ended.
func (l *Liveness) Close() error {
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

// Name is what others give Await; the nil Life has none.
func (l *Liveness) Name() string {
	if l == nil {
		return ""
	}
	return filepath.Base(l.path)
}

// Alive reports whether a process works in a state folder. Where locks are not inherited it
// is not known, and false.
func Alive(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, livesFolder))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if lifeName.MatchString(e.Name()) && Held(filepath.Join(dir, livesFolder, e.Name())) {
			return true
		}
	}
	return false
}

var lifeName = regexp.MustCompile(`^[A-Z2-7]+$`)

// Await waits until nothing is left of a process, by the name of its life in a
// state folder, for as long as timeout: then it is an ErrHeld. A name that is
// none is nobody's.
func Await(dir, name string, timeout time.Duration) error {
	if !inherited || !lifeName.MatchString(name) {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, livesFolder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for deadline := time.Now().Add(timeout); lockOpen(f) != nil; {
		if time.Now().After(deadline) {
			return ErrHeld
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
