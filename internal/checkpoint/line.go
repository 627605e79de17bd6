package checkpoint

import (
	"errors"
	"slices"
	"strconv"

	"paddock/internal/fault"
	"paddock/internal/history"
)

// Check makes sure that a checkpoint can be gone back to: else it is a
// fault.Unavailable.
func (k *Kept) Check(m *history.Manifest) error {
	if err := k.usable(m); err != nil {
		return damaged(err)
	}
	return nil
}

func damaged(err error) error {
	return fault.New(fault.Unavailable, "the checkpoint is damaged and cannot be used").WithHint("restore another one; the server's log says more").WithCause(err)
}

// at reads a checkpoint; one of another session is a history.ErrDamaged.
func (k *Kept) at(number int64) (*history.Manifest, error) {
	m, err := k.line.Get(number)
	if err != nil {
		return nil, err
	}
	if !k.line.Labelled(number) {
		m.Label = "" // it was taken off
	}
	return m, k.own(m)
}

// Previous gives the checkpoint that undo leads to.
func (k *Kept) Previous() (*history.Manifest, error) {
	previous := k.Head().Previous
	if previous == 0 {
		return nil, fault.New(fault.Conflict, "there is nothing to undo").WithHint("the session is at its first checkpoint")
	}
	target, err := k.at(previous)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return nil, fault.New(fault.Conflict, "the checkpoint before this one is no longer kept").WithHint("restore one that is listed")
	case errors.Is(err, history.ErrDamaged):
		return nil, damaged(err)
	}
	return target, err
}

// Find gives the checkpoint with this number, or the latest with this label.
func (k *Kept) Find(name string) (*history.Manifest, error) {
	if n, err := strconv.ParseInt(name, 10, 64); err == nil {
		target, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			return nil, damaged(err)
		case err == nil && target.Of != n: // it only says that the session went back
			return nil, fault.New(fault.NotFound, "there is no checkpoint %d", n).WithHint("list the checkpoints")
		}
		return target, err
	}
	for _, n := range slices.Backward(k.line.Numbers()) {
		if !k.line.Labelled(n) {
			continue
		}
		target, err := k.at(n)
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

// Steps gives all that can be gone back to, the oldest first; what is damaged is left
// out.
func (k *Kept) Steps() (all []*history.Manifest, err error) {
	for _, n := range k.line.Numbers() {
		m, err := k.at(n)
		switch {
		case errors.Is(err, history.ErrDamaged):
			k.c.Log.Warn("a checkpoint cannot be read", "checkpoint", n, "cause", err)
		case err != nil:
			return nil, err
		case m.Of == m.Number:
			all = append(all, m)
		}
	}
	return all, nil
}

// Count is how many Steps there are. It reads nothing.
func (k *Kept) Count() int64 { return k.line.Steps(k.head) }

// Labels is how many of them have a label.
func (k *Kept) Labels() int { return k.line.Labels() }

// Unlabel takes a label off: of all checkpoints that have it, or of the one with this
// number. It gives their numbers, the oldest first, also after an error.
func (k *Kept) Unlabel(name string) (done []int64, err error) {
	if k.closed != nil {
		return nil, k.closed
	}
	numbers, err := k.labelled(name)
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		if err := k.line.Unlabel(n); err != nil {
			return done, err
		}
		done = append(done, n)
	}
	k.Prune(k.c.Most)
	return done, nil
}

// labelled gives the numbers of the checkpoints with a label, or that of the one
// with this number if it has any.
func (k *Kept) labelled(name string) (numbers []int64, err error) {
	for _, n := range k.line.Numbers() {
		if !k.line.Labelled(n) {
			continue
		}
		if name == strconv.FormatInt(n, 10) { // which is no label; it need not be whole
			return []int64{n}, nil
		}
		m, err := k.at(n)
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
func (k *Kept) Prune(most int) {
	if k.closed != nil {
		return
	}
	if head := k.Head(); head.Of != head.Number {
		most++ // it is no further one: opening a session, or going back, gives nothing up
	}
	for k.line.Len()-k.line.Labels() > most {
		oldest := k.oldest()
		if oldest == 0 {
			return
		}
		if err := k.line.Remove(oldest); err != nil {
			k.c.Log.Warn("an old checkpoint cannot be removed", "checkpoint", oldest, "cause", err)
			return
		}
		k.c.Littered(0)
	}
}

// oldest is the first checkpoint that may be given up; 0: none. Where the
// session is, and where undo leads, stays.
func (k *Kept) oldest() int64 {
	head := k.Head()
	for _, n := range k.line.Numbers() {
		if !k.line.Labelled(n) && n != head.Number && n != head.Of && n != head.Previous {
			return n
		}
	}
	return 0
}

// outdate gives up what was the head before this one, if that only repeated another:
// nobody goes back to it.
func (k *Kept) outdate(was *history.Manifest) {
	if was == nil || was.Of == was.Number {
		return
	}
	_ = k.line.Remove(was.Number) // or as one of the oldest
	if was.Machine != nil {
		k.c.Littered(was.Machine.Content.Stored)
	}
}

// Sweep removes what interrupted writes had left of checkpoints. It is for the process
// that has the session.
func (k *Kept) Sweep() error { return k.line.Sweep() }
