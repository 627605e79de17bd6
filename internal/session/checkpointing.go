package session

import (
	"context"
	"io"
	"maps"
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

// openKept opens what is on disk of the session's line.
func (s *session) openKept() error {
	m := s.manager
	store, err := m.local.Blobs(string(s.owner))
	if err != nil {
		return err
	}
	s.repo, err = checkpoint.Open(checkpoint.Config{
		Owner: string(s.owner), Session: string(s.id),
		Store: store, Folder: m.local.Checkpoints(s.stored()), Files: m.local.Files(),
		Trees: map[string]*workspace.Tree{workspaceFolder: s.tree, tmpFolder: s.tmp}, Shown: workspaceFolder,
		Ephemeral: s.isEphemeral(), Most: m.config.Checkpoints,
		Record: s.encodeRecord, Moved: s.moved, Undone: s.undone, Littered: func(bytes int64) { m.janitor.noteBytes(s.owner, bytes) },
		Log: m.log.With("session", s.id),
	})
	return err
}

// moved deals with a new head. The caller holds s.keeping.
func (s *session) moved() {
	s.mu.Lock()
	s.record.Head = s.repo.Head().Number
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

// fresh tells whether nothing that lived has to be gone on with.
func (b *beginning) fresh() bool {
	return b == nil || b.state.Machine == nil && len(b.state.Interpreters) == 0
}

// firstCheckpoint makes a new session's; from nil: it begins empty.
func (s *session) firstCheckpoint(from *beginning) error {
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	if from == nil {
		return s.repo.Begin(ctx, history.CauseCreate, nil, nil)
	}
	return s.repo.Begin(ctx, from.cause, from.state, func() {
		if told := notInCheckpoint(s.repo.Missing()); told != "" {
			s.addNotice(told)
		}
		if from.then != nil {
			from.then(s)
		}
	})
}

// keep makes a checkpoint of the files and of these live interpreters, by their
// runtimes; see [checkpoint.Kept.Keep]. It is the caller's turn.
func (s *session) keep(ctx context.Context, n checkpoint.Note, live map[string]sandbox.Instance) ([]workspace.Change, error) {
	if s.isEphemeral() {
		return nil, nil
	}
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	live = maps.Clone(live)
	for runtime, in := range s.instances.list() { // what an earlier call could not keep
		if _, there := live[runtime]; !there && s.dirtyRuntimes[runtime] {
			live[runtime] = in
		}
	}
	n.MachineMoved = n.MachineMoved || n.Cause == history.CauseExecute || s.instances.count() > 0
	files, err := s.repo.Commit(ctx, n, s.snapshots(live))
	for runtime, in := range live {
		if err != nil {
			s.dirtyRuntimes[runtime] = in == nil || keeps(in) // of others the head says nothing
			continue
		}
		delete(s.dirtyRuntimes, runtime)
		delete(s.needsFullSnapshot, runtime)
	}
	if err == nil || n.Save == nil { // without the machine it may work
		s.setKept(err)
	}
	if err == nil && n.Save != nil {
		s.residence.saved()
	}
	return files, err
}

// snapshots are what takes interpreters up whose state can be kept. The caller holds
// s.keeping.
func (s *session) snapshots(live map[string]sandbox.Instance) map[string]checkpoint.Snapshot {
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
		whole := s.dirtyRuntimes[runtime] || s.needsFullSnapshot[runtime]
		all[runtime] = func(ctx context.Context, w io.Writer, o sandbox.SnapshotOptions) (sandbox.Snapshot, error) {
			o.Whole = o.Whole || whole
			return guard("keeping an interpreter", func() (sandbox.Snapshot, error) { return snapshotter.Snapshot(ctx, w, o) })
		}
	}
	return all
}

// keepPaths makes a checkpoint of files that were written from outside of
// programs; one may be running.
func (s *session) keepPaths(paths []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	return s.repo.CommitPaths(ctx, paths)
}

// isEphemeral tells whether nothing of the session is kept.
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
// caller holds s.keeping.
func (s *session) setKept(err error) {
	s.checkpointErr = err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = err != nil
}

// lastKeep tries again to keep what an earlier call could not, before the
// interpreters end.
func (s *session) lastKeep(ctx context.Context) error {
	s.reapDead(ctx)
	s.mu.Lock()
	loose := s.dirty
	s.mu.Unlock()
	if !loose {
		return nil
	}
	_, err := s.keep(ctx, checkpoint.Note{Cause: history.CauseAsked}, s.instances.list())
	return err
}

// lastTime bounds what is tried at the end of a session: what is not on disk by then is
// lost, and a disk that others write to takes its time for a machine's memory.
const lastTime = saveTime + 20*time.Second

// atLast is lastKeep before a session is let go of, and saves its machine, where it
// can. It tells whether what is on disk is what the session was; where it is not, the
// next result says so.
func (s *session) atLast() (clean, saved bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	err := s.lastKeep(ctx)
	if err == nil {
		saved = s.residence.saveLast(ctx)
	}
	s.noteUnsaved()
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	whole := s.repo.Close(errNotFound(s.id))
	if err != nil {
		s.manager.log.Error("the last state of a session is lost", "session", s.id, "cause", fault.CauseOf(err))
		s.addNotice("What the last call left could not be kept: files and variables are as they were before it.")
	}
	return err == nil && whole, saved
}

// resume gives the state that an interpreter is to begin with; nil: none.
func (s *session) resume(runtime string) *sandbox.Resume {
	s.checkpointMu.Lock()
	defer s.checkpointMu.Unlock()
	r := s.repo.Resume(runtime)
	if r != nil {
		r.Reseed = r.Reseed || s.mustReseed[runtime]
	}
	return r
}
