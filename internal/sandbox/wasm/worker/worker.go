// Package worker is the process in which guests run: the paddock binary in
// another role, started by package wasm, with nothing in it to steal. It holds
// the interpreters of one owner, and speaks the guest protocol of package wire
// over its standard input.
//
// The life of a call here: worker.serve reads a frame, instance.run executes
// it, instance.pursue asks the guest's driver, a language calls into the
// WebAssembly module through an engine, control.go stops it when it must.
package worker

import (
	"context"
	"encoding/json"
	"errors"
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
)

// Role is the process's name (argv[0]) in this role.
const Role = "paddock-worker"

// Setup is what the server tells a worker at first.
type Setup struct {
	// Owner is the one folder that the worker may change; its mounts lie in it.
	Owner string `json:"owner"`
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
			err = serve(stream)
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
	root   *os.Root
	loader *loader

	pages *pages // of the states that are kept

	mu        sync.Mutex           // guards what follows
	instances map[uint32]*instance // nil: being opened; absent once it was closed
	opening   map[uint32]*arriving // the states of those that are being opened
	folders   folders
}

func newWorker(stream io.ReadWriteCloser) *worker {
	return &worker{
		conn: wire.NewConn(stream), pages: newPages(),
		instances: map[uint32]*instance{}, opening: map[uint32]*arriving{}, folders: folders{},
	}
}

// serve answers the server until it hangs up.
func serve(stream io.ReadWriteCloser) error {
	w := newWorker(stream)
	f, err := w.conn.Read()
	if err != nil {
		return fmt.Errorf("waiting for the server's hello: %w", err)
	}
	var hello wire.Hello
	var setup Setup
	if err := errors.Join(json.Unmarshal(f.Body, &hello), json.Unmarshal(hello.Setup, &setup)); err != nil || f.Kind != wire.KindHello {
		return fmt.Errorf("the first frame is of kind %d and no hello: %v", f.Kind, err)
	}
	ready := wire.Ready{Version: wire.Version}
	if ready.Protections, err = w.prepare(setup); err != nil {
		ready.Error = err.Error()
	}
	w.send(wire.KindReady, 0, ready)
	if err != nil {
		return err
	}
	for {
		f, err := w.conn.Read()
		if err != nil {
			return nil // the server is gone; everything ends with the process
		}
		if err := w.dispatch(f); err != nil {
			return err
		}
	}
}

// prepare opens what the worker needs and then puts the walls up.
func (w *worker) prepare(setup Setup) ([]sandbox.Protection, error) {
	var err error
	if w.root, err = os.OpenRoot(setup.Owner); err != nil {
		return nil, fmt.Errorf("opening the owner's folder: %w", err)
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

// dispatch hands a frame to whom it is for. What takes time gets a goroutine:
// it ends with the instance, and all of them with the process.
func (w *worker) dispatch(f wire.Frame) error {
	if f.Kind == wire.KindStart {
		var body wire.StartBody
		if err := json.Unmarshal(f.Body, &body); err != nil {
			return fmt.Errorf("reading a start: %w", err)
		}
		layers := newArriving(func(n int) { w.send(wire.KindWantLayer, f.ID, wire.CreditBody{Bytes: n}) })
		w.mu.Lock()
		w.instances[f.ID], w.opening[f.ID] = nil, layers
		w.mu.Unlock()
		go w.start(f.ID, body, layers)
		return nil
	}
	w.mu.Lock()
	in, layers := w.instances[f.ID], w.opening[f.ID]
	if in == nil && f.Kind == wire.KindClose {
		delete(w.instances, f.ID) // what is being opened will not be kept
	}
	w.mu.Unlock()
	if in == nil {
		if layers != nil && f.Kind == wire.KindLayer {
			layers.push(f.Body)
		} else if layers != nil && f.Kind == wire.KindClose {
			layers.close()
		}
		if f.Kind == wire.KindClose {
			w.send(wire.KindGone, f.ID, wire.GoneBody{Message: "it was not there"})
		}
		return nil
	}
	return in.dispatch(f)
}

func (in *instance) dispatch(f wire.Frame) (err error) {
	switch f.Kind {
	case wire.KindRun:
		var body wire.RunBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.ctl.begin(body.Limits.Grace) // here, so that an interrupt right behind finds the run
			go in.run(body)
		}
	case wire.KindStdin:
		in.in.push(f.Body)
	case wire.KindCredit:
		var body wire.CreditBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			in.out.grant(body.Bytes)
		}
	case wire.KindTaken:
		var body wire.CreditBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			if s := in.saving.Load(); s != nil {
				s.grant(body.Bytes)
			}
		}
	case wire.KindInterrupt:
		var body wire.InterruptBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			if s := in.saving.Load(); s != nil {
				s.cancel()
			} else {
				in.ctl.interrupt(body.Cause)
			}
		}
	case wire.KindSnapshot:
		var body wire.SnapshotBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			s := newSaving(in.worker.conn, in.id)
			in.saving.Store(s) // here, so that an interrupt right behind finds it
			go in.snapshot(body, s)
		}
	case wire.KindRewind:
		var body wire.RewindBody
		if err = json.Unmarshal(f.Body, &body); err == nil {
			go in.rewind(body)
		}
	case wire.KindRefresh:
		go in.refresh()
	case wire.KindInspect:
		go in.inspect()
	case wire.KindClose:
		go in.close()
	}
	return err
}

func (w *worker) start(id uint32, body wire.StartBody, layers *arriving) {
	in, err := w.open(id, body, layers)
	w.mu.Lock()
	delete(w.opening, id)
	_, wanted := w.instances[id]
	if wanted && err == nil {
		w.instances[id] = in
	} else {
		delete(w.instances, id)
	}
	w.mu.Unlock()
	if err != nil {
		w.send(wire.KindStarted, id, wire.Refusal(refusalOf(err, "the interpreter could not be started")))
		return
	}
	if !wanted {
		in.discard()
		return
	}
	w.send(wire.KindStarted, id, wire.AnswerBody{})
}

func (w *worker) open(id uint32, body wire.StartBody, layers *arriving) (*instance, error) {
	p, err := w.loader.load(context.Background(), body.Runtime, false)
	if err != nil {
		return nil, err
	}
	in := &instance{worker: w, id: id, program: p, start: body, log: io.Discard}
	in.saved.pages = w.pages
	in.out, in.in = newOutput(w.conn, id, &in.ctl), newInput(w.conn, id, &in.ctl)
	anew := body.Fork != nil
	if body.Resume != nil {
		anew = body.Resume.Anew
		err = in.resumeFrom(*body.Resume, layers)
	} else if anew {
		err = in.forkFrom(*body.Fork)
	}
	in.start.Resume = nil // it may be long
	if err == nil {
		in.mounts, err = w.openMounts(body.Mounts)
	}
	if err == nil {
		err = in.open(anew)
	}
	if err != nil {
		in.discard()
		return nil, err
	}
	return in, nil
}

func (w *worker) forget(in *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.instances, in.id)
}

// send tells the server something. When it cannot, the server is gone, and
// serve is about to notice.
func (w *worker) send(kind wire.Kind, id uint32, body any) {
	_ = w.conn.WriteJSON(kind, id, body)
}

func policy(s Setup) confine.Policy {
	return confine.Policy{Writable: []string{s.Owner}, Readable: []string{s.Cache}, UID: s.UID, GID: s.GID, Parent: s.Parent}
}
