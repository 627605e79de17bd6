package worker

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// interruptTime is how much processor time a program may take from its interrupt on,
// until it is stopped by force: an interpreter that hears of it takes 10 ms.
const interruptTime = 250 * time.Millisecond

// inspectTime bounds an inspection, in processor time: a guest's driver answers in
// microseconds.
const inspectTime = time.Second

// machineTimes is how many times that it may take in wall time: what takes longer is a
// machine that has no time for it, or code of the program's that waits.
const machineTimes = 10

// begin sets everything up for the guest to run, by this thread until end; Control.Begin
// has been called.
func (in *instance) begin(body wire.RunBody) {
	runtime.LockOSThread()
	in.ends.Control.Count(threadClock(), interruptTime)
	in.ends.Out.Begin(body.Limits)
	in.in.begin(body.Stdin)
	in.meter = meter{limit: body.Limits.Fuel}
	in.raised, in.script.exiting = 0, false
	in.nudge = &interruptFlag{}
	in.vm.memory.Refused()
	in.vm.forget(in.words) // an interrupt that came too late for the last run
	soft, hard := in.ends.Control.Stops()
	in.leave = in.vm.watchInterrupts(soft, hard, in.words)
	in.vm.setCounter(in.meter.portion())
	for _, m := range in.mounts {
		m.Dir.Changed() // between runs the server may have
	}
}

// end tells how the run was stopped, if it was.
func (in *instance) end() sandbox.Cause {
	if in.leave != nil && in.leave() {
		in.raised++
	}
	in.leave = nil
	in.meter.spend(in.counter())
	if in.vm != nil {
		in.vm.setCounter(math.MaxInt32)
	}
	in.ends.Out.End()
	cause := in.ends.Control.End()
	runtime.UnlockOSThread() // now that nothing reads its clock
	return cause
}

func (in *instance) counter() int32 {
	if in.vm == nil {
		return int32(in.meter.given) - 1
	}
	return in.vm.counter()
}

// tick is called by the guest's code whenever its portion of fuel is used up.
func (in *instance) tick() {
	in.meter.spend(in.counter())
	if in.meter.empty() {
		in.ends.Control.Interrupt(sandbox.OutOfFuel)
	}
	in.vm.setCounter(in.meter.portion())
	in.poll()
}

// poll does what the run has been told: it raises the interrupt in the guest,
// or unwinds it. It runs on the guest's goroutine.
func (in *instance) poll() {
	switch in.ends.Control.Level() {
	case serve.Interrupted:
		in.raise()
	case serve.Killed:
		panic(errKilled)
	}
}

// raise interrupts the program, once: one that catches the interrupt may
// clean up undisturbed until its grace is over.
func (in *instance) raise() {
	if in.nudge.once(func() { in.vm.set(in.words) }) && len(in.words) > 0 { // without words the language asks by itself
		in.raised++
	}
}

// Run executes one command, tells the server how it ended, and keeps the state
// that it left, unless a request for a snapshot will follow.
func (in *instance) Run(body wire.RunBody) {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		in.ends.Control.End()
		return
	}
	if in.ends.Control.Level() != serve.Going { // it was stopped while the last one was being saved
		in.worker.send(wire.KindDone, in.id, serve.NeverBegun(in.ends.Control.End()))
		return
	}
	if in.unkept { // nobody asked for a snapshot of the last one
		if err := in.take(); err != nil {
			in.gone(fmt.Errorf("keeping the state: %w", err))
			return
		}
	}
	exit, waits, err := in.runProgram(body)
	if err != nil {
		in.gone(err)
		return
	}
	in.touched, in.unkept = true, true
	in.worker.send(wire.KindDone, in.id, wire.DoneBody{Exit: exit, Waits: waits})
	switch { // after the answer: a large memory takes its time
	case exit.State != sandbox.Kept:
		err = in.rollBack()
	case !in.start.Snapshots:
		err = in.take()
	}
	if err != nil {
		in.gone(fmt.Errorf("keeping the state: %w", err))
	}
}

// runProgram has the driver execute the run's program, or go on with it.
func (in *instance) runProgram(body wire.RunBody) (exit sandbox.Exit, waits []uint32, err error) {
	if body.Continue != nil {
		return in.execute(body, map[string]any{"op": "resume"})
	}
	code, sourceMap, failed := in.worker.loop.Program(in.ends, body, in.program.guest.Name)
	if failed != nil {
		return *failed, nil, nil
	}
	return in.execute(body, execRequest(code, sourceMap, body))
}

// execRequest is the driver's request to execute a program.
func execRequest(code, sourceMap string, body wire.RunBody) map[string]any {
	return map[string]any{"op": "exec", "code": code, "map": sourceMap, "name": body.Name, "args": body.Args}
}

// execute has the driver do what request says, to its end. When the state is not kept,
// the interpreter has yet to be made again. An error means that it is lost. A Waiting one
// waits for some calls.
func (in *instance) execute(body wire.RunBody, request any) (exit sandbox.Exit, waits []uint32, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in.began = threadTime()
	in.begin(body)
	o, err := in.runToCompletion(request)
	waits = in.ends.Calls.Waits()
	in.ends.Calls.End()
	clear(in.calls.behind)
	cause := in.end()
	refused := in.vm.memory.Refused()
	exit = sandbox.Exit{
		Cause: sandbox.Exited, Code: o.ExitCode, Result: o.Result, State: sandbox.Kept,
		Usage: sandbox.Usage{Fuel: in.meter.used, Memory: int64(len(in.bytes()))},
	}
	exit.StdoutTruncated, exit.StderrTruncated = in.ends.Out.Cut()
	switch {
	case err != nil:
		in.explain(&exit, err, refused)
	case o.Status == serve.StatusWaiting:
		exit.Cause = sandbox.Waiting
	default:
		o.Report(&exit)
	}
	if exit.State == sandbox.Kept && (refused || in.vm.memory.Room() < reserve) {
		in.checkHeadroom(&exit)
	}
	serve.Conclude(&exit, cause, in.raised > 0 || err != nil)
	if exit.Cause == sandbox.Crashed {
		if err := in.rollBack(); err != nil {
			return exit, nil, err
		}
		if !in.works() { // earlier runs broke it already, and the checkpoint holds that
			in.saved.drop()
			exit.State = sandbox.Fresh
		}
	}
	exit.Usage.CPU = threadTime() - in.began
	in.cpu += exit.Usage.CPU
	return exit, waits, nil
}

// reserve is the memory that a run has to leave: with less the next one could
// not even begin, and nothing would ever free any.
const reserve = 1 << 20

// checkHeadroom takes a run back that left no memory to go on with.
func (in *instance) checkHeadroom(exit *sandbox.Exit) {
	has, err := in.program.language.room(in.vm, reserve)
	if has && err == nil {
		return
	}
	exit.State, exit.Cause, exit.Result = sandbox.Restored, sandbox.OutOfMemory, ""
	if exit.Error == nil {
		exit.Error = memoryError()
	}
}

func memoryError() *sandbox.ProgramError {
	return &sandbox.ProgramError{Type: "MemoryError", Message: "the program used all the memory it may have"}
}

// runToCompletion goes on with a run for as long as its driver waits for timers, or for
// replies to calls, and leaves one that waits for calls when it has been suspended.
func (in *instance) runToCompletion(request any) (outcome, error) {
	soft, hard := in.ends.Control.Stops()
	for {
		o, err := in.ask(request)
		if err != nil || o.Status != serve.StatusWaiting {
			return o, err
		}
		interrupted := in.interruptedIn(o.Timeout, soft, hard)
		replies := in.calls.replies()
		if !interrupted && len(replies) == 0 && in.calls.suspended() {
			return o, nil
		}
		request = map[string]any{"op": "resume", "replies": replies}
		if interrupted {
			if in.ends.Control.Level() == serve.Killed {
				return o, errKilled
			}
			in.raised++
			request = map[string]string{"op": "interrupt"}
		}
	}
}

// interruptedIn waits for so many seconds (nil: for ever), or until a call is
// answered, and tells whether the program has to be interrupted now: through its
// driver, not through memory. One that has seen the interrupt waits for something in
// its clean-up.
func (in *instance) interruptedIn(seconds *float64, soft, hard <-chan struct{}) bool {
	in.nudge.Lock()
	defer in.nudge.Unlock()
	if in.nudge.done && in.vm.seen(in.words) {
		soft = hard
	}
	select {
	case <-after(seconds):
		return false
	case <-in.ends.Calls.News():
		return false
	case <-in.calls.quiet():
		return false
	case <-soft:
		in.nudge.done = true
		in.vm.forget(in.words)
		return true
	}
}

// explain says how a run ended that the interpreter did not survive.
func (in *instance) explain(exit *sandbox.Exit, err error, refused bool) {
	var ended *wasi.ExitError
	exit.State = sandbox.Restored
	switch {
	case errors.Is(err, errKilled):
		exit.Error = serve.StoppedByForce()
	case errors.As(err, &ended):
		exit.Code = int(ended.Code)
		return
	case errors.Is(err, errMemory):
		exit.State, exit.Cause = sandbox.Kept, sandbox.OutOfMemory
		exit.Error = memoryError()
	case errors.Is(err, errInterrupted):
		exit.State = sandbox.Kept
		exit.Error = &sandbox.ProgramError{Type: "KeyboardInterrupt", Message: "the program was interrupted"}
	case refused:
		exit.Cause = sandbox.OutOfMemory
		exit.Error = memoryError()
	default:
		exit.Cause = sandbox.Crashed
		exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter crashed: " + firstLine(err)}
	}
	exit.Code = 1
}

// firstLine is an error's text without the guest's stack.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(line, " (recovered by wazero)")
}
