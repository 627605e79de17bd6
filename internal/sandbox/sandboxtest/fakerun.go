package sandboxtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

const (
	// fakeGrace is how long a program may take after the gentle interrupt.
	fakeGrace = 500 * time.Millisecond
	// fakeRounds is how many loop rounds the fake does in a millisecond.
	fakeRounds = 1_000_000
)

// fakeRun is one program under way.
type fakeRun struct {
	in   *fakeInstance
	ctx  context.Context
	cmd  sandbox.Command
	fuel uint64

	printed [2]int64
	shown   int64
	broken  bool // a writer did not take the output
	line    int
	rest    []string           // the lines after that
	depth   int                // of calls
	calls   int                // of the host
	from    *fakeWaiting       // the program that waited; nil: none did
	open    []sandbox.OpenCall // where it waits again
}

// raised is an error of the program.
type raised struct {
	kind, message string
	cause         sandbox.Cause // zero: Exited
}

func (e *raised) Error() string { return e.kind + ": " + e.message }

// stopped unwinds the program: it was interrupted, forced or has ended itself.
type stopped struct {
	cause  sandbox.Cause
	forced bool
	code   int
}

func (e *stopped) Error() string { return "stopped: " + e.cause.String() }

var (
	errKilled   = errors.New("the instance was closed")
	errVanished = errors.New("the instance went away")
	errTrapped  = errors.New("the interpreter trapped")
)

func gone(err error) error {
	return fault.New(fault.Unavailable, "the interpreter is gone").WithHint("the next call starts a new one").WithCause(err)
}

// execute runs the lines and tells how that ended. An error means that the
// instance is lost.
func (r *fakeRun) execute() (sandbox.Exit, error) {
	exit := sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept}
	last, err := r.program()
	exit.StdoutTruncated = cut(r.printed[0], r.cmd.Limits.StdoutBytes)
	exit.StderrTruncated = cut(r.printed[1], r.cmd.Limits.StderrBytes)
	var program *raised
	var stop *stopped
	switch {
	case err == nil:
		if last != nil {
			exit.Result = repr(last)
		}
	case errors.As(err, &program):
		exit.Code = 1
		exit.Error = &sandbox.ProgramError{Type: program.kind, Message: program.message, Line: r.line, Traceback: program.Error() + "\n"}
		if program.cause != 0 {
			exit.Cause = program.cause
		}
		_ = r.write(1, exit.Error.Traceback)
	case errors.As(err, &stop):
		exit.Cause, exit.Code = stop.cause, stop.code
		if stop.cause != sandbox.Exited {
			exit.Code = 1
			exit.Error = &sandbox.ProgramError{Type: "KeyboardInterrupt", Message: "the program was interrupted", Line: r.line}
		}
		if stop.forced {
			exit.State = r.in.backend.config.Forced
			exit.Error.Type, exit.Error.Message = "Stopped", "the program was stopped by force"
		}
	case errors.Is(err, sandbox.ErrWaiting):
		exit.Cause, exit.Open, exit.Calls = sandbox.Waiting, r.open, r.calls
	case errors.Is(err, errTrapped):
		exit.Cause, exit.Code, exit.State = sandbox.Crashed, 1, r.in.backend.config.Forced
		exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter crashed", Line: r.line}
	default:
		return sandbox.Exit{}, gone(err)
	}
	return exit, nil
}

func cut(printed, limit int64) bool { return limit > 0 && printed > limit }

// program runs the command's, or goes on with the one that waited.
func (r *fakeRun) program() (last any, err error) {
	if r.cmd.Continue == nil {
		return r.lines(strings.Split(r.cmd.Code, "\n"))
	}
	if r.from == nil {
		return nil, &raised{kind: "RuntimeError", message: "there is no program that waits"}
	}
	r.calls, r.line = r.cmd.Continue.Calls, r.from.Line
	r.rest = r.from.Rest
	if err := r.gather(r.from.Gather, r.cmd.Continue.Open); err != nil {
		return nil, err
	}
	return r.lines(r.from.Rest)
}

// lines runs lines, the first of which follows the present one.
func (r *fakeRun) lines(lines []string) (last any, err error) {
	for k, line := range lines {
		r.line++
		r.rest = lines[k+1:]
		if err := r.spend(1); err != nil {
			return nil, err
		}
		if last, err = r.statement(strings.TrimSuffix(strings.TrimSpace(line), ";")); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// stop tells whether the program has to stop now, and why.
func (r *fakeRun) stop() error {
	select {
	case <-r.in.kill:
		return errKilled
	default:
	}
	switch {
	case r.broken:
		return &stopped{cause: sandbox.Cancelled}
	case errors.Is(r.ctx.Err(), context.DeadlineExceeded):
		return &stopped{cause: sandbox.TimedOut}
	case r.ctx.Err() != nil:
		return &stopped{cause: sandbox.Cancelled}
	}
	return nil
}

// spend counts work that the program does.
func (r *fakeRun) spend(rounds uint64) error {
	r.fuel += rounds
	if limit := r.cmd.Limits.Fuel; limit > 0 && r.fuel > limit {
		r.fuel = limit
		return &stopped{cause: sandbox.OutOfFuel}
	}
	return r.stop()
}

// sleep waits, or until the program is interrupted.
func (r *fakeRun) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	case <-r.in.kill:
	}
	return r.stop()
}

// loop does work without an end.
func (r *fakeRun) loop() error {
	for {
		if err := r.spend(fakeRounds); err != nil {
			return err
		}
		if err := r.sleep(time.Millisecond); err != nil {
			return err
		}
	}
}

// spin takes no notice of the interrupt.
func (r *fakeRun) spin() error {
	select {
	case <-r.ctx.Done():
	case <-r.in.kill:
		return errKilled
	}
	grace := r.cmd.Limits.Grace
	if grace <= 0 {
		grace = fakeGrace
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.in.kill:
		return errKilled
	}
	stop := &stopped{cause: sandbox.Cancelled, forced: true}
	if errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		stop.cause = sandbox.TimedOut
	}
	return stop
}

// flood prints without an end.
func (r *fakeRun) flood() error {
	piece := strings.Repeat("flood ", 1000) + "\n"
	for {
		if err := r.spend(1000); err != nil {
			return err
		}
		if err := r.write(0, piece); err != nil {
			return err
		}
	}
}

// write passes output on as far as its limit goes.
func (r *fakeRun) write(which int, s string) error {
	limit, w := r.cmd.Limits.StdoutBytes, r.cmd.Stdout
	if which == 1 {
		limit, w = r.cmd.Limits.StderrBytes, r.cmd.Stderr
	}
	before := r.printed[which]
	r.printed[which] += int64(len(s))
	if limit > 0 {
		s = s[:max(0, min(int64(len(s)), limit-before))]
	}
	if w != nil && s != "" && !r.broken {
		if _, err := io.WriteString(w, s); err != nil {
			r.broken = true
		}
	}
	if limit > 0 && r.printed[which] > limit {
		return &stopped{cause: sandbox.OutputExceeded}
	}
	return r.stop()
}

// alloc takes memory for good.
func (r *fakeRun) alloc(n int64) error {
	if limit := r.in.spec.Limits.MemoryBytes; limit > 0 && r.in.memory()+n > limit {
		return &raised{kind: "MemoryError", message: "the program used all the memory it may have", cause: sandbox.OutOfMemory}
	}
	r.in.extra += n
	return nil
}

// input reads what is left of stdin; reading is interrupted like anything else.
func (r *fakeRun) input() (string, error) {
	if r.cmd.Stdin == nil {
		return "", nil
	}
	type answer struct {
		data []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		data, err := io.ReadAll(r.cmd.Stdin)
		got <- answer{data, err}
	}()
	select {
	case a := <-got:
		return string(a.data), a.err
	case <-r.ctx.Done():
	case <-r.in.kill:
	}
	return "", r.stop()
}

func (r *fakeRun) display(mime, data string) error {
	r.shown += int64(len(data))
	if limit := r.cmd.Limits.DisplayBytes; limit > 0 && r.shown > limit {
		return &raised{kind: "OSError", message: "what is shown in one call is over its limit"}
	}
	if r.cmd.Display != nil {
		r.cmd.Display(sandbox.Display{MIME: mime, Data: []byte(data)})
	}
	return nil
}
