package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// draft is a checkpoint in the making.
type draft struct {
	k     *Repo
	next  history.Manifest
	lists map[string]*workspace.Listing
	batch *blob.Batch
	bytes int64
	// changed tells that it is different from head, files that those are which are
	// shown.
	changed bool
	files   []workspace.Change
}

// draft begins one that is as head is; who began it ends it with close.
func (r *Repo) draft(ctx context.Context, cause string) (*draft, error) {
	if err := r.RepairFiles(); err != nil {
		return nil, err
	}
	return r.draftOver(ctx, cause)
}

// draftOver is draft for what makes other files of all anyway: they may be torn,
// and are no more once it is persisted.
func (r *Repo) draftOver(ctx context.Context, cause string) (*draft, error) {
	if r.closed != nil {
		return nil, r.closed
	}
	batch, err := r.c.Store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	d := &draft{k: r, lists: maps.Clone(r.lists), batch: batch}
	if d.lists == nil || r.torn {
		d.lists = map[string]*workspace.Listing{}
	}
	d.next = r.Head().Clone()
	d.next.Previous = r.Head().Of
	d.next.Owner, d.next.Session, d.next.Cause = r.c.Owner, r.c.Session, cause
	d.next.Of, d.next.At, d.next.Label, d.next.Bytes = 0, time.Now().UTC(), "", 0
	d.next.Execution, d.next.Language, d.next.Code, d.next.Output = "", "", "", nil
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

// capture takes the files up.
func (d *draft) capture() error {
	for name := range d.k.c.Trees {
		if err := d.captureTree(name); err != nil {
			return err
		}
	}
	return nil
}

// captureTree takes up those of one folder.
func (d *draft) captureTree(name string) error {
	list, changes, err := d.k.c.Trees[name].Capture(d.lists[name], d.put)
	return d.recordTree(name, list, changes, err)
}

// capturePaths takes up these of the folder that is shown, and looks at nothing else.
func (d *draft) capturePaths(paths []string) error {
	name := d.k.c.Shown
	list, changes, err := d.k.c.Trees[name].CapturePaths(d.lists[name], paths, d.put)
	return d.recordTree(name, list, changes, err)
}

// recordTree keeps what a capture of a folder gave.
func (d *draft) recordTree(name string, list *workspace.Listing, changes []workspace.Change, err error) error {
	if err != nil {
		return fmt.Errorf("keeping the files: %w", err)
	}
	was := d.lists[name]
	d.lists[name] = list
	if name == d.k.c.Shown {
		d.files = changes
	}
	if _, there := d.next.Trees[name]; there && was != nil && was.Same(list) {
		return nil
	}
	return d.keepListing(name, list)
}

// keepListing keeps a tree's listing.
func (d *draft) keepListing(name string, list *workspace.Listing) error {
	data, err := list.MarshalBinary()
	if err != nil {
		return fmt.Errorf("keeping the files: %w", err)
	}
	if len(data) > MaxListing {
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
func (d *draft) snapshot(ctx context.Context, runtime string, take Snapshot) error {
	had := d.next.Interpreters[runtime]
	mark := d.k.c.Session + "." + strconv.FormatInt(d.k.line.Next(), 10)
	whole := d.k.c.Store.Check(had.Layers) != nil || tooLong(had.Layers)
	w := d.batch.Writer(blob.Packed)
	defer w.Discard()
	got, err := take(ctx, w, sandbox.SnapshotOptions{Whole: whole, Mark: mark})
	if err != nil {
		return fmt.Errorf("keeping an interpreter: %w", err)
	}
	if got.Bytes == 0 && !got.Whole && !had.Anew {
		return nil
	}
	now := holding(got.Inspection, got.Known)
	now.State, now.Mark = got.State, mark
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
	d.next.Interpreters[runtime], d.changed = now, true
	return nil
}

// holding is what an interpreter holds, as a checkpoint says it.
func holding(found sandbox.Inspection, known bool) history.Interpreter {
	in := history.Interpreter{Known: known, Imports: found.Imports, Memory: found.Memory}
	for _, v := range found.Variables {
		in.Variables = append(in.Variables, history.Variable{Name: v.Name, Type: v.Type, Preview: v.Preview})
	}
	return in
}

// tooLong tells whether a state is better written whole.
func tooLong(layers []blob.Ref) bool {
	if len(layers) >= MaxLayers {
		return true
	}
	changes := int64(0)
	for _, l := range layers[min(1, len(layers)):] {
		changes += l.Stored
	}
	return len(layers) > 1 && changes > 2*layers[0].Stored+1<<20
}

// captureWith takes the files up, and the machine with them where it is to be saved.
func (d *draft) captureWith(ctx context.Context, n Note) error {
	had := d.next.Machine
	if n.MachineMoved {
		d.next.Machine = nil
	}
	if n.Save == nil {
		d.changed = d.changed || had != d.next.Machine
		return d.capture()
	}
	w := d.batch.Writer(blob.Plain)
	defer w.Discard()
	captured := false
	state, held, err := n.Save(ctx, w, func() error {
		captured = true
		return d.capture()
	})
	if err != nil {
		return fmt.Errorf("keeping the machine: %w", err)
	}
	if !captured {
		return fault.New(fault.Internal, "a machine was saved without its files")
	}
	m := &history.Machine{State: state, Interpreters: map[string]history.Interpreter{}}
	for runtime, found := range held {
		if found == nil {
			m.Interpreters[runtime] = history.Interpreter{}
			continue
		}
		m.Interpreters[runtime] = holding(*found, true)
	}
	if m.Content, err = w.Close(); err != nil {
		return fmt.Errorf("keeping the machine: %w", err)
	}
	d.bytes += m.Content.Stored
	d.next.Machine, d.changed = m, true
	return nil
}

// captureUnchanged makes the draft what head is, at rest: no step that could be undone. Where
// files were changed meanwhile it is one.
func (d *draft) captureUnchanged() {
	if head := d.k.head; head != nil && len(d.files) == 0 {
		d.next.Of, d.next.Previous = head.Of, head.Previous
	}
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
	record, err := k.c.Record()
	if err != nil {
		return err
	}
	d.next.Record, d.next.Bytes = record, d.bytes
	dropped := k.droppedBy(&d.next)
	if err := k.line.Append(&d.next, dropped, func(writes ...blob.Write) error { return d.commit(ctx, dropped, writes) }); err != nil {
		return err
	}
	head, was := d.next, k.head
	k.head, k.lists, k.torn, k.older = &head, d.lists, false, false
	for _, number := range dropped {
		switch {
		case !outdated(was) || number != was.Number:
			k.c.Littered(0)
		case was.Machine != nil:
			k.c.Littered(was.Machine.Content.Stored)
		}
	}
	k.Prune(k.c.Most)
	k.c.Moved()
	return nil
}
