package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/workspace"
)

// RestoreTo makes the files what they are in a checkpoint, and that the head; unsure are the
// runtimes whose live interpreters are not what the head says. It gives what is
// different now of the files that are shown. After an error that Undone was told of,
// they are what they were at head, or torn; after others nothing has happened.
func (r *Repo) RestoreTo(ctx context.Context, target *history.Manifest, unsure map[string]bool) ([]workspace.Change, error) {
	d, err := r.draftOver(ctx, history.CauseRestore)
	if err != nil {
		return nil, err
	}
	defer d.close()
	if err := d.restoreTo(target, unsure); err != nil {
		d.undo(ctx)
		if lost(err) {
			err = damaged(err)
		}
		return nil, fmt.Errorf("restoring the session: %w", err)
	}
	if err := d.persist(ctx); err != nil {
		d.undo(ctx)
		return nil, err
	}
	return d.files, nil
}

// Empty deletes all files and what interpreters held, and makes that a checkpoint,
// which can be undone; of a passing session there is none. It gives what it deleted of
// the files that are shown. Errors are as RestoreTo's.
func (r *Repo) Empty(ctx context.Context) ([]workspace.Change, error) {
	d, err := r.draftOver(ctx, history.CauseReset)
	if err != nil {
		return nil, err
	}
	defer d.close()
	for name := range r.c.Trees {
		if err := d.apply(name, blob.Ref{}, nil); err != nil {
			d.undo(ctx)
			return nil, err
		}
	}
	clear(d.next.Interpreters)
	d.next.Machine, d.next.Waiting = nil, nil
	if r.c.Ephemeral {
		return d.files, nil
	}
	if err := d.persist(ctx); err != nil {
		d.undo(ctx)
		return nil, err
	}
	return d.files, nil
}

// Recover makes head and files agree where a session is opened. Where takeUp is set, or
// nothing was ever kept, the files that are there are taken up: somebody changed them
// who may. Else a program may have been running, and they become the head's again.
//
// changed tells that they were different then, partly that not all of them could be
// brought back: those are as they were found. What the interpreters drew from their
// generators of random numbers since may be out, so they get new seeds. A run that
// waits still does; one that was gone on with, perhaps, is given up.
func (r *Repo) Recover(ctx context.Context, takeUp bool) (changed, partly bool, err error) {
	if r.c.Ephemeral {
		return false, false, nil
	}
	d, err := r.draft(ctx, history.CauseFiles)
	if err != nil {
		return false, false, err
	}
	defer d.close()
	switch {
	case r.head == nil:
		d.next.Cause, d.changed = history.CauseCreate, true
		err = d.capture()
	case takeUp:
		err = d.capture()
	default:
		changed, partly, err = d.rollBack()
	}
	d.recoverWaiting()
	if err != nil || !d.changed {
		return changed, partly, err
	}
	return changed, partly, d.persist(ctx)
}

// lost tells whether an error says that a content is not there any more.
func lost(err error) bool {
	return errors.Is(err, blob.ErrDamaged) || errors.Is(err, blob.ErrMissing)
}

// restoreTo makes the files and the draft what they are in target.
func (d *draft) restoreTo(target *history.Manifest, unsure map[string]bool) error {
	d.next.Of, d.next.Previous = target.Of, target.Previous
	d.k.missing = workspace.Unkept{}
	d.next.Waiting = nil // it could wait in two places
	for name := range d.k.c.Trees {
		if err := d.apply(name, target.Trees[name], d.lists[name]); err != nil {
			return err
		}
	}
	d.next.Machine = target.Machine.Again()
	d.next.Interpreters = maps.Clone(target.Interpreters)
	was := d.k.Head().Interpreters
	for runtime, in := range d.next.Interpreters {
		// At the same state it may be for the second time.
		if before := was[runtime]; unsure[runtime] || before.Anew || !in.Same(before) {
			in.Anew = true
			d.next.Interpreters[runtime] = in
		}
	}
	return nil
}

// startFrom fills a new session's first checkpoint with the state of another one's.
func (d *draft) startFrom(target *history.Manifest) error {
	for name := range d.k.c.Trees {
		ref := target.Trees[name]
		if err := d.applyTree(name, ref, nil); err != nil {
			return err
		}
		if ref == (blob.Ref{}) {
			if err := d.keepListing(name, d.lists[name]); err != nil {
				return err
			}
			continue
		}
		// It says how the files looked elsewhere: whoever opens the session next
		// compares what they hold, once.
		d.next.Trees[name], d.changed = ref, true
	}
	d.files = nil // all of them are new here, and nobody asks
	d.next.Machine = target.Machine.Again()
	d.next.Interpreters = reseeded(target.Interpreters)
	return nil
}

// rollBack makes the files what head says; see [Kept.Recover]. Where it cannot be known
// what one of the folders was, all are taken up as they were found.
func (d *draft) rollBack() (changed, partly bool, err error) {
	head := d.k.head
	d.next.Cause, d.next.Of, d.next.Previous = history.CauseRecover, head.Of, head.Previous
	if d.unlisted() {
		err = d.capture()
	} else {
		changed, partly, err = d.rollBackTrees()
	}
	if err != nil {
		return changed, partly, err
	}
	if head.Machine != nil {
		d.next.Machine, d.changed = head.Machine.Again(), true
	}
	if len(head.Interpreters) > 0 {
		d.next.Interpreters, d.changed = reseeded(head.Interpreters), true
	}
	if w := d.k.waits(); w != nil { // nothing has run in it since
		if in, there := head.Interpreters[w.Runtime]; there {
			d.next.Interpreters[w.Runtime] = in
		} else {
			d.next.Machine = head.Machine
		}
	}
	return changed, partly, nil
}

// unlisted tells whether the list of a folder's files is as good as none.
func (d *draft) unlisted() bool {
	for name := range d.k.c.Trees {
		if d.k.lists[name] == nil {
			return true
		}
	}
	return false
}

// rollBackTrees is rollBack's for the folders: what of one cannot be brought back is
// taken up as it was found.
func (d *draft) rollBackTrees() (changed, partly bool, err error) {
	for name, tree := range d.k.c.Trees {
		want := d.k.lists[name]
		list, changes, err := tree.Apply(want, want, d.k.c.Store.Open)
		if lost(err) {
			d.k.c.Log.Error("a file cannot be brought back", "cause", fault.CauseOf(err))
			partly = true
			if err := d.captureTree(name); err != nil {
				return changed, partly, err
			}
			continue
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
	return changed, partly, nil
}

// reseeded are states that are gone on with for another time, or elsewhere.
func reseeded(all map[string]history.Interpreter) map[string]history.Interpreter {
	others := map[string]history.Interpreter{}
	for runtime, in := range all {
		in.Anew = true
		others[runtime] = in
	}
	return others
}

// apply makes a tree what a listing says that is kept as ref; the zero Ref is
// an empty tree's. now is what is known of the tree; nil: nothing.
func (d *draft) apply(name string, ref blob.Ref, now *workspace.Listing) error {
	if err := d.applyTree(name, ref, now); err != nil {
		return err
	}
	return d.keepListing(name, d.lists[name])
}

// applyTree is apply without keeping how the files look now.
func (d *draft) applyTree(name string, ref blob.Ref, now *workspace.Listing) error {
	want, err := ReadListing(d.k.c.Store, ref)
	if err != nil {
		return err
	}
	list, changes, err := d.k.c.Trees[name].Apply(want, now, d.k.c.Store.Open)
	if err != nil {
		return fmt.Errorf("bringing the files back: %w", err)
	}
	d.lists[name] = list
	d.k.missing = both(d.k.missing, name, want.Unkept())
	if name == d.k.c.Shown {
		d.files = changes
	}
	return nil
}

// undo makes the files again what they were before the draft; where that fails
// they are torn.
func (d *draft) undo(ctx context.Context) {
	d.k.torn = true
	if err := d.k.RepairFiles(); err != nil {
		d.k.c.Log.Error("files could not be brought back after a restore that failed", "cause", fault.CauseOf(err))
	}
	d.k.c.Undone(ctx)
}
