package session

import (
	"context"
	"net"

	"paddock/internal/sandbox"
)

// Tools answers what programs ask of the host: calls of tools, and messages to what else
// the host has for them. Its methods are called from many goroutines.
type Tools interface {
	// Call answers one request of a program; see sandbox.Command. A panic is an answer of
	// nothing.
	Call(ctx context.Context, run Run, c sandbox.Call) []byte
	// Abandoned is told of a run that waited for a person and will never go on: another ran
	// in its interpreter, it was cancelled or could not go on, or its session was reset,
	// taken back, or is no more. It should not take long.
	Abandoned(owner Owner, id ID, execution string)
	// Interrupted is asked, when a session is opened, for the calls of runs that ended with
	// their process and that no result has told of. The run that waits for a person is not
	// meant: except is its name, or empty. The session's next result tells the news, and done
	// is called when it is on disk. It should not take long.
	Interrupted(owner Owner, id ID, except string) (news string, done func())
}

// Network is the way that what programs send takes out of this host. Its methods are
// called from many goroutines.
type Network interface {
	// Check says what is wrong with the rules that a session is made with
	// (Settings.Network): a fault.Denied where it may not have what they name, another
	// fault where they are no rules.
	Check(rules []string) error
	// Machine gives the way out of the machine of a session that has these settings; nil:
	// the machine has none. It is asked whenever an interpreter is described, and should do
	// nothing but answer; owner and id are empty where a machine is booted ahead, whose
	// Proxy is never used. Whether there is a way out may not change while the session's
	// machine is booted.
	Machine(owner Owner, id ID, settings Settings) *MachineNetwork
	// Used gives what a session has sent and received in all, Info's Traffic included;
	// false: nothing since this process has it.
	Used(owner Owner, id ID) (Traffic, bool)
	// Refused tells, in a line for the reader of a result, what the session's programs were
	// refused since it was last asked; "": nothing.
	Refused(owner Owner, id ID) string
	// Disconnect ends the connections of a session that this process closes, that is
	// removed, or whose programs were brought back to an earlier state. It waits for their
	// end.
	Disconnect(owner Owner, id ID)
}

// MachineNetwork is the way out of a session's machine.
type MachineNetwork struct {
	// Proxy serves the connections of the session's programs; see sandbox.Spec.
	Proxy func(ctx context.Context, conn net.Conn)
	// Env is how programs find it without being told. The environments of the Config and
	// of the session have precedence.
	Env map[string]string
}

// Secrets gives sessions' programs secrets that they use without seeing them: a session
// knows names, and the placeholders in variables. Its methods are called from many
// goroutines.
type Secrets interface {
	// Choose gives the names of the secrets that a session is made with which asks for
	// these (Settings.Secrets); nil: it says nothing of them. A secret that it may not
	// have is a fault.Denied.
	Choose(owner Owner, wish *[]string) ([]string, error)
	// Give lets a session that is being made have these secrets and no others. A fork's
	// parent is the session that it is made of, whose variables are in the memory that it
	// begins with; some of its names may be gone. Else parent is empty.
	Give(owner Owner, id ID, names []string, parent ID) error
	// Variables are what a session's programs have in their environment. It should be
	// cheap.
	Variables(owner Owner, id ID) (map[string]string, error)
	// Clean takes the values of a session's secrets out of what is written down of it.
	// Where it cannot know them all it is an error.
	Clean(owner Owner, id ID, text []byte) ([]byte, error)
}

// Observer hears what happens in sessions. Its methods are called from many goroutines.
type Observer interface {
	// Record takes an Event. Its error before a program runs (Event.Begun) is the
	// execution's, and the program does not run; its error after something happened is
	// logged. A request that never got its turn has no Event.
	Record(ctx context.Context, e Event) error
	// Removed is told of a session that has ended for good, when its files are gone. It
	// should not take long.
	Removed(owner Owner, id ID)
}

// RecordFunc is an [Observer] that records.
type RecordFunc func(ctx context.Context, e Event) error

// Record implements [Observer].
func (f RecordFunc) Record(ctx context.Context, e Event) error { return f(ctx, e) }

// Removed implements [Observer].
func (RecordFunc) Removed(Owner, ID) {}

// RemovedFunc is an [Observer] that hears of sessions that are removed.
type RemovedFunc func(owner Owner, id ID)

// Record implements [Observer].
func (RemovedFunc) Record(context.Context, Event) error { return nil }

// Removed implements [Observer].
func (f RemovedFunc) Removed(owner Owner, id ID) { f(owner, id) }

// Surroundings are what a Manager's sessions are joined to.
type Surroundings struct {
	Tools     Tools
	Network   Network
	Secrets   Secrets
	Observers []Observer
	Folders   []Folder
}
