// Package sandbox is the contract between sessions and isolation: what a
// [Backend] can start, what one [Instance] runs, and how a run ended.
//
// A program's failure is an [Exit]; an error from this package's interfaces
// means that the sandbox itself failed (or was asked for what it cannot do)
// and is a fault. The zero [Spec] gives a program nothing: no network, no
// calls to tools, no files. Instances have no queue, timer, retry or policy;
// package session has them.
//
// The suite in sandboxtest is what every Backend passes.
package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// Backend starts sandboxes of one kind of isolation. It is safe for
// concurrent use.
type Backend interface {
	// Name is the isolation's name in results and configuration: "wasm", "linux".
	Name() string
	// Probe tells what works on this host. It is cheap after its first call.
	Probe(ctx context.Context) Probe
	// Start makes a fresh instance. ctx bounds only the start.
	Start(ctx context.Context, spec Spec) (Instance, error)
	// Close ends every instance and process of the backend and waits for them.
	Close() error
}

// Instance is one live interpreter. Its variables live from one Run to the
// next, until Close or until Done says that it is gone.
type Instance interface {
	// Run executes one command. A second Run while one is going on is a
	// fault.Conflict. When ctx ends the program is interrupted, first gently,
	// then by force, and Run returns its Exit: TimedOut if ctx's deadline
	// passed, else Cancelled. An error means that the sandbox failed; the
	// instance may be gone then.
	Run(ctx context.Context, cmd Command) (Exit, error)
	// Inspect tells what the interpreter holds. It waits for no Run: during
	// one it is a fault.Conflict.
	Inspect(ctx context.Context) (Inspection, error)
	// Done is closed when the instance has ended, by Close or by itself.
	Done() <-chan struct{}
	// Close ends the instance, stopping what runs, and waits. It works twice
	// and from several goroutines.
	Close() error
}

// Snapshotter is an Instance whose state can be kept outside of it. Its methods
// wait for no Run: during one they are a fault.Conflict.
type Snapshotter interface {
	// Snapshot writes to w what of the state changed since the snapshot before,
	// or all that sets it apart from a fresh interpreter; what it writes is
	// opaque, and a state that did not change writes nothing. An instance that was
	// resumed, rewound or forked goes on from what it began with: its next one is
	// a layer upon the layers of that.
	//
	// After an error the next one is Whole; where what was written was not kept
	// the caller has to ask for that. When ctx ends, Snapshot returns at once, and
	// the instance can be used when it has given the snapshot up. The instance
	// goes on; what ends it by force later takes it back to here.
	Snapshot(ctx context.Context, w io.Writer, o SnapshotOptions) (Snapshot, error)
	// Rewind makes the state what it was at an earlier snapshot that the
	// instance still has at hand, earlier or later than where it is; a
	// fault.NotFound means that it has not, and changes nothing. Files are the
	// caller's to bring back, before it calls. The instance gets seeds of its
	// own, as with Resume.Reseed. After any other error it is gone, or may have gone
	// back or not (when ctx ended): it has to be closed.
	Rewind(ctx context.Context, mark string) error
	// Refresh tells the instance that files were changed under it, for it may hold
	// what was there before and write into that. It opens what the program has open
	// again, each by its path and at its offset; what is not there any more gives an
	// error when it is used (ESTALE), and what had no name even before stays open.
	// Variables stay, and so does what the language itself has read ahead or not yet
	// written. After an error the instance is gone, or may have done so or not (when
	// ctx ended): it has to be closed.
	Refresh(ctx context.Context) error
}

// Forker is an Instance that can be doubled without its state leaving memory.
type Forker interface {
	// Fork starts an instance with the state of a snapshot that this one still
	// has at hand (else it is a fault.NotFound), and with what spec says; its
	// Owner and Runtime must be the same, and its Resume nil. It waits for nothing
	// that this one does. The new one has nothing at hand to go back to.
	Fork(ctx context.Context, mark string, spec Spec) (Instance, error)
}

// SnapshotOptions say what a Snapshot is to be.
type SnapshotOptions struct {
	// Whole asks for all of the state and not for what changed.
	Whole bool
	// Portable makes it Whole, and independent of what this machine prepared.
	// Where nothing changed since the snapshot before, it may be given away: the
	// next one is a layer upon either.
	Portable bool
	// Mark names it for Rewind and Fork; empty: neither will be asked for it. A
	// name that is used again is the latest's.
	Mark string
}

// Snapshot tells about one that was written.
type Snapshot struct {
	// Whole tells that what was written needs no other before it: always so in
	// the first of a fresh instance.
	Whole bool
	// State is what else is needed to resume: opaque, a few KiB as a rule and 64
	// at most. It may be new where nothing was written.
	State []byte
	// Bytes is how much memory it holds, before it was made small; 0: nothing
	// changed, and nothing was written.
	Bytes int64
	// Inspection is what the interpreter holds; Known is false where it did not say.
	Inspection Inspection
	Known      bool
}

// Resume is a state to begin with, from an instance of the same runtime. The
// environment and the working folder are that instance's, not the Spec's.
type Resume struct {
	// State is the last snapshot's.
	State []byte
	// Layers open what the snapshots wrote, the oldest first: a Whole one and
	// what changed after it, in the order of their taking, without gaps. Each is
	// opened when its turn comes, and closed; one that cannot be is Start's error.
	Layers []func() (io.ReadCloser, error)
	// Reseed says that this is not simply going on: the state has been here
	// before, or is somewhere else as well. The instance gets seeds of its own,
	// and what waited in the background is given up.
	Reseed bool
}

// Probe is what a backend found out about this host.
type Probe struct {
	Available   bool
	Reason      string       // why not, when it is not available
	Hint        string       // what to change then
	Engine      string       // what executes the guest's code, as a rule: "native", "wazero"
	Runtimes    []Runtime    // what Start accepts
	Protections []Protection // walls around the guest beside the isolation itself
}

// Runtime is one language interpreter that truly runs on this host.
type Runtime struct {
	Name        string // "python", "javascript": Spec.Runtime
	Languages   []string
	Version     string
	Description string
	Packages    []string // importable without installing anything, beyond the language's own library
}

// Protection is one wall and whether it stands.
type Protection struct {
	Name   string
	Active bool
	Detail string // what it does, or why it is missing
}

// Spec describes an instance. It is copied by Start.
type Spec struct {
	// Owner separates tenants: instances of different owners share no process.
	Owner string
	// Box names the machine that this instance shares with others of its owner:
	// processes, folders beside the Mounts, memory. All of them have to have the
	// same Image, User, CPUs, Mounts and MemoryBytes, and the machine ends with the last
	// of them. Empty: one of its own. An isolation without machines takes no notice.
	Box string
	// Image names what the machine's programs and libraries are; empty: the
	// isolation's own choice. An isolation without images takes no notice.
	Image string
	// User is what the machine's user is called: it has the home /home/User, where the first
	// of the Mounts is shown too, and sudo, which runs its arguments as the same user. Empty:
	// "sandbox", without either. An isolation without machines takes no notice.
	User string
	// CPUs bounds the machine's share of the processors; 0: the isolation's own
	// bound. An isolation without machines takes no notice.
	CPUs float64
	// Runtime is the Name of one of the Probe's Runtimes.
	Runtime string
	// Mounts are the folders the guest sees; none: no files but the language's
	// own library.
	Mounts []Mount
	// Dir is the working directory, a guest path; empty: "/".
	Dir string
	// Env is the guest's environment, whole.
	Env map[string]string
	// Limits hold for the instance's life.
	Limits Limits
	// Resume is the state to begin with; nil: a fresh interpreter. One that cannot
	// be resumed, as it was made by another build of the runtime or is damaged, is
	// a fault.Unsupported; one that needs more memory than the limit a fault.Invalid.
	Resume *Resume
	// Machine is the state that the machine begins as, where this Start boots it;
	// nil: a fresh one. Its Mounts may be other folders of the host with the same
	// files. The interpreters that it holds are handed out by Start, each once, as
	// they are asked for by their Runtime; they keep their environment and folder.
	// One that cannot be gone on with is a fault.Unsupported: it was made by another
	// build, of another image or with other Mounts, is damaged, or files that its
	// programs have open are not there.
	Machine *MachineState
	// Snapshots says that Snapshot will be called after each Run, so that the
	// instance need not keep the state by itself.
	Snapshots bool
	// Proxy serves the connections that programs make to ProxyPort at the machine's
	// loopback address, where they find an HTTP proxy: each in a goroutine of its own,
	// MaxProxied at once as a rule, while others wait. Its conn keeps deadlines, has a
	// method CloseWrite() error, and is closed when Proxy returns, as it has to when ctx
	// ends, which is with the machine. Nil: nobody listens there, and the programs have
	// no network. All instances of a Box have one, or none has; it is that of the Start
	// that boots the machine, or of its Adopt. What was connected when a machine was
	// saved is not, in one that begins as that. An isolation without machines takes no
	// notice.
	Proxy func(ctx context.Context, conn net.Conn)
}

// ProxyPort is where a machine's programs find its Spec's Proxy: nobody else listens
// there, and nobody outside can connect to it.
const ProxyPort = 3128

// MaxProxied is how many of a machine's connections to its Proxy there are at once: a
// hundred is what clients for many requests at once open by themselves.
const MaxProxied = 120

// Mount shows a folder of the host to the guest. No path leaves Host,
// whatever links the guest plants in it.
type Mount struct {
	Guest    string   // absolute guest path
	Aliases  []string // further guest paths of the same folder
	Host     string   // folder; must exist
	ReadOnly bool
	// DiskBytes bounds the sum of the files' sizes; zero allows no growth. From
	// Unbounded on nobody counts them.
	DiskBytes int64
	// NoLinks refuses a Host with a symbolic link anywhere on its way: a guest may
	// have put it there. An isolation without machines takes no notice.
	NoLinks bool
	// Told says that whoever changes files in it, and is not a program of the machine,
	// tells so with Machines.FilesChanged: a machine may then remember what is there. What
	// was not told a run sees that begins some time later.
	Told bool
}

// Unbounded is a Mount's DiskBytes where its disk is the only bound.
const Unbounded = 1 << 50

// Limits of an instance. A zero means none of it.
type Limits struct {
	// MemoryBytes bounds the interpreter's memory, its own needs included
	// (about 20 MiB for Python).
	MemoryBytes int64
	// Metered lets runs have RunLimits.Fuel. Counting it may cost speed, so it is
	// not done for everybody.
	Metered bool
}

// Command is one program, or one piece of a session's program.
type Command struct {
	// Code is the source text.
	Code string
	// Language is one of the runtime's Languages; empty: the first.
	Language string
	// Name is the file's name in error reports; empty: "<cell>".
	Name string
	// Args become sys.argv[1:] and process.argv[2:].
	Args []string
	// Stdin is what the program may read; nil: nothing (end of file at once).
	Stdin io.Reader
	// Stdout and Stderr take what it prints, in order, each from one
	// goroutine; nil discards. A writer's error stops the run as Cancelled.
	Stdout, Stderr io.Writer
	// Display takes each picture or document the program shows; nil discards.
	Display func(Display)
	// Call answers what the program asks of the host, which are calls of tools as a
	// rule; nil: nothing answers, and the program is told so. It may be called from
	// several goroutines at once, [CallsAtOnce] at most. Its ctx ends when the program
	// gives the call up, with the run, or earlier when that is stopped; Run returns
	// only when all of them have. Its cause is [ErrWaiting] where the run ended as
	// Waiting: an answer that is given all the same is its OpenCall's.
	Call func(ctx context.Context, c Call) []byte
	// Suspend, once it is closed, has Run return as Waiting when the program does
	// nothing but wait for answers to its calls and can be kept like that: what a
	// Snapshot keeps then, or a Keeper with its machine, waits for the same. The calls
	// end as with the run. A program that waits in another way goes on: for a call that
	// blocks, where it has no machine. Nil: never.
	Suspend <-chan struct{}
	// Continue goes on with the program that was Waiting last, in place of Code; nil:
	// Code is run, and what waited is given up.
	Continue *Continuation
	// Limits hold for this run.
	Limits RunLimits
}

// ErrWaiting is why a call's ctx ends for whose answer a program waits on.
var ErrWaiting = errors.New("sandbox: the program waits, and is left as it is")

// Call is something that a program asks of the host. What it says, and what answers
// it, is a matter of the guest's: package bindings and the guests' module "servers"
// know. An answer is JSON and, where it carries bytes, a line feed and those, of
// [MaxAnswer] bytes at most; an empty one, or a longer one, says that nothing answers.
type Call struct {
	// Number counts the calls of a run from 1, in the order of their coming.
	Number int
	Body   []byte
}

// Continuation is with what a program goes on that was Waiting.
type Continuation struct {
	// Calls is how many the run has made until now.
	Calls int
	// Open are those that the Exit gave. Each that has an Answer is given that; of the
	// others the host is asked again, with the same Number.
	Open []OpenCall
}

// OpenCall is a call that a program waits for.
type OpenCall struct {
	Call
	ID     uint32 // the guest's own name of it
	Answer []byte // of the host, that the guest did not take any more; nil: none
}

// How much of its calls a run may have under way: so many, and so many bytes of their
// bodies together. A guest keeps what a program calls beyond that until there is room.
const (
	CallsAtOnce = 64
	MaxCalls    = 8 << 20
)

// MaxAnswer bounds the answer of a [Call], in bytes.
const MaxAnswer = 16 << 20

// RunLimits bound one run; its time is bounded by Run's ctx. Zero means none
// of it, except for Grace.
type RunLimits struct {
	// Fuel bounds the work: loop rounds and function calls of the interpreter,
	// and what the host does for it, such as hashing.
	// In an instance that is not Metered it is a fault.Unsupported.
	Fuel uint64
	// StdoutBytes and StderrBytes bound what is passed on. A program that prints more is
	// stopped with OutputExceeded; what went beyond is cut and flagged. Zero: no bound.
	StdoutBytes, StderrBytes int64
	// DisplayBytes bounds what is displayed, all together; each counts at least a
	// KiB.
	DisplayBytes int64
	// Grace is how long a program may take to end after the gentle interrupt
	// before it is stopped by force, in wall time; zero: DefaultGrace. A backend bounds
	// what processor time it may take meanwhile, too.
	Grace time.Duration
}

// DefaultGrace is how long a program may take to end when it is interrupted and
// its limits say nothing of that. An interpreter needs some 10 ms for it, and an operation
// of numpy's has to end first: on a machine whose processors and disk are taken several
// times over, one of 20 ms took up to 840 (RATIONALE.md).
const DefaultGrace = 2 * time.Second

// Display is something to look at that a program showed.
type Display struct {
	MIME string
	Data []byte
}

// Cause is why a run ended. The zero value is none of them.
type Cause uint8

// The causes.
const (
	Exited         Cause = iota + 1 // by itself, whatever its exit code
	Crashed                         // the interpreter trapped
	Cancelled                       // ctx was cancelled
	TimedOut                        // ctx's deadline passed
	OutOfFuel                       // RunLimits.Fuel was used up
	OutOfMemory                     // Limits.MemoryBytes was reached and the program did not cope
	OutOfSpace                      // Mount.DiskBytes likewise
	OutputExceeded                  // it printed far beyond its limit
	Waiting                         // it has not ended, and waits for answers to its calls: see Command.Suspend
)

var causes = [...]string{
	"", "exited", "crashed", "cancelled", "timed out", "out of fuel", "out of memory", "out of space", "output exceeded", "waiting",
}

// String names the cause in the words of this package.
func (c Cause) String() string {
	if c == 0 || int(c) >= len(causes) {
		return "invalid cause"
	}
	return causes[c]
}

// State is what became of the interpreter's variables in a run.
type State uint8

// The states.
const (
	Kept     State = iota + 1 // everything up to the moment it stopped is there
	Restored                  // as they were before the run
	Fresh                     // gone; the next run begins with a fresh interpreter
)

var states = [...]string{"", "kept", "restored", "fresh"}

// String gives the state's name in results.
func (s State) String() string {
	if s == 0 || int(s) >= len(states) {
		return "invalid state"
	}
	return states[s]
}

// Exit is how a run ended.
type Exit struct {
	Cause Cause
	// Code is 0 for success, 1 after an uncaught error, or what the program
	// chose with sys.exit or process.exit.
	Code int
	// Result is the repr of the last expression's value; empty: none.
	Result string
	// Error is the uncaught error; nil after success.
	Error *ProgramError
	// State is what became of the interpreter.
	State State
	// StdoutTruncated and StderrTruncated tell that output was cut.
	StdoutTruncated, StderrTruncated bool
	// Engine is what executed it; see Probe.
	Engine string
	Usage  Usage
	// Open are the calls that a Waiting program waits for, by their Numbers; Calls is
	// how many the run has made until now.
	Open  []OpenCall `json:"-"`
	Calls int        `json:"-"`
}

// ProgramError is an error that a program did not catch.
type ProgramError struct {
	Type      string // "ValueError", "TypeError"
	Message   string
	Line      int    // line in Command.Code, from 1; 0: not known
	Hint      string // what to try next; may be empty
	Traceback string // as the language prints it, with the user's lines only
}

// Usage is what a run cost.
type Usage struct {
	CPU  time.Duration // of the guest's thread
	Fuel uint64        // see RunLimits.Fuel; 0 where the engine does not count
	// FuelLimit is the RunLimits.Fuel that was in force; 0: none.
	FuelLimit uint64
	Memory    int64 // bytes of linear memory, or resident ones, at the end
	// Peak is the most resident memory that was seen; 0 where nobody looks.
	Peak int64
	// Wall is how long the run took where it ran; 0: not known.
	Wall time.Duration
}

// Inspection is what an interpreter holds.
type Inspection struct {
	Variables []Variable
	Imports   []string
	Memory    int64 // bytes that this instance has of its own
}

// Variable is one global name of the program.
type Variable struct {
	Name    string
	Type    string
	Preview string // a short repr
}
