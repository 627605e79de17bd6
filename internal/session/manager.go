// Package session is the heart of paddock: it opens sessions, runs programs in
// them one after the other, and keeps, resets, expires and destroys them.
//
// A session is a workspace of files and one live interpreter for each
// language runtime. It belongs to an owner, and to everyone else it does not
// exist. On disk it is a folder below its owner's; a lock that dies with its
// process makes it one process's at a time.
//
// After every run, and after every write to its files, a session has a new
// checkpoint on disk: what its files are and what its interpreters hold, of one
// moment (keep.go). So it may be put to sleep when nobody uses it (sleep.go),
// opened by the next process when this one is gone (disk.go), taken back
// (past.go), doubled (fork.go) and carried away (export.go, import.go).
//
// Locks, outermost first: session.keeping, Manager.mu, session.mu, memory.mu,
// Manager.storing. But for keeping, which is there for that, and storing, none is
// held during disk access or while a backend is called.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/store"
	"paddock/internal/workspace"
)

// Config sets a Manager up. It is copied.
type Config struct {
	// Dir is the state folder; it is made when it is missing. Several processes
	// may share it.
	Dir string
	// Backends run the programs; the first is the default isolation. They are
	// not closed by the Manager, and must not be before it is.
	Backends []sandbox.Backend
	// DefaultTimeout is the wall limit of a run that asks for none; zero: 30 s.
	// MaxTimeout is the longest that may be asked for; zero: 1 h.
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
	// KeepLater has a run's result given before its checkpoint is on disk, which
	// is made right after, before anything else happens in the session. What is
	// killed in between is lost, although it was answered.
	KeepLater bool
	// Life is this process's, which the backends' processes inherit; the Manager
	// does not close it. Nil: no process is started that could outlive this one.
	Life *Life
	// Files are the file operations of blobs and checkpoints; nil: the system's.
	// Tests put faults in.
	Files blob.Files
	// MemoryBytes bounds each interpreter; zero: 256 MiB.
	MemoryBytes int64
	// OwnerMemoryBytes and TotalMemoryBytes bound what the live interpreters of
	// an owner, and of all, take together; zero: 32 and 64 times MemoryBytes.
	// An idle one counts what it has, one that runs all that it may take.
	OwnerMemoryBytes, TotalMemoryBytes int64
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
	// Env is added to every guest's environment.
	Env map[string]string
	// Record, when set, takes what happens in sessions, from any goroutine. Its
	// error before a program runs is the execution's, and the program does not
	// run; its error after something happened is logged. What never came to its
	// turn is not told.
	Record func(context.Context, Event) error
	// Tracer makes the spans session.queue, sandbox.start, sandbox.run and
	// checkpoint; nil: none are made.
	Tracer trace.Tracer
	// Log takes what an operator should see; nil: nothing is logged.
	Log *slog.Logger
}

// Manager holds the sessions that this process has open. It is safe for
// concurrent use.
type Manager struct {
	config Config
	log    *slog.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wake chan struct{} // holds a token when the janitor should look again
	jobs sync.WaitGroup

	memory memory

	index *store.Store

	storing sync.Mutex // guards what follows
	stores  map[Owner]*blob.Store
	used    map[Owner]*measured
	sheds   map[Owner]time.Time // when it was last tried to make room on whose disk
	garbage map[Owner]int       // how much was removed of whose, since it was collected

	mu       sync.Mutex // guards what follows
	closed   bool
	sessions map[key]*session
}

type key struct {
	owner Owner
	id    ID
}

// Runtime is a language runtime and the isolation that offers it.
type Runtime struct {
	sandbox.Runtime
	Isolation string
}

var errShutdown = fault.New(fault.Unavailable, "paddock is shutting down")

// New makes a Manager and the state folder, and begins to expire sessions.
func New(config Config) (*Manager, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(config.Dir, "owners"), 0o700); err != nil {
		return nil, fault.New(fault.Unavailable, "the state folder cannot be made").WithHint("check that %s can be written", config.Dir).WithCause(err)
	}
	if err := checkFormat(config.Dir, config.files()); err != nil {
		return nil, err
	}
	m := &Manager{config: config, log: config.Log, wake: make(chan struct{}, 1), sessions: map[key]*session{}, stores: map[Owner]*blob.Store{}, used: map[Owner]*measured{}, garbage: map[Owner]int{}, sheds: map[Owner]time.Time{}}
	m.index = store.Open(filepath.Join(config.Dir, indexFile), config.Log)
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.jobs.Go(m.janitor)
	m.jobs.Go(m.rebuild)
	return m, nil
}

// complete puts defaults in and reports all mistakes at once.
func (c *Config) complete() error {
	c.Backends, c.Env = slices.Clone(c.Backends), maps.Clone(c.Env)
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
	c.OwnerMemoryBytes = cmp.Or(c.OwnerMemoryBytes, 32*c.MemoryBytes)
	c.TotalMemoryBytes = cmp.Or(c.TotalMemoryBytes, 64*c.MemoryBytes)
	c.OwnerDiskBytes = cmp.Or(c.OwnerDiskBytes, 8*c.DiskBytes)
	c.Limits = merge(c.Limits, sandbox.RunLimits{StdoutBytes: 1 << 20, StderrBytes: 1 << 20, DisplayBytes: 16 << 20})
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
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
	if c.IdleTTL < 0 || c.MaxPerOwner < 0 || c.MaxSessions < 0 || c.MaxStored < 0 || c.Checkpoints < 0 || c.MemoryBytes < 0 || c.DiskBytes < 0 || c.OwnerDiskBytes < 0 || negative(c.Limits) {
		errs = append(errs, errors.New("session: limits are not negative"))
	}
	return errors.Join(errs...)
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

// backend gives the backend of a name; "" names the first.
func (m *Manager) backend(name string) (sandbox.Backend, error) {
	var names []string
	for _, b := range m.config.Backends {
		if name == "" || b.Name() == name {
			return b, nil
		}
		names = append(names, b.Name())
	}
	return nil, fault.New(fault.Unsupported, "there is no isolation called %q here", name).WithHint("there is %s", list(names))
}

// Runtimes lists what can run here, by backend in their order.
func (m *Manager) Runtimes(ctx context.Context) []Runtime {
	var all []Runtime
	for _, b := range m.config.Backends {
		p, err := guard("probing", func() (sandbox.Probe, error) { return b.Probe(ctx), nil })
		if err != nil {
			m.log.Error("a backend cannot be probed", "isolation", b.Name(), "cause", causeOf(err))
			continue
		}
		for _, r := range p.Runtimes {
			all = append(all, Runtime{Runtime: r, Isolation: b.Name()})
		}
	}
	return all
}

// Create opens a new session. An empty id is replaced by an unguessable one;
// one that the owner has already is a fault.Conflict.
func (m *Manager) Create(ctx context.Context, owner Owner, id ID, settings Settings) (Info, error) {
	if id == "" {
		id = ID(mint("s-"))
	}
	if err := id.check(); err != nil {
		return Info{}, err
	}
	b, err := m.checkSettings(ctx, settings)
	if err != nil {
		return Info{}, err
	}
	if err := m.shed(ctx, owner); err != nil {
		return Info{}, err
	}
	s, err := m.make(key{owner, id}, b, nil, settings, "", nil)
	if err != nil {
		return Info{}, err
	}
	m.log.DebugContext(ctx, "session created", "session", id, "isolation", b.Name())
	m.record(ctx, Event{Action: Creating, Owner: owner, Session: id, Language: settings.Language, Isolation: b.Name()})
	return m.Info(owner, s.id) // it may be asleep already
}

// reserve puts a session that is being made into the table.
func (m *Manager) reserve(k key) (*session, error) {
	for {
		m.mu.Lock()
		there := m.sessions[k]
		s, closed := m.placeLocked(k)
		m.mu.Unlock()
		switch {
		case closed:
			return nil, errShutdown
		case there != nil:
			if there.isSleeping() {
				<-there.closed // on disk it is there all the same, as the caller will see
				continue
			}
			return nil, errExists(k.id)
		case s != nil:
			return s, nil
		}
		if err := m.room(k.owner); err != nil {
			return nil, err
		}
	}
}

// placeLocked puts a session into the table where it is not there and there is
// room for it; else it gives nil.
func (m *Manager) placeLocked(k key) (s *session, closed bool) {
	mine := 0
	for other := range m.sessions {
		if other.owner == k.owner {
			mine++
		}
	}
	if m.closed || m.sessions[k] != nil || mine >= m.config.MaxPerOwner || len(m.sessions) >= m.config.MaxSessions {
		return nil, m.closed
	}
	s = newSession(m, k)
	m.sessions[k] = s
	return s, false
}

func errExists(id ID) error {
	return fault.New(fault.Conflict, "there is already a session %q", id).WithHint("use it, destroy it, or choose another id")
}

// opened tells everyone who waits for the session how its opening went.
func (m *Manager) opened(s *session, err error) error {
	m.mu.Lock()
	if err != nil {
		delete(m.sessions, s.key)
	}
	m.mu.Unlock()
	s.mu.Lock()
	if s.openErr = err; err != nil {
		s.shiftLocked(gone)
		close(s.closed)
	} else {
		s.shiftLocked(free)
	}
	s.mu.Unlock()
	close(s.opened)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return err
}

// find gives a session of the owner, opening its folder when this process has
// not yet. It may be gone by the time it is used; its methods say so.
func (m *Manager) find(owner Owner, id ID) (*session, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	k := key{owner, id}
	for {
		m.mu.Lock()
		s := m.sessions[k]
		made, closed := m.placeLocked(k)
		m.mu.Unlock()
		switch {
		case closed:
			return nil, errShutdown
		case made != nil:
			return made, m.opened(made, made.load())
		case s == nil:
			// Before others are put to sleep for it.
			if _, err := m.readRecord(k); err != nil {
				return nil, err
			}
			if err := m.room(owner); err != nil {
				return nil, err
			}
		case s.isSleeping():
			<-s.closed
		default:
			<-s.opened
			return s, s.openErr
		}
	}
}

// Info tells about a session without opening it.
func (m *Manager) Info(owner Owner, id ID) (Info, error) {
	if err := id.check(); err != nil {
		return Info{}, err
	}
	k := key{owner, id}
	m.mu.Lock()
	s, closed := m.sessions[k], m.closed
	m.mu.Unlock()
	if closed {
		return Info{}, errShutdown
	}
	if s != nil {
		if <-s.opened; s.openErr == nil {
			if i, err := s.info(); !errors.Is(err, errAsleep) {
				return i, err
			}
		}
	}
	return m.infoOnDisk(k)
}

// List tells about all sessions of the owner, in the order of their making:
// those of this process, of others, and those that nobody has open.
func (m *Manager) List(owner Owner) ([]Info, error) {
	m.mu.Lock()
	open := map[ID]bool{}
	var mine []*session
	for k, s := range m.sessions {
		if k.owner == owner {
			mine = append(mine, s)
			open[k.id] = true
		}
	}
	m.mu.Unlock()
	var all []Info
	for _, s := range mine {
		<-s.opened
		if i, err := s.info(); err == nil {
			all = append(all, i)
		} else {
			delete(open, s.id) // its opening failed: another process may have it
		}
	}
	records, err := m.records(owner)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if !open[r.ID] {
			all = append(all, m.describeOnDisk(r))
		}
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// Files gives the session's workspace, for as long as done has not been called:
// until then the session does not fall asleep. done works twice.
func (m *Manager) Files(owner Owner, id ID) (tree *workspace.Tree, done func(), err error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return nil, nil, err
	}
	_ = m.shed(m.ctx, owner) // reading needs no room; who writes is told
	return s.tree, done, nil
}

// atOnce is how many sessions are let go of at once at the end: each waits for
// the disk.
const atOnce = 16

// Close cancels what runs, ends every interpreter, and lets go of the
// sessions, whose files stay. It waits, and works twice.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	all := slices.Collect(maps.Values(m.sessions))
	m.mu.Unlock()
	m.stop()
	var mine []*session
	for _, s := range all {
		if <-s.opened; s.end(errShutdown, nil) {
			mine = append(mine, s)
		}
	}
	var ends sync.WaitGroup
	few := make(chan struct{}, atOnce)
	for _, s := range mine {
		few <- struct{}{}
		ends.Go(func() {
			m.dismantle(s, false)
			<-few
		})
	}
	ends.Wait()
	for _, s := range all {
		<-s.closed
	}
	m.jobs.Wait()
	return m.index.Close()
}
