package agent

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// Command is the runtime in which each run is a process of its own: Code is the
// program, Args are its arguments.
const Command = "command"

// command runs a program to its end. What it leaves in the background goes on.
func (in *instance) command(body wire.RunBody) sandbox.Exit {
	in.out.Begin(body.Limits)
	in.ends.In.Begin(body.Stdin)
	m := begin(0)
	m.cpu, m.first = 0, process{}
	k := &interpreter{}
	stdin, end, err := in.commandInput(body.Stdin)
	if err == nil {
		defer end()
		err = k.startWith(in, stdin, []string{body.Code}, body.Args, in.environ, nil)
		stdin.Close()
	}
	if err != nil {
		in.out.End()
		return notStarted(in.ends.Control.End(), fault.Of(err))
	}
	defer in.bury()
	in.setInterpreter(k)
	bound := in.bound(k.child.pid)
	if bound != nil {
		k.kill() // unless it has ended already
	}
	begun := make(chan struct{})
	close(begun)
	told, leave := in.watchRun(k, m, begun)
	_, hard := in.ends.Control.Stops()
	select {
	case <-k.child.ended:
	case <-hard:
		k.kill()
		in.agent.killOf(in, m.since)
	}
	leave()
	k.drain()
	exit := sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept, Usage: m.usage(k)}
	in.out.End()
	exit.StdoutTruncated, exit.StderrTruncated = in.out.Cut()
	commandEnded(&exit, k.child.status, bound)
	if m.over.Load() {
		exit.Cause = sandbox.OutOfMemory
	}
	if cause := in.ends.Control.End(); cause != 0 && (told.Load() || isClosed(hard)) {
		exit.Cause, exit.Code = cause, max(exit.Code, 1)
	}
	return exit
}

// commandEnded says how a program's process ended.
func commandEnded(exit *sandbox.Exit, status syscall.WaitStatus, bound error) {
	exit.Code = status.ExitStatus()
	if !status.Signaled() {
		return
	}
	exit.Code = 128 + int(status.Signal())
	exit.Error = &sandbox.ProgramError{Type: "Signal", Message: "the program was ended by the signal " + unix.SignalName(status.Signal())}
	if bound != nil {
		exit.Error.Message = "the program was ended, because its limits could not be set: " + bound.Error()
	}
}

// notStarted is how a run ends whose program is not there, as shells count.
func notStarted(cause sandbox.Cause, f *fault.Error) sandbox.Exit {
	if cause == 0 {
		cause = sandbox.Exited
	}
	return sandbox.Exit{Cause: cause, Code: 127, State: sandbox.Kept, Error: &sandbox.ProgramError{Type: "NotFound", Message: f.Message, Hint: f.Hint}}
}

// commandInput gives what a program reads: nothing, or a pipe into which the
// server's pieces go. end stops that, and waits.
func (in *instance) commandInput(open bool) (r *os.File, end func(), err error) {
	if !open {
		r, err = os.Open(os.DevNull)
		return r, func() {}, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(fds[1], true); err != nil { // so that closing ends a write
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, err
	}
	w := os.NewFile(uintptr(fds[1]), "input")
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer w.Close()
		for {
			p, _ := in.ends.In.Next(stop)
			if len(p) == 0 {
				return
			}
			if _, err := w.Write(p); err != nil {
				return // nobody reads it any more
			}
		}
	})
	return os.NewFile(uintptr(fds[0]), "input"), func() {
		close(stop)
		w.Close()
		all.Wait()
	}, nil
}
