package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
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

const (
	// keepTime bounds how long keeping a checkpoint may take: gigabytes on a slow
	// disk.
	keepTime = 5 * time.Minute
	// mostLayers is how many layers an interpreter's state is read from: with more,
	// it is written whole. Also when what changed takes more than twice of it.
	mostLayers = 48
)

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

// draft is a checkpoint in the making.
type draft struct {
	s     *session
	next  history.Manifest
	lists map[string]*workspace.Listing
	batch *blob.Batch
	bytes int64
	// changed tells that it is different from head, files that those of the
	// workspace are.
	changed bool
	files   []workspace.Change
}

// draft begins one that is as head is. The caller holds s.keeping, and ends it
// with close.
func (s *session) draft(ctx context.Context, cause string) (*draft, error) {
	if err := s.mend(); err != nil {
		return nil, err
	}
	return s.draftOver(ctx, cause)
}

// draftOver is draft for what makes other files of all anyway: they may be torn,
// and are no more once it is committed.
func (s *session) draftOver(ctx context.Context, cause string) (*draft, error) {
	if s.kept.closed {
		return nil, errNotFound(s.id)
	}
	batch, err := s.kept.blobs.Begin(ctx)
	if err != nil {
		return nil, err
	}
	d := &draft{s: s, lists: maps.Clone(s.kept.lists), batch: batch}
	if d.lists == nil || s.kept.torn {
		d.lists = map[string]*workspace.Listing{}
	}
	if head := s.kept.head; head != nil {
		d.next = head.Clone()
		d.next.Previous = head.Of
	}
	d.next.Owner, d.next.Session, d.next.Cause = string(s.owner), string(s.id), cause
	d.next.Of, d.next.At, d.next.Label, d.next.Bytes = 0, time.Now().UTC(), "", 0
	d.next.Execution, d.next.Language, d.next.Code = "", "", ""
	d.next.Variables, d.next.Files = nil, nil
	if d.next.Trees == nil {
		d.next.Trees = map[string]blob.Ref{}
	}
	if d.next.Interpreters == nil {
		d.next.Interpreters = map[string]history.Interpreter{}
	}
	return d, nil
}

func (d *draft) close() { d.batch.Close() }

// put keeps one file's content.
func (d *draft) put(_ string, r io.Reader) (blob.Ref, error) {
	ref, err := d.batch.Put(r)
	d.bytes += ref.Stored
	return ref, err
}

// capture takes the files up. paths nil: all of both trees; else these of the
// workspace, and nothing else is looked at.
func (d *draft) capture(paths []string) error {
	for name, tree := range d.s.trees() {
		var list *workspace.Listing
		var changes []workspace.Change
		var err error
		switch {
		case paths == nil:
			list, changes, err = tree.Capture(d.lists[name], d.put)
		case name == workspaceFolder:
			list, changes, err = tree.CapturePaths(d.lists[name], paths, d.put)
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("keeping the files: %w", err)
		}
		was := d.lists[name]
		d.lists[name] = list
		if name == workspaceFolder {
			d.files = changes
		}
		if _, there := d.next.Trees[name]; there && was != nil && was.Same(list) {
			continue
		}
		if err := d.list(name, list); err != nil {
			return err
		}
	}
	return nil
}

// list keeps a tree's listing.
func (d *draft) list(name string, list *workspace.Listing) error {
	data, err := list.MarshalBinary()
	if err != nil {
		return fmt.Errorf("keeping the files: %w", err)
	}
	if len(data) > maxListing {
		return fault.New(fault.Exhausted, "the session's files are too many, or their names too long: to list them takes %d MiB", len(data)>>20).WithHint("delete some")
	}
	ref, err := d.put(name, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("keeping the list of files: %w", err)
	}
	d.next.Trees[name], d.changed = ref, true
	return nil
}

// snapshot takes a live interpreter up.
func (d *draft) snapshot(ctx context.Context, runtime string, in sandbox.Instance) error {
	snapshotter, ok := in.(sandbox.Snapshotter)
	if !ok {
		return nil
	}
	had := d.next.Interpreters[runtime]
	mark := string(d.s.id) + "." + strconv.FormatInt(d.s.kept.line.Next(), 10)
	whole := d.s.kept.blobs.Check(had.Layers) != nil || d.s.kept.unsure[runtime] || d.s.kept.apart[runtime] || tooLong(had.Layers)
	w := d.batch.Writer(blob.Packed)
	defer w.Discard()
	got, err := guard("keeping an interpreter", func() (sandbox.Snapshot, error) {
		return snapshotter.Snapshot(ctx, w, sandbox.SnapshotOptions{Whole: whole, Mark: mark})
	})
	if err != nil {
		return fmt.Errorf("keeping an interpreter: %w", err)
	}
	if got.Bytes == 0 && !got.Whole && !had.Anew {
		return nil
	}
	now := history.Interpreter{State: got.State, Mark: mark, Known: got.Known, Imports: got.Inspection.Imports, Memory: got.Inspection.Memory}
	if !got.Whole {
		now.Layers = slices.Clone(had.Layers)
	}
	if got.Bytes > 0 || got.Whole {
		ref, err := w.Close()
		if err != nil {
			return fmt.Errorf("keeping an interpreter: %w", err)
		}
		d.bytes += ref.Stored
		now.Layers = append(now.Layers, ref)
	}
	for _, v := range got.Inspection.Variables {
		now.Variables = append(now.Variables, history.Variable{Name: v.Name, Type: v.Type, Preview: v.Preview})
	}
	d.next.Interpreters[runtime], d.changed = now, true
	return nil
}

// tooLong tells whether a state is better written whole.
func tooLong(layers []blob.Ref) bool {
	if len(layers) >= mostLayers {
		return true
	}
	changes := int64(0)
	for _, l := range layers[min(1, len(layers)):] {
		changes += l.Stored
	}
	return len(layers) > 1 && changes > 2*layers[0].Stored+1<<20
}

// commit makes the checkpoint the session's head. It is on the disk then.
func (d *draft) commit(ctx context.Context) error {
	s := d.s
	if head := s.kept.head; head != nil {
		d.next.Variables = variableChanges(head.Interpreters, d.next.Interpreters)
	}
	for _, c := range d.files[:min(len(d.files), mostChanges)] {
		d.next.Files = append(d.next.Files, history.Change{Name: c.Path, Change: c.Change, Size: c.Size})
	}
	s.mu.Lock()
	record, err := json.Marshal(s.record)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	d.next.Record, d.next.Bytes = record, d.bytes
	if err := d.batch.Sync(ctx); err != nil {
		return fmt.Errorf("keeping a checkpoint: %w", err)
	}
	if err := s.kept.line.Append(&d.next); err != nil {
		return err
	}
	head, was := d.next, s.kept.head
	s.kept.head, s.kept.lists, s.kept.torn = &head, d.lists, false
	s.mu.Lock()
	s.record.Head = head.Number
	s.mu.Unlock()
	s.prune(was)
	s.index()
	return nil
}

// mostChanges bounds the lists of changes in a checkpoint: they are for people.
const mostChanges = 200

// variableChanges tells what differs between two sets of interpreters.
func variableChanges(before, after map[string]history.Interpreter) []history.Change {
	was, now := variablesOf(before), variablesOf(after)
	var changes []history.Change
	for name, v := range now {
		old, there := was[name]
		switch {
		case !there:
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Added})
		case old != v:
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Modified})
		}
	}
	for name, v := range was {
		if _, there := now[name]; !there {
			changes = append(changes, history.Change{Name: v.Name, Change: workspace.Removed})
		}
	}
	slices.SortFunc(changes, func(a, b history.Change) int { return strings.Compare(a.Name, b.Name) })
	return changes[:min(len(changes), mostChanges)]
}

func variablesOf(all map[string]history.Interpreter) map[[2]string]history.Variable {
	vars := map[[2]string]history.Variable{}
	for runtime, in := range all {
		for _, v := range in.Variables {
			vars[[2]string{runtime, v.Name}] = v
		}
	}
	return vars
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
