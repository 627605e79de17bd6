package session

import (
	"context"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/history"
	"paddock/internal/pool"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
)

// residence is where the interpreters of a session live: apart from each other
// (wasmResidence), or together in a machine that is the session's (machineResidence). All
// that sessions of the two kinds do differently is asked for here. Where it is not said
// otherwise, methods are for the first in the session's queue, the opening and the end.
type residence interface {
	traits
	machinePool

	// describe completes the description of an interpreter. settings are the session's. Any
	// goroutine may call it.
	describe(spec *sandbox.Spec, settings Settings)
	// boot makes the session ready to run, with nothing running.
	boot(t *turn) error
	// prepare does what has to work before there is memory for the first interpreter.
	prepare(ctx context.Context) error
	// start starts an interpreter with the state that is on disk.
	start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error)
	// ended is called when an interpreter has gone, or could not be started.
	ended()
	// comesBack reports whether the next interpreter of a runtime has what the last
	// checkpoint, whose manifest head is, holds of it.
	comesBack(head *history.Manifest, runtime string) bool

	// holder is whose memory an interpreter's is. Any goroutine may call it, and those that
	// follow.
	holder(runtime string) quota.Holder
	// memoryNow is what counts after a run that ended with so many bytes in its interpreter.
	memoryNow(interpreter int64) int64
	// outlives reports whether memory counts on when one of its interpreters has ended.
	outlives(othersLive bool) bool

	// beforeRun is called before a program runs, or is looked for; afterRun when it has ended.
	beforeRun(ctx context.Context)
	afterRun()
	// suspends reports whether a run in an interpreter can be suspended.
	suspends(in sandbox.Instance) bool

	// saver gives what saves all that lives with a checkpoint, where checkpoints do not hold
	// it anyway; nil: nothing has to be saved.
	saver() checkpoint.SaveMachine
	// saved is called when a checkpoint holds what saver saved.
	saved()
	// saveLast makes a checkpoint with what saver saves before the session sleeps, and
	// reports whether it did: then nothing of what lives is lost.
	saveLast(ctx context.Context) bool
	// saveForFork makes one for a fork that begins now. It is not the caller's turn.
	saveForFork(ctx context.Context)
	// forgetSaved has the next interpreter begin without what was saved. None lives.
	forgetSaved(ctx context.Context) error

	// stopAll ends all that lives. Because of why the next results say that variables are
	// gone; the notice says what was stopped.
	stopAll(why string) (notice string)
	// beforeRestore is called before files become those of a checkpoint. It gives which
	// interpreters come back by themselves then, and a notice of what was stopped.
	beforeRestore(target *history.Manifest) (back map[string]history.Interpreter, notice string)
	// afterRestore brings what lives to the target, where the session is now; was is where
	// it was before. The caller holds checkpoints.mu.
	afterRestore(ctx context.Context, was, target *history.Manifest)

	// enforceLifetime and saveIdle do what is due by now, when nobody is at work in the
	// session, and give the time until they should be called again. They are the janitor's.
	enforceLifetime(now time.Time) time.Duration
	saveIdle(now time.Time) time.Duration

	// filesChanged says that the server has changed files of the session: a live interpreter sees
	// that from here on. Any goroutine may call it.
	filesChanged()

	// dial connects to a port at which a program listens, waking what was saved. It is not the
	// caller's turn.
	dial(ctx context.Context, port uint16) (sandbox.Stream, error)
	// terminals gives what has the terminals of a live machine. What was saved is woken for that;
	// where nothing was and boot says so, a machine is booted; else that is a
	// fault.NotFound. It is not the caller's turn.
	terminals(ctx context.Context, boot bool) (sandbox.TerminalHost, error)
	// usage measures what lives; disk is what is known of the files. Any goroutine may call it.
	usage(ctx context.Context, disk int64) Usage
	// meter tells what the machine takes; where none runs that is a fault.NotFound. Any
	// goroutine may call it.
	meter(ctx context.Context) (sandbox.MachineUsage, error)
}

// traits are what all sessions of one isolation have in common: they can be asked for before
// there is a session, and by any goroutine.
type traits interface {
	// memoryLimits gives what an interpreter, or a machine, may take where nobody says, and
	// the most that may be asked for.
	memoryLimits() (usual, most int64)
	// checkMachine says what is wrong with a machine that is asked for; nil asks for none.
	checkMachine(*Machine) error
	// commands gives the runtime that runs programs of the machine.
	commands() (sandbox.Runtime, error)
	// dialer gives what connects to ports at which programs listen.
	dialer() (sandbox.Dialer, error)
	// keepsVariables reports whether every checkpoint after a run holds variables.
	keepsVariables() bool
	// shows reports whether programs are shown a folder, and whether that is one for all
	// sessions of an owner.
	shows(f Folder) (shown, shared bool)
}

// machinePool is how sessions get what was booted before anybody asked for it (package pool).
type machinePool interface {
	// takePooled gives what a new session begins with; nil: there is none.
	takePooled() *pool.Slot
	// adopt makes a slot's machine the session's, which has its folders already; nil: there
	// is none.
	adopt(from *pool.Slot)
	// refill gives a session that was emptied one, with its folders.
	refill()
	// dropPrestarted ends the interpreter that came with a slot, if no program used it yet.
	dropPrestarted()
}

// newResidence gives the residence of a session in a backend; nil: its backend is not here.
func newResidence(s *session, b sandbox.Backend) residence {
	if machines, ok := b.(sandbox.Machines); ok {
		return newMachineResidence(s, b, machines)
	}
	return &wasmResidence{s, b}
}

// eachResidence does what is due in the sessions that are open, one after the other, and gives
// the time until it should do so again.
func (m *Manager) eachResidence(due func(residence, time.Time) time.Duration, now time.Time) time.Duration {
	next := maxRest
	for _, s := range m.sessions.open("") {
		next = min(next, due(s.residence, now))
	}
	return next
}

// traitsOf gives what all sessions in a backend have in common.
func (m *Manager) traitsOf(b sandbox.Backend) traits {
	return newResidence(&session{manager: m}, b)
}
