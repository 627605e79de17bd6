package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/ipc"
	"paddock/internal/sandbox"
)

// What a session takes, and what works in its background, is known to the process that has the
// session open. Others of the same state folder ask its IPC server.

// The operations of a question.
const (
	opProcesses = "processes"
	opPrinted   = "printed"
	opSignal    = "signal"
	opLoad      = "load"

	opOpenTerminal   = "open terminal"
	opTerminals      = "terminals"
	opResizeTerminal = "resize terminal"
	opAttachTerminal = "attach terminal" // what follows the answer are the terminal's bytes
)

type ipcRequest struct {
	Op     string `json:"op"`
	Owner  Owner  `json:"owner"`
	ID     ID     `json:"id"`
	PID    int    `json:"pid,omitempty"`
	Signal string `json:"signal,omitempty"`

	Open     *sandbox.TerminalSpec `json:"open,omitempty"`
	Terminal uint32                `json:"terminal,omitempty"`
	Size     sandbox.TerminalSize  `json:"size,omitzero"`
	From     int64                 `json:"from,omitempty"`
}

type ipcResponse struct {
	Processes []Process `json:"processes,omitempty"`
	Printed   []Printed `json:"printed,omitempty"`
	Load      Load      `json:"load,omitzero"`

	Terminals []sandbox.Terminal `json:"terminals,omitempty"` // all, or the one that was opened
	From      int64              `json:"from,omitempty"`
}

// peers lets the processes of a state folder ask each other about the sessions that they
// have open. It is
// safe for concurrent use.
type peers struct {
	m    *Manager
	once sync.Once

	mu     sync.Mutex // guards the fields below; nothing else is locked while it is held
	closed bool
	server *ipc.Server // nil: other processes cannot ask
}

func (p *peers) folder() string { return p.m.local.Of("desks") }

// ipcName is where the process is asked that signed a record.
func ipcName(life string, pid int) string { return cmp.Or(life, strconv.Itoa(pid)) }

// open lets other processes ask about this one's sessions, once it is called.
func (p *peers) open() {
	p.once.Do(func() {
		server, err := ipc.Open(p.folder(), ipcName(p.m.config.Life.Name(), os.Getpid()), p.answer)
		if err != nil {
			p.m.log.Info("other processes cannot ask what runs in this one's sessions", "cause", err)
			return
		}
		p.mu.Lock()
		closed := p.closed
		if !closed {
			p.server = server
		}
		p.mu.Unlock()
		if closed {
			server.Close()
		}
	})
}

// close ends the answering.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	server := p.server
	p.mu.Unlock()
	if server != nil {
		server.Close()
	}
}

// answer answers for the sessions that are open here.
func (p *peers) answer(ctx context.Context, text json.RawMessage) (any, error) {
	m := p.m
	var q ipcRequest
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fault.New(fault.Invalid, "this is not a request").WithCause(err)
	}
	s := m.sessions.get(key{q.Owner, q.ID})
	var a ipcResponse
	var err error
	switch {
	case s == nil && q.Op == opSignal:
		err = errNoProcess(q.PID)
	case s == nil && q.Op != opProcesses && q.Op != opPrinted && q.Op != opLoad:
		err = errNotFound(q.ID)
	case s == nil: // it was let go of: nothing works in it
	case q.Op == opProcesses:
		a.Processes, err = m.Processes(ctx, q.Owner, q.ID)
	case q.Op == opPrinted:
		a.Printed, err = m.Printed(ctx, q.Owner, q.ID)
	case q.Op == opLoad:
		a.Load, err = m.Load(ctx, q.Owner, q.ID)
	case q.Op == opSignal:
		err = m.Signal(ctx, q.Owner, q.ID, q.PID, q.Signal)
	case q.Op == opAttachTerminal:
		return p.attachPeer(ctx, q)
	default:
		err = p.answerAboutTerminals(ctx, q, &a)
	}
	return a, err
}

func (p *peers) answerAboutTerminals(ctx context.Context, q ipcRequest, a *ipcResponse) (err error) {
	switch {
	case q.Op == opOpenTerminal && q.Open != nil:
		var one sandbox.Terminal
		one, err = p.m.OpenTerminal(ctx, q.Owner, q.ID, *q.Open)
		a.Terminals = []sandbox.Terminal{one}
	case q.Op == opTerminals:
		a.Terminals, err = p.m.Terminals(ctx, q.Owner, q.ID)
	case q.Op == opResizeTerminal:
		err = p.m.ResizeTerminal(ctx, q.Owner, q.ID, q.Terminal, q.Size)
	default:
		err = fault.New(fault.Unsupported, "this paddock cannot do that")
	}
	return err
}

// ask asks the process that has a session open. One without a server answers nothing, as
// where nothing works in its sessions.
func (p *peers) ask(ctx context.Context, r record, q ipcRequest) (a ipcResponse, err error) {
	err = ipc.Call(ctx, p.folder(), ipcName(r.Life, r.Process), q, &a)
	var f *fault.Error
	switch {
	case errors.Is(err, ipc.ErrNoServer) && q.Op == opSignal:
		return a, errNoProcess(q.PID)
	case err == nil || errors.Is(err, ipc.ErrNoServer):
		return a, nil
	case errors.As(err, &f):
		return a, err
	}
	return a, fault.New(fault.Unavailable, "the process %d, which has the session open, does not answer", r.Process).WithHint("try again").WithCause(err)
}
