//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// instance is an interpreter in a machine.
type instance struct {
	sandbox.ProcessManager
	sandbox.TerminalHost
	backend *Backend
	machine *machine
	kernel  *wire.Instance
	leave   sync.Once
	// survived says that it was in the machine when that was saved.
	survived bool
}

// WasRestored tells whether it was in the machine when that was saved.
func (in *instance) WasRestored() bool { return in.survived }

var (
	_ sandbox.Instance         = (*instance)(nil)
	_ sandbox.ProcessManager   = (*instance)(nil)
	_ sandbox.TerminalHost     = (*instance)(nil)
	_ sandbox.RestoredInstance = (*instance)(nil)
)

func newInstance(b *Backend, m *machine, kernel *wire.Instance) *instance {
	return &instance{ProcessManager: kernel.Overseer(), TerminalHost: kernel.Terminals(), backend: b, machine: m, kernel: kernel}
}

// Run executes one command. What the watch of the machine stops has the cause that
// the watch gives.
func (in *instance) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if cmd.Limits.Fuel > 0 {
		return sandbox.Exit{}, fault.New(fault.Unsupported, "fuel is not counted in a Linux machine").WithHint("bound its time instead")
	}
	in.machine.box.changes.begin()
	watched, done := in.machine.watch.run(ctx)
	exit, err := in.kernel.Run(watched, cmd)
	done()
	var over overrun
	if errors.As(context.Cause(watched), &over) && ctx.Err() == nil {
		// One that ends by itself just then does so because nothing can be written.
		if err == nil && (exit.Cause == sandbox.Cancelled || exit.Cause == sandbox.Exited) {
			exit.Cause, exit.Code = over.cause, max(exit.Code, 1)
			exit.Error = over.error()
		} else if err != nil { // the machine was ended
			exit, err = sandbox.Exit{Cause: over.cause, Code: 1, State: sandbox.Fresh, Error: over.error()}, nil
		}
	}
	if err != nil && ctx.Err() == nil && in.machine.starved() {
		o := overrun{sandbox.OutOfMemory, fmt.Sprintf("the programs took more than the %d MiB of memory that they may have", in.machine.box.plan.memory>>20)}
		exit, err = sandbox.Exit{Cause: o.cause, Code: 1, State: sandbox.Fresh, Error: o.error()}, nil
	}
	exit.Engine = Engine
	return exit, err
}

// Inspect tells what the interpreter holds.
func (in *instance) Inspect(ctx context.Context) (sandbox.Inspection, error) {
	return in.kernel.Inspect(ctx)
}

// Done is closed when the interpreter has ended.
func (in *instance) Done() <-chan struct{} { return in.kernel.Done() }

// Close ends it, and the machine if nobody else is in it: then it need not be told.
func (in *instance) Close() error {
	in.leave.Do(func() { in.backend.leave(in.machine) })
	in.machine.box.wake() // or it does not hear of it
	return in.kernel.Close()
}
