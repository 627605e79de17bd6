package checkpoint

import (
	"bytes"
	"context"
	"fmt"

	"paddock/internal/history"
)

// A run that waits for a person is the session's as long as head says so: nothing else
// runs in its interpreter, for before that it is given up, and before it goes on head
// says that it has. So what was killed meanwhile is known to have waited, or it is not
// gone on with again.

// MaxContent bounds what is needed to go on with a run, in bytes.
const MaxContent = 64 << 20

// wait takes up what the note says of a run that waits.
func (d *draft) wait(n Note) error {
	switch {
	case n.Waiting != nil:
		ref, err := d.put("", bytes.NewReader(n.Content))
		if err != nil {
			return fmt.Errorf("keeping a run that waits: %w", err)
		}
		w := *n.Waiting
		w.Content = ref
		d.next.Waiting, d.changed = &w, true
	case n.Over && d.next.Waiting != nil:
		d.next.Waiting, d.changed = nil, true
	}
	return nil
}

// waits gives the run that waits at the head that was opened, and that nobody can have
// gone on with; nil: there is none.
func (k *Kept) waits() *history.Waiting {
	w := k.Head().Waits()
	if w == nil || k.older {
		return nil
	}
	if !k.head.Holds(w.Runtime) { // its machine was not saved again since another ran there
		return nil
	}
	return w
}

// recoverWaiting gives up a run that somebody may have gone on with.
func (d *draft) recoverWaiting() {
	w := d.next.Waiting
	if w == nil || d.k.waits() != nil {
		return
	}
	d.next.Waiting, d.changed = nil, true
	if in, there := d.next.Interpreters[w.Runtime]; there {
		in.Anew = true
		d.next.Interpreters[w.Runtime] = in
	} else if d.next.Machine.Holds(w.Runtime) {
		d.next.Machine = d.next.Machine.Again()
	}
	if d.next.Of == 0 && len(d.files) == 0 { // it is no step
		d.next.Of, d.next.Previous = d.k.head.Of, d.k.head.Previous
	}
}

// Content reads what is needed to go on with the run that waits.
func (k *Kept) Content() ([]byte, error) {
	return k.c.Store.Load(k.Head().Waiting.Content, MaxContent)
}

// GoOn says that the run which waits is gone on with; it is on the disk then. GiveUp
// says that it does not wait, or was gone on with and is over. Neither looks at files,
// and where nothing waits they do nothing.
func (k *Kept) GoOn(ctx context.Context) error {
	if k.Head().Waits() == nil {
		return nil
	}
	w := *k.head.Waiting
	w.Begun = true
	return k.settle(ctx, &w)
}

// GiveUp is told at GoOn.
func (k *Kept) GiveUp(ctx context.Context) error {
	if k.Head().Waiting == nil {
		return nil
	}
	return k.settle(ctx, nil)
}

// Again makes the head the newest checkpoint anew, where another that could not be
// written may be there after all.
func (k *Kept) Again(ctx context.Context) error { return k.settle(ctx, k.Head().Waiting) }

func (k *Kept) settle(ctx context.Context, w *history.Waiting) error {
	d, err := k.draft(ctx, history.CauseGoOn)
	if err != nil {
		return err
	}
	defer d.close()
	d.next.Waiting = w
	d.next.Of, d.next.Previous = k.head.Of, k.head.Previous // it is no step
	return d.persist(ctx)
}
