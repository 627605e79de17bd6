package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// mostLayers is how many layers an interpreter's state is read from: with more,
// it is written whole. Also when what changed takes more than twice of it.
const mostLayers = 48

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

// become makes the files and the draft what they are in target.
func (d *draft) become(target, was *history.Manifest) error {
	d.next.Of, d.next.Previous = target.Of, target.Previous
	for name := range d.s.trees() {
		if _, err := d.apply(name, target.Trees[name], d.lists[name]); err != nil {
			return err
		}
	}
	d.next.Interpreters = maps.Clone(target.Interpreters)
	for runtime, in := range d.next.Interpreters {
		// At the same state it may be for the second time.
		if before := was.Interpreters[runtime]; d.s.kept.unsure[runtime] || before.Anew || !sameState(in, before) {
			in.Anew = true
			d.next.Interpreters[runtime] = in
		}
	}
	return nil
}

// apply makes a tree what a listing says that is kept as ref; the zero Ref is
// an empty tree's. now is what is known of the tree; nil: nothing.
func (d *draft) apply(name string, ref blob.Ref, now *workspace.Listing) ([]workspace.Change, error) {
	changes, err := d.bring(name, ref, now)
	if err != nil {
		return nil, err
	}
	return changes, d.list(name, d.lists[name])
}

// bring is apply without keeping how the files look now.
func (d *draft) bring(name string, ref blob.Ref, now *workspace.Listing) ([]workspace.Change, error) {
	want, err := d.s.listing(ref)
	if err != nil {
		return nil, err
	}
	list, changes, err := d.s.trees()[name].Apply(want, now, d.s.kept.blobs.Open)
	if err != nil {
		return nil, fmt.Errorf("bringing the files back: %w", err)
	}
	d.lists[name] = list
	if name == workspaceFolder {
		d.files = changes
	}
	return changes, nil
}

// undo makes the files again what they were before the draft.
func (d *draft) undo() {
	s := d.s
	s.kept.torn = true
	if err := s.mend(); err != nil {
		s.manager.log.Error("files could not be brought back after a restore that failed", "session", s.id, "cause", causeOf(err))
	}
	if s.kept.failed == nil {
		return
	}
	// What an earlier call left is not in head, so it is not in the files either.
	for runtime, in := range s.live() {
		if s.kept.unsure[runtime] {
			s.drop(runtime, in)
			s.anew[runtime] = true
		}
	}
	clear(s.kept.unsure)
	s.news = join(s.news, "What an earlier call left could not be kept, and is gone: variables and files are as they were before that call.")
	s.setKept(nil)
}
