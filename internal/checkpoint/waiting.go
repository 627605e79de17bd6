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
func (r *Repo) waits() *history.Waiting {
	w := r.Head().Waits()
	if w == nil || r.older {
		return nil
	}
	if !r.head.Holds(w.Runtime) { // its machine was not saved again since another ran there
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
	if d.next.Of == 0 && len(d.files) == 0 { // it is not a step
		d.next.Of, d.next.Previous = d.k.head.Of, d.k.head.Previous
	}
}

// Content reads what is needed to go on with the run that waits.
func (r *Repo) Content() ([]byte, error) {
	return r.c.Store.Load(r.Head().Waiting.Content, MaxContent)
}

// GoOn says that the run which waits is gone on with; it is on the disk then. Abandon
// says that it does not wait, or was gone on with and is over. Neither looks at files,
// and where nothing waits they do nothing.
func (r *Repo) GoOn(ctx context.Context) error {
	if r.Head().Waits() == nil {
		return nil
	}
	w := *r.head.Waiting
	w.Begun = true
	return r.settle(ctx, &w)
}

// Abandon is told at GoOn.
func (r *Repo) Abandon(ctx context.Context) error {
	if r.Head().Waiting == nil {
		return nil
	}
	return r.settle(ctx, nil)
}

// Suspend makes the head the newest checkpoint again, where another that could not be
// written may be there after all.
func (r *Repo) Suspend(ctx context.Context) error { return r.settle(ctx, r.Head().Waiting) }

func (r *Repo) settle(ctx context.Context, w *history.Waiting) error {
	d, err := r.draft(ctx, history.CauseGoOn)
	if err != nil {
		return err
	}
	defer d.close()
	d.next.Waiting = w
	d.next.Of, d.next.Previous = r.head.Of, r.head.Previous // it is not a step
	return d.persist(ctx)
}
