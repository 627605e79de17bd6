package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// inspectTime bounds an inspection: a driver answers in milliseconds, but the
// program may have other threads.
const inspectTime = 5 * time.Second

// defaultPath is where programs are looked for when nobody says.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// instance is one interpreter, or one place where commands are run.
//
// use is held by whoever uses the kernel: a run, an inspection, the closing.
type instance struct {
	agent    *agent
	id       uint32
	start    wire.StartBody
	language *language // nil: every run is a command, a process of its own
	dir      string
	environ  []string
	path     string

	ends *serve.Ends
	out  output

	use    sync.Mutex
	closed bool

	mu     sync.Mutex     // guards what follows; it is held shortly
	kernel *interpreter   // nil: none is alive
	past   []*interpreter // those that are gone, whose processes may go on
}

// Ends are where its runs meet the server.
func (in *instance) Ends() *serve.Ends { return in.ends }

// Frame takes nothing: what comes for an instance is what all have in common.
func (in *instance) Frame(wire.Frame) (bool, error) { return false, nil }

// open makes an instance and starts its kernel.
func (a *agent) open(id uint32, body wire.StartBody) (*instance, error) {
	in := &instance{agent: a, id: id, start: body, dir: body.Dir, language: languages[body.Runtime]}
	if in.language == nil && body.Runtime != Command {
		return nil, fault.New(fault.Unsupported, "there is no runtime called %q", body.Runtime).
			WithHint("the runtimes are %s", strings.Join(slices.Sorted(maps.Keys(languages)), ", "))
	}
	if in.dir == "" {
		in.dir = "/"
	}
	if body.Resume != nil || body.Fork != nil {
		return nil, fault.New(fault.Unsupported, "the agent resumes no states")
	}
	in.setEnvironment()
	in.ends = serve.NewEnds(a.conn, id)
	in.out.Output = in.ends.Out
	if in.language == nil {
		return in, nil
	}
	k, err := startInterpreter(in)
	if err != nil {
		return nil, err
	}
	in.kernel = k
	return in, nil
}

// setEnvironment puts together what the instance's processes have in theirs.
func (in *instance) setEnvironment() {
	env := map[string]string{}
	for _, pair := range in.agent.setup.Env {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	maps.Copy(env, in.start.Env)
	for name, value := range map[string]string{
		"PATH": defaultPath, "HOME": "/tmp", "LANG": "C.UTF-8", "USER": "sandbox", "LOGNAME": "sandbox",
		"XDG_CACHE_HOME":       cmp.Or(env["TMPDIR"], "/tmp") + "/.cache",            // what can be made again is not a file of the program's
		"MPLCONFIGDIR":         cmp.Or(env["TMPDIR"], "/tmp") + "/.cache/matplotlib", // which it would make in the workspace
		"OPENBLAS_NUM_THREADS": strconv.FormatInt(in.blasThreads(), 10),
	} {
		if env[name] == "" {
			env[name] = value
		}
	}
	in.path = env["PATH"]
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name != "" && !strings.ContainsAny(name+env[name], "\x00") && !strings.Contains(name, "=") {
			in.environ = append(in.environ, name+"="+env[name])
		}
	}
}

// blasThreads is how many threads OpenBLAS may have: each of them takes about 128 MiB
// of addresses as soon as it is loaded.
func (in *instance) blasThreads() int64 {
	n := int64(runtime.NumCPU())
	if in.start.MemoryBytes > 0 {
		n = min(n, max(1, in.start.MemoryBytes>>28))
	}
	return n
}

// pid is the living kernel's process; 0: there is none.
func (in *instance) pid() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.kernel == nil {
		return 0
	}
	return in.kernel.child.pid
}

// sessions are those in which the instance's processes are as a rule.
func (in *instance) sessions() []int {
	all := in.agent.terminals.sessions(in)
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, k := range in.past {
		all = append(all, k.session)
	}
	if in.kernel != nil {
		all = append(all, in.kernel.session)
	}
	return all
}

func (in *instance) setInterpreter(k *interpreter) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.kernel = k
}

// maxExited is how many kernels may be remembered for what they left.
const maxExited = 16

// bury takes the kernel away. What its programs left goes on; what that prints
// is read as before, but belongs to no run.
func (in *instance) bury() {
	in.mu.Lock()
	k := in.kernel
	in.kernel = nil
	in.mu.Unlock()
	if k == nil {
		return
	}
	k.kill()
	if k.channel != nil {
		k.channel.close()
	}
	for _, p := range k.pumps {
		p.divert()
	}
	in.mu.Lock()
	in.past = append(in.past, k)
	var gone []*interpreter
	in.past = slices.DeleteFunc(in.past, func(k *interpreter) bool {
		over := isClosed(k.pumps[0].done) && isClosed(k.pumps[1].done)
		if over {
			gone = append(gone, k)
		}
		return over
	})
	if len(in.past) > maxExited {
		gone, in.past = append(gone, in.past[0]), in.past[1:]
	}
	in.mu.Unlock()
	for _, k := range gone {
		k.closePumps()
	}
}

// spaceBeyond is what a process may have of addresses beyond its memory, until it
// is first looked at: shared libraries, threads' stacks.
const spaceBeyond = 128 << 20

// bound sets the limits of a kernel's process, before anything of the program
// runs in it.
func (in *instance) bound(pid int) error {
	set := func(resource int, n int64) error {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &old); err != nil {
			return err
		}
		return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: min(uint64(n), old.Max), Max: old.Max}, nil)
	}
	var errs []error
	if n := in.start.MemoryBytes; n > 0 && in.language != nil && in.language.spaceLimited {
		errs = append(errs, set(unix.RLIMIT_DATA, n), set(unix.RLIMIT_AS, n+spaceBeyond))
	}
	if n := in.largestFile(); n >= 0 { // for good: nothing in a box may raise it
		errs = append(errs, unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(n), Max: uint64(n)}, nil))
	}
	return errors.Join(errs...)
}

// blasSpace is what OpenBLAS reserves for each thread that calculates, all at once,
// when that calls it for the first time.
const blasSpace = 136 << 20

// rooms is how a kernel's process is given addresses.
type rooms struct {
	seen int64 // how many it had when it was last looked at what they are for
	blas bool  // OpenBLAS is among it
}

// give lets a kernel's process have as many addresses more as its memory may still
// grow by. Libraries and threads reserve what they do not use, so that no fixed
// limit is right; and OpenBLAS waits for ever when it cannot reserve what it wants.
func (r *rooms) give(p process, limit int64) {
	if !r.blas && p.space-r.seen > 16<<20 {
		r.seen = p.space
		maps, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/maps")
		r.blas = err == nil && bytes.Contains(maps, []byte("openblas"))
	}
	more := limit - p.memory
	if r.blas && more > blasSpace/2 {
		more += blasSpace
	}
	var old unix.Rlimit
	if unix.Prlimit(p.pid, unix.RLIMIT_AS, nil, &old) != nil {
		return // it has ended
	}
	if now := min(uint64(p.space+more), old.Max); now != old.Cur {
		_ = unix.Prlimit(p.pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: now, Max: old.Max}, nil) // it may have ended
	}
}

// largestFile is how long a file may become, where mounts have limits; -1: any.
func (in *instance) largestFile() int64 {
	n := int64(-1)
	for _, m := range in.start.Mounts {
		if !m.ReadOnly {
			n = max(n, m.DiskBytes)
		}
	}
	return n
}

// message answers what a kernel asks for while it runs a program: a line of
// JSON, a line feed, bytes.
func (in *instance) message(message []byte, stop <-chan struct{}) []byte {
	head, data, _ := bytes.Cut(message, []byte{'\n'})
	var m struct {
		Op   string `json:"op"`
		MIME string `json:"mime"`
		Name string `json:"name"` // of the file, for typescript
	}
	if json.Unmarshal(head, &m) != nil {
		return []byte(`{"error":"the message makes no sense"}`)
	}
	switch m.Op {
	case "display":
		return in.ends.Display(m.MIME, data)
	case "typescript":
		either, done := in.interruptedOr(stop)
		defer done()
		return in.translated(m.Name, string(data), either)
	case "interrupted":
		if soft, _ := in.ends.Control.Stops(); isClosed(soft) {
			return []byte("yes")
		}
		return []byte("no")
	case "stdin":
		either, done := in.interruptedOr(stop)
		defer done()
		p, _ := in.ends.In.Next(either)
		return p
	}
	return []byte(`{"error":"the message is of an unknown kind"}`)
}

// interruptedOr gives what is closed when the run is interrupted, when stop is, or when
// done is called, which has to be.
func (in *instance) interruptedOr(stop <-chan struct{}) (either <-chan struct{}, done func()) {
	soft, _ := in.ends.Control.Stops()
	ends, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ends)
		select {
		case <-soft:
		case <-stop:
		case <-over:
		}
	}()
	return ends, func() { close(over) }
}

// Inspect answers the server's question about the interpreter.
func (in *instance) Inspect() {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		return
	}
	var found wire.InspectedBody
	k := in.kernel
	switch {
	case k == nil && in.language == nil:
	case k == nil || k.dead():
		found.Error = "it ended after the last call"
	default:
		hard := make(chan struct{})
		t := time.AfterFunc(inspectTime, func() { close(hard) })
		o, err := k.ask(request{Op: "inspect"}, hard)
		t.Stop()
		if err != nil {
			found.Error = err.Error()
		}
		found.Inspection = o.Inspection()
		if p, err := readProc(k.child.pid); err == nil {
			found.Memory = p.memory
		}
	}
	in.agent.send(wire.KindInspected, in.id, found)
}

// Close ends the instance and its processes, and tells the server.
func (in *instance) Close() {
	in.ends.Control.Force(sandbox.Cancelled)
	in.use.Lock()
	defer in.use.Unlock()
	in.gone(errors.New("it was closed"))
}

// gone ends everything, once, and tells the server why.
func (in *instance) gone(err error) {
	if in.closed {
		return
	}
	in.closed = true
	in.discard()
	in.agent.send(wire.KindGone, in.id, wire.GoneBody{Message: err.Error()})
}

// discard ends the instance's processes and lets go of it all.
func (in *instance) discard() {
	if in.kernel != nil {
		in.kernel.child.signal(syscall.SIGSTOP) // it starts nothing more
	}
	in.agent.killOf(in, math.MinInt64)
	in.bury()
	in.agent.killOf(in, math.MinInt64)
	in.agent.loop.Forget(in.id)
	for _, k := range in.past {
		k.closePumps()
	}
	in.past = nil
}

// scratch is a folder for pipes with names.
func (a *agent) scratch() string {
	if a.setup.Scratch != "" {
		return a.setup.Scratch
	}
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() && unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm"
	}
	return os.TempDir()
}
