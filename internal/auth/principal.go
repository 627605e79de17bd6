// Package auth says who a request comes from and what they may do: the local
// user, the bearer of one of paddock's own tokens, or of an access token that
// an external issuer gave out. It knows no routes.
package auth

import (
	"context"
	"slices"
	"time"
)

// Local is the ID of the local user: on stdio, on the command line, and of the
// bearer of the token that paddock made for this machine's user.
const Local = "local"

// Principal is who makes a request. It is not changed once it has been made.
type Principal struct {
	// ID is stable and names the owner of what the principal makes: [Local],
	// "token:" and a token's id, "oauth:" and a digest of issuer and subject.
	ID string
	// Name is for people and logs; it need not be unique.
	Name string
	// Tools are the tool sets that the principal may use; nil: all that there are.
	Tools []string
	// Namespaces are those of sandboxes that it may use; nil: all.
	Namespaces []string
	// Expires is when it stops being who it is; zero: never.
	Expires time.Time
}

// MayUse tells whether the principal may use a tool set.
func (p *Principal) MayUse(set string) bool { return p.Tools == nil || slices.Contains(p.Tools, set) }

type key struct{}

// With gives a context of a request of p.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, key{}, p)
}

// From gives whose request it is; nil: nobody said.
func From(ctx context.Context) *Principal {
	p, _ := ctx.Value(key{}).(*Principal)
	return p
}

// Verifier decides about bearer tokens. It is safe for concurrent use. What is
// wrong with a token is a fault.Denied that says nothing of the token itself.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Principal, error)
}
