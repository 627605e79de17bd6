package sandbox

import (
	"context"
	"time"
)

// ProcessManager is an Instance whose programs may leave processes behind that go on
// when a run has ended. Its methods wait for no Run. What ends the instance ends
// its processes as well.
type ProcessManager interface {
	// Processes lists what lives beside the interpreter, the oldest first: what
	// its programs started, and, with Loose, what nobody can tell whose it is.
	Processes(ctx context.Context) ([]Process, error)
	// Signal sends a signal, by its name ("TERM", "KILL", "INT", "HUP", "USR1",
	// "USR2", "STOP", "CONT"), to one of those processes and, where it leads a
	// process group, to the group. One that is not there is a fault.NotFound.
	Signal(ctx context.Context, pid int, signal string) error
	// Printed gives what was printed while no Run was going on, from an offset
	// on. The newest 256 KiB are kept.
	Printed(ctx context.Context, from int64) (Printed, error)
}

// Process is one that a program started.
type Process struct {
	PID     int
	Command string // its arguments, cut at 256 characters
	Started time.Time
	CPU     time.Duration
	Memory  int64 // resident bytes
	// Detached tells that it left its session and its parent is gone: it belongs to
	// all instances of the machine.
	Detached bool `json:"Loose,omitempty"`
}

// Printed is a part of what was printed between runs.
type Printed struct {
	Data []byte
	// From is the offset of Data's first byte, larger than what was asked for
	// where that is no longer kept; the next part begins at From + len(Data).
	From int64
}
