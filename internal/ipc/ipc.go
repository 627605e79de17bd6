// Package ipc lets processes that share a state folder call each other. A process that
// knows something listens on a Unix socket, named by the process, in a folder that only
// its user can reach. A call is one JSON request and one JSON response.
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

// Timeout bounds a call.
const Timeout = 10 * time.Second

// maxRequest bounds a request, and maxResponse a response, in bytes.
const (
	maxRequest  = 64 << 10
	maxResponse = 8 << 20
)

// ErrNoServer reports that no process listens under that name.
var ErrNoServer = errors.New("ipc: no process listens under that name")

// Handler answers a request, in JSON. Its result is encoded as JSON; of an error, the
// caller gets the fault. It is called from many goroutines; ctx ends when the server closes.
type Handler func(ctx context.Context, request json.RawMessage) (any, error)

// Connection is what a Handler gives whose caller goes on speaking with it over the same
// connection ([Connect]): Answer is the response, and Serve is called after it was sent. The
// connection is closed when Serve returns, and when the server closes.
type Connection struct {
	Answer any
	Serve  func(net.Conn)
}

// Server listens for the calls of other processes.
type Server struct {
	listener net.Listener
	path     string
	answer   Handler
	ctx      context.Context // ends with Close
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

// Open listens under a name that no other living process uses, in dir, which it creates
// if needed. It removes the sockets of processes that have ended.
func Open(dir, name string, answer Handler) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the sockets: %w", err)
	}
	sweep(dir)
	d := &Server{path: filepath.Join(dir, name+suffix), answer: answer}
	_ = os.Remove(d.path) // a leftover of an ended process
	err := ShortPath(d.path, func(path string) (err error) {
		d.listener, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listening on a socket: %w", err)
	}
	d.listener.(*net.UnixListener).SetUnlinkOnClose(false) // it has the short name
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.all.Go(d.serve)
	return d, nil
}

// Close stops listening and waits for the calls that are being answered. It may be called twice.
func (s *Server) Close() {
	s.stop()
	_ = s.listener.Close() // the socket may be gone
	_ = os.Remove(s.path)  // or the next process sweeps it
	s.all.Wait()
}

// age is how old a socket must be before its process counts as ended: one
// that is just being opened does not listen yet.
const age = time.Minute

// sweep removes the sockets of processes that have ended: those that refuse a connection.
// A process that only does not answer may be busy.
func sweep(dir string) {
	all, _ := filepath.Glob(filepath.Join(dir, "*"+suffix)) // the pattern is one
	for _, path := range all {
		if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) < age {
			continue
		}
		err := ShortPath(path, func(path string) error {
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

// ShortPath calls f with a path of a Unix socket that fits into a socket's address, which
// holds some 100 bytes. Longer paths work on Linux only. The path is good until f returns.
func ShortPath(path string, f func(path string) error) error {
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

// pause is how long the server waits after a connection that it could not accept.
const pause = 100 * time.Millisecond

func (s *Server) reply(conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.ctx, Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // an idle caller must not hold the connection
	defer stop()
	var request json.RawMessage
	requests := json.NewDecoder(io.LimitReader(conn, maxRequest))
	if requests.Decode(&request) != nil {
		return
	}
	var r reply
	answer, err := s.answer(ctx, request)
	more, goesOn := answer.(Connection)
	if goesOn {
		answer = more.Answer
	}
	if err == nil {
		r.Answer, err = json.Marshal(answer)
	}
	if err != nil {
		f := fault.Of(err)
		r = reply{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
	}
	_ = json.NewEncoder(conn).Encode(r) // a caller that has left needs no response
	if goesOn {
		stop()
		defer context.AfterFunc(s.ctx, func() { conn.Close() })()
		more.Serve(conn)
	}
}

// Call sends a request to the process that listens under a name, and waits for its
// response until ctx ends and at most for Timeout. The error is the other process's,
// ErrNoServer, or that it does not answer.
func Call(ctx context.Context, dir, name string, request, answer any) error {
	conn, err := Connect(ctx, dir, name, request, answer)
	if err == nil {
		conn.Close()
	}
	return err
}

// Connect is Call for a request that is answered by a [Connection], which it gives; the
// caller closes it.
func Connect(ctx context.Context, dir, name string, request, answer any) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var conn net.Conn
	err := ShortPath(filepath.Join(dir, name+suffix), func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoServer
	}
	if err != nil {
		return nil, fmt.Errorf("asking another process: %w", err)
	}
	rest, err := ask(ctx, conn, request, answer)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &connection{conn.(*net.UnixConn), rest}, nil
}

// connection is one of which the beginning was read already.
type connection struct {
	*net.UnixConn
	rest io.Reader
}

func (c *connection) Read(p []byte) (int, error) { return c.rest.Read(p) }

// ask sends a request, reads its response, and gives what reads on from there.
func ask(ctx context.Context, conn net.Conn, request, answer any) (rest io.Reader, err error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var r reply
	first := &io.LimitedReader{R: conn, N: maxResponse}
	responses := json.NewDecoder(first)
	err = errors.Join(json.NewEncoder(conn).Encode(request), responses.Decode(&r))
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking another process: %w", err)
	case r.Kind != "":
		return nil, fault.New(r.Kind, "%s", r.Message).WithHint("%s", r.Hint)
	}
	if err := json.Unmarshal(r.Answer, answer); err != nil {
		return nil, err
	}
	// The end of the response's line was read, or comes next.
	rest = io.MultiReader(responses.Buffered(), conn)
	var end [1]byte
	if _, err := io.ReadFull(rest, end[:]); err != nil || end[0] != '\n' {
		return nil, fmt.Errorf("asking another process: %w", errors.Join(err, errNoLine))
	}
	return rest, nil
}

var errNoLine = errors.New("ipc: a response is not a line")
