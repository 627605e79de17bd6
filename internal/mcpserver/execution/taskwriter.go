package execution

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
)

// taskLock begins the names of processes' locks, and goes on with the process's name. One
// is held while its process lives.
const taskLock = "lock-"

// oldTemp begins the names of files that an earlier version of paddock was writing.
const oldTemp = "new-"

// writingTime is longer than it takes to write a task: a file that is still being written
// then is one that was left behind.
const writingTime = time.Hour

// taskWriter is this process as a [Writer] in a folder: others find that it lives by its
// lock there.
type taskWriter struct {
	dir, name string
	unlock    func()
}

func newTaskWriter(dir string) (*taskWriter, error) {
	w := &taskWriter{dir: dir, name: rand.Text()}
	var err error
	if w.unlock, err = lock.Try(w.lockOf(w.name), os.O_CREATE|os.O_RDWR); err != nil || w.unlock == nil {
		return nil, fault.New(fault.Unavailable, "the tasks' folder cannot be used").WithHint("check that %s can be written", dir).WithCause(err)
	}
	return w, nil
}

func (w *taskWriter) lockOf(name string) string { return filepath.Join(w.dir, taskLock+name) }

// dead reports whether a process has ended: its lock can be had. The lock's file goes.
func (w *taskWriter) dead(name string) bool {
	if name == w.name {
		return false
	}
	if !taskID.MatchString(name) {
		return true
	}
	unlock, err := lock.Try(w.lockOf(name), os.O_CREATE|os.O_RDWR)
	if err != nil || unlock == nil {
		return false
	}
	unlock()
	_ = os.Remove(w.lockOf(name)) // each name is one process's
	return true
}

// removeLeft removes a file that is not a task, if its process has ended.
func (w *taskWriter) removeLeft(e fs.DirEntry) {
	name, locks := strings.CutPrefix(e.Name(), taskLock)
	if locks && taskID.MatchString(name) {
		w.dead(name) // removes it
		return
	}
	temp := locks || strings.HasPrefix(e.Name(), blob.TempPrefix) || strings.HasPrefix(e.Name(), oldTemp)
	if info, err := e.Info(); err == nil && temp && time.Since(info.ModTime()) > writingTime {
		_ = os.Remove(filepath.Join(w.dir, e.Name())) // the next process does it too
	}
}

// close lets go of the lock.
func (w *taskWriter) close() {
	w.unlock()
	_ = os.Remove(w.lockOf(w.name)) // the next process does it too
}
