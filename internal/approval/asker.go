package approval

import "context"

// Asker is told of approvals that a program waits for, so that somebody can be asked
// beside the ways that there always are. It is safe for concurrent use.
type Asker interface {
	// Ask begins to ask about an approval, and does not wait. over is called when it is
	// decided or nobody waits for it here any more.
	Ask(a Approval) (over func())
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
func (nobody) Ask(Approval) func() { return func() {} }
