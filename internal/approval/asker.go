package approval

import "context"

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

// AskerOf gives who can be asked; nobody: one that does nothing.
func AskerOf(ctx context.Context) Asker {
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

// SuspendOf gives a call's; one that does nothing, where there is none.
func SuspendOf(ctx context.Context) func(reason string) {
	if f, ok := ctx.Value(suspendKey{}).(func(string)); ok && f != nil {
		return f
	}
	return func(string) {}
}
