package session

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// What a checkpoint was made after.
const (
	causeCreate  = "create"
	causeExecute = "execute"
	causeFiles   = "files"
	causeReset   = "reset"
	causeAsked   = "checkpoint"
	causeFork    = "fork"
	causeImport  = "import"
	causeRecover = "recover"
	causeRestore = "restore"
)

// keepTime bounds how long keeping a checkpoint may take: gigabytes on a slow
// disk.
const keepTime = 5 * time.Minute

// kept is what of a session is on disk: its line of checkpoints. It belongs to
// whoever holds session.keeping.
type kept struct {
	blobs *blob.Store
	line  *history.Line
	head  *history.Manifest             // where the session is; nil: nothing is kept yet
	lists map[string]*workspace.Listing // what the trees were at head, and how their files looked
	// unsure are the runtimes whose live interpreter is not what head says,
	// because keeping it failed.
	unsure map[string]bool
	// apart are the runtimes whose live interpreter wrote something that is not in
	// the line: what it writes next has to be whole.
	apart  map[string]bool
	failed error // why; nil: all is kept
	// closed says that the session is let go of: nothing is written any more.
	closed bool
	// torn says that the files are neither what head says nor anything else that
	// was, as a restore failed in the middle, and so did taking it back.
	torn bool
}

// trees are the session's folders by their names in checkpoints.
func (s *session) trees() map[string]*workspace.Tree {
	return map[string]*workspace.Tree{workspaceFolder: s.tree, tmpFolder: s.tmp}
}

// note is what a checkpoint says of the call that it was made after.
type note struct {
	cause, label              string
	execution, language, code string
	always                    bool // also when nothing changed
}

// keep makes a checkpoint of the files and of these live interpreters, by their
// runtimes; nil stands for one that is gone. Where nothing changed there is
// none. It is the caller's turn.
func (s *session) keep(ctx context.Context, n note, live map[string]sandbox.Instance) (files []workspace.Change, err error) {
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
	defer func() {
		if s.setKept(err); err == nil {
			return
		}
		for runtime := range live {
			s.kept.unsure[runtime] = true
		}
	}()
	d, err := s.draft(ctx, n.cause)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.capture(nil); err != nil {
		return nil, err
	}
	for runtime, in := range live {
		if in != nil {
			err = d.snapshot(ctx, runtime, in)
		} else if _, there := d.next.Interpreters[runtime]; there {
			delete(d.next.Interpreters, runtime)
			d.changed = true
		}
		if err != nil {
			return d.files, err
		}
	}
	if d.changed || n.always {
		d.next.Label, d.next.Execution, d.next.Language, d.next.Code = n.label, n.execution, n.language, firstLine(n.code)
		if err := d.commit(ctx); err != nil {
			return d.files, err
		}
	} else {
		s.kept.lists = d.lists
	}
	for runtime := range live {
		delete(s.kept.unsure, runtime)
		delete(s.kept.apart, runtime)
	}
	return d.files, nil
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

// atLast is lastKeep before a session is let go of. It tells whether what is on
// disk is what the session was; where it is not, the next result says so.
func (s *session) atLast() bool {
	ctx, cancel := context.WithTimeout(context.Background(), lastTime)
	defer cancel()
	err := s.lastKeep(ctx)
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.kept.closed = true
	if err != nil {
		s.manager.log.Error("the last state of a session is lost", "session", s.id, "cause", causeOf(err))
		s.news = join(s.news, "What the last call left could not be kept: files and variables are as they were before it.")
	}
	return err == nil && !s.kept.torn
}

// firstLine is what a list shows of a program.
func firstLine(code string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	line = strings.TrimSpace(line)
	const most = 80
	if utf8.RuneCountInString(line) > most {
		line = string([]rune(line)[:most-1]) + "…"
	}
	return line
}

// keepPaths makes a checkpoint of files that were written from outside of
// programs; one may be running. Interpreters and other files stay as at head.
func (s *session) keepPaths(paths []string) error {
	if s.passing() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keepTime)
	defer cancel()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	d, err := s.draft(ctx, causeFiles)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.capture(paths); err != nil || !d.changed {
		return err
	}
	return d.commit(ctx)
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
	if s.kept.head == nil {
		return nil
	}
	in, ok := s.kept.head.Interpreters[runtime]
	if !ok {
		return nil
	}
	r := &sandbox.Resume{State: in.State, Anew: in.Anew || s.anew[runtime]}
	for _, ref := range in.Layers {
		blobs := s.kept.blobs
		r.Layers = append(r.Layers, func() (io.ReadCloser, error) { return blobs.Open(ref) })
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
