package agent

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/serve"
)

// Run executes one command and tells the server how it ended. A kernel that did
// not survive it is replaced after that.
func (in *instance) Run(body wire.RunBody) {
	in.use.Lock()
	defer in.use.Unlock()
	if in.closed {
		in.ends.Control.End()
		return
	}
	var exit sandbox.Exit
	var waits []uint32
	soft, _ := in.ends.Control.Stops()
	if k := in.kernel; k != nil && k.waits && body.Continue == nil && !isClosed(soft) {
		_, hard := in.ends.Control.Stops()
		k.giveUp(giveUpTime, hard)
	}
	switch {
	case isClosed(soft):
		exit = serve.NeverBegun(in.ends.Control.End())
	case in.language == nil:
		exit = in.command(body)
	case in.kernel == nil || in.kernel.dead():
		in.ends.Control.End()
		exit = sandbox.Exit{Cause: sandbox.Crashed, State: sandbox.Fresh, Code: 1, Error: &sandbox.ProgramError{
			Type: "Crash", Message: "the interpreter ended after the last call, by something that was left running in it",
			Hint: "the program was not run; run it again, in a fresh interpreter",
		}}
	default:
		exit, waits = in.execute(body)
	}
	if in.language == nil || exit.State == sandbox.Kept {
		in.agent.send(wire.KindDone, in.id, wire.DoneBody{Exit: exit, Waits: waits})
		return
	}
	in.bury()
	in.agent.send(wire.KindDone, in.id, exit)
	k, err := startInterpreter(in)
	if err != nil {
		in.gone(fmt.Errorf("starting a fresh interpreter: %w", err))
		return
	}
	in.setInterpreter(k)
}

// measure is what a run costs, as it goes.
type measure struct {
	began time.Time
	since int64 // ticks since the machine started
	first process
	cpu   time.Duration // of the kernel's process when it began
	peak  atomic.Int64
	over  atomic.Bool // something took more memory than it may have
}

func begin(pid int) *measure {
	m := &measure{began: time.Now(), since: int64(sinceBoot() / (time.Second / ticks)), cpu: cpuOf(pid)}
	m.first, _ = readProc(pid)
	return m
}

// usage is what it cost; the kernel may have ended.
func (m *measure) usage(k *interpreter) sandbox.Usage {
	u := sandbox.Usage{Wall: time.Since(m.began)}
	if isClosed(k.child.ended) {
		r := k.child.usage
		u.CPU = time.Duration(r.Utime.Nano()+r.Stime.Nano()) - m.cpu
		u.Memory = r.Maxrss << 10
	} else {
		p, _ := readProc(k.child.pid)
		u.CPU, u.Memory = cpuOf(k.child.pid)-m.cpu+p.waited-m.first.waited, p.memory
	}
	u.CPU, u.Peak = max(u.CPU, 0), max(m.peak.Load(), u.Memory)
	return u
}

// cpuOf is the CPU time that a process has taken, in nanoseconds.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		p, _ := readProc(pid)
		return p.cpu
	}
	return time.Duration(t.Nano())
}

// execute runs one command in the kernel. Where the exit's state is not kept,
// the kernel has yet to be replaced. A Waiting one waits for some calls.
func (in *instance) execute(body wire.RunBody) (sandbox.Exit, []uint32) {
	r, failed := in.requestFor(body)
	if failed != nil {
		return *failed, nil
	}
	in.out.Begin(body.Limits)
	k := in.kernel
	in.ends.In.Begin(body.Stdin)
	begun := k.channel.expect()
	if in.language.files && body.Stdin {
		f, err := newFeed(in.agent.scratch(), in.start.UID, in.start.GID, begun, in.ends.In)
		if err != nil {
			in.out.write(1, []byte("paddock: there is no input: "+err.Error()+"\n"))
		} else {
			defer f.close()
			r.Stdin = f.path
		}
	}
	m := begin(k.child.pid)
	o, waits, told, err := in.runToCompletion(k, m, r, begun)
	if o.PID > 0 && o.PID != k.child.pid {
		k.child = in.agent.reap.adopt(o.PID, k.session)
	}
	exit := sandbox.Exit{Cause: sandbox.Exited, Code: o.ExitCode, Result: o.Result, State: sandbox.Kept}
	if err != nil {
		in.explain(&exit, k, m, err)
	} else {
		k.drain()
	}
	exit.Usage = m.usage(k)
	in.out.End()
	if waits == nil {
		in.ends.Calls.End()
	}
	exit.StdoutTruncated, exit.StderrTruncated = in.out.Cut()
	if err == nil {
		report(&exit, o, in.out.Tail(), in.language)
	}
	if m.over.Load() && (exit.Error != nil || exit.Code != 0) {
		exit.Cause = sandbox.OutOfMemory
	}
	serve.Conclude(&exit, in.ends.Control.End(), told || err != nil)
	if waits != nil && exit.Cause == sandbox.Exited {
		exit.Cause = sandbox.Waiting
	}
	return exit, waits
}

// watchRun looks after a run while its kernel works: once it has begun, interrupts
// it when it has to be, or has it left as it waits when it may; and watches its memory. told says whether it was interrupted; leave ends
// and waits.
func (in *instance) watchRun(k *interpreter, m *measure, begun <-chan struct{}) (told *atomic.Bool, leave func()) {
	told = &atomic.Bool{}
	done := make(chan struct{})
	var all sync.WaitGroup
	soft, _ := in.ends.Control.Stops()
	all.Go(func() {
		select {
		case <-soft:
		case <-done:
			return
		}
		select { // until then there is nobody who would hear of it
		case <-begun:
		case <-done:
			return
		}
		told.Store(true)
		if in.language == nil || !in.language.hears || !k.heard(done) {
			k.child.signal(syscall.SIGINT)
		}
		in.interruptOthers(k, m.since)
	})
	all.Go(func() {
		if k.channel == nil || k.channel.caller == nil {
			return
		}
		for _, ready := range []<-chan struct{}{in.ends.Control.Suspended(), begun} {
			select {
			case <-ready:
			case <-done:
				return
			}
		}
		k.channel.suspend()
	})
	all.Go(func() { in.watch(k, m, done) })
	return told, func() {
		close(done)
		all.Wait()
	}
}

// hearingTime is how long a program that waits may take to hear of an interrupt; it is
// a part of the grace, and an interpreter that waits needs a millisecond.
const hearingTime = 25 * time.Millisecond

// heard asks the kernel to interrupt its program, and tells whether that has ended.
func (k *interpreter) heard(ended <-chan struct{}) bool {
	k.channel.stop()
	select {
	case <-ended:
		return true
	case <-time.After(hearingTime):
		return false
	}
}

// interruptOthers tells what was started in this run.
func (in *instance) interruptOthers(k *interpreter, since int64) {
	for _, p := range in.agent.owned()[in.id] {
		if p.pid != k.child.pid && p.started >= since && !in.agent.terminals.has(p.session) {
			_ = syscall.Kill(p.pid, syscall.SIGINT)
		}
	}
}

// watchEvery is how often the kernel's memory is looked at, and othersEvery how
// many such times it takes until all of its processes are.
const (
	watchEvery  = 25 * time.Millisecond
	othersEvery = 10
)

// leastOwn is what a program may take in any case: some interpreters need more
// than a low limit by themselves.
const leastOwn = 32 << 20

// watch ends a process of the instance's that takes more memory than it may
// have, before it becomes the whole box's trouble.
func (in *instance) watch(k *interpreter, m *measure, done <-chan struct{}) {
	limit := in.start.MemoryBytes
	if limit > 0 {
		limit = max(limit, k.needs+leastOwn)
	}
	var space rooms
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		p, err := readProc(k.child.pid)
		if err == nil && p.memory > m.peak.Load() {
			m.peak.Store(p.memory)
		}
		if limit <= 0 {
			continue
		}
		if p.memory > limit {
			m.over.Store(true)
			k.child.signal(syscall.SIGKILL)
			return
		}
		if err == nil && in.language != nil && in.language.spaceLimited {
			space.give(p, in.start.MemoryBytes)
		}
		if n%othersEvery > 0 {
			continue
		}
		for _, p := range in.agent.owned()[in.id] {
			if p.memory > limit && p.pid != k.child.pid {
				m.over.Store(true)
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// report fills in what the driver said.
func report(exit *sandbox.Exit, o outcome, tail string, l *language) {
	if o.Error == nil {
		return
	}
	if l.explain != nil {
		l.explain(&o, tail)
		exit.Code = o.ExitCode
	}
	o.Report(exit)
}

// explain says how a run ended that the kernel did not survive, and ends what
// was started in it.
func (in *instance) explain(exit *sandbox.Exit, k *interpreter, m *measure, err error) {
	k.kill()
	in.agent.killOf(in, m.since)
	k.drain()
	exit.State, exit.Code = sandbox.Fresh, 1
	status := k.child.status
	switch {
	case errors.Is(err, errKilled):
		exit.Error = serve.StoppedByForce()
	case errors.Is(err, errBroken):
		exit.Cause = sandbox.Crashed
		exit.Error = &sandbox.ProgramError{Type: "Crash", Message: errBroken.Error()}
	case m.over.Load() || ranOut(in.out.Tail()):
		exit.Cause = sandbox.OutOfMemory
		exit.Error = &sandbox.ProgramError{Type: "MemoryError", Message: "the program used all the memory it may have, and the interpreter with it"}
	case status.Exited():
		exit.Code = status.ExitStatus()
	default:
		exit.Cause = sandbox.Crashed
		exit.Error = &sandbox.ProgramError{Type: "Crash", Message: "the interpreter was ended by the signal " + unix.SignalName(status.Signal())}
	}
}

// ranOut tells whether an interpreter's last words are that it has no memory left.
func ranOut(tail string) bool {
	return strings.Contains(tail, "heap out of memory") || strings.Contains(tail, ": out of memory") || strings.Contains(tail, "cannot allocate")
}

// requestFor makes the driver's request of a run. Where there is none, the run has ended,
// as failed says.
func (in *instance) requestFor(body wire.RunBody) (r request, failed *sandbox.Exit) {
	switch {
	case body.Continue != nil && in.kernel.waits:
		return request{Op: opResume}, nil
	case body.Continue != nil:
		const why = "there is no program that waits"
		exit := in.ends.Refuse(body, &sandbox.ProgramError{Type: "Unsupported", Message: why, Traceback: why + "\n"})
		return r, &exit
	}
	code, sourceMap, failed := in.agent.loop.Program(in.ends, body, in.language.name)
	return request{Op: "exec", Code: code, Map: sourceMap, Name: body.Name, Args: body.Args}, failed
}
