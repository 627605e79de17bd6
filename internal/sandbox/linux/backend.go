//go:build linux && (amd64 || arm64)

package linux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/wire"
)

// platforms are gVisor's ways to run programs, the usual one first.
var platforms = []string{"systrap", "kvm", "ptrace"}

// Engine is what results say executed a program.
const Engine = "gvisor"

// Backend runs programs in boxes. It is safe for concurrent use.
//
// Lock order: Backend.mu, machine.mu, cgroups.mu. Nothing waits for a process with
// one of them.
type Backend struct {
	config   Config
	launcher launcher
	home     *home
	cgroups  *cgroups
	rhythm   suspendPolicy
	booting  chan struct{} // has one for each box that boots just now

	probing sync.Mutex // held while a canary boots
	probed  *findings

	mu       sync.Mutex            // guards what follows
	machines map[string]*machine   // those with a name
	all      map[*machine]struct{} // that somebody is in
	closed   bool
}

var (
	_ sandbox.Backend  = (*Backend)(nil)
	_ sandbox.Machines = (*Backend)(nil)
)

// New checks config and removes what a server has left that was killed; it starts
// nothing.
func New(config Config) (*Backend, error) {
	if config.Dir == "" {
		return nil, errors.New("linux: a folder is needed")
	}
	config.Image = cmp.Or(config.Image, HostImage)
	if config.Platform = cmp.Or(config.Platform, platforms[0]); !slices.Contains(platforms, config.Platform) {
		return nil, fmt.Errorf("linux: there is no platform %q; there are %s", config.Platform, strings.Join(platforms, ", "))
	}
	config.UID, config.GID = cmp.Or(config.UID, 65534), cmp.Or(config.GID, 65534)
	if os.Geteuid() != 0 {
		config.UID, config.GID = 0, 0
	}
	config.Processes, config.OpenFiles = cmp.Or(config.Processes, 256), cmp.Or(config.OpenFiles, 4096)
	config.RootBytes = cmp.Or(config.RootBytes, 256<<20)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	h, dead, err := openHome(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("linux: %w", err)
	}
	b := &Backend{config: config, home: h, rhythm: defaultSuspendPolicy, booting: make(chan struct{}, bootsAtOnce()), cgroups: findCgroups(h.name), machines: map[string]*machine{}, all: map[*machine]struct{}{}}
	b.cgroups.sweep(dead)
	b.launcher = launcher{dir: h.dir, uid: config.UID, gid: config.GID, parent: parent{skipMembarrier: config.Platform != "kvm"}, platform: config.Platform, inherit: config.Inherit}
	return b, nil
}

// Name is "linux".
func (b *Backend) Name() string { return Name }

// FileOwner is the user and group as whom boxes touch files, so that what is put
// into a workspace from outside belongs to them; zeros: this process's.
func (b *Backend) FileOwner() (uid, gid int) { return b.config.UID, b.config.GID }

// Start makes an interpreter in its machine, which is booted where there is none.
func (b *Backend) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	switch {
	case spec.Resume != nil:
		return nil, fault.New(fault.Unsupported, "an interpreter in a Linux machine cannot be resumed").
			WithHint("it starts fresh; files in the workspace are there")
	case spec.Limits.Metered:
		return nil, fault.New(fault.Unsupported, "fuel is not counted in a Linux machine").WithHint("bound its time instead, or use the isolation wasm")
	}
	m, err := b.machine(ctx, spec)
	if err != nil {
		return nil, err
	}
	if in, err := b.claim(m, spec.Runtime); err != nil || in != nil {
		if err != nil {
			b.leave(m)
			return nil, fmt.Errorf("going on with an interpreter: %w", err)
		}
		found := newInstance(b, m, in)
		found.survived = true
		return found, nil
	}
	body := wire.StartBody{Runtime: spec.Runtime, Dir: cmp.Or(spec.Dir, "/"), Env: spec.Env, MemoryBytes: spec.Limits.MemoryBytes}
	for _, mount := range spec.Mounts {
		body.Mounts = append(body.Mounts, wire.MountBody{
			Guest: mount.Guest, Aliases: mount.Aliases, ReadOnly: mount.ReadOnly, DiskBytes: mount.DiskBytes,
		})
	}
	in, err := m.client.Start(ctx, body)
	if err != nil {
		b.leave(m)
		return nil, fmt.Errorf("starting an interpreter: %w", err)
	}
	return newInstance(b, m, in), nil
}

// machine gives the one of a Spec, and counts the caller as one who is in it.
func (b *Backend) machine(ctx context.Context, spec sandbox.Spec) (*machine, error) {
	key := spec.Owner + "\x00" + spec.Box
	b.mu.Lock()
	if m := b.machines[key]; m != nil && m.lost() {
		b.mu.Unlock()
		m.box.close() // nothing of it goes on beside the next one
		b.mu.Lock()
	}
	if b.closed {
		b.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "paddock is shutting down")
	}
	m := b.machines[key]
	if spec.Box == "" || m == nil || m.over() {
		m = newMachine(key, spec)
		if spec.Box != "" {
			b.machines[key] = m
		}
		b.all[m] = struct{}{}
		go m.boot(b) // close waits for it
	} else if !m.same(spec) {
		b.mu.Unlock()
		return nil, fault.New(fault.Conflict, "the machine %q is running with other folders, another image, other limits or another network", spec.Box).
			WithHint("end what runs in it first")
	}
	m.users++
	b.mu.Unlock()

	select {
	case <-m.booted:
		if m.failed == nil {
			return m, nil
		}
		b.leave(m)
		return nil, m.failed
	case <-ctx.Done():
		b.leave(m)
		return nil, context.Cause(ctx)
	}
}

// leave counts one less in a machine, and ends it after the last.
func (b *Backend) leave(m *machine) {
	b.mu.Lock()
	m.users--
	last := m.users == 0
	if last && b.machines[m.key] == m {
		delete(b.machines, m.key)
	}
	b.mu.Unlock()
	if !last {
		return
	}
	m.close()
	b.mu.Lock()
	delete(b.all, m) // not before: Close has to wait for it
	b.mu.Unlock()
}

// Close ends every box and waits for their processes.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	all := slices.Collect(maps.Keys(b.all))
	b.mu.Unlock()
	var ending sync.WaitGroup
	for _, m := range all {
		ending.Go(m.close)
	}
	ending.Wait()
	if !first {
		return nil
	}
	b.launcher.parent.close()
	return b.home.close()
}

// machine is a box, or one that is being booted, and who is in it.
type machine struct {
	key   string
	spec  sandbox.Spec          // what all in it share
	state *sandbox.MachineState // what it begins as; nil: fresh
	users int                   // guarded by Backend.mu
	// survivors are the interpreters in it that nobody has asked for yet, since it
	// was restored; guarded by Backend.mu once it has booted.
	survivors []wire.Survivor

	stop   context.CancelFunc
	ctx    context.Context // ends when nobody wants it any more
	booted chan struct{}   // closed when what follows is there
	since  time.Time
	failed error
	box    *box
	client *wire.Client
	ready  wire.Ready
	watch  *watch
	dozer  *idleSuspender
}

func newMachine(key string, spec sandbox.Spec) *machine {
	m := &machine{key: key, booted: make(chan struct{}), state: spec.Machine}
	m.spec = sandbox.Spec{Owner: spec.Owner, Image: spec.Image, User: spec.User, CPUs: spec.CPUs, Mounts: slices.Clone(spec.Mounts), Limits: spec.Limits, Proxy: spec.Proxy}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// same tells whether the machine is what spec wants.
func (m *machine) same(spec sandbox.Spec) bool {
	return m.spec.Image == spec.Image && m.spec.User == spec.User && m.spec.CPUs == spec.CPUs && m.spec.Limits.MemoryBytes == spec.Limits.MemoryBytes &&
		(m.spec.Proxy == nil) == (spec.Proxy == nil) &&
		slices.EqualFunc(m.spec.Mounts, spec.Mounts, func(a, b sandbox.Mount) bool {
			return a.Guest == b.Guest && a.Host == b.Host && a.ReadOnly == b.ReadOnly && a.DiskBytes == b.DiskBytes && slices.Equal(a.Aliases, b.Aliases)
		})
}

// running tells whether the machine has booted and not ended.
func (m *machine) running() bool {
	select {
	case <-m.booted:
		return !m.over()
	default:
		return false
	}
}

// over tells whether the machine has ended or could not be booted.
func (m *machine) over() bool {
	select {
	case <-m.booted:
	default:
		return m.ctx.Err() != nil
	}
	if m.failed != nil {
		return true
	}
	select {
	case <-m.box.done:
		return true
	default:
		return m.client.Err() != nil // the box ends, or is of no use any more
	}
}

// lost tells whether nobody can speak with the machine any more.
func (m *machine) lost() bool {
	select {
	case <-m.booted:
	default:
		return false
	}
	// Err and not Done, which comes later than the last instance's end.
	return m.failed == nil && m.client.Err() != nil
}

// starved tells whether the machine has ended, or ends, because the kernel found
// that it has too much memory.
func (m *machine) starved() bool {
	if !m.lost() {
		return false
	}
	m.box.close()
	return m.box.starved
}

// boot does the work; booted tells when it is done.
func (m *machine) boot(b *Backend) {
	defer close(m.booted)
	select {
	case b.booting <- struct{}{}: // who waits longest is the next
		defer func() { <-b.booting }()
	case <-m.ctx.Done():
		m.failed = context.Cause(m.ctx)
		return
	}
	limit := bootTime
	if m.state != nil {
		limit = restoreTime
	}
	ctx, cancel := context.WithTimeout(m.ctx, limit)
	defer cancel()
	if err := m.start(ctx, b); err != nil {
		if m.ctx.Err() == nil { // somebody still wants it
			b.config.Log.Info("a box did not boot", "cause", err) // who wants it is told
		}
		if fault.KindOf(err) == fault.Internal {
			err = fault.New(fault.Unavailable, "the Linux machine did not start").WithHint("paddock doctor says what is missing").WithCause(err)
		}
		m.failed = err
		m.stop()
	}
}

func (m *machine) start(ctx context.Context, b *Backend) error {
	p, err := b.planOf(ctx, m)
	if err != nil {
		return err
	}
	if m.state != nil {
		if err := b.recall(p, m.state); err != nil {
			p.root.release()
			return err
		}
	}
	cg, err := b.cgroups.create(p.id, bounds{memory: p.memory, processes: b.config.Processes, cpus: cmp.Or(m.spec.CPUs, b.config.CPUs)})
	if err != nil {
		p.root.release()
		p.state.Close() // also none
		return err
	}
	m.since = time.Now()
	if p.state != nil {
		err = m.resume(ctx, b, p, cg)
	} else {
		err = m.begin(ctx, b, p, cg)
	}
	if err != nil {
		return err
	}
	if m.watch = newWatch(ctx, m, b); ctx.Err() != nil { // without its memory known it is not watched
		m.client.Close()
		m.box.close()
		m.watch.close()
		return context.Cause(ctx)
	}
	m.dozer = newIdleSuspender(m, b)
	return nil
}

// begin boots the machine's box.
func (m *machine) begin(ctx context.Context, b *Backend, p *plan, cg *cgroup) (err error) {
	if m.box, err = b.launcher.boot(ctx, p, cg); err != nil {
		return err
	}
	setup := agent.Setup{
		Image: cmp.Or(m.spec.Image, b.config.Image), Env: p.root.env, Listen: m.listens(),
		Processes: uint64(b.config.Processes), OpenFiles: uint64(b.config.OpenFiles),
	}
	if m.client, m.ready, err = wire.NewClient(ctx, m.box.stream, setup); err != nil {
		said := m.box.close()
		return fmt.Errorf("the box's first program is not ready: %w %s", err, said)
	}
	m.client.Accept(m.spec.Proxy) // nothing runs in it that could connect before
	m.client.Translate(b.translator(m.spec.Owner))
	return nil
}

// translator translates TypeScript of an owner's machine; nil: it is not available.
func (b *Backend) translator(owner string) func(context.Context, sandbox.Source) (sandbox.Translation, error) {
	if b.config.TypeScript == nil {
		return nil
	}
	return func(ctx context.Context, s sandbox.Source) (sandbox.Translation, error) {
		return b.config.TypeScript(ctx, owner, s)
	}
}

// listens is the port at which programs find the machine's proxy; 0: there is none.
func (m *machine) listens() uint16 {
	if m.spec.Proxy == nil {
		return 0
	}
	return sandbox.ProxyPort
}

// close ends the box, or its booting, and waits. It works twice.
func (m *machine) close() {
	m.stop()
	<-m.booted
	if m.failed != nil {
		return
	}
	m.client.Close()
	m.box.close()
	m.watch.close()
	m.dozer.close()
}
