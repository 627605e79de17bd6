package serve

import (
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// Outcome is what a guest's driver answers a request with, as guest/README.md describes
// it. A child adds what only its own drivers say.
type Outcome struct {
	Status    string             `json:"status"` // "ok", "done", or StatusWaiting
	ExitCode  int                `json:"exit_code"`
	Result    string             `json:"result"`
	Error     *Failure           `json:"error"`
	Variables []sandbox.Variable `json:"variables"`
	Imports   []string           `json:"imports"`
}

// StatusWaiting is the status of a program that waits: for a timer, or for replies to
// its calls.
const StatusWaiting = "waiting"

// Failure is a program's error as its driver tells it.
type Failure struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Line      int    `json:"line"`
	Hint      string `json:"hint"`
	Traceback string `json:"traceback"`
	Kind      string `json:"kind"` // "interrupted", "memory", "space"; empty: any other
}

// Inspection is what the driver said the interpreter holds, cut to what an inspection
// may say.
func (o Outcome) Inspection() sandbox.Inspection {
	return wire.Brief(sandbox.Inspection{Variables: o.Variables, Imports: o.Imports})
}

// Report tells the program's error, if it has one, in exit.
func (o Outcome) Report(exit *sandbox.Exit) {
	if o.Error == nil {
		return
	}
	exit.Error = &sandbox.ProgramError{
		Type: o.Error.Type, Message: o.Error.Message, Line: o.Error.Line, Hint: o.Error.Hint, Traceback: o.Error.Traceback,
	}
	switch o.Error.Kind {
	case "memory":
		exit.Cause = sandbox.OutOfMemory
	case "space":
		exit.Cause = sandbox.OutOfSpace
	}
}

// Stopped is the type of the error of a program that was stopped.
const Stopped = "Stopped"

// NeverBegun is how a run ends that was stopped, because of cause, before it began.
func NeverBegun(cause sandbox.Cause) sandbox.Exit {
	return sandbox.Exit{Cause: cause, Code: 1, State: sandbox.Kept, Error: &sandbox.ProgramError{
		Type: Stopped, Message: "the program was stopped before it began",
	}}
}

// StoppedByForce is the error of a program that an interrupt did not end.
func StoppedByForce() *sandbox.ProgramError {
	return &sandbox.ProgramError{Type: Stopped, Message: "the program did not end when it was interrupted and was stopped by force"}
}

// Conclude tells in exit why the run was stopped (cause; 0: it was not), if that is how
// it ended: ended says that it was interrupted, or that its interpreter is gone. A run
// that did not end by itself has a code other than 0.
func Conclude(exit *sandbox.Exit, cause sandbox.Cause, ended bool) {
	if cause != 0 && (ended || exit.Cause == sandbox.Crashed) {
		exit.Cause = cause
	}
	if exit.Cause != sandbox.Exited && exit.Cause != sandbox.Waiting && exit.Code == 0 {
		exit.Code = 1
	}
}

// Refuse ends a run that executes nothing: the program's stderr gets what is wrong with
// it. The exit it gives is the run's.
func (e *Ends) Refuse(body wire.RunBody, wrong *sandbox.ProgramError) sandbox.Exit {
	e.Out.Begin(body.Limits)
	e.Out.Write(1, []byte(wrong.Traceback))
	e.Out.End()
	e.Control.End()
	return sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: wrong}
}
