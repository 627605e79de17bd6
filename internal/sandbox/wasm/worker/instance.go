package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// instance is one live interpreter.
//
// use is held by whoever uses the guest: a run, an inspection, a snapshot, the
// closing. Everything below it belongs to its holder. The connection's reader
// reaches what is above it as well.
//
// Lock order: use, worker.mu, pages.mu.
type instance struct {
	worker  *worker
	id      uint32
	program *program
	start   wire.StartBody
	log     io.Writer // takes what the interpreter prints outside of runs

	ends *serve.Ends
	in   input

	saving atomic.Pointer[saving] // the snapshot that is under way

	use    sync.Mutex
	vm     *vm
	system *wasi.System
	mounts []mount
	saved  snapshots
	// touched tells that the state is not the newest moment's: a program ran, or
	// there are new seeds. unkept tells the former, where it still has to be kept.
	touched, unkept bool
	// found is what the newest moment holds, once it has been asked for.
	found  *sandbox.Inspection
	meter  meter
	words  []word         // what to set in memory to interrupt the program
	leave  func() bool    // ends what attends to the run; nil where the guest ticks
	raised int            // how often it was interrupted in this run
	nudge  *interruptFlag // what sets words in this run: we, or what attends to it
	began  time.Duration  // the thread's CPU time when this run began
	cpu    time.Duration  // what the runs before it took
	answer []byte         // the host's answer that the guest will take
	calls  calls          // those that were begun
	script scriptHost     // what a JavaScript program asks
	closed bool
}

// connect gives the instance its ends of a connection.
func (in *instance) connect(conn *wire.Conn) {
	in.ends = serve.NewEnds(conn, in.id)
	in.in = input{Ends: in.ends}
	in.calls = calls{Ends: in.ends}
}

// Ends are where its runs meet the server.
func (in *instance) Ends() *serve.Ends { return in.ends }

// open makes the interpreter: from the image, or as it was at the moment from
// which it goes on. One that has been there before, reseed, gets seeds of its own.
func (in *instance) open(reseed bool) error {
	in.touched = !in.saved.taken()
	if !in.touched {
		in.cpu = in.saved.newest.cpu
	}
	if err := in.instantiate(nil); err != nil {
		return err
	}
	in.words = slices.DeleteFunc(in.program.language.interrupts(in.vm), func(w word) bool { return !in.vm.has(w) })
	switch {
	case !in.saved.taken():
		return in.initGuest()
	case reseed:
		return in.reseed()
	}
	return nil
}

// limit is how large the memory may become.
func (in *instance) limit() uint64 { return uint64(in.start.Memory()) }

// instantiate makes the interpreter as it was at the newest moment, or as the image
// is when there is none yet. Memory, if it is not nil, is that already.
func (in *instance) instantiate(memory *linear.Memory) (err error) {
	if memory == nil {
		if memory, err = in.memory(); err != nil {
			return err
		}
	}
	if err = in.openSystem(); err != nil {
		memory.Free()
		return err
	}
	if in.saved.taken() {
		if _, err := in.system.Restore(in.saved.newest.files); err != nil {
			memory.Free()
			return unsupported("the open files of the kept state cannot be read").WithCause(err)
		}
	}
	if in.vm, err = newVM(in, in.program.code, memory); err != nil {
		return err
	}
	in.vm.setStackPointer(in.program.image.StackPointer)
	in.vm.setCounter(math.MaxInt32)
	return nil
}

// memory maps the image and puts the newest moment into it.
func (in *instance) memory() (*linear.Memory, error) {
	limit := in.limit()
	if needs := in.program.image.Bytes; limit < needs+reserve {
		return nil, fault.New(fault.Invalid, "a memory limit of %d MiB is too low: the %s interpreter itself needs %d MiB", limit>>20, in.program.guest.Name, (needs+reserve)>>20).
			WithHint("give it 64 MiB or more")
	}
	memory, err := in.program.code.reserve(in.program.image, limit)
	if err == nil && in.saved.taken() {
		if err = in.saved.restore(memory); err != nil {
			memory.Free()
		}
	}
	return memory, err
}

// initGuest gives a fresh interpreter its environment and its own seeds.
func (in *instance) initGuest() error {
	_, err := in.ask(map[string]any{
		"op": "start", "env": in.start.Env, "cwd": path.Clean("/" + in.start.Dir), "seed": newSeed(),
	})
	return err
}

// drop frees the interpreter, dead or alive.
func (in *instance) drop() {
	if memory := in.halt(); memory != nil {
		memory.Free()
	}
}

// halt ends the interpreter, dead or alive, but for its memory, if it has one.
func (in *instance) halt() (memory *linear.Memory) {
	if in.vm != nil {
		memory = in.vm.memory
		in.vm.module.close()
		in.vm = nil
	}
	if in.system != nil {
		in.system.Close()
		in.system = nil
	}
	return memory
}

func (in *instance) bytes() []byte { return in.vm.bytes() }

// outcome is the driver's answer.
type outcome struct {
	serve.Outcome
	// Timeout is for how many seconds a program that waits has nothing to do; nil: until
	// a call is answered.
	Timeout *float64 `json:"timeout"`
}

// ask sends one request to the driver.
func (in *instance) ask(request any) (outcome, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return outcome{}, err
	}
	answer, err := in.program.language.request(in.vm, in.program.image.State, body)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if err := json.Unmarshal(answer, &o); err != nil {
		return outcome{}, fmt.Errorf("the driver's answer: %w", err)
	}
	return o, nil
}

// message answers a guest's message: a line of JSON, a line feed, bytes.
func (in *instance) message(message []byte) ([]byte, error) {
	head, data, _ := bytes.Cut(message, []byte{'\n'})
	var m struct {
		Op      string   `json:"op"`
		MIME    string   `json:"mime"`
		Call    uint32   `json:"call"`
		Reply   uint32   `json:"reply"`
		Timeout *float64 `json:"timeout"`
		FD      int      `json:"fd"`
		To      int      `json:"to"`
	}
	if err := json.Unmarshal(head, &m); err != nil {
		return nil, fmt.Errorf("a message from the guest: %w", err)
	}
	switch m.Op {
	case "display":
		return in.ends.Display(m.MIME, data), nil
	case "call":
		return in.call(data), nil
	case "begin":
		number, _ := in.ends.Calls.Begin(data)
		return strconv.AppendUint(nil, uint64(number), 10), nil
	case "bytes":
		return in.calls.take(m.Reply), nil
	case "giveUp":
		in.ends.Calls.GiveUp(m.Call)
		return []byte(`{}`), nil
	case "dup":
		fd, code := in.system.Duplicate(m.FD, m.To)
		if code != 0 {
			fd = -int(code)
		}
		return strconv.AppendInt(nil, int64(fd), 10), nil
	case "await":
		return json.Marshal(in.await(m.Timeout))
	default:
		return nil, fmt.Errorf("a message of an unknown kind")
	}
}

// Inspect answers the server's question about the interpreter.
func (in *instance) Inspect() {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		return
	}
	var found wire.InspectedBody
	o, err := in.askWithTimeout(map[string]any{"op": "inspect"}, inspectTime)
	if err != nil {
		found.Error = err.Error()
		err = in.rollBackAfter(err)
	}
	if err == nil {
		found.Inspection = o.Inspection()
		if dirty, e := in.vm.memory.Dirty(nil); e == nil {
			found.Memory = int64(len(dirty)) * linear.PageSize
		}
	}
	in.worker.send(wire.KindInspected, in.id, found)
	if err != nil {
		in.gone(err)
	}
}

// askWithTimeout asks the driver something between two runs. After so much processor
// time, or machineTimes as much wall time, it is stopped by force.
func (in *instance) askWithTimeout(request any, atMost time.Duration) (outcome, error) {
	in.ends.Control.Begin(0)
	in.begin(wire.RunBody{})
	in.ends.Control.Bound(atMost, machineTimes*atMost, sandbox.TimedOut)
	o, err := in.ask(request)
	in.end()
	return o, err
}

// works tells whether the interpreter can still run a program.
func (in *instance) works() bool {
	_, err := in.askWithTimeout(map[string]any{"op": "exec", "code": "", "name": "", "args": nil}, inspectTime)
	return err == nil
}

// rollBackAfter makes the interpreter again after err, unless it survived it.
func (in *instance) rollBackAfter(err error) error {
	if errors.Is(err, errMemory) || errors.Is(err, errInterrupted) {
		return nil
	}
	return in.rollBack()
}

// rollBack makes the interpreter as it was at the newest moment, with seeds of its
// own: it has been there before.
func (in *instance) rollBack() error {
	in.unkept = false
	if !in.saved.taken() {
		in.drop()
		if err := in.instantiate(nil); err != nil {
			return err
		}
		in.touched, in.found = true, nil
		return in.initGuest()
	}
	memory := in.halt()
	if memory != nil && !in.saved.restoreTo(in.saved.newest, memory, in.program.image) {
		memory.Free()
		memory = nil
	}
	return in.reinstantiate(memory)
}

// Close ends the interpreter and tells the server.
func (in *instance) Close() {
	if s := in.saving.Load(); s != nil {
		s.cancel()
	}
	in.ends.Control.Force(sandbox.Cancelled)
	in.use.Lock()
	defer in.use.Unlock()
	in.gone(errors.New("it was closed"))
}

// discard frees what the instance holds of the worker.
func (in *instance) discard() {
	in.drop()
	in.saved.drop()
	in.worker.closeMounts(in.mounts)
}

// gone frees everything, once, and tells the server why.
func (in *instance) gone(err error) {
	if in.closed {
		return
	}
	in.closed = true
	in.discard()
	in.worker.loop.Forget(in.id)
	in.worker.send(wire.KindGone, in.id, wire.GoneBody{Message: err.Error()})
}
