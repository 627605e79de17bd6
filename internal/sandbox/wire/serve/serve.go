// Package serve is the child's end of the guest protocol (package wire): what the
// WebAssembly worker and the agent of a Linux box have in common. A [Loop] reads
// what the server asks for and hands it to the process's instances; each of them
// has [Ends]: what stops its runs ([Control]), and what its programs print and
// read ([Output], [Input]), as fast as the server allows ([Window]), and what they ask
// of it ([Calls]). TypeScript is translated at the server's end ([Loop.Translate]), as
// part of finding what a run is to execute ([Loop.Program]). What a driver answers is an
// [Outcome], and how runs that were stopped end is the same in both ([Conclude]).
//
// Nothing here knows what an instance is made of.
package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// Ends are where a run meets the server. An instance has the same ones for its
// whole life.
type Ends struct {
	Control Control
	Out     *Output
	In      *Input
	Calls   *Calls
}

// NewEnds makes those of instance id.
func NewEnds(conn *wire.Conn, id uint32) *Ends {
	e := &Ends{In: NewInput(conn, id), Calls: NewCalls(conn, id)}
	e.Out = NewOutput(conn, id, &e.Control)
	return e
}

// Display shows something that a driver's message has, and gives what the driver is
// answered.
func (e *Ends) Display(mime string, data []byte) (answer []byte) {
	if !e.Out.Display(mime, data) {
		return []byte(`{"error":"the pictures and documents shown in one call are over their limit"}`)
	}
	return []byte(`{}`)
}

// Instance is one interpreter. Run, Inspect and Close have a goroutine each: the
// instance has them take turns, and answers the server itself.
type Instance interface {
	Ends() *Ends
	Run(body wire.RunBody)
	Inspect()
	// Close ends it, and what runs. It may be called more than once.
	Close()
	// Frame is shown what comes for it first, and tells whether it took it. It is
	// called by the reader of the connection.
	Frame(f wire.Frame) (taken bool, err error)
}

// Process is the process that a loop serves. Its methods are called by the reader of
// the connection, one after the other; an error ends the loop.
type Process[I Instance] interface {
	// Prepare sets the process up, as the server's hello says.
	Prepare(setup json.RawMessage) ([]sandbox.Protection, error)
	// Start is told of an instance that is asked for, before anything else comes
	// for it. What it gives makes it, in a goroutine of its own.
	Start(id uint32, body wire.StartBody) func() (I, *wire.StatusBody)
	// Frame is shown every other frame first, and tells whether it took it: frames
	// that are about no instance have numbers of their own.
	Frame(f wire.Frame) (taken bool, err error)
}

// Loop answers the server. Its methods may be called by anybody but for Run, which
// is the reader.
type Loop[I Instance] struct {
	conn    *wire.Conn
	process Process[I]
	work    sync.WaitGroup // what has a goroutine of its own

	translations *translations

	mu        sync.Mutex // guards what follows
	instances map[uint32]I
	opening   map[uint32]bool // true: not wanted any more
	ended     bool
}

// NewLoop makes the loop of a process with one connection.
func NewLoop[I Instance](conn *wire.Conn, process Process[I]) *Loop[I] {
	return &Loop[I]{conn: conn, process: process, translations: newTranslations(conn), instances: map[uint32]I{}, opening: map[uint32]bool{}}
}

// Run says hello and answers until the server hangs up: nil. An error says that
// the process cannot serve, or that the server does not keep to the protocol. The
// instances are left as they are.
func (l *Loop[I]) Run() error {
	if err := l.greet(); err != nil {
		return err
	}
	for {
		f, err := l.conn.Read()
		if err != nil {
			return nil // the server is gone
		}
		if err := l.dispatch(f); err != nil {
			return fmt.Errorf("answering a frame of kind %d: %w", f.Kind, err)
		}
	}
}

func (l *Loop[I]) greet() error {
	f, err := l.conn.Read()
	if err != nil {
		return fmt.Errorf("waiting for the server's hello: %w", err)
	}
	var hello wire.Hello
	if err := json.Unmarshal(f.Body, &hello); err != nil || f.Kind != wire.KindHello {
		return fmt.Errorf("the first frame is of kind %d and no hello: %v", f.Kind, err)
	}
	ready := wire.Ready{Version: wire.Version}
	if ready.Protections, err = l.process.Prepare(hello.Setup); err != nil {
		ready.Error = err.Error()
	}
	Send(l.conn, wire.KindReady, 0, ready)
	return err
}

// dispatch hands a frame to whom it is for. What takes time gets a goroutine.
func (l *Loop[I]) dispatch(f wire.Frame) error {
	if f.Kind == wire.KindStart {
		var body wire.StartBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return err
		}
		l.mu.Lock()
		l.opening[f.ID] = false
		l.mu.Unlock()
		open := l.process.Start(f.ID, body)
		l.Go(func() { l.start(f.ID, open) })
		return nil
	}
	if f.Kind == wire.KindTranslated {
		return l.translations.translated(f)
	}
	if taken, err := l.process.Frame(f); taken || err != nil {
		return err
	}
	l.mu.Lock()
	in, ok := l.instances[f.ID]
	if _, opening := l.opening[f.ID]; opening && f.Kind == wire.KindClose {
		l.opening[f.ID] = true
	}
	l.mu.Unlock()
	if ok {
		return l.forward(in, f)
	}
	if f.Kind == wire.KindClose { // here, for it may take long until it is open
		Send(l.conn, wire.KindGone, f.ID, wire.GoneBody{Message: "it was not there"})
	}
	return nil
}

// forward hands an instance what is for it.
func (l *Loop[I]) forward(in I, f wire.Frame) error {
	taken, err := in.Frame(f)
	if taken || err != nil {
		return err
	}
	ends := in.Ends()
	switch f.Kind {
	case wire.KindRun:
		var body wire.RunBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			// Here, so that an interrupt or a reply right behind finds the run.
			ends.Control.Begin(body.Limits.Grace)
			ends.Calls.Open(body.Continue)
			l.Go(func() { in.Run(body) })
		}
	case wire.KindStdin:
		ends.In.Push(f.Body)
	case wire.KindSuspend:
		ends.Control.Suspend()
	case wire.KindReply:
		err = ends.Calls.Push(f.Body)
	case wire.KindCredit:
		var body wire.CreditBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			ends.Out.Grant(body.Bytes)
		}
	case wire.KindInterrupt:
		var body wire.InterruptBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			ends.Control.Interrupt(body.Cause)
		}
	case wire.KindInspect:
		l.Go(in.Inspect)
	case wire.KindClose:
		l.Go(in.Close)
	}
	return err
}

func (l *Loop[I]) start(id uint32, open func() (I, *wire.StatusBody)) {
	in, refusal := open()
	l.mu.Lock()
	unwanted := l.opening[id] || l.ended
	delete(l.opening, id)
	if refusal == nil {
		l.instances[id] = in
	}
	l.mu.Unlock()
	switch {
	case refusal != nil:
		Send(l.conn, wire.KindStarted, id, refusal)
	case unwanted:
		in.Close()
	default:
		Send(l.conn, wire.KindStarted, id, wire.StatusBody{})
	}
}

// Go calls f in a goroutine, for which Wait waits. It may be called by the reader,
// and by whom Wait waits for.
func (l *Loop[I]) Go(f func()) { l.work.Go(f) }

// Instance gives the instance that is there under a number.
func (l *Loop[I]) Instance(id uint32) (in I, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok = l.instances[id]
	return in, ok
}

// Instances gives those that are there.
func (l *Loop[I]) Instances() []I {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.instances))
}

// Forget is called by an instance that is gone.
func (l *Loop[I]) Forget(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.instances, id)
}

// End closes all instances, those that are being opened as soon as they are. It
// is called when Run has returned; Wait then waits for them.
func (l *Loop[I]) End() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	for _, in := range l.Instances() {
		in.Close()
	}
}

// Wait waits for everything that has a goroutine.
func (l *Loop[I]) Wait() { l.work.Wait() }

// Send tells the server something. When it cannot, the server is gone, and the
// reader is about to notice.
func Send(conn *wire.Conn, kind wire.Kind, id uint32, body any) {
	_ = conn.WriteJSON(kind, id, body)
}
