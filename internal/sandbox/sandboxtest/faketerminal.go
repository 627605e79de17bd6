package sandboxtest

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

var _ sandbox.TerminalHost = (*fakeTenant)(nil)

// fakeTerminals are those of a machine. Their program prints what is typed, and ends with
// the code N at a line "exit N".
type fakeTerminals struct {
	mu     sync.Mutex // guards what follows
	change sync.Cond
	all    []*fakeTerminal
}

type fakeTerminal struct {
	sandbox.Terminal
	in      *fakeTenant
	printed []byte
	line    string
}

// findLocked gives one; the caller holds mu.
func (t *fakeTerminals) findLocked(id uint32) (*fakeTerminal, error) {
	if at := slices.IndexFunc(t.all, func(one *fakeTerminal) bool { return one.ID == id }); at >= 0 {
		return t.all[at], nil
	}
	return nil, fault.New(fault.NotFound, "there is no terminal %d", id)
}

// endOf ends the programs that an interpreter started.
func (t *fakeTerminals) endOf(in *fakeTenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change.L = &t.mu
	for _, one := range t.all {
		if one.in == in && !one.Ended {
			one.Ended, one.ExitCode = true, 137
		}
	}
	t.change.Broadcast()
}

// OpenTerminal starts the program.
func (in *fakeTenant) OpenTerminal(_ context.Context, spec sandbox.TerminalSpec) (sandbox.Terminal, error) {
	t := &in.box.terminals
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change.L = &t.mu
	one := &fakeTerminal{in: in, Terminal: sandbox.Terminal{
		ID: uint32(len(t.all) + 1), PID: 1000 + len(t.all), Command: strings.Join(spec.Command, " "), Started: time.Now(), Size: spec.Size,
	}}
	t.all = append(t.all, one)
	return one.Terminal, nil
}

// Terminals lists them.
func (in *fakeTenant) Terminals(context.Context) (all []sandbox.Terminal, err error) {
	t := &in.box.terminals
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.all {
		one.Printed = int64(len(one.printed))
		all = append(all, one.Terminal)
	}
	return all, nil
}

// ResizeTerminal changes the size.
func (in *fakeTenant) ResizeTerminal(_ context.Context, id uint32, size sandbox.TerminalSize) error {
	t := &in.box.terminals
	t.mu.Lock()
	defer t.mu.Unlock()
	one, err := t.findLocked(id)
	if err == nil {
		one.Size = size
	}
	return err
}

// AttachTerminal connects.
func (in *fakeTenant) AttachTerminal(_ context.Context, id uint32, from int64) (sandbox.TerminalStream, error) {
	t := &in.box.terminals
	t.mu.Lock()
	defer t.mu.Unlock()
	one, err := t.findLocked(id)
	if err != nil {
		return nil, err
	}
	one.Attached++
	from = min(max(from, 0), int64(len(one.printed)))
	return &fakeAttached{all: t, one: one, from: from, at: int(from)}, nil
}

// fakeAttached is a connection to a terminal.
type fakeAttached struct {
	all    *fakeTerminals
	one    *fakeTerminal
	from   int64
	at     int
	closed bool
}

func (a *fakeAttached) From() int64 { return a.from }

func (a *fakeAttached) Read(p []byte) (int, error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	for a.at == len(a.one.printed) {
		if a.closed || a.one.Ended {
			return 0, io.EOF
		}
		a.all.change.Wait()
	}
	n := copy(p, a.one.printed[a.at:])
	a.at += n
	return n, nil
}

func (a *fakeAttached) Write(p []byte) (int, error) {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if a.closed || a.one.Ended {
		return 0, io.ErrClosedPipe
	}
	a.one.printed = append(a.one.printed, p...)
	a.one.line += string(p)
	for {
		line, rest, whole := strings.Cut(a.one.line, "\n")
		if !whole {
			break
		}
		a.one.line = rest
		if code, ends := strings.CutPrefix(line, "exit "); ends {
			a.one.Ended = true
			a.one.ExitCode, _ = strconv.Atoi(code) // a test writes a number
		}
	}
	a.all.change.Broadcast()
	return len(p), nil
}

func (a *fakeAttached) CloseWrite() error { return nil }

func (a *fakeAttached) Close() error {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if !a.closed {
		a.closed = true
		a.one.Attached--
		a.all.change.Broadcast()
	}
	return nil
}
