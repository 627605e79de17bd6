// Package desk lets processes that share a folder ask each other what only one of
// them knows. Each may have a desk, a socket in a folder that only they can reach
// who can read the rest; whoever knows its name asks there.
package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"paddock/internal/fault"
)

// Timeout bounds a question and its answer.
const Timeout = 10 * time.Second

// maxQuestion bounds a question, and maxAnswer an answer, in bytes.
const (
	maxQuestion = 64 << 10
	maxAnswer   = 8 << 20
)

// ErrNoServer says that nobody has a desk of that name.
var ErrNoServer = errors.New("desk: nobody is there")

// Handler answers a question, in JSON; what it gives is put into JSON too, and of an
// error the fault is told. It is called from many goroutines; ctx ends with the desk.
type Handler func(ctx context.Context, question json.RawMessage) (any, error)

// Server is where this process is asked.
type Server struct {
	listener net.Listener
	path     string
	answer   Handler
	ctx      context.Context // ends with it
	stop     context.CancelFunc
	all      sync.WaitGroup
}

// reply is what is sent back.
type reply struct {
	Kind    fault.Kind      `json:"kind,omitempty"` // empty: there is an answer
	Message string          `json:"message,omitempty"`
	Hint    string          `json:"hint,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
}

const suffix = ".sock"

// Open opens the desk of a name that no other living process has, in a folder that it
// makes where it is missing. It removes the desks there of processes that have ended.
func Open(dir, name string, answer Handler) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the desks: %w", err)
	}
	sweep(dir)
	d := &Server{path: filepath.Join(dir, name+suffix), answer: answer}
	_ = os.Remove(d.path) // one that had the name and has ended left it
	err := short(d.path, func(path string) (err error) {
		d.listener, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a desk: %w", err)
	}
	d.listener.(*net.UnixListener).SetUnlinkOnClose(false) // it has the short name
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.all.Go(d.serve)
	return d, nil
}

// Close ends the answering and waits for what is being answered. It works twice.
func (s *Server) Close() {
	s.stop()
	_ = s.listener.Close() // nobody waits for it
	_ = os.Remove(s.path)  // or the next process sweeps it
	s.all.Wait()
}

// age is how old the desk is at least of a process that is taken to have ended: one
// that is just being opened does not listen yet.
const age = time.Minute

// sweep removes the desks of processes that have ended: nobody listens there. Others
// may have too much to do just now.
func sweep(dir string) {
	all, _ := filepath.Glob(filepath.Join(dir, "*"+suffix)) // the pattern is one
	for _, path := range all {
		if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		err := short(path, func(path string) error {
			conn, err := net.Dial("unix", path)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path) // or the next one does
		}
	}
}

// short gives f a name for a path that is short enough for a socket.
func short(path string, f func(path string) error) error {
	const longest = 100 // bytes, on all systems
	if len(path) <= longest {
		return f(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))) // on Linux
}

func (s *Server) serve() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case err == nil:
			s.all.Go(func() { s.reply(conn) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // no descriptor is free, say
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
				return
			}
		}
	}
}

// pause is how long nobody is let in after a question that could not be taken.
const pause = 100 * time.Millisecond

func (s *Server) reply(conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.ctx, Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // whoever asks nothing keeps nobody
	defer stop()
	var question json.RawMessage
	if json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&question) != nil {
		return
	}
	var r reply
	answer, err := s.answer(ctx, question)
	if err == nil {
		r.Answer, err = json.Marshal(answer)
	}
	if err != nil {
		f := fault.Of(err)
		r = reply{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
	}
	_ = json.NewEncoder(conn).Encode(r) // whoever does not listen does not need it
}

// Call asks at the desk of a name, until ctx ends and not longer than Timeout. The
// error is the other's, an ErrNoServer, or that it does not answer.
func Call(ctx context.Context, dir, name string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var conn net.Conn
	err := short(filepath.Join(dir, name+suffix), func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return ErrNoServer
	}
	if err != nil {
		return fmt.Errorf("asking another process: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var r reply
	err = errors.Join(json.NewEncoder(conn).Encode(question), json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&r))
	switch {
	case err != nil:
		return fmt.Errorf("asking another process: %w", err)
	case r.Kind != "":
		return fault.New(r.Kind, "%s", r.Message).WithHint("%s", r.Hint)
	}
	return json.Unmarshal(r.Answer, answer)
}
