package session

import (
	"context"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/checkpoint"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// keepTime bounds how long keeping a checkpoint may take: gigabytes on a slow
// disk.
const keepTime = 5 * time.Minute

// checkpoints is what of a session is on disk, and what is not there yet. Making and reading
// checkpoints takes mu, and may take long: it is held while the disk is waited for and
// interpreters are asked. Whoever makes one of interpreters has the turn.
type checkpoints struct {
	s *session

	// unsaved reports that what lives is not on disk as it is: the session does not sleep.
	unsaved atomic.Bool
	// missing is in how many places files were not kept when results last told of it. It
	// belongs to the first in the queue.
	missing int

	mu        sync.Mutex       // taken before all others; guards what follows
	repo      *checkpoint.Repo // set while the session is opened
	err       error            // why what lives could not be kept; nil: it is on disk
	dirty     map[string]bool  // runtimes whose live interpreter is not what the head says
	needsFull map[string]bool  // those that wrote what is in no checkpoint: what they write next has to be whole
}

// open opens what is on disk of the session's line: only to be looked at where the session
// is not this process's.
func (c *checkpoints) open() error {
	s, m := c.s, c.s.manager
	store, files, err := m.local.Seen(string(s.owner))
	if s.claim != nil {
		files = m.local.Files()
		store, err = m.local.Blobs(string(s.owner))
	}
	if err != nil {
		return err
	}
	c.repo, err = checkpoint.Open(checkpoint.Config{
		Owner: string(s.owner), Session: string(s.id),
		Store: store, Folder: m.local.Checkpoints(s.stored()), Files: files,
		Trees: map[string]*workspace.Tree{workspaceFolder: s.tree, tmpFolder: s.tmp}, Shown: workspaceFolder,
		Ephemeral: s.isEphemeral(), Most: m.config.Checkpoints,
		Record: s.encodeRecord, Moved: s.moved, Undone: c.undone, Littered: func(bytes int64) { m.janitor.noteBytes(s.owner, bytes) },
		Log: m.log.With("session", s.id),
	})
	return err
}

// moved deals with a new head. The caller holds checkpoints.mu.
func (s *session) moved() {
	s.mu.Lock()
	s.record.Head = s.checkpoints.repo.Head().Number
	s.mu.Unlock()
	s.noteWaiting()
	s.index()
}

// beginning is what a new session begins as.
type beginning struct {
	cause string
	state *history.Manifest // whose files and interpreters it has
	// parent is the session that it is a fork of; empty: it is none.
	parent ID
	// then is called once its files are there, while the disk is waited for; nil:
	// there is nothing to be done then.
	then func(*session)
}

// fresh reports whether nothing that lived has to be gone on with.
func (b *beginning) fresh() bool {
	return b == nil || b.state.Machine == nil && len(b.state.Interpreters) == 0
}

// begin makes the first checkpoint of a new session; from nil: it begins empty.
func (c *checkpoints) begin(from *beginning) error {
	s := c.s
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if from == nil {
		return c.repo.Begin(ctx, history.CauseCreate, nil, nil)
	}
	return c.repo.Begin(ctx, from.cause, from.state, func() {
		if told := notInCheckpoint(c.repo.Missing()); told != "" {
			s.addNotice(told)
		}
		if from.then != nil {
			from.then(s)
		}
	})
}

// keep makes a checkpoint of the files and of these live interpreters, by their
// runtimes; see [checkpoint.Repo.Commit]. It is the caller's turn.
func (c *checkpoints) keep(ctx context.Context, n checkpoint.Note, live map[string]sandbox.Instance) ([]workspace.Change, error) {
	s := c.s
	if s.isEphemeral() {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	live = maps.Clone(live)
	for runtime, in := range s.interpreters.list() { // what an earlier call could not keep
		if _, there := live[runtime]; !there && c.dirty[runtime] {
			live[runtime] = in
		}
	}
	n.MachineMoved = n.MachineMoved || n.Cause == history.CauseExecute || s.interpreters.count() > 0
	files, err := c.repo.Commit(ctx, n, c.snapshots(live))
	for runtime, in := range live {
		if err != nil {
			c.dirty[runtime] = in == nil || keeps(in) // of others the head says nothing
			continue
		}
		delete(c.dirty, runtime)
		delete(c.needsFull, runtime)
	}
	if err == nil || n.Save == nil { // without the machine it may work
		c.setKept(err)
	}
	if err == nil && n.Save != nil {
		s.residence.saved()
	}
	return files, err
}

// snapshots are what takes interpreters up whose state can be kept. The caller holds
// checkpoints.mu.
func (c *checkpoints) snapshots(live map[string]sandbox.Instance) map[string]checkpoint.Snapshot {
	all := map[string]checkpoint.Snapshot{}
	for runtime, in := range live {
		if in == nil {
			all[runtime] = nil
			continue
		}
		snapshotter, ok := in.(sandbox.Snapshotter)
		if !ok {
			continue
		}
		whole := c.dirty[runtime] || c.needsFull[runtime]
		all[runtime] = func(ctx context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
			o.Whole = o.Whole || whole
			return guard("keeping an interpreter", func() (sandbox.Snapshot, error) { return snapshotter.Snapshot(ctx, w, o) })
		}
	}
	return all
}

// keepPaths makes a checkpoint of files that were written from outside of
// programs; one may be running.
func (c *checkpoints) keepPaths(paths []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.repo.CommitPaths(ctx, paths)
}

// isEphemeral reports whether nothing of the session is kept.
func (s *session) isEphemeral() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Settings.Ephemeral
}

// lasting is a context for what is done whole once it has begun, whoever hangs up.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), keepTime)
}

// setKept says whether what lives is on disk as it is; err is why not. The
// caller holds checkpoints.mu.
func (c *checkpoints) setKept(err error) {
	c.err = err
	c.unsaved.Store(err != nil)
}

// keepLast tries again to keep what an earlier call could not, before the
// interpreters end.
func (c *checkpoints) keepLast(ctx context.Context) error {
	c.s.interpreters.reapDead(ctx)
	if !c.unsaved.Load() {
		return nil
	}
	_, err := c.keep(ctx, checkpoint.Note{Cause: history.CauseAsked}, c.s.interpreters.list())
	return err
}

// lastTime bounds what is tried at the end of a session: what is not on disk by then is
// lost, and a disk that others write to takes its time for a machine's memory.
const lastTime = saveTime + 20*time.Second

// atLast is keepLast before a session is let go of, and saves its machine, where it
// can. It reports whether what is on disk is what the session was; where it is not, the
// next result says so.
func (s *session) atLast() (clean, saved bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	err := s.checkpoints.keepLast(ctx)
	if err == nil {
		saved = s.residence.saveLast(ctx)
	}
	s.noteUnsaved()
	s.checkpoints.mu.Lock()
	defer s.checkpoints.mu.Unlock()
	whole := s.checkpoints.repo.Close(errNotFound(s.id))
	if err != nil {
		s.manager.log.Error("the last state of a session is lost", "session", s.id, "cause", fault.CauseOf(err))
		s.addNotice("What the last call left could not be kept: files and variables are as they were before it.")
	}
	return err == nil && whole, saved
}

// resume gives the state that an interpreter is to begin with; nil: none.
func (c *checkpoints) resume(runtime string) *sandbox.Resume {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.repo.Resume(runtime)
	if r != nil {
		r.Reseed = r.Reseed || c.s.interpreters.mustReseed[runtime]
	}
	return r
}
