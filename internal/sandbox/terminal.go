package sandbox

import (
	"context"
	"time"
)

// TerminalHost is an Instance of a machine in which programs can have a terminal of their
// own. A terminal belongs to the machine: every instance of it knows all of them. It goes on
// when no one is attached, ends with its program, and its program ends with the instance
// that opened it. The methods wait for no Run.
type TerminalHost interface {
	// OpenTerminal starts a program at a new terminal. Where the program is not there, that
	// is a fault.Unsupported; where there are MaxTerminals already, a fault.Exhausted.
	OpenTerminal(ctx context.Context, spec TerminalSpec) (Terminal, error)
	// Terminals lists them, the oldest first. Of those whose program has ended the newest
	// MaxEndedTerminals are kept, with how it ended.
	Terminals(ctx context.Context) ([]Terminal, error)
	// ResizeTerminal changes the size. The programs at the terminal are told also where it
	// is the size that the terminal has, so that they draw their screens again.
	ResizeTerminal(ctx context.Context, id uint32, size TerminalSize) error
	// AttachTerminal connects to a terminal; ctx bounds only that. What is read begins with
	// what was printed from an offset on, of which the newest TerminalScrollback bytes are
	// kept, and goes on until the program has ended, or the connection is closed, which
	// leaves the program as it is. What is written is typed. Several may be attached at
	// once. The program waits for the fastest of them; a slower one misses what it has not
	// read when it is no longer kept. One that is not there is a fault.NotFound.
	AttachTerminal(ctx context.Context, id uint32, from int64) (TerminalStream, error)
}

// Bounds of terminals.
const (
	// TerminalScrollback is how much of what was printed at a terminal is kept, in bytes.
	TerminalScrollback = 256 << 10
	MaxTerminals       = 16 // of one machine
	MaxEndedTerminals  = 16
	// MaxTerminalSide bounds the rows and the columns of a terminal.
	MaxTerminalSide = 4096
)

// TerminalSize is how many characters a terminal shows; zeros: 24 rows of 80 columns.
type TerminalSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// TerminalSpec describes a program at a terminal.
type TerminalSpec struct {
	Command []string // the program and its arguments
	// Env is added to what the instance's programs have; an empty TERM: "xterm-256color".
	Env  map[string]string
	Dir  string // empty: where the instance's programs begin
	Size TerminalSize
}

// Terminal is one of a machine.
type Terminal struct {
	ID      uint32       `json:"id"`  // of the machine; never used again
	PID     int          `json:"pid"` // of the program, for ProcessManager.Signal
	Command string       `json:"command"`
	Started time.Time    `json:"started"`
	Size    TerminalSize `json:"size"`
	// Attached is how many are attached.
	Attached int `json:"attached"`
	// Printed is how many bytes were ever printed there.
	Printed int64 `json:"printed"`
	// Ended says that the program has ended, with ExitCode: 128 and the signal's number where a
	// signal ended it.
	Ended    bool `json:"ended,omitempty"`
	ExitCode int  `json:"exit_code,omitempty"`
}

// TerminalStream is a connection to a terminal. Read gives io.EOF when the program has ended
// and all that it printed was read. CloseWrite only ends the typing.
type TerminalStream interface {
	Stream
	// From is the offset of the first byte that Read gives.
	From() int64
}
