package session

import (
	"io"
	"time"

	"paddock/internal/sandbox"
)

// Owner is who a session belongs to: a principal's stable name. The local
// user on stdio and on the command line is [Local]. A session is reachable by
// its owner alone; to everyone else it does not exist.
type Owner string

// Local is the owner of everything that the local user's own processes make.
const Local Owner = "local"

// ID names a session: 1 to 100 of A-Z, a-z, 0-9, - and _.
type ID string

// Where the programs of a session may begin. In Root ./servers, ./skills and ./workspace are
// what they are called in documents of others.
const (
	Workspace = "/workspace"
	Root      = "/"
)

// Settings are what a session was made with.
type Settings struct {
	// Language is what a caller meant it for; any of the runtime's languages
	// runs in it all the same.
	Language string `json:"language,omitempty"`
	// Isolation is a backend's name; empty: the manager's default.
	Isolation string `json:"isolation,omitempty"`
	// Name is for people; it need not be unique.
	Name string `json:"name,omitempty"`
	// Dir is the folder that programs begin in: Workspace or Root; empty: the manager's
	// default.
	Dir string `json:"dir,omitempty"`
	// MemoryBytes bounds each interpreter, or the session's machine where it has
	// one; zero: the manager's default.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// TTL is how long the session may stay unused; zero: the manager's default.
	TTL time.Duration `json:"ttl,omitempty"`
	// Servers names those of Config.Tools that the session has, for whoever answers; nil:
	// all of them.
	Servers *[]string `json:"servers,omitempty"`
	// Network are rules for what the session's programs may reach of all that there is to
	// be reached; nil: all of it; none: nothing.
	Network *[]string `json:"network,omitempty"`
	// Secrets names those that its programs have placeholders of. To who makes a session
	// nil says nothing of them, and it has those that sessions have without asking; of a
	// session that was made it is what it has.
	Secrets *[]string `json:"secrets,omitempty"`
	// Ephemeral says that the session ends with what it was made for: there are no
	// checkpoints of it, and it does not sleep.
	Ephemeral bool `json:"passing,omitempty"`
	// Machine is what the session's machine is like, where its isolation gives it
	// one; nil: as by default.
	Machine *Machine `json:"machine,omitempty"`
}

// State says what a session is doing.
type State string

// The states.
const (
	Asleep  State = "asleep"  // no process has it open; the next call wakes it
	Idle    State = "idle"    // it is open, and no interpreter lives
	Live    State = "live"    // an interpreter lives and waits
	Running State = "running" // a program runs
	Queued  State = "queued"  // a program runs and others wait for it
	Waiting State = "waiting" // nothing runs, and a run waits for a person
)

// Info is what there is to know about a session without waiting for it.
type Info struct {
	ID         ID        `json:"session_id"`
	Owner      Owner     `json:"-"`
	Settings   Settings  `json:"settings"`
	Isolation  string    `json:"isolation"` // as results name it: "wasm"
	State      State     `json:"state"`
	CreatedAt  time.Time `json:"created_at"`
	LastUsedAt time.Time `json:"last_used_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	Executions int64     `json:"execution_count"`
	// Checkpoints is how many there are to go back to; zero: not known without
	// opening the session.
	Checkpoints int `json:"checkpoints,omitempty"`
	// Process is the pid of the process that owns the session now; 0: none.
	Process int `json:"process,omitempty"`
	// DiskBytes is what its files took at its last checkpoint.
	DiskBytes int64 `json:"-"`
	// Halted tells that nothing runs in it until it is booted.
	Halted bool `json:"halted,omitempty"`
	// Waiting is the run that waits for a person in it; nil: none does.
	Waiting *WaitingRun `json:"waiting,omitempty"`
	// Traffic is what its programs had sent and received when this was last written down.
	Traffic Traffic `json:"-"`
}

// Details are Info plus what has to be asked of files and interpreters.
type Details struct {
	Info
	Variables []sandbox.Variable
	Imports   []string
	Files     []File
	DiskBytes int64
	Memory    int64
	// Processes are what programs left running in the session's machine; Printed
	// is the end of what they printed while no call was going on.
	Processes []Process
	Printed   string
	// Notice tells why variables, imports and memory are missing; empty: they
	// are not.
	Notice string
}

// File is one file of a workspace.
type File struct {
	Path     string    `json:"path"` // relative to the workspace, with slashes
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

// Request is one program to run in a session.
type Request struct {
	Code     string
	Language string // "python", "javascript", "typescript", "bash"
	// Command is a program of the session's machine with its arguments, in place of
	// Code and Language.
	Command []string
	Name    string // file name in error reports; empty: "<cell>"
	Args    []string
	Stdin   io.Reader
	// Continue is the execution of a run that waits for a person, to go on with in
	// place of a program. Its limits are those that it was begun with, its time is what
	// is left of that; a Timeout may be shorter. The calls that it waits for are made
	// again. One that does not wait, any more or at all, is a fault.NotFound; one that is
	// going on a fault.Conflict; one that cannot go on here, as its interpreter was of
	// another build, a fault.Unsupported, and given up. What went on and did not come to
	// its end, as the server was killed, does not go on again.
	Continue string
	// Timeout is the wall limit; zero: the manager's default. What is above
	// the manager's maximum is a fault.Invalid.
	Timeout time.Duration
	// Isolation must be empty or the session's own.
	Isolation string
	// QueueTimeout is how long another execution may have been running in the session for
	// this one to wait for it; where it has been for longer, Execute gives a fault.Conflict
	// at once that names it. Zero: it waits however long that has been.
	QueueTimeout time.Duration
	// Interrupt stops what runs or waits in the session, and then this one runs.
	Interrupt bool
	// Stdout and Stderr, when set, receive output while it is printed, besides
	// what Result keeps.
	Stdout, Stderr io.Writer
	// Look says that the program only looks at what is there, as completion in an
	// interactive interpreter does: no checkpoint is made after it, and it is not counted.
	Look bool
	// Started is called, when set, with the execution's id once it leaves the
	// queue.
	Started func(execution string)
	// Ended is called, when set, once the program has ended and before what it left
	// is kept, but for a session that was taken away meanwhile. The result has no
	// Changes yet. What put writes belongs to the run: it is a file of the workspace,
	// below [Shown], whose name begins with the number of the execution. It is called for
	// a run that begins to wait for a person as well, and again where that could not be
	// suspended.
	Ended func(res Result, put PutFunc)
	// Limits override the manager's defaults where they are not zero.
	Limits sandbox.RunLimits
}

// Shown is the folder of a workspace with what executions showed and was too large
// for their results.
const Shown = ".paddock"

// PutFunc writes a file, and gives its path in the workspace. What would go beyond
// the disk limit is a fault.Exhausted.
type PutFunc func(name string, data []byte) (path string, err error)

// Result is how a run ended and what it left.
type Result struct {
	Session   ID
	Execution string
	Isolation string
	Exit      sandbox.Exit
	// Stdout and Stderr are what was printed; of more than the limits, the beginning and
	// the end, with a mark between them. Of a run that went on they are all that it
	// printed, of which an earlier result had some.
	Stdout, Stderr             string
	StdoutStream, StderrStream Stream
	Earlier                    Earlier
	// Displays, Changes, Wall and the Exit's Usage are those since the run began, or went
	// on.
	Displays []sandbox.Display
	Changes  []Change
	Wall     time.Duration
	// Egress is how many bytes left and came in meanwhile, also of what the session's
	// programs do in the background.
	Egress int64
	// Refused tells what of that was refused, why, and who can allow it; empty: nothing.
	Refused string
	// ToolCalls is how many calls of tools the run has made in all.
	ToolCalls int
	// Waiting is for what the run waits, where the Exit's cause is sandbox.Waiting: each
	// of the reasons that Run.Suspend was told. Request.Continue goes on with it.
	Waiting []string
	// Notice tells what the model has to know about its state before it goes
	// on, such as an interpreter that had to be started afresh; empty: nothing.
	Notice string
}

// Change is one file that a run added, modified or removed.
type Change struct {
	Path   string `json:"path"`
	Change string `json:"change"` // "added", "modified", "removed"
	Size   int64  `json:"size"`
}
