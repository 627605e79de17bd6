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
}

// MachineUsage is what a machine uses on this host.
type MachineUsage struct {
	// CPU is its time since it was booted, what its kernel needs included.
	CPU time.Duration
	// Memory is what its programs have now, files in memory included, in bytes.
	Memory int64
	Booted time.Time
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
// ends both, and works twice.
type Stream interface {
	io.ReadWriteCloser
	// CloseWrite says that nothing more will be sent.
	CloseWrite() error
}
