package sandbox

import (
	"context"
	"io"
	"time"
)

// Machines is a Backend whose instances share machines; see Spec.Box.
type Machines interface {
	// Machine tells what an owner's box uses; one that is not booted is a
	// fault.NotFound.
	Machine(ctx context.Context, owner, box string) (MachineUsage, error)
	// Memory is what a box's programs have now, in bytes; 0: it is not booted. It
	// costs next to nothing.
	Memory(owner, box string) int64
	// FilesChanged says that files in a Mount that is Told are others now, or gone: when it
	// has returned, the next system call of each program in an owner's box sees that. It
	// costs next to nothing where the box is not booted, or remembers no files.
	FilesChanged(owner, box string)
}

// MachineUsage is what a machine uses on this host.
type MachineUsage struct {
	// CPU is its time since it was booted, what its kernel needs included.
	CPU time.Duration
	// Memory is what its programs have now, files in memory included, in bytes.
	Memory int64
	Booted time.Time
}

// MachineSaver is a Machines that can save a machine with all that runs in it, and boot
// another one as that; see Spec.Machine.
type MachineSaver interface {
	// SaveMachine writes to w what an owner's box is, memory, processes and what was
	// written beside the Mounts; what it writes is opaque. Nothing in the box runs
	// from before still is called until all is written, so that what still looks at
	// belongs to it; then the box goes on. An error of still's is given back as it is.
	//
	// A box that is not booted is a fault.NotFound, one in which an instance is busy
	// a fault.Conflict, one that cannot be saved here a fault.Unsupported, one that
	// holds more than most bytes a fault.Exhausted. ctx bounds all of it; a box that
	// does not answer in time is ended.
	SaveMachine(ctx context.Context, owner, box string, most int64, w io.Writer, still func() error) (SavedMachine, error)
}

// SavedMachine tells about a machine that was saved.
type SavedMachine struct {
	// State is what else is needed to boot it: opaque, 4 KiB at most.
	State []byte
	// Bytes is how much was written.
	Bytes int64
}

// MachineState is what a machine begins as: what SaveMachine wrote.
type MachineState struct {
	State []byte
	// Open opens what was written; it is closed. Where it cannot be, that is Start's
	// error.
	Open func() (io.ReadCloser, error)
	// Reseed says that the state has been here before, or is somewhere else as well:
	// what draws random numbers gets seeds of its own, and programs that were Waiting
	// are given up.
	Reseed bool
}

// RestoredInstance is an Instance that may have been in a machine when that was saved.
type RestoredInstance interface {
	// WasRestored tells whether it was: then its variables are there.
	WasRestored() bool
}

// CommandRuntime is the runtime of a machine that runs its programs: a Command's
// Code is the program's name and Args are its arguments. No Probe lists it.
const CommandRuntime = "command"

// Dialer is a Machines whose programs can be connected to.
type Dialer interface {
	// Dial connects to a TCP port at the loopback address of an owner's box; ctx
	// bounds only that. A box that is not booted is a fault.NotFound, a port at
	// which nobody listens a fault.Unavailable.
	Dial(ctx context.Context, owner, box string, port uint16) (Stream, error)
}

// Stream is a connection. Read and Write may be called at the same time; Close
// ends both, and works twice. Read gives io.EOF where the program has closed it, and
// an io.ErrUnexpectedEOF, after what had come, where it was cut off.
type Stream interface {
	io.ReadWriteCloser
	// CloseWrite says that nothing more will be sent.
	CloseWrite() error
}

// EnvdHost is a Machines that serves the protocol of E2B's daemon (package envd) in its boxes.
type EnvdHost interface {
	// DialEnvd connects to the daemon of an owner's box, which begins with the first
	// connection; ctx bounds only that. Whoever connects may do all that a program of the box
	// may. A box that is not booted is a fault.NotFound.
	DialEnvd(ctx context.Context, owner, box string) (Stream, error)
}
