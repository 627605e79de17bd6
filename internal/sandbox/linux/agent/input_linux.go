package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/wire/serve"
)

// feed is a run's input as a pipe that can be opened by a path, for a kernel that
// cannot ask for it: what the server has is sent ahead, one piece beyond what the
// pipe holds.
type feed struct {
	path  string
	named bool     // the path is of its own making
	read  *os.File // keeps the path there
	pipe  *os.File
	stop  chan struct{}
	done  chan struct{}
}

var feeds atomic.Int64

// newFeed makes the pipe and begins to fill it from in. It ends when there is
// nothing more and the kernel has opened it. A kernel of the agent's own user
// finds it among the agent's descriptors, another user's in the folder.
func newFeed(folder string, uid, gid int, opened <-chan struct{}, in *serve.Input) (*feed, error) {
	f := &feed{stop: make(chan struct{}), done: make(chan struct{})}
	var err error
	if uid == 0 {
		err = f.unnamed()
	} else {
		err = f.name(folder, uid, gid)
	}
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	go f.run(opened, in)
	return f, nil
}

func (f *feed) unnamed() error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	f.read = os.NewFile(uintptr(fds[0]), "input")
	f.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fds[0])
	err := unix.SetNonblock(fds[1], true)
	f.pipe = os.NewFile(uintptr(fds[1]), "input")
	return err
}

func (f *feed) name(folder string, uid, gid int) error {
	f.path, f.named = filepath.Join(folder, fmt.Sprintf("paddock-stdin-%d-%d", os.Getpid(), feeds.Add(1))), true
	err := unix.Mkfifo(f.path, 0o600)
	if err == nil {
		err = os.Lchown(f.path, uid, gid)
	}
	if err == nil { // both ways: so neither side waits for the other
		f.pipe, err = os.OpenFile(f.path, os.O_RDWR, 0)
	}
	if err != nil {
		os.Remove(f.path)
	}
	return err
}

func (f *feed) run(opened <-chan struct{}, in *serve.Input) {
	defer close(f.done)
	for p, _ := in.Next(f.stop); len(p) > 0; p, _ = in.Next(f.stop) {
		if _, err := f.pipe.Write(p); err != nil {
			return
		}
	}
	select {
	case <-opened:
		f.closePipe() // the end of the input
	case <-f.stop:
	}
}

func (f *feed) closePipe() {
	f.pipe.Close()
	if f.read != nil {
		f.read.Close()
	}
}

// close ends it, and waits.
func (f *feed) close() {
	close(f.stop)
	f.pipe.Close() // what waits in Write ends then
	<-f.done
	f.closePipe()
	if f.named {
		os.Remove(f.path)
	}
}
