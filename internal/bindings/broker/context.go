package broker

import "context"

type inheritedKey struct{}

// WithInherited has the context of a run tell what the run inherits, to
// [InheritedFrom].
func WithInherited(ctx context.Context, in Inherited) context.Context {
	return context.WithValue(ctx, inheritedKey{}, in)
}

// InheritedFrom gives what [WithInherited] put into a context; nothing where it did not.
func InheritedFrom(ctx context.Context) Inherited {
	in, _ := ctx.Value(inheritedKey{}).(Inherited)
	return in
}
