package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"paddock/internal/fault"
	"paddock/internal/ipc"
)

// What works in the background of a session is known to the process that has the
// session open. Others of the same state folder ask at its desk.

// The operations of a question.
const (
	opProcesses = "processes"
	opPrinted   = "printed"
	opSignal    = "signal"
)

type ipcRequest struct {
	Op     string `json:"op"`
	Owner  Owner  `json:"owner"`
	ID     ID     `json:"id"`
	PID    int    `json:"pid,omitempty"`
	Signal string `json:"signal,omitempty"`
}

type ipcResponse struct {
	Processes []Process `json:"processes,omitempty"`
	Printed   []Printed `json:"printed,omitempty"`
}

func (m *Manager) ipcFolder() string { return m.local.Of("desks") }

// ipcName is where the process is asked that signed a record.
func ipcName(life string, pid int) string { return cmp.Or(life, strconv.Itoa(pid)) }

// openIPC lets other processes ask about this one's machines, from the first
// machine on.
func (m *Manager) openIPC() {
	m.deskOnce.Do(func() {
		d, err := ipc.Open(m.ipcFolder(), ipcName(m.config.Life.Name(), os.Getpid()), m.answerIPC)
		if err != nil {
			m.log.Warn("other processes cannot ask what runs in this one's sessions", "cause", err)
			return
		}
		m.mu.Lock()
		closed := m.closed
		if !closed {
			m.ipcServer = d
		}
		m.mu.Unlock()
		if closed {
			d.Close()
		}
	})
}

// closeIPC ends the answering. Manager.closed is set.
func (m *Manager) closeIPC() {
	m.mu.Lock()
	d := m.ipcServer
	m.mu.Unlock()
	if d != nil {
		d.Close()
	}
}

// answerIPC answers for the sessions that are open here.
func (m *Manager) answerIPC(ctx context.Context, text json.RawMessage) (any, error) {
	var q ipcRequest
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, fault.New(fault.Invalid, "this is not a request").WithCause(err)
	}
	m.mu.Lock()
	s := m.sessions[key{q.Owner, q.ID}]
	m.mu.Unlock()
	var a ipcResponse
	var err error
	switch {
	case s == nil && q.Op == opSignal:
		err = errNoProcess(q.PID)
	case s == nil: // it was let go of: nothing works in it
	case q.Op == opProcesses:
		a.Processes, err = m.Processes(ctx, q.Owner, q.ID)
	case q.Op == opPrinted:
		a.Printed, err = m.Printed(ctx, q.Owner, q.ID)
	case q.Op == opSignal:
		err = m.Signal(ctx, q.Owner, q.ID, q.PID, q.Signal)
	default:
		err = fault.New(fault.Unsupported, "this paddock cannot do that")
	}
	return a, err
}

// askOpener asks the process that has a session open. One that has no machine has no desk,
// and nothing works in its sessions.
func (m *Manager) askOpener(ctx context.Context, r record, q ipcRequest) (a ipcResponse, err error) {
	err = ipc.Call(ctx, m.ipcFolder(), ipcName(r.Life, r.Process), q, &a)
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
