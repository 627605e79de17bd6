package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"paddock/internal/fault"
)

// What works in the background of a session is known to the process that has the
// session open. Others of the same state folder ask it over a socket there, which
// only they can reach who can read the sessions' files.

// remoteTime bounds an answer about processes.
const remoteTime = 10 * time.Second

// maxQuestion bounds a question, and maxAnswer an answer, in bytes.
const (
	maxQuestion = 64 << 10
	maxAnswer   = 8 << 20
)

// The operations of a question.
const (
	opProcesses = "processes"
	opPrinted   = "printed"
	opSignal    = "signal"
)

type question struct {
	Op     string `json:"op"`
	Owner  Owner  `json:"owner"`
	ID     ID     `json:"id"`
	PID    int    `json:"pid,omitempty"`
	Signal string `json:"signal,omitempty"`
}

type answer struct {
	Kind      fault.Kind `json:"kind,omitempty"` // empty: it was done
	Message   string     `json:"message,omitempty"`
	Hint      string     `json:"hint,omitempty"`
	Processes []Process  `json:"processes,omitempty"`
	Printed   []Printed  `json:"printed,omitempty"`
}

// desk answers the questions of other processes.
type desk struct {
	once     sync.Once
	listener net.Listener // nil: nobody can ask
	path     string
}

// deskPath is where a process is asked.
func (m *Manager) deskPath(pid int) string {
	return filepath.Join(m.config.Dir, "desks", strconv.Itoa(pid)+".sock")
}

// openDesk lets other processes ask about this one's machines, from the first
// machine on.
func (m *Manager) openDesk() {
	m.desk.once.Do(func() {
		if err := m.listenAtDesk(); err != nil {
			m.log.Warn("other processes cannot ask what runs in this one's sessions", "cause", err)
		}
	})
}

func (m *Manager) listenAtDesk() error {
	path := m.deskPath(os.Getpid())
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	m.sweepDesks()
	var l net.Listener
	err := short(path, func(path string) (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it has the short name
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		_ = os.Remove(path) // nobody knows of it yet
		return l.Close()
	}
	m.desk.listener, m.desk.path = l, path
	m.jobs.Go(func() { m.answerAll(l) })
	return nil
}

// closeDesk ends the answering. Manager.closed is set.
func (m *Manager) closeDesk() {
	if m.desk.listener != nil {
		_ = m.desk.listener.Close() // it was open
		_ = os.Remove(m.desk.path)  // or the next process sweeps it
	}
}

// sweepDesks removes those of processes that have ended.
func (m *Manager) sweepDesks() {
	all, _ := filepath.Glob(filepath.Join(m.config.Dir, "desks", "*.sock"))
	for _, path := range all {
		err := short(path, func(path string) error {
			conn, err := net.Dial("unix", path)
			if err == nil {
				conn.Close()
			}
			return err
		})
		if err != nil {
			_ = os.Remove(path) // nobody answers there
		}
	}
}

// short gives f a name for a path that is short enough for a socket.
func short(path string, f func(path string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)); len(path) > 100 {
		path = name // there is such a folder where there are machines
	}
	return f(path)
}

func (m *Manager) answerAll(l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		all.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(remoteTime)) // it has one
			var q question
			if json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&q) != nil {
				return
			}
			_ = json.NewEncoder(conn).Encode(m.answer(q)) // whoever does not listen does not need it
		})
	}
}

// answer answers for the sessions that are open here.
func (m *Manager) answer(q question) (a answer) {
	ctx, cancel := context.WithTimeout(m.ctx, remoteTime)
	defer cancel()
	m.mu.Lock()
	s := m.sessions[key{q.Owner, q.ID}]
	m.mu.Unlock()
	var err error
	switch {
	case s == nil:
	case q.Op == opProcesses:
		a.Processes, err = m.Processes(ctx, q.Owner, q.ID)
	case q.Op == opPrinted:
		a.Printed, err = m.Printed(ctx, q.Owner, q.ID)
	case q.Op == opSignal:
		err = m.Signal(ctx, q.Owner, q.ID, q.PID, q.Signal)
	default:
		err = fault.New(fault.Unsupported, "this paddock cannot do that")
	}
	if err != nil {
		f := fault.Of(err)
		a = answer{Kind: f.Kind, Message: f.Message, Hint: f.Hint}
	}
	return a
}

// ask asks the process that has a session open. One that has no machine does not
// answer, and nothing works in its sessions.
func (m *Manager) ask(ctx context.Context, pid int, q question) (a answer, err error) {
	var conn net.Conn
	err = short(m.deskPath(pid), func(path string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", path)
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		if q.Op == opSignal {
			err = errNoProcess(q.PID)
		} else {
			err = nil
		}
		return a, err
	}
	if err == nil {
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		err = errors.Join(json.NewEncoder(conn).Encode(q), json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&a))
	}
	if err != nil {
		return a, fault.New(fault.Unavailable, "the process %d, which has the session open, does not answer", pid).WithHint("try again").WithCause(err)
	}
	if a.Kind != "" {
		return a, fault.New(a.Kind, "%s", a.Message).WithHint("%s", a.Hint)
	}
	return a, nil
}
