package checkpoint

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"paddock/internal/fault"
	"paddock/internal/history"
)

// Verify makes sure that a checkpoint can be gone back to: else it is a
// fault.Unavailable.
func (r *Repo) Verify(m *history.Manifest) error {
	if err := r.usable(m); err != nil {
		return damaged(err)
	}
	return nil
}

func damaged(err error) error {
	return fault.New(fault.Unavailable, "the checkpoint is damaged and cannot be used").WithHint("restore another one; the server's log says more").WithCause(err)
}

// at reads a checkpoint; one of another session is a history.ErrDamaged.
func (r *Repo) at(number int64) (*history.Manifest, error) {
	m, err := r.line.Get(number)
	if err != nil {
		return nil, err
	}
	if !r.line.Labelled(number) {
		m.Label = "" // it was taken off
	}
	return m, r.adopt(m)
}

// Previous gives the checkpoint that undo leads to.
func (r *Repo) Previous() (*history.Manifest, error) {
	previous := r.Head().Previous
	if previous == 0 {
		return nil, fault.New(fault.Conflict, "there is nothing to undo").WithHint("the session is at its first checkpoint")
	}
	target, err := r.at(previous)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil, fault.New(fault.Conflict, "the checkpoint before this one is no longer kept").WithHint("restore one that is listed")
	case errors.Is(err, history.ErrDamaged):
		return nil, damaged(err)
	}
	return target, err
}

// Find gives the checkpoint with this number, or the latest with this label.
func (r *Repo) Find(name string) (*history.Manifest, error) {
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		target, err := r.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err)
		case err == nil && target.Of != n: // it only says that the session went back
			return nil, fault.New(fault.NotFound, "there is no checkpoint %d", n).WithHint("list the checkpoints")
		}
		return target, err
	}
	for _, n := range slices.Backward(r.line.Numbers()) {
		if !r.line.Labelled(n) {
			continue
		}
		target, err := r.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err) // its label may be this one
		case err != nil:
			return nil, err
		case target.Label == name:
			return target, nil
		}
	}
	return nil, errNoLabel(name)
}

func errNoLabel(name string) error {
	return fault.New(fault.NotFound, "there is no checkpoint with the label %q", name).WithHint("list the checkpoints and give the id or the label of one")
}

// History gives all that can be gone back to, the oldest first; what is damaged is left
// out.
func (r *Repo) History() (all []*history.Manifest, err error) {
	for _, n := range r.line.Numbers() {
		m, err := r.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			r.c.Log.Warn("a checkpoint cannot be read", "checkpoint", n, "cause", err)
		case err != nil:
			return nil, err
		case m.Of == m.Number:
			all = append(all, m)
		}
	}
	return all, nil
}

// Count is how many Steps there are. It reads nothing.
func (r *Repo) Count() int64 { return r.line.Steps(r.head) }

// Labels is how many of them have a label.
func (r *Repo) Labels() int { return r.line.Labels() }

// Unlabel takes a label off: of all checkpoints that have it, or of the one with this
// number. It gives their numbers, the oldest first, also after an error.
func (r *Repo) Unlabel(name string) (done []int64, err error) {
	if r.closed != nil {
		return nil, r.closed
	}
	numbers, err := r.labelled(name)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if err := r.line.Unlabel(n); err != nil {
			return done, err
		}
		done = append(done, n)
	}
	r.Prune(r.c.Most)
	return done, nil
}

// labelled gives the numbers of the checkpoints with a label, or that of the one
// with this number if it has any.
func (r *Repo) labelled(name string) (numbers []int64, err error) {
	for _, n := range r.line.Numbers() {
		if !r.line.Labelled(n) {
			continue
		}
		if name == strconv.FormatInt(n, 10) { // which is not a label; it need not be whole
			return []int64{n}, nil
		}
		m, err := r.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			continue
		case err != nil:
			return nil, err
		case m.Label == name:
			numbers = append(numbers, n)
		}
	}
	if len(numbers) == 0 {
		return nil, errNoLabel(name)
	}
	return numbers, nil
}

// Prune gives up the oldest checkpoints that have no label, where there are more than
// most. What it cannot remove is removed later.
func (r *Repo) Prune(most int) {
	if r.closed != nil {
		return
	}
	for _, number := range r.oldest(r.line.Numbers(), r.Head(), most) {
		if err := r.line.Remove(number); err != nil {
			r.c.Log.Warn("an old checkpoint cannot be removed", "checkpoint", number, "cause", err)
			return
		}
		r.c.Littered(0)
	}
}

// droppedBy are the checkpoints that are given up when next becomes the head.
func (r *Repo) droppedBy(next *history.Manifest) (numbers []int64) {
	head := *next
	head.Number = r.line.Next()
	head.Of = cmp.Or(head.Of, head.Number)
	left := r.line.Numbers()
	if outdated(r.head) {
		numbers = []int64{r.head.Number}
		left = slices.DeleteFunc(left, func(n int64) bool { return n == r.head.Number })
	}
	if next.Label == "" {
		left = append(left, head.Number)
	}
	return append(numbers, r.oldest(left, &head, r.c.Most)...)
}

// oldest are the first ones of these checkpoints that may be given up, so that most are left
// that have no label. Where the session is, and where undo leads, stays.
func (r *Repo) oldest(numbers []int64, head *history.Manifest, most int) (oldest []int64) {
	over := -most
	if head.Of != head.Number {
		over-- // it is no further one: opening a session, or going back, gives nothing up
	}
	for _, n := range numbers {
		if !r.line.Labelled(n) {
			over++
		}
	}
	for _, n := range numbers {
		if over <= len(oldest) {
			break
		}
		if !r.line.Labelled(n) && n != head.Number && n != head.Of && n != head.Previous {
			oldest = append(oldest, n)
		}
	}
	return oldest
}

// outdated reports whether what was the head only repeated another: nobody goes back to it.
func outdated(was *history.Manifest) bool { return was != nil && was.Of != was.Number }

// Sweep removes what interrupted writes had left of checkpoints. It is for the process
// that has the session.
func (r *Repo) Sweep() error { return r.line.Sweep() }
