package approval

import (
	"context"
	"errors"

	"paddock/internal/fault"
)

// Approve waits until somebody has decided about a call, and uses the grant up: with a nil
// error the call has to be made now. ctx says who can be asked ([WithAsker]) and who is
// told that the call waits ([WithSuspend]). When ctx ends before, the approval is
// withdrawn; where its cause is suspended, the program waits for it still, and will ask
// again.
func (s *Store) Approve(ctx context.Context, r Request, suspended error) error {
	a, err := s.Request(ctx, r)
	if err != nil {
		return err
	}
	if a.State == Pending {
		suspend, id := suspendOf(ctx), a.ID
		suspend(id)
		askerOf(ctx).Ask(a)
		a, err = s.Wait(ctx, r.Owner, id)
		if suspend(""); err != nil {
			return s.gaveUp(ctx, r.Owner, id, err, suspended)
		}
	}
	if err := a.Refusal(); err != nil {
		return err
	}
	return s.Use(ctx, a.ID, r)
}

// gaveUp takes an approval back that nobody waits for any more.
func (s *Store) gaveUp(ctx context.Context, owner, id string, why, suspended error) error {
	if errors.Is(context.Cause(ctx), suspended) {
		return why
	}
	err := s.withdrawOne(context.WithoutCancel(ctx), owner, id)
	if fault.KindOf(err) == fault.Conflict { // somebody has decided meanwhile
		err = nil
	}
	return errors.Join(why, err)
}

// Asker is told of approvals that a program waits for, so that somebody can be asked
// beside the ways that there always are. It is safe for concurrent use.
type Asker interface {
	// Ask begins to ask about a pending approval, and does not wait. It may be told of one
	// that it asks about already.
	Ask(a Approval)
}

type askerKey struct{}

// WithAsker gives a context of a run whose client can be asked.
func WithAsker(ctx context.Context, a Asker) context.Context {
	return context.WithValue(ctx, askerKey{}, a)
}

// askerOf gives who can be asked; nobody: one that does nothing.
func askerOf(ctx context.Context) Asker {
	if a, ok := ctx.Value(askerKey{}).(Asker); ok {
		return a
	}
	return nobody{}
}

type nobody struct{}

// Ask asks nobody.
func (nobody) Ask(Approval) {}

type suspendKey struct{}

// WithSuspend gives a context of a call that can say that it waits for a person, with the
// reason, and with an empty one that it does not any more.
func WithSuspend(ctx context.Context, suspend func(reason string)) context.Context {
	return context.WithValue(ctx, suspendKey{}, suspend)
}

// suspendOf gives a call's; one that does nothing, where there is none.
func suspendOf(ctx context.Context) func(reason string) {
	if f, ok := ctx.Value(suspendKey{}).(func(string)); ok && f != nil {
		return f
	}
	return func(string) {}
}
