package sandboxtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// FakeMachines is a [Fake] whose instances share machines. They keep nothing: their
// variables live as long as they do. Beside the fake's language a program may be
// one line:
//
//	spawn name            leaves a process of that name in the background
//	serve port            has the machine answer at a port with what it is sent
//
// and the commands are echo, which prints its arguments, spawn, and false.
type FakeMachines struct {
	*Fake
	probe func(context.Context) sandbox.Probe

	mu    sync.Mutex // guards what follows
	boxes map[string]*fakeBox
	last  int // process
}

var (
	_ sandbox.Backend  = (*FakeMachines)(nil)
	_ sandbox.Machines = (*FakeMachines)(nil)
	_ sandbox.Dialer   = (*FakeMachines)(nil)
	_ sandbox.Adopter  = (*FakeMachines)(nil)
)

// fakeBox is a machine. It belongs to whoever holds FakeMachines.mu.
type fakeBox struct {
	spec    sandbox.Spec
	users   int
	booted  time.Time
	ports   map[uint16]bool
	resting bool
	streams []io.Closer
	tenants map[*fakeTenant]struct{}
	saved   map[string]fakeSaved // interpreters that nobody has asked for since it was restored
	anew    bool                 // they get seeds of their own
	// What serves the programs' connections: as long as the machine is there.
	alive   context.Context
	end     context.CancelFunc
	proxied sync.WaitGroup
	// terminals have a lock of their own.
	terminals fakeTerminals
}

// NewFakeMachines makes a backend without machines.
func NewFakeMachines(config FakeConfig) *FakeMachines {
	b := &FakeMachines{boxes: map[string]*fakeBox{}}
	if config.Forced == 0 {
		config.Forced = sandbox.Fresh // there is nothing to go back to
	}
	shown := NewFake(config)
	b.probe = shown.Probe
	config.Runtimes = append(slices.Clone(shown.config.Runtimes), sandbox.Runtime{Name: sandbox.CommandRuntime})
	b.Fake = NewFake(config)
	b.Fake.machines = true
	return b
}

// Probe tells the configured runtimes.
func (b *FakeMachines) Probe(ctx context.Context) sandbox.Probe { return b.probe(ctx) }

// Machine tells of one that is booted. It takes a MiB for each instance.
func (b *FakeMachines) Machine(_ context.Context, owner, box string) (sandbox.MachineUsage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.boxes[owner+"\x00"+box]
	if m == nil {
		return sandbox.MachineUsage{}, fault.New(fault.NotFound, "the machine %q is not running", box)
	}
	return sandbox.MachineUsage{CPU: time.Since(m.booted) / 2, Memory: int64(m.users) << 20, Booted: m.booted}, nil
}

// Memory is a MiB for each instance.
func (b *FakeMachines) Memory(owner, box string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := b.boxes[owner+"\x00"+box]; m != nil {
		return int64(m.users) << 20
	}
	return 0
}

// FilesChanged has nothing to do: a machine looks at the files themselves.
func (b *FakeMachines) FilesChanged(_, _ string) {}

// Dial connects to a port that a program serves.
func (b *FakeMachines) Dial(_ context.Context, owner, box string, port uint16) (sandbox.Stream, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.boxes[owner+"\x00"+box]
	switch {
	case m == nil:
		return nil, fault.New(fault.NotFound, "the machine %q is not running", box)
	case !m.ports[port]:
		return nil, fault.New(fault.Unavailable, "no program listens at %d", port)
	}
	s := newEcho()
	m.streams = append(m.streams, s)
	return s, nil
}

// Start makes an interpreter in its machine.
func (b *FakeMachines) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if spec.Resume != nil {
		return nil, fault.New(fault.Unsupported, "an interpreter in a machine cannot be resumed")
	}
	if spec.Limits.Metered {
		return nil, fault.New(fault.Unsupported, "fuel is not counted in a machine")
	}
	env := map[string]string{"PATH": "/bin"}
	maps.Copy(env, spec.Env)
	spec.Env = env
	name := spec.Owner + "\x00" + spec.Box
	b.mu.Lock()
	m := b.boxes[name]
	if spec.Box == "" || m == nil {
		m = &fakeBox{spec: spec, booted: time.Now(), ports: map[uint16]bool{}, tenants: map[*fakeTenant]struct{}{}}
		m.alive, m.end = context.WithCancel(context.Background())
		if spec.Machine != nil {
			var err error
			if m.saved, err = readFakeMachine(spec.Machine); err != nil {
				m.end()
				b.mu.Unlock()
				return nil, err
			}
			m.anew = spec.Machine.Reseed
		}
	} else if !sameMachine(m.spec, spec) {
		b.mu.Unlock()
		return nil, fault.New(fault.Conflict, "the machine %q is running with other settings", spec.Box)
	}
	m.users++
	if spec.Box != "" {
		b.boxes[name] = m
	}
	in := &fakeTenant{backend: b, name: name, box: m, runtime: spec.Runtime}
	if one, ok := m.claim(spec.Runtime); ok {
		in.survived, in.processes, in.printed, spec.Resume = true, one.Processes, one.Printed, one.resume(m.anew)
	}
	m.tenants[in] = struct{}{}
	b.mu.Unlock()
	if spec.Proxy != nil {
		spec.Proxy = b.proxyOf(m)
	}
	inner, err := b.Fake.Start(ctx, spec)
	if err != nil {
		in.left()
		return nil, err
	}
	in.inner = inner
	return in, nil
}

func sameMachine(a, b sandbox.Spec) bool {
	return a.Image == b.Image && a.CPUs == b.CPUs && a.Limits == b.Limits && (a.Proxy == nil) == (b.Proxy == nil) && slices.EqualFunc(a.Mounts, b.Mounts, func(a, b sandbox.Mount) bool {
		return a.Guest == b.Guest && a.Host == b.Host && a.ReadOnly == b.ReadOnly
	})
}

// Suspend has its instance refuse to run until it is adopted.
func (b *FakeMachines) Suspend(in sandbox.Instance) error {
	one, ok := in.(*fakeTenant)
	if !ok {
		return fault.New(fault.Conflict, "it is another backend's")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one.box.resting = true
	return nil
}

// Adopt gives a machine another name, and its folders other places.
func (b *FakeMachines) Adopt(_ context.Context, in sandbox.Instance, spec sandbox.Spec) error {
	one, ok := in.(*fakeTenant)
	if !ok {
		return fault.New(fault.Conflict, "it is another backend's")
	}
	select {
	case <-one.Done():
		return fault.New(fault.Unavailable, "it has ended")
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name, same := spec.Owner+"\x00"+spec.Box, spec
	same.Mounts = slices.Clone(spec.Mounts)
	for n := range min(len(same.Mounts), len(one.box.spec.Mounts)) {
		same.Mounts[n].Host = one.box.spec.Mounts[n].Host
	}
	if b.boxes[name] != nil || one.box.users != 1 || !sameMachine(one.box.spec, same) {
		return fault.New(fault.Conflict, "it is another machine")
	}
	delete(b.boxes, one.name)
	one.name, one.box.spec, one.box.resting = name, spec, false
	b.boxes[name] = one.box
	return nil
}

// fakeTenant is an interpreter in a machine.
type fakeTenant struct {
	backend *FakeMachines
	name    string
	box     *fakeBox
	runtime string
	inner   sandbox.Instance
	leave   sync.Once
	// survived says that it was in the machine when that was saved.
	survived bool

	mu        sync.Mutex // guards what follows
	processes []sandbox.Process
	printed   []byte
}

var (
	_ sandbox.Instance       = (*fakeTenant)(nil)
	_ sandbox.ProcessManager = (*fakeTenant)(nil)
)

// left counts one less in the machine.
func (in *fakeTenant) left() {
	in.leave.Do(func() {
		b := in.backend
		b.mu.Lock()
		delete(in.box.tenants, in)
		in.box.users--
		last := in.box.users == 0
		if last && b.boxes[in.name] == in.box {
			delete(b.boxes, in.name)
		}
		b.mu.Unlock()
		if !last {
			return
		}
		for _, s := range in.box.streams {
			s.Close()
		}
		in.box.end()
		in.box.proxied.Wait()
	})
}

func (in *fakeTenant) Done() <-chan struct{} { return in.inner.Done() }

func (in *fakeTenant) Inspect(ctx context.Context) (sandbox.Inspection, error) {
	return in.inner.Inspect(ctx)
}

// Close ends it with its processes, and the machine if nobody else is in it.
func (in *fakeTenant) Close() error {
	err := in.inner.Close()
	in.mu.Lock()
	in.processes = nil
	in.mu.Unlock()
	in.box.terminals.endOf(in)
	in.left()
	return err
}

// Run runs a program, or a command.
func (in *fakeTenant) Run(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	words := append(strings.Fields(cmd.Code), cmd.Args...)
	if len(words) > 1 && in.runtime != sandbox.CommandRuntime && strings.Contains(cmd.Code, "\n") || len(words) == 0 {
		words = []string{""}
	}
	in.backend.mu.Lock()
	resting := in.box.resting
	in.backend.mu.Unlock()
	if resting {
		return sandbox.Exit{}, fault.New(fault.Conflict, "the machine rests")
	}
	exit := sandbox.Exit{Cause: sandbox.Exited, State: sandbox.Kept, Engine: fakeEngine, Usage: sandbox.Usage{Memory: 1 << 20}}
	switch {
	case words[0] == "spawn":
		in.spawn(strings.Join(words[1:], " "))
	case words[0] == "serve" && len(words) == 2:
		port, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil {
			return exit, err
		}
		in.backend.mu.Lock()
		in.box.ports[uint16(port)] = true
		in.backend.mu.Unlock()
	case in.runtime != sandbox.CommandRuntime:
		return in.inner.Run(ctx, cmd)
	case words[0] == "echo":
		if cmd.Stdout != nil {
			fmt.Fprintln(cmd.Stdout, strings.Join(words[1:], " "))
		}
	case words[0] == "false":
		exit.Code = 1
	default:
		exit.Code, exit.Error = 127, &sandbox.ProgramError{Type: "NotFound", Message: "there is no program " + words[0]}
	}
	return exit, nil
}

func (in *fakeTenant) spawn(command string) {
	in.backend.mu.Lock()
	in.backend.last++
	pid := in.backend.last
	in.backend.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.processes = append(in.processes, sandbox.Process{PID: pid, Command: command, Started: time.Now(), Memory: 1 << 20})
	in.printed = append(in.printed, command+" has begun\n"...)
}

// Processes lists what spawn left.
func (in *fakeTenant) Processes(context.Context) ([]sandbox.Process, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.processes), nil
}

// Signal ends a process, whatever the signal is.
func (in *fakeTenant) Signal(_ context.Context, pid int, _ string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.processes)
	in.processes = slices.DeleteFunc(in.processes, func(p sandbox.Process) bool { return p.PID == pid })
	if len(in.processes) == n {
		return fault.New(fault.NotFound, "there is no process %d", pid)
	}
	return nil
}

// Printed gives what the processes said.
func (in *fakeTenant) Printed(_ context.Context, from int64) (sandbox.Printed, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	from = min(from, int64(len(in.printed)))
	return sandbox.Printed{Data: slices.Clone(in.printed[from:]), From: from}, nil
}

// echo is a stream that gives back what is written into it.
type echo struct {
	io.Reader
	w *io.PipeWriter
	r *io.PipeReader
}

func newEcho() echo {
	r, w := io.Pipe()
	return echo{r, w, r}
}

func (e echo) Write(p []byte) (int, error) { return e.w.Write(p) }
func (e echo) CloseWrite() error           { return e.w.Close() }
func (e echo) Close() error                { return cmp.Or(e.w.CloseWithError(net.ErrClosed), e.r.Close()) }
