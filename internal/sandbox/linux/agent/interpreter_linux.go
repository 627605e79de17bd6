package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
)

// language is how the agent starts and drives the kernels of one runtime.
type language struct {
	name    string
	program []string // names of the interpreter's program, the best first
	args    []string
	// driver is the text that the kernel finds at descriptor 3.
	driver func() ([]byte, error)
	// sockets are the kernel's from descriptor 4 on.
	sockets int
	// calls tells that one more is for what programs ask of the host.
	calls  bool
	speech codec
	// hears tells that a program that waits hears an interrupt over the connection. In
	// Node a signal ends the process where it hits the end of what a program does at
	// first, so it is only for those that do not hear.
	hears bool
	// spaceLimited tells that the memory limit is one of the address space as well.
	spaceLimited bool
	keepsMemory  bool // see heap
	files        bool // the run's input is a file, see feed
	// explain finds out more about an error from the end of stderr.
	explain func(o *outcome, tail string)
	// certificates is the variable of a file about which the interpreter complains where
	// it is missing; empty: there is none.
	certificates string
}

var languages = map[string]*language{
	"python": {
		name: "python", program: []string{"python3", "python"},
		args:   []string{"-B", "-X", "utf8", "-c", `exec(compile(open(3, encoding="utf-8").read(), "<paddock>", "exec"), {"__name__": "_paddock_boot", "__builtins__": vars(__import__("builtins")).copy()})`},
		driver: pythonDriver, sockets: 1, calls: true, speech: codec{encode: encodeFrame, read: readFrames}, spaceLimited: true, keepsMemory: true,
	},
	"javascript": {
		name: "javascript", program: []string{"node", "nodejs"},
		args:   []string{"--expose-internals", "--experimental-vm-modules", "--no-warnings", "-e", `require("vm").runInNewContext(require("fs").readFileSync(3, "utf8"))(require, process, globalThis, (name, options) => import(name, options))`},
		driver: javascriptDriver, sockets: 2, calls: true, hears: true, speech: codec{encode: encodeFrame, read: readFrames}, certificates: "NODE_EXTRA_CA_CERTS",
	},
	"bash": {
		name: "bash", program: []string{"bash"},
		args:   []string{"--noprofile", "--norc", "-c", `builtin read -r -N 100000 -u 3 __pd_boot; builtin eval "$__pd_boot"; builtin eval "$__pd_loop"; builtin trap - EXIT`, "bash"},
		driver: bashDriver, sockets: 1, speech: codec{encode: encodeShell, read: readLines}, files: true, explain: shellError,
	},
}

// interpreter is one live interpreter: a process, what it prints, and the connection
// to its driver.
type interpreter struct {
	child   *child
	channel *channel
	pumps   [2]*pump
	session int   // what descends from it is in, unless it leaves it
	needs   int64 // bytes that the interpreter itself took before any program
	waits   bool  // its program was left as it waits for calls; whoever asks has instance.use
}

// withoutMissing is an environment without a variable whose file is not there: a machine
// that is booted ahead gets its files later, and what an interpreter says before its first
// program would be shown as a program's.
func withoutMissing(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		path, ok := strings.CutPrefix(pair, name+"=")
		if !ok {
			return false
		}
		_, err := os.Stat(path)
		return err != nil
	})
}

// startInterpreter starts an interpreter for the instance.
func startInterpreter(in *instance) (*interpreter, error) {
	l := in.language
	driver, err := l.driver()
	if err != nil {
		return nil, err
	}
	speech := l.speech
	speech.message = in.message
	if l.calls {
		speech.calls = in.ends.Calls
	}
	k := &interpreter{}
	var theirs []*os.File
	defer func() { closeAll(theirs) }()
	if k.channel, theirs, err = newChannel(l.sockets, speech); err != nil {
		return nil, err
	}
	text, fill, err := pipeOf(driver)
	if err != nil {
		k.channel.close()
		return nil, err
	}
	theirs = append([]*os.File{text}, theirs...)
	args, env := l.args, in.environ
	if l.certificates != "" {
		env = withoutMissing(env, l.certificates)
	}
	if l.keepsMemory {
		args, env = in.heap(args, env)
	}
	err = k.start(in, l.program, args, env, theirs)
	closeAll(theirs)
	theirs = nil
	fill() // it is read, or nobody has the pipe any more
	if err != nil {
		k.channel.close()
		return nil, err
	}
	if err := in.bound(k.child.pid); err != nil {
		k.close()
		return nil, fault.New(fault.Unavailable, "the interpreter's limits could not be set").WithCause(err)
	}
	hard := make(chan struct{})
	t := time.AfterFunc(bootTime, func() { close(hard) })
	defer t.Stop()
	if _, err := k.ask(request{Op: "hello"}, hard); err != nil {
		k.kill()
		k.drain()
		k.close()
		return nil, in.notBooted(err)
	}
	p, _ := readProc(k.child.pid)
	k.needs = p.memory
	return k, nil
}

// bootTime bounds an interpreter's start: a fraction of a second as a rule.
const bootTime = 30 * time.Second

// notBooted says why a kernel did not begin to answer: what it printed last.
func (in *instance) notBooted(err error) error {
	said := lastErrorLine(string(in.out.printed(0).Data))
	if strings.Contains(said, "ModuleNotFoundError") {
		return fault.New(fault.Unsupported, "%s lacks a part of its standard library in %s: %s", in.language.program[0], in.imageName(), said).
			WithHint("the image has to have all of it (Debian's python3, and not python3-minimal alone); ask for another image").WithCause(err)
	}
	f := fault.New(fault.Unavailable, "%s does not start in this image: %s", in.language.program[0], said).
		WithHint("the image's interpreter has to work, with its own standard library; try another image").WithCause(err)
	if in.start.MemoryBytes > 0 && in.start.MemoryBytes < smallMemory {
		f = f.WithHint("its memory limit of %d MiB may be too low", in.start.MemoryBytes>>20)
	}
	return f
}

// lastErrorLine is the line that says most of what an interpreter printed as it failed:
// the last one that names an error, else the last one.
func lastErrorLine(printed string) string {
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(printed, "\ufffd")), "\n")
	said := lines[len(lines)-1]
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, "Error") {
			said = line
			break
		}
	}
	return strings.ToValidUTF8(said[:min(len(said), 1<<10)], "")
}

// smallMemory is with how much the interpreters start for certain.
const smallMemory = 128 << 20

// pipeOf gives a pipe from which text is read. fill waits until it has been, or
// nobody can any more.
func pipeOf(text []byte) (r *os.File, fill func(), err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	w := os.NewFile(uintptr(fds[1]), "driver")
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.Close()
		_, _ = w.Write(text) // a kernel that does not read it has ended
	}()
	return os.NewFile(uintptr(fds[0]), "driver"), func() { <-done }, nil
}

// start starts the first program that there is, with so many descriptors from 3
// on, and begins to read what it prints.
func (k *interpreter) start(in *instance, programs, args, env []string, files []*os.File) error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	return k.startWith(in, null, programs, args, env, files)
}

func (k *interpreter) startWith(in *instance, stdin *os.File, programs, args, env []string, files []*os.File) error {
	path, err := in.find(programs)
	if err != nil {
		return err
	}
	fds := []uintptr{stdin.Fd()}
	for n := range k.pumps {
		p, theirs, err := newPump(&in.out, n)
		if err != nil {
			k.closePumps()
			return err
		}
		defer theirs.Close()
		k.pumps[n], fds = p, append(fds, theirs.Fd())
	}
	for _, f := range files {
		fds = append(fds, f.Fd())
	}
	attr := &syscall.ProcAttr{Dir: in.dir, Env: env, Files: fds, Sys: &syscall.SysProcAttr{Setsid: true}}
	if in.start.UID != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: uint32(in.start.UID), Gid: uint32(in.start.GID)}
	}
	if k.child, err = in.agent.reap.start(path, append([]string{programs[0]}, args...), attr); err != nil {
		k.closePumps()
		return startError(programs[0], in.dir, err)
	}
	k.session = k.child.pid
	return nil
}

func startError(program, dir string, err error) error {
	if _, failed := os.Stat(dir); failed != nil {
		return fault.New(fault.Invalid, "the working folder %s cannot be entered", dir).WithCause(failed)
	}
	return fault.New(fault.Unavailable, "%s cannot be started: %v", program, err).WithCause(err)
}

// drain passes on what was printed before.
func (k *interpreter) drain() {
	for _, p := range k.pumps {
		p.drain()
	}
}

func (k *interpreter) closePumps() {
	for _, p := range k.pumps {
		if p != nil {
			p.close()
		}
	}
}

// kill ends the interpreter's process and waits for that. What it started stays.
func (k *interpreter) kill() {
	k.child.signal(syscall.SIGKILL)
	<-k.child.ended
}

// close ends the interpreter and lets go of it all.
func (k *interpreter) close() {
	k.kill()
	if k.channel != nil {
		k.channel.close()
	}
	k.closePumps()
}

// imageName is what faults call the box's image.
func (in *instance) imageName() string {
	if called := in.agent.setup.Image; called != "" {
		return fmt.Sprintf("the image %q", called)
	}
	return "this image"
}

// find looks for the first of the programs along the instance's PATH.
func (in *instance) find(programs []string) (string, error) {
	for _, name := range programs {
		if strings.Contains(name, "/") {
			if !filepath.IsAbs(name) {
				name = filepath.Join(in.dir, name)
			}
			return name, nil
		}
		for _, dir := range filepath.SplitList(in.path) {
			if !filepath.IsAbs(dir) {
				continue
			}
			path := filepath.Join(dir, name)
			if _, err := exec.LookPath(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fault.New(fault.Unsupported, "there is no %s in %s", programs[0], in.imageName()).
		WithHint("ask for an image that has it; an operator adds some with paddock image pull")
}

// exitGrace is how long a kernel whose process has ended may still answer, from
// another process; and how long one that closed its connection may take to end.
const exitGrace = 500 * time.Millisecond

var (
	errKilled = errors.New("stopped by force")
	errEnded  = errors.New("the interpreter ended")
)

// ask sends the driver a request and waits for the outcome. An error means that
// the kernel is gone, or has to be stopped by force.
func (k *interpreter) ask(r request, hard <-chan struct{}) (outcome, error) {
	answer, err := k.channel.ask(r, k.waits)
	if err != nil {
		return outcome{}, k.ending()
	}
	if r.Op == opResume || r.Op == opInterrupt {
		k.waits = false
	}
	ended, late := k.child.ended, make(<-chan time.Time)
	for {
		select {
		case text := <-answer:
			return outcomeOf(text)
		case <-k.channel.gone:
			select {
			case text := <-answer:
				return outcomeOf(text)
			default:
				return outcome{}, k.ending()
			}
		case <-hard:
			return outcome{}, errKilled
		case <-ended:
			ended, late = nil, time.After(exitGrace)
		case <-late:
			return outcome{}, errEnded
		}
	}
}

// ending tells why a connection is gone.
func (k *interpreter) ending() error {
	if k.channel.broken() {
		return errBroken
	}
	select {
	case <-k.child.ended:
		return errEnded
	case <-time.After(exitGrace):
	}
	if p, err := readProc(k.child.pid); err == nil && !p.zombie {
		return errBroken // it goes on, but nobody will hear of it
	}
	<-k.child.ended // on a busy machine that it has is heard late
	return errEnded
}

// dead tells whether it can answer nothing any more.
func (k *interpreter) dead() bool { return isClosed(k.child.ended) || isClosed(k.channel.gone) }
