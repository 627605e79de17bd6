package session

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/ipc"
	"paddock/internal/sandbox"
)

// Terminals are for people and services that look into a session's machine: programs at a
// terminal of their own, beside what the session's calls run. Nothing of a terminal is in a
// result. Where another process of the state folder has the session open, that one is asked.

// OpenTerminal starts a program at a new terminal of the session's machine, which is booted
// or woken where it does not run. It waits for a program that runs only where the machine
// would have to be booted. A session whose isolation has no machines is a fault.Unsupported.
func (m *Manager) OpenTerminal(ctx context.Context, owner Owner, id ID, spec sandbox.TerminalSpec) (opened sandbox.Terminal, err error) {
	err = m.withTerminals(ctx, owner, id, ipcRequest{Op: opOpenTerminal, Open: &spec}, func(s *session) error {
		host, err := s.terminals(ctx, true)
		if err == nil {
			opened, err = guard("opening a terminal", func() (sandbox.Terminal, error) { return host.OpenTerminal(ctx, spec) })
		}
		s.residence.afterRun() // it is not in what was saved
		m.recordAction(ctx, OpeningTerminal, s, err)
		return err
	}, func(a ipcResponse) error {
		if len(a.Terminals) != 1 {
			return errNoTerminal(0)
		}
		opened = a.Terminals[0]
		return nil
	})
	return opened, err
}

// Terminals lists those of the session's machine, the oldest first. It wakes one that was
// saved; where none was, and none runs, there are none.
func (m *Manager) Terminals(ctx context.Context, owner Owner, id ID) (all []sandbox.Terminal, err error) {
	err = m.withTerminals(ctx, owner, id, ipcRequest{Op: opTerminals}, func(s *session) error {
		host, err := s.terminals(ctx, false)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err == nil {
			all, err = guard("listing terminals", func() ([]sandbox.Terminal, error) { return host.Terminals(ctx) })
		}
		return err
	}, func(a ipcResponse) error {
		all = a.Terminals
		return nil
	})
	return all, err
}

// ResizeTerminal changes a terminal's size; see [sandbox.TerminalHost].
func (m *Manager) ResizeTerminal(ctx context.Context, owner Owner, id ID, number uint32, size sandbox.TerminalSize) error {
	return m.withTerminals(ctx, owner, id, ipcRequest{Op: opResizeTerminal, Terminal: number, Size: size}, func(s *session) error {
		host, err := s.terminals(ctx, false)
		if err == nil {
			_, err = guard("resizing", func() (struct{}, error) { return struct{}{}, host.ResizeTerminal(ctx, number, size) })
		}
		return err
	}, func(ipcResponse) error { return nil })
}

// AttachTerminal connects to a terminal; see [sandbox.TerminalHost]. Until the connection is
// closed the session does not fall asleep by itself.
func (m *Manager) AttachTerminal(ctx context.Context, owner Owner, id ID, number uint32, from int64) (sandbox.TerminalStream, error) {
	s, done, err := m.use(owner, id)
	if fault.KindOf(err) == fault.Conflict {
		return m.attachElsewhere(ctx, key{owner, id}, number, from, err)
	}
	if err != nil {
		return nil, err
	}
	host, err := s.terminals(ctx, false)
	var conn sandbox.TerminalStream
	if err == nil {
		conn, err = guard("attaching", func() (sandbox.TerminalStream, error) { return host.AttachTerminal(ctx, number, from) })
	}
	if err != nil {
		done()
		return nil, err
	}
	return &attachedTerminal{TerminalStream: conn, done: sync.OnceFunc(func() {
		s.residence.afterRun()
		done()
	})}, nil
}

// attachedTerminal is one for whose time a session does not fall asleep.
type attachedTerminal struct {
	sandbox.TerminalStream
	done func()
}

// Close works twice.
func (a *attachedTerminal) Close() error {
	defer a.done()
	return a.TerminalStream.Close()
}

func errNoTerminal(number uint32) error {
	return fault.New(fault.NotFound, "there is no terminal %d in the session", number).WithHint("list the terminals again")
}

// withTerminals does something about terminals: here, or in the process that has the
// session open.
func (m *Manager) withTerminals(ctx context.Context, owner Owner, id ID, q ipcRequest, here func(*session) error, there func(ipcResponse) error) error {
	s, done, err := m.use(owner, id)
	switch {
	case fault.KindOf(err) == fault.Conflict:
		a, err := m.askElsewhere(ctx, key{owner, id}, q, err)
		if err == nil {
			err = there(a)
		}
		return err
	case err != nil:
		return err
	}
	defer done()
	return here(s)
}

// askElsewhere asks the process that has a session open; held is why this one has not.
func (m *Manager) askElsewhere(ctx context.Context, k key, q ipcRequest, held error) (a ipcResponse, err error) {
	r, err := m.records.read(k)
	if err != nil {
		return a, err
	}
	q.Owner, q.ID = k.owner, k.id
	err = ipc.Call(ctx, m.peers.folder(), ipcName(r.Life, r.Process), q, &a)
	return a, m.peers.explain(err, r, held)
}

// attachElsewhere is AttachTerminal in the process that has the session open.
func (m *Manager) attachElsewhere(ctx context.Context, k key, number uint32, from int64, held error) (sandbox.TerminalStream, error) {
	r, err := m.records.read(k)
	if err != nil {
		return nil, err
	}
	q := ipcRequest{Op: opAttachTerminal, Owner: k.owner, ID: k.id, Terminal: number, From: from}
	var a ipcResponse
	conn, err := ipc.Connect(ctx, m.peers.folder(), ipcName(r.Life, r.Process), q, &a)
	if err = m.peers.explain(err, r, held); err != nil {
		return nil, err
	}
	return &remoteTerminal{Conn: conn, from: a.From}, nil
}

// explain says why another process did not answer; held is why it was asked.
func (p *peers) explain(err error, r record, held error) error {
	var f *fault.Error
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case errors.Is(err, ipc.ErrNoServer):
		return held
	}
	return fault.New(fault.Unavailable, "the process %d, which has the session open, does not answer", r.Process).WithHint("try again").WithCause(err)
}

// remoteTerminal is a terminal of a session that another process has open.
type remoteTerminal struct {
	net.Conn
	from int64
}

func (r *remoteTerminal) From() int64 { return r.from }

// CloseWrite ends the typing.
func (r *remoteTerminal) CloseWrite() error {
	if c, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// attachPeer answers another process that attaches to a terminal.
func (p *peers) attachPeer(ctx context.Context, q ipcRequest) (any, error) {
	stream, err := p.m.AttachTerminal(ctx, q.Owner, q.ID, q.Terminal, q.From)
	if err != nil {
		return nil, err
	}
	return ipc.Connection{Answer: ipcResponse{From: stream.From()}, Serve: func(conn net.Conn) { join(conn, stream) }}, nil
}

// join carries bytes between another process and a terminal until one of the two has ended
// the connection. It closes both.
func join(conn net.Conn, stream sandbox.TerminalStream) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(stream, conn) // whoever has left types no more
		stream.Close()
	})
	_, _ = io.Copy(conn, stream) // the same ends here
	conn.Close()
	both.Wait()
}

// terminals gives what has the terminals of the session's machine; see residence.
func (s *session) terminals(ctx context.Context, boot bool) (sandbox.TerminalHost, error) {
	if s.backend == nil {
		return nil, s.backendErr
	}
	if err := s.checkNotHalted(); err != nil {
		return nil, err
	}
	return s.residence.terminals(ctx, boot)
}

// terminals asks the interpreter for commands where it lives, else any other.
func (r *machineResidence) terminals(ctx context.Context, boot bool) (sandbox.TerminalHost, error) {
	s := r.s
	if host := s.interpreters.terminalHost(sandbox.CommandRuntime); host != nil {
		return host, nil
	}
	other := s.interpreters.terminalHost("")
	if other != nil && !boot {
		return other, nil
	}
	t := s.turns.try(ctx)
	if t == nil && other != nil {
		return other, nil // a program runs, and a terminal need not wait for it
	}
	if t == nil {
		var err error
		if t, err = s.turns.take(ctx, "", nil); err != nil {
			return nil, err
		}
	}
	defer s.turns.leave(t)
	if err := r.bootForTerminal(t, boot); err != nil {
		return nil, err
	}
	if host := s.interpreters.terminalHost(sandbox.CommandRuntime); host != nil {
		return host, nil
	}
	return nil, fault.New(fault.Unsupported, "the isolation %q has no terminals", r.backend.Name())
}

// bootForTerminal has the machine be up; where nothing was saved of it, only if boot says so.
func (r *machineResidence) bootForTerminal(t *turn, boot bool) error {
	s := r.s
	if err := s.checkNotHalted(); err != nil {
		return err
	}
	if err := s.reconcile(t.ctx); err != nil {
		return err
	}
	if s.interpreters.count() == 0 {
		switch {
		case r.savedState() == nil && !boot:
			return errNoTerminal(0)
		case r.waitsAsleep():
			return errWaitsAsleep(s.id)
		}
	}
	return r.boot(t)
}

func (w *wasmResidence) terminals(context.Context, bool) (sandbox.TerminalHost, error) {
	return nil, fault.New(fault.Unsupported, "programs in the isolation %q have no terminal", w.backend.Name()).
		WithHint("create a session with isolation linux")
}

// terminalHost gives a runtime's interpreter that lives, or any where runtime is "", that
// can have terminals; nil: there is none.
func (i *instances) terminalHost(runtime string) sandbox.TerminalHost {
	for name, in := range i.list() {
		if host, ok := in.(sandbox.TerminalHost); ok && (runtime == "" || name == runtime) && !hasEnded(in) {
			return host
		}
	}
	return nil
}
