package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/nativeworker"
	"paddock/internal/sandbox/wasm/worker"
)

// The engines.
const (
	// Wazero compiles the guests when they are prepared. It works everywhere,
	// checks each access to memory, and counts fuel.
	Wazero = "wazero"
	// Native has them translated when paddock was built. It is some four times
	// as fast; an address that a guest makes up cannot leave the reservation.
	Native = "native"
)

// engine is one way to execute guests' code: which program the workers are,
// and what they need in the cache.
type engine struct {
	name     string
	cacheDir string
	log      *slog.Logger

	mu       sync.Mutex // held while the cache is being prepared
	prepared bool       // it was seen to be
}

// chooseEngine gives the name of the engine for whoever has no special wishes,
// and why it is not the native one if so.
func chooseEngine(wish, cacheDir string) (name, why string, err error) {
	switch wish {
	case Wazero:
		return Wazero, "asked for, as it counts fuel", nil
	case Native, "":
	default:
		return "", "", fmt.Errorf("there is no engine %q", wish)
	}
	if nativeworker.Digest() == "" && worker.EngineName != Native {
		why = "this binary was built without the native engine"
	} else if e := worker.Guarded(); e != nil {
		why = fmt.Sprintf("no room for the native engine's address space (%v)", e)
	} else if noExecution(cacheDir) {
		why = "nothing may be executed in the cache folder (noexec)"
	}
	switch {
	case why == "":
		return Native, "", nil
	case wish == Native:
		return "", "", fault.New(fault.Unavailable, "%s", why).WithHint("the engine wazero works everywhere")
	}
	return Wazero, why, nil
}

// bounds is how guests are kept inside of their memory.
func bounds(engine, why string) sandbox.Protection {
	p := sandbox.Protection{Name: "memory bounds", Active: true}
	if engine == Native {
		p.Detail = "guard pages: whatever address a guest makes up lies within 8 GiB of its own (native engine)"
	} else {
		p.Detail = "checked at each access (wazero engine: " + why + ")"
	}
	return p
}

// carried tells whether the workers are the program that this binary carries,
// and not this very binary.
func (e *engine) carried() bool { return e.name != worker.EngineName }

// prepare makes sure that the cache holds what the engine's workers need: the
// program itself, the guests' compiled code, their captured memories. The
// first time that takes up to seconds, then nothing.
func (e *engine) prepare(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.prepared {
		return nil
	}
	prepared, err := e.look()
	if err == nil && !prepared {
		err = e.repairLocked(ctx)
	}
	e.prepared = err == nil
	return err
}

func (e *engine) look() (bool, error) {
	if e.carried() && nativeworker.Check(e.cacheDir) != nil {
		return false, nil
	}
	return worker.Prepared(e.cacheDir, e.name)
}

// repair has the cache filled, and what is damaged in it made again.
func (e *engine) repair(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.repairLocked(ctx)
}

func (e *engine) repairLocked(ctx context.Context) error {
	e.log.Info("preparing the guests, once", "engine", e.name, "cache", e.cacheDir)
	err := os.MkdirAll(e.cacheDir, 0o755)
	if err == nil && e.carried() {
		err = nativeworker.Install(e.cacheDir)
	}
	if err != nil {
		return fault.New(fault.Unavailable, "the cache folder cannot be filled").WithHint("check that %s can be written and has room for 100 MB", e.cacheDir).WithCause(err)
	}
	return e.prepareInChild(ctx)
}

// prepareInChild has the guests compiled and captured by another process: it
// takes hundreds of megabytes, which this one need not keep.
func (e *engine) prepareInChild(ctx context.Context) error {
	cmd, err := e.command("prepare", e.cacheDir)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the preparation: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the preparation: %w", err)
	}
	return nil
}

// command is the engine's program in the worker's role, with nothing of our
// environment.
func (e *engine) command(args ...string) (*exec.Cmd, error) {
	path, err := executable()
	if e.carried() {
		path, err = nativeworker.Path(e.cacheDir), nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding paddock's own binary: %w", err)
	}
	cmd := exec.Command(path)
	cmd.Args = append([]string{worker.Role}, args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = &logWriter{log: e.log}
	cmd.WaitDelay = exitTime
	return cmd, nil
}

// executable is the path of the running binary, also when it has been
// replaced or removed since.
func executable() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
