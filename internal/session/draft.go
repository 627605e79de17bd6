package session

import (
	"bytes"
	"context"
	"errors"
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
	k     *kept
	next  history.Manifest
	lists map[string]*workspace.Listing
	batch *blob.Batch
	bytes int64
	// changed tells that it is different from head, files that those of the
	// workspace are.
	changed bool
	files   []workspace.Change
}

// draft begins one that is as head is; who began it ends it with close.
func (k *kept) draft(ctx context.Context, cause string) (*draft, error) {
	if err := k.mend(); err != nil {
		return nil, err
	}
	return k.draftOver(ctx, cause)
}

// draftOver is draft for what makes other files of all anyway: they may be torn,
// and are no more once it is persisted.
func (k *kept) draftOver(ctx context.Context, cause string) (*draft, error) {
	if k.closed {
		return nil, errNotFound(k.id)
	}
	batch, err := k.blobs.Begin(ctx)
	if err != nil {
		return nil, err
	}
	d := &draft{k: k, lists: maps.Clone(k.lists), batch: batch}
	if d.lists == nil || k.torn {
		d.lists = map[string]*workspace.Listing{}
	}
	if head := k.head; head != nil {
		d.next = head.Clone()
		d.next.Previous = head.Of
	}
	d.next.Owner, d.next.Session, d.next.Cause = string(k.owner), string(k.id), cause
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
	for name, tree := range d.k.trees {
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
		if err := d.keepListing(name, list); err != nil {
			return err
		}
	}
	return nil
}

// keepListing keeps a tree's listing.
func (d *draft) keepListing(name string, list *workspace.Listing) error {
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
	mark := string(d.k.id) + "." + strconv.FormatInt(d.k.line.Next(), 10)
	whole := d.k.blobs.Check(had.Layers) != nil || d.k.unsure[runtime] || d.k.apart[runtime] || tooLong(had.Layers)
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
	now.Variables = variables(got.Inspection.Variables)
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

// persist makes the checkpoint the session's head. It is on the disk then.
func (d *draft) persist(ctx context.Context) error {
	k := d.k
	if k.head != nil {
		d.next.Variables = variableChanges(k.head, &d.next)
	}
	for _, c := range d.files[:min(len(d.files), mostChanges)] {
		d.next.Files = append(d.next.Files, history.Change{Name: c.Path, Change: c.Change, Size: c.Size})
	}
	record, err := k.record()
	if err != nil {
		return err
	}
	d.next.Record, d.next.Bytes = record, d.bytes
	if err := k.line.Append(&d.next, func() error { return d.batch.Sync(ctx) }); err != nil {
		return err
	}
	head, was := d.next, k.head
	k.head, k.lists, k.torn = &head, d.lists, false
	k.moved(was)
	return nil
}

// mostChanges bounds the lists of changes in a checkpoint: they are for people.
const mostChanges = 200

// variableChanges tells what differs between two sets of interpreters.
func variableChanges(before, after *history.Manifest) []history.Change {
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

func variablesOf(m *history.Manifest) map[[2]string]history.Variable {
	vars := map[[2]string]history.Variable{}
	add := func(all map[string]history.Interpreter) {
		for runtime, in := range all {
			for _, v := range in.Variables {
				vars[[2]string{runtime, v.Name}] = v
			}
		}
	}
	add(m.Interpreters)
	if m.Machine != nil {
		add(m.Machine.Interpreters)
	}
	return vars
}

// become makes the files and the draft what they are in target.
func (d *draft) become(target, was *history.Manifest) error {
	d.next.Of, d.next.Previous = target.Of, target.Previous
	for name := range d.k.trees {
		if _, err := d.apply(name, target.Trees[name], d.lists[name]); err != nil {
			return err
		}
	}
	d.next.Machine = again(target.Machine)
	d.next.Interpreters = maps.Clone(target.Interpreters)
	for runtime, in := range d.next.Interpreters {
		// At the same state it may be for the second time.
		if before := was.Interpreters[runtime]; d.k.unsure[runtime] || before.Anew || !sameState(in, before) {
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
	return changes, d.keepListing(name, d.lists[name])
}

// bring is apply without keeping how the files look now.
func (d *draft) bring(name string, ref blob.Ref, now *workspace.Listing) ([]workspace.Change, error) {
	want, err := d.k.listing(ref)
	if err != nil {
		return nil, err
	}
	list, changes, err := d.k.trees[name].Apply(want, now, d.k.blobs.Open)
	if err != nil {
		return nil, fmt.Errorf("bringing the files back: %w", err)
	}
	d.lists[name] = list
	if name == workspaceFolder {
		d.files = changes
	}
	return changes, nil
}

// undo makes the files again what they were before the draft; where that fails
// they are torn.
func (d *draft) undo() {
	d.k.torn = true
	if err := d.k.mend(); err != nil {
		d.k.log.Error("files could not be brought back after a restore that failed", "cause", causeOf(err))
	}
}

// rollBack makes the files what head says, after a process that did not end as
// it should. changed tells that they were different, partly that not all of them
// could be brought back: then they are taken up as they were found. What the
// interpreters drew from their generators of random numbers since may be out, so
// they get new seeds.
func (d *draft) rollBack() (changed, partly bool, err error) {
	head := d.k.head
	d.next.Cause, d.next.Of, d.next.Previous = causeRecover, head.Of, head.Previous
	for name, tree := range d.k.trees {
		want := d.k.lists[name]
		if want == nil {
			if err := d.capture(nil); err != nil {
				return changed, partly, err
			}
			break
		}
		list, changes, err := tree.Apply(want, want, d.k.blobs.Open)
		if errors.Is(err, blob.ErrDamaged) || errors.Is(err, blob.ErrMissing) {
			d.k.log.Error("a file cannot be brought back", "cause", causeOf(err))
			partly = true
			if err := d.capture(nil); err != nil {
				return changed, partly, err
			}
			break
		}
		if err != nil {
			return changed, partly, fmt.Errorf("bringing the files back: %w", err)
		}
		d.lists[name] = list
		if len(changes) > 0 {
			changed = true
			if err := d.keepListing(name, list); err != nil {
				return changed, partly, err
			}
		}
	}
	if head.Machine != nil {
		d.next.Machine, d.changed = again(head.Machine), true
	}
	d.next.Interpreters = maps.Clone(head.Interpreters)
	for runtime, in := range d.next.Interpreters {
		in.Anew = true
		d.next.Interpreters[runtime], d.changed = in, true
	}
	return changed, partly, nil
}
