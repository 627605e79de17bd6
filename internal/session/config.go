package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"paddock/internal/blob"
	"paddock/internal/sandbox"
)

// Unlimited is a wall limit that no run reaches.
const Unlimited time.Duration = math.MaxInt64

// Config sets a Manager up. It is copied.
type Config struct {
	// Dir is the state folder; it is made when it is missing. Several processes
	// may share it.
	Dir string
	// Backends run the programs; the first is the default isolation. They are
	// not closed by the Manager, and must not be before it is.
	Backends []sandbox.Backend
	// DefaultTimeout is the wall limit of a run that asks for none; zero: 30 s.
	// MaxTimeout is the longest that may be asked for; zero: 1 h. Both may be Unlimited.
	DefaultTimeout, MaxTimeout time.Duration
	// IdleTTL is how long a session may stay unused; zero: 24 h.
	IdleTTL time.Duration
	// MaxPerOwner bounds the sessions that an owner has open in this process;
	// zero: 32. For one more, another that nobody uses just now is put to sleep.
	MaxPerOwner int
	// MaxSessions bounds the sessions of all owners that this process has open;
	// zero: 1024.
	MaxSessions int
	// MaxStored bounds the sessions that an owner has, asleep or not; zero:
	// 10,000.
	MaxStored int
	// SleepAfter is how long a session stays in memory unused; zero: 10 min;
	// negative: until its place is needed.
	SleepAfter time.Duration
	// Checkpoints is how many checkpoints without a label a session keeps; zero:
	// 100.
	Checkpoints int
	// AsyncCheckpoint has a run's result given before its checkpoint is on disk, which
	// is made right after, before anything else happens in the session. What is
	// killed in between is lost, although it was answered.
	AsyncCheckpoint bool
	// DropOutput says that nothing is kept of what executions printed, returned and
	// displayed, and of their code the first line.
	DropOutput bool
	// Life is this process's, which the backends' processes inherit; the Manager
	// does not close it. Nil: no process is started that could outlive this one.
	Life *Life
	// AnswersAlways lets other processes of the state folder ask about each session that is
	// open here; else they can from the first machine on.
	AnswersAlways bool
	// Files are the file operations of blobs and checkpoints; nil: the system's.
	// Tests put faults in.
	Files blob.Files
	// MemoryBytes bounds each interpreter; zero: 256 MiB.
	MemoryBytes int64
	// MachineMemoryBytes bounds a machine for which nobody says, where the
	// isolation gives sessions machines; zero: MemoryBytes. MaxMachineMemoryBytes is
	// the most that may be asked for; zero: MachineMemoryBytes.
	MachineMemoryBytes, MaxMachineMemoryBytes int64
	// Pool is how many machines are kept booted at most for sessions that will be
	// made, where an isolation can do so (sandbox.Adopter). It begins when sessions
	// are made in one, or at once where it is the default isolation. Zero: none.
	Pool int
	// MachineStateBytes bounds the memory of a machine that is saved with its
	// session, when that sleeps and when a checkpoint is asked for; of a larger one
	// only files are kept. Zero: 512 MiB; below: none is saved.
	MachineStateBytes int64
	// SaveAfter is how long nothing runs in a machine until that is saved as well; one
	// at a time is. Zero: 30 s; below: only when its session sleeps.
	SaveAfter time.Duration
	// MaxLifetime is how long a machine runs at most, also while its programs work
	// in the background; the next call boots a new one. Zero: as long as it is used.
	MaxLifetime time.Duration
	// OwnerMemoryBytes and TotalMemoryBytes bound what the live interpreters of
	// an owner, and of all, take together; zero: 32 and 64 times MemoryBytes.
	// An idle one counts what it has, one that runs all that it may take.
	OwnerMemoryBytes, TotalMemoryBytes int64
	// Cwd is the folder that programs begin in, as a session's Dir; empty: Workspace.
	Cwd string
	// DiskBytes bounds a workspace; zero: 512 MiB. The guest's /tmp has a
	// quarter of it besides.
	DiskBytes int64
	// OwnerDiskBytes bounds the workspaces of an owner together; zero: eight
	// times DiskBytes.
	OwnerDiskBytes int64
	// Admit waits until one more program of an owner may run, and says no where
	// that would take too long; release is called when it has ended. It is
	// called with the session's turn taken, and ctx ends with the execution.
	// Nil: all may run at once.
	Admit func(ctx context.Context, owner Owner) (release func(), err error)
	// Limits hold for a run that brings none; zero fields: fuel is not counted
	// for anybody, 1 MiB of stdout and of stderr, 16 MiB of displays.
	Limits sandbox.RunLimits
	// WaitInPlace is how long a run waits in place for a person before it is suspended
	// (Run.Suspend), half of what is left of its time at most; zero: 2 s; below: none is
	// suspended.
	WaitInPlace time.Duration
	// Tools answers what programs ask of the host. Nil: nothing does.
	Tools Tools
	// Network is the way out for programs. Nil: no session may ask for any host, and
	// nothing is counted.
	Network Network
	// Secrets gives programs secrets. Nil: there are none.
	Secrets Secrets
	// Observers hear what happens, in this order. The first that does not take an Event
	// before a program runs keeps it from running.
	Observers []Observer
	// Folders are shown to programs beside their workspace.
	Folders []Folder
	// Surround, when set, gives the five above in their place. It is called once, with the
	// Manager that is being made, for parts that look at its sessions when they are called:
	// until New returns there are none.
	Surround func(*Manager) (Surroundings, error)
	// Env is added to every guest's environment.
	Env map[string]string
	// Tracer makes the spans session.queue, sandbox.start, sandbox.run and
	// checkpoint; nil: none are made.
	Tracer trace.Tracer
	// Log takes what an operator should see; nil: nothing is logged.
	Log *slog.Logger
}

// complete puts defaults in and reports all mistakes at once.
func (c *Config) complete() error {
	c.Backends, c.Env, c.Folders = slices.Clone(c.Backends), maps.Clone(c.Env), slices.Clone(c.Folders)
	c.Observers = slices.Clone(c.Observers)
	c.MaxTimeout = cmp.Or(c.MaxTimeout, time.Hour)
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, min(30*time.Second, c.MaxTimeout))
	c.IdleTTL = cmp.Or(c.IdleTTL, 24*time.Hour)
	c.MaxPerOwner = cmp.Or(c.MaxPerOwner, 32)
	c.MemoryBytes = cmp.Or(c.MemoryBytes, 256<<20)
	c.DiskBytes = cmp.Or(c.DiskBytes, 512<<20)
	c.MaxSessions = cmp.Or(c.MaxSessions, 1024)
	c.MaxStored = cmp.Or(c.MaxStored, 10_000)
	c.SleepAfter = cmp.Or(c.SleepAfter, 10*time.Minute)
	c.Checkpoints = cmp.Or(c.Checkpoints, 100)
	c.MachineMemoryBytes = cmp.Or(c.MachineMemoryBytes, c.MemoryBytes)
	c.MaxMachineMemoryBytes = cmp.Or(c.MaxMachineMemoryBytes, c.MachineMemoryBytes)
	c.MachineStateBytes = cmp.Or(c.MachineStateBytes, 512<<20)
	c.SaveAfter = cmp.Or(c.SaveAfter, 30*time.Second)
	c.WaitInPlace = cmp.Or(c.WaitInPlace, 2*time.Second)
	c.OwnerMemoryBytes = cmp.Or(c.OwnerMemoryBytes, 32*c.MemoryBytes)
	c.TotalMemoryBytes = cmp.Or(c.TotalMemoryBytes, 64*c.MemoryBytes)
	c.OwnerDiskBytes = cmp.Or(c.OwnerDiskBytes, 8*c.DiskBytes)
	c.Limits = merge(c.Limits, sandbox.RunLimits{StdoutBytes: 1 << 20, StderrBytes: 1 << 20, DisplayBytes: 40 << 20})
	// One machine can always run.
	c.MaxMachineMemoryBytes = min(c.MaxMachineMemoryBytes, c.OwnerMemoryBytes, c.TotalMemoryBytes)
	c.MachineMemoryBytes = min(c.MachineMemoryBytes, c.MaxMachineMemoryBytes)
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	errs := []error{checkFolders(c.Folders)}
	if c.Dir == "" {
		errs = append(errs, errors.New("session: a state folder is needed"))
	} else if abs, err := filepath.Abs(c.Dir); err != nil {
		errs = append(errs, err)
	} else {
		c.Dir = abs
	}
	if len(c.Backends) == 0 {
		errs = append(errs, errors.New("session: a backend is needed"))
	}
	if c.DefaultTimeout < 0 || c.MaxTimeout < 0 || c.DefaultTimeout > c.MaxTimeout {
		errs = append(errs, fmt.Errorf("session: the default timeout (%v) must lie between 0 and the maximum (%v)", c.DefaultTimeout, c.MaxTimeout))
	}
	if c.OwnerMemoryBytes < c.MemoryBytes || c.TotalMemoryBytes < c.MemoryBytes {
		errs = append(errs, fmt.Errorf("session: an interpreter may take %d MiB, and all of them together fewer", c.MemoryBytes>>20))
	}
	if c.IdleTTL < 0 || c.MaxPerOwner < 0 || c.MaxSessions < 0 || c.MaxStored < 0 || c.Checkpoints < 0 || c.MemoryBytes < 0 || c.MachineMemoryBytes < 0 || c.Pool < 0 || c.MaxLifetime < 0 || c.DiskBytes < 0 || c.OwnerDiskBytes < 0 || negative(c.Limits) {
		errs = append(errs, errors.New("session: limits are not negative"))
	}
	return errors.Join(errs...)
}

// admit waits until an owner may run one more program.
func (c *Config) admit(ctx context.Context, o Owner) (release func(), err error) {
	if c.Admit == nil {
		return func() {}, nil
	}
	return c.Admit(ctx, o)
}

// merge takes from other what l leaves zero.
func merge(l, other sandbox.RunLimits) sandbox.RunLimits {
	return sandbox.RunLimits{
		Fuel: cmp.Or(l.Fuel, other.Fuel), StdoutBytes: cmp.Or(l.StdoutBytes, other.StdoutBytes), StderrBytes: cmp.Or(l.StderrBytes, other.StderrBytes),
		DisplayBytes: cmp.Or(l.DisplayBytes, other.DisplayBytes), Grace: cmp.Or(l.Grace, other.Grace),
	}
}

func negative(l sandbox.RunLimits) bool {
	return l.StdoutBytes < 0 || l.StderrBytes < 0 || l.DisplayBytes < 0 || l.Grace < 0
}
