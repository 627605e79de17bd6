package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/wire"
)

// input is a run's standard input: the server is asked for a piece when
// somebody wants to read and nothing is there. It is read by one goroutine at a
// time.
type input struct {
	conn   *wire.Conn
	id     uint32
	pieces chan []byte // from the server; an empty one ends the input

	mu    sync.Mutex // guards what follows
	open  bool       // there is more, as far as is known
	asked bool       // the server owes a piece
}

func newInput(conn *wire.Conn, id uint32) *input {
	return &input{conn: conn, id: id, pieces: make(chan []byte, 1)}
}

// begin starts a run that has input or not.
func (i *input) begin(open bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.pieces: // what the last run asked for and did not take
	default:
	}
	i.open, i.asked = open, false
}

// push is called when a piece comes from the server. A server that sends what it
// was not asked for loses it.
func (i *input) push(p []byte) {
	select {
	case i.pieces <- p:
	default:
	}
}

// read gives the next piece; an empty one is the end, or that stop was closed
// before anything came.
func (i *input) read(stop <-chan struct{}) []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.open {
		return nil
	}
	if !i.asked {
		i.asked = true
		if i.conn.Write(wire.KindWantStdin, i.id) != nil {
			i.open = false
			return nil
		}
	}
	select {
	case p := <-i.pieces:
		i.asked, i.open = false, len(p) > 0
		return p
	case <-stop:
		return nil
	}
}

// feed is a run's input as a pipe with a name, for a kernel that cannot ask for
// it: what the server has is sent ahead, one piece beyond what the pipe holds.
type feed struct {
	path string
	stop chan struct{}
	done chan struct{}
}

var feeds atomic.Int64

// newFeed makes the pipe for the user and begins to fill it from read.
func newFeed(folder string, uid, gid int, read func(stop <-chan struct{}) []byte) (*feed, error) {
	f := &feed{
		path: filepath.Join(folder, "paddock-stdin-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(feeds.Add(1), 10)),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := unix.Mkfifo(f.path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: f.path, Err: err}
	}
	if uid != 0 {
		if err := os.Lchown(f.path, uid, gid); err != nil {
			os.Remove(f.path)
			return nil, err
		}
	}
	go f.run(read)
	return f, nil
}

func (f *feed) run(read func(stop <-chan struct{}) []byte) {
	defer close(f.done)
	defer os.Remove(f.path)
	w := f.open()
	if w == nil {
		return
	}
	defer w.Close()
	go func() { // whatever waits in Write ends then
		<-f.stop
		w.Close()
	}()
	for {
		p := read(f.stop)
		if len(p) == 0 {
			return
		}
		if _, err := w.Write(p); err != nil {
			return // nobody reads it any more
		}
	}
}

// open waits until somebody has opened it to read.
func (f *feed) open() *os.File {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if w, err := os.OpenFile(f.path, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
			return w
		}
		select {
		case <-f.stop:
			return nil
		case <-time.After(wait):
		}
	}
}

// close ends it, and waits.
func (f *feed) close() {
	close(f.stop)
	<-f.done
}
