// Package worker is the process in which guests run: the paddock binary in
// another role, started by package wasm, with nothing in it to steal. It holds
// the interpreters of one owner, and speaks the guest protocol of package wire
// over its standard input.
//
// The life of a call here: serve.Loop reads a frame, instance.Run executes it,
// instance.runToCompletion asks the guest's driver, a language calls into the WebAssembly
// module through an engine, control.go stops it when it must. What a JavaScript program
// asks meanwhile is answered by a scriptHost, what it imports is found by its modules.
package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/confine"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// Role is the process's name (argv[0]) in this role.
const Role = "paddock-worker"

// Setup is what the server tells a worker at first.
type Setup struct {
	// Owner is the one folder that the worker may change; its mounts lie in it.
	Owner string `json:"owner"`
	// Shared is a folder that it may only read, in which mounts may lie as well; empty:
	// there is none.
	Shared string `json:"shared,omitempty"`
	// Cache is the folder with compiled code and images, for reading.
	Cache string `json:"cache"`
	// UID and GID are whom to become when the process runs as root; 0: stay.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Parent is the server's process, which the worker may not outlive.
	Parent int `json:"parent"`
}

// Requested tells whether this process was started as a worker.
func Requested(args []string) bool { return len(args) > 0 && args[0] == Role }

// Main is the worker's whole life; it gives the process's exit code. With the
// arguments "prepare" and a cache folder it calls Prepare instead.
func Main(args []string) int {
	// A terminal's Ctrl-C and a service manager's stop reach the worker as
	// well; it ends when the server hangs up, which lets programs end first.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var err error
	if len(args) == 3 && args[1] == "prepare" {
		err = Prepare(context.Background(), args[2])
	} else {
		var stream io.ReadWriteCloser
		if stream, err = inherited(); err == nil {
			err = newWorker(stream).loop.Run() // everything ends with the process
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "paddock: worker:", err)
		return 1
	}
	return 0
}

type worker struct {
	conn   *wire.Conn
	loop   *serve.Loop[*instance]
	root   *os.Root
	shared *os.Root // nil: there is none
	loader *loader

	pages *pages // of the states that are kept

	mu      sync.Mutex           // guards what follows
	opening map[uint32]*arriving // the states of instances that are being opened
	folders folders
}

func newWorker(stream io.ReadWriteCloser) *worker {
	w := &worker{conn: wire.NewConn(stream), pages: newPages(), opening: map[uint32]*arriving{}, folders: folders{}}
	w.loop = serve.NewLoop(w.conn, w)
	return w
}

// Prepare opens what the worker needs and then puts the walls up.
func (w *worker) Prepare(text json.RawMessage) ([]sandbox.Protection, error) {
	var setup Setup
	err := json.Unmarshal(text, &setup)
	if err != nil {
		return nil, fmt.Errorf("reading the set-up: %w", err)
	}
	if w.root, err = os.OpenRoot(setup.Owner); err != nil {
		return nil, fmt.Errorf("opening the owner's folder: %w", err)
	}
	if setup.Shared != "" {
		if w.shared, err = os.OpenRoot(setup.Shared); err != nil {
			return nil, fmt.Errorf("opening the owner's shared folder: %w", err)
		}
	}
	linear.Prepare()
	if w.loader, err = newLoader(context.Background(), setup.Cache); err != nil {
		return nil, err
	}
	if setup.UID != 0 {
		// Once it is somebody else it may not reach the cache.
		if err := w.loader.loadAll(context.Background()); err != nil {
			return nil, err
		}
	}
	return confine.Apply(policy(setup))
}

// Start makes an instance, from the layers that follow if it resumes a state.
func (w *worker) Start(id uint32, body wire.StartBody) func() (*instance, *wire.StatusBody) {
	layers := newArriving(func(n int) { w.send(wire.KindWantLayer, id, wire.CreditBody{Bytes: n}) })
	w.mu.Lock()
	w.opening[id] = layers
	w.mu.Unlock()
	return func() (*instance, *wire.StatusBody) {
		in, err := w.open(id, body, layers)
		w.mu.Lock()
		delete(w.opening, id)
		w.mu.Unlock()
		if err != nil {
			refusal := wire.ErrorBody(refusalOf(err, "the interpreter could not be started"))
			return nil, &refusal
		}
		return in, nil
	}
}

// Frame takes the layers of an instance that is being opened.
func (w *worker) Frame(f wire.Frame) (taken bool, err error) {
	if f.Kind != wire.KindLayer && f.Kind != wire.KindClose {
		return false, nil
	}
	w.mu.Lock()
	layers := w.opening[f.ID]
	w.mu.Unlock()
	switch {
	case layers == nil:
	case f.Kind == wire.KindLayer:
		layers.push(f.Body)
	default:
		layers.close()
	}
	return f.Kind == wire.KindLayer, nil
}

// Frame takes what is about the instance's states; an interrupt is a snapshot's
// while there is one.
func (in *instance) Frame(f wire.Frame) (taken bool, err error) {
	s := in.saving.Load()
	switch f.Kind {
	case wire.KindTaken:
		var body wire.CreditBody
		if err = json.Unmarshal(f.Body, &body); err == nil && s != nil {
			s.Grant(body.Bytes)
		}
	case wire.KindInterrupt:
		if s == nil {
			return false, nil
		}
		s.cancel()
	case wire.KindSnapshot:
		var body wire.SnapshotBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			s := newSaving(in.worker.conn, in.id)
			in.saving.Store(s) // here, so that an interrupt right behind finds it
			in.worker.loop.Go(func() { in.snapshot(body, s) })
		}
	case wire.KindRewind:
		var body wire.RewindBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.worker.loop.Go(func() { in.rewind(body) })
		}
	case wire.KindRefresh:
		in.worker.loop.Go(in.refresh)
	default:
		return false, nil
	}
	return true, err
}

func (w *worker) open(id uint32, body wire.StartBody, layers *arriving) (*instance, error) {
	p, err := w.loader.load(context.Background(), body.Runtime, false)
	if err != nil {
		return nil, err
	}
	in := &instance{worker: w, id: id, program: p, start: body, log: io.Discard}
	in.saved.pages = w.pages
	in.connect(w.conn)
	reseed := body.Fork != nil
	if body.Resume != nil {
		reseed = body.Resume.Reseed
		err = in.resumeFrom(*body.Resume, layers)
	} else if reseed {
		err = in.forkFrom(*body.Fork)
	}
	in.start.Resume = nil // it may be long
	if err == nil {
		in.mounts, err = w.openMounts(body.Mounts)
	}
	if err == nil {
		err = in.open(reseed)
	}
	if err != nil {
		in.discard()
		return nil, err
	}
	return in, nil
}

// send tells the server something.
func (w *worker) send(kind wire.Kind, id uint32, body any) { serve.Send(w.conn, kind, id, body) }

func policy(s Setup) confine.Policy {
	p := confine.Policy{Writable: []string{s.Owner}, Readable: []string{s.Cache}, UID: s.UID, GID: s.GID, Parent: s.Parent}
	if s.Shared != "" {
		p.Readable = append(p.Readable, s.Shared)
	}
	return p
}
