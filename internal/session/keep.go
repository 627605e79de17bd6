package session

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"paddock/internal/blob"
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
	k := &s.kept
	k.key, k.trees = s.key, map[string]*workspace.Tree{workspaceFolder: s.tree, tmpFolder: s.tmp}
	k.record, k.moved, k.log = s.encodeRecord, s.moved, s.manager.log.With("session", s.id)
	store, err := s.manager.blobs(s.owner)
	if err != nil {
		return err
	}
	return k.open(store, s.manager.checkpointsFolder(s.key), s.manager.config.files())
}

// moved deals with a new head. The caller holds s.keeping.
func (s *session) moved(was *history.Manifest) {
	s.mu.Lock()
	s.record.Head = s.kept.head.Number
	s.mu.Unlock()
	s.prune(was)
	s.index()
}

// usable is kept's. The caller holds s.keeping.
func (s *session) usable(m *history.Manifest) error { return s.kept.usable(m) }

// firstCheckpoint makes a new session's, which fill fills; nil: of what is there.
func (s *session) firstCheckpoint(fill func(*session, *draft) error) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if s.passing() {
		s.kept.head = new(history.Manifest)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	d, err := s.kept.draft(ctx, causeCreate)
	if err != nil {
		return err
	}
	defer d.close()
	if fill == nil {
		err = d.capture(nil)
	} else {
		err = fill(s, d)
	}
	if err != nil {
		return err
	}
	return d.persist(ctx)
}

// keep makes a checkpoint of the files and of these live interpreters; see
// [kept.keep]. It is the caller's turn.
func (s *session) keep(ctx context.Context, n note, live map[string]sandbox.Instance) ([]workspace.Change, error) {
	if s.passing() {
		return nil, nil
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	live = maps.Clone(live)
	for runtime, in := range s.live() { // what an earlier call could not keep
		if _, there := live[runtime]; !there && s.kept.unsure[runtime] {
			live[runtime] = in
		}
	}
	n.moved = n.moved || n.cause == causeExecute || len(s.live()) > 0
	files, err := s.kept.keep(ctx, n, live)
	if err == nil || n.save == nil { // without the machine it may work
		s.setKept(err)
	}
	if err == nil && n.save != nil {
		s.mu.Lock()
		s.unsavedSince = time.Time{}
		s.mu.Unlock()
	}
	return files, err
}

// keepPaths makes a checkpoint of files that were written from outside of
// programs; one may be running.
func (s *session) keepPaths(paths []string) error {
	if s.passing() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return s.kept.keepPaths(ctx, paths)
}

// passing tells whether nothing of the session is kept.
func (s *session) passing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Settings.Passing
}

// lasting is a context for what is done whole once it has begun, whoever hangs up.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), keepTime)
}

// setKept says whether what lives is on disk as it is; err is why not. The
// caller holds s.keeping.
func (s *session) setKept(err error) {
	s.kept.failed = err
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loose = err != nil
}

// lastKeep tries again to keep what an earlier call could not, before the
// interpreters end.
func (s *session) lastKeep(ctx context.Context) error {
	s.bury(ctx)
	s.mu.Lock()
	loose := s.loose
	s.mu.Unlock()
	if !loose {
		return nil
	}
	_, err := s.keep(ctx, note{cause: causeAsked}, s.live())
	return err
}

// lastTime bounds what is tried at the end of a session.
const lastTime = 20 * time.Second

// atLast is lastKeep before a session is let go of, and saves its machine, where it
// can. It tells whether what is on disk is what the session was; where it is not, the
// next result says so.
func (s *session) atLast() (clean, saved bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	err := s.lastKeep(ctx)
	if err == nil {
		saved = s.keepMachine(ctx, note{cause: causeSleep})
	}
	s.noteUnkept()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.kept.closed = true
	if err != nil {
		s.manager.log.Error("the last state of a session is lost", "session", s.id, "cause", causeOf(err))
		s.tell("What the last call left could not be kept: files and variables are as they were before it.")
	}
	return err == nil && !s.kept.torn, saved
}

// unkept says what a model has to know when its call could not be kept.
func unkept(err error) string {
	f := fault.Of(err)
	why := f.Message
	if f.Kind == fault.Internal {
		why = "the server's log says why"
	}
	return "What this call left is in memory only: it could not be kept on disk (" + why + "). It is lost when the server ends; the next call tries again."
}

// notKept deals with a failure to keep after a run.
func (s *session) notKept(t *turn, err error) string {
	s.manager.log.ErrorContext(t.ctx, "a checkpoint could not be kept", "session", s.id, "execution", t.execution, "cause", errors.Join(err, causeOf(err)))
	return unkept(err)
}

// resume gives the state that an interpreter is to begin with; nil: none.
func (s *session) resume(runtime string) *sandbox.Resume {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	r := s.kept.state(runtime)
	if r != nil {
		r.Anew = r.Anew || s.anew[runtime]
	}
	return r
}

// checkpointsFolder is where the manifests of a session lie; blobsFolder where
// an owner's blobs do.
func (m *Manager) checkpointsFolder(k key) string {
	return filepath.Join(m.config.Dir, "checkpoints", filepath.Base(m.ownerFolder(k.owner)), string(k.id))
}

func (m *Manager) blobsFolder(o Owner) string {
	return filepath.Join(m.config.Dir, "blobs", filepath.Base(m.ownerFolder(o)))
}

// blobs gives an owner's store, opening it when it is first asked for.
func (m *Manager) blobs(o Owner) (*blob.Store, error) {
	m.storing.Lock()
	defer m.storing.Unlock()
	if b := m.stores[o]; b != nil {
		return b, nil
	}
	b, err := blob.Open(m.blobsFolder(o), blob.Options{Files: m.config.Files})
	if err != nil {
		return nil, unusable(err)
	}
	m.stores[o] = b
	return b, nil
}
