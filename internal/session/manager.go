// Package session opens sessions, runs programs in them one after the other, and
// checkpoints, resets, expires and destroys them.
//
// A session is a workspace of files and one live interpreter for each language runtime.
// It belongs to an owner; for everybody else it does not exist. Package sessionstore has it
// on disk: a claim that ends with its process makes it one process's at a time. What is
// asked of the store is in store.go.
//
// After every run, and after every write to its files, a session has a new checkpoint on
// disk: its files and the state of its interpreters at one moment (checkpointing.go,
// package checkpoint). So it can sleep when it is unused (sleep.go), be opened by the next
// process when this one has ended (open.go), and be restored (restore.go), forked (fork.go),
// exported and imported (export.go, import.go).
//
// A call goes through plan.go (what it asks for), queue.go (its turn), execute.go, run.go,
// interpreter.go (what it runs in), package hostcalls (its calls to the host), notice.go (what
// its result says in addition), runend.go and checkpointing.go; a call that waits for a person
// also through waiting.go and suspension.go. Packages checkpoint, pool, quota, sessionfile and sessionstore know no
// session.
//
// The Manager is made of parts, each with its own files: directory (the sessions that are
// open), janitor (what expires, sleeps and is collected: janitor.go, expire.go, gc.go),
// diskQuota, records (sessions that are not open here), backends and peers (ipc.go).
//
// A session is made of parts, too, each with the state that is its own: turns (who may work
// in it), interpreters (what lives), checkpoints (what is on disk), suspension (the run that
// waits for a person), notices (what the next result tells), mounts and egress. What sessions
// with a machine and sessions in WebAssembly do differently is their residence.
//
// Locks, outermost first: checkpoints.mu, turns.mu, session.mu. Those of the Manager's
// parts, of instances, of machineResidence and of egress are leaves: nothing else is locked
// while one is held. Only checkpoints.mu is held during disk access or while a backend is
// called.
package session

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pool"
	"paddock/internal/quota"
	"paddock/internal/sandbox"
	"paddock/internal/sessionfile"
	"paddock/internal/sessionstore"
	"paddock/internal/workspace"
)

// Manager holds the sessions that this process has open. It is safe for
// concurrent use.
type Manager struct {
	config Config
	log    *slog.Logger

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	jobs sync.WaitGroup

	backends *backends
	memory   quota.Memory
	disk     *diskQuota
	pool     *pool.Pool // nil: no machines are booted ahead

	store   sessionStore
	local   *sessionstore.Local // what this machine's state folder has of sessions
	records *records
	scratch sessionfile.Scratch

	sessions *directory // that are open here
	peers    *peers
	janitor  *janitor
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
	m := &Manager{}
	if config.Surround != nil {
		s, err := config.Surround(m)
		if err != nil {
			return nil, err
		}
		config.Tools, config.Network, config.Secrets, config.Observers, config.Folders = s.Tools, s.Network, s.Secrets, s.Observers, s.Folders
	}
	if err := config.complete(); err != nil {
		return nil, err
	}
	m.config, m.log = config, config.Log
	m.backends = &backends{config.Backends, config.Log}
	m.sessions, m.peers = newDirectory(config.MaxPerOwner, config.MaxSessions), &peers{m: m}
	m.janitor = newJanitor(m)
	if err := m.openStore(); err != nil {
		return nil, err
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.jobs.Go(m.janitor.run)
	m.sweepPools()
	if m.pool = newPool(m); m.pool != nil {
		m.jobs.Go(func() { m.pool.Run(m.ctx) })
	}
	return m, nil
}

// openStore opens what keeps the sessions: the state folder of this machine.
func (m *Manager) openStore() error {
	m.records = &records{idleTTL: m.config.IdleTTL, log: m.log}
	opened, err := sessionstore.Open(sessionstore.Config{
		Dir: m.config.Dir, Files: m.config.Files, Life: m.config.Life, Log: m.log,
		Describe: func(stored sessionstore.Record) (sessionstore.Row, error) {
			r, err := decodeRecord(stored)
			return m.records.columns(r), err
		},
	})
	if err != nil {
		return err
	}
	m.store, m.local, m.records.store = opened, opened.Local(), opened
	m.scratch = sessionfile.Scratch{Files: m.local.Files(), Dir: m.local.Of(scratchFolder)}
	m.disk = &diskQuota{m: m, measured: quota.NewDisk(opened.DiskConfig()), reclaimed: map[Owner]time.Time{}}
	return nil
}

// Runtimes lists what can run here, by backend in their order.
func (m *Manager) Runtimes(ctx context.Context) []Runtime { return m.backends.runtimes(ctx) }

// Create opens a new session. An empty id is replaced by an unguessable one;
// one that the owner has already is a fault.Conflict.
func (m *Manager) Create(ctx context.Context, owner Owner, id ID, settings Settings) (Info, error) {
	if id == "" {
		id = ID(newID("s-"))
	}
	if err := id.check(); err != nil {
		return Info{}, err
	}
	b, err := m.checkSettings(ctx, settings)
	if err == nil {
		err = m.config.checkNetwork(settings.Network)
	}
	if err == nil {
		settings.Secrets, err = m.config.chooseSecrets(owner, settings.Secrets)
	}
	if err != nil {
		return Info{}, err
	}
	if err := m.disk.reclaim(ctx, owner); err != nil {
		return Info{}, err
	}
	s, err := m.newSessionAt(key{owner, id}, b, nil, settings, "", nil)
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
		there, s, err := m.sessions.add(k, func() *session { return newSession(m, k) })
		switch {
		case err != nil:
			return nil, err
		case there != nil:
			if there.turns.isSleeping() {
				<-there.turns.closed // on disk it is there all the same, as the caller will see
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

// opened tells everyone who waits for the session how its opening went.
func (m *Manager) opened(s *session, err error) error {
	if err != nil {
		m.sessions.remove(s)
	} else if m.config.AnswersAlways {
		m.peers.open()
	}
	s.openErr = err
	s.turns.open(err != nil)
	close(s.opened)
	m.janitor.wakeUp()
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
		s, made, err := m.sessions.add(k, func() *session { return newSession(m, k) })
		switch {
		case err != nil:
			return nil, err
		case made != nil:
			return made, m.opened(made, made.load())
		case s == nil:
			// Before others are put to sleep for it.
			if _, err := m.store.Read(k.stored()); err != nil {
				return nil, err
			}
			if err := m.room(owner); err != nil {
				return nil, err
			}
		case s.turns.isSleeping():
			<-s.turns.closed
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
	s, err := m.sessions.lookup(k)
	if err != nil {
		return Info{}, err
	}
	if s != nil {
		if <-s.opened; s.openErr == nil {
			if i, err := s.info(); !errors.Is(err, errAsleep) {
				return i, err
			}
		}
	}
	return m.records.info(k)
}

// List tells about all sessions of the owner, in the order of their making:
// those of this process, of others, and those that nobody has open.
func (m *Manager) List(owner Owner) ([]Info, error) {
	open := map[ID]bool{}
	mine := m.sessions.list(owner)
	for _, s := range mine {
		open[s.id] = true
	}
	var all []Info
	for _, s := range mine {
		<-s.opened
		if i, err := s.info(); err == nil {
			all = append(all, i)
		} else {
			delete(open, s.id) // its opening failed: another process may have it
		}
	}
	records, err := m.records.list(owner)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if !open[r.key().id] {
			all = append(all, m.records.describeClosed(r))
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
	_ = m.disk.reclaim(m.ctx, owner) // reading needs no room; who writes is told
	return s.tree, done, nil
}

// atOnce is how many sessions are let go of at once at the end: each waits for
// the disk.
const atOnce = 16

// Close cancels what runs, ends every interpreter, and lets go of the
// sessions, whose files stay. It waits, and works twice.
func (m *Manager) Close() error {
	all := m.sessions.close()
	m.stop()
	m.peers.close()
	var mine []*session
	for _, s := range all {
		if <-s.opened; s.turns.end(errShutdown, nil) {
			mine = append(mine, s)
		}
	}
	var ends sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, s := range mine {
		turns <- struct{}{}
		ends.Go(func() {
			m.dismantle(s, false)
			<-turns
		})
	}
	ends.Wait()
	for _, s := range all {
		<-s.turns.closed
	}
	m.jobs.Wait()
	return m.store.Close()
}
