package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"paddock/internal/bindings"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Bind gives a session a server of its own, in the place of one of the same name, and
// tells what it offers. The server is connected to: one that cannot be is not bound. It
// lasts as long as the session, or, where the Offer says so, as the Broker.
func (b *Broker) Bind(ctx context.Context, s Session, d Definition) (Offer, error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return Offer{}, errClosing
	}
	if err := b.admit(s, d); err != nil {
		return Offer{}, err
	}
	one := b.newOwn(d, &s)
	mine, err := b.sessionServers.servers(s)
	if err != nil { // it is not kept from getting new ones
		b.config.Log.WarnContext(ctx, "the servers of a session cannot be read", "session", s.ID, "cause", fault.CauseOf(err))
	}
	if err := b.fits(mine, d); err != nil {
		return Offer{}, err
	}
	l, err := b.pool.List(one.with(ctx), one.keyFor(s))
	if err != nil {
		return Offer{}, fmt.Errorf("asking for its tools: %w", err)
	}
	b.listings.offer(one, l.Tools, l.Until)
	kept, err := b.sessionServers.put(s, one)
	if err != nil {
		return Offer{}, err
	}
	o := offerOf(one, l.Tools)
	o.Fleeting = !kept
	return o, nil
}

// admit tells whether a session may have a server of its own: one with a URL, which
// Config.Bindable allows, and Admit.
func (b *Broker) admit(s Session, d Definition) error {
	if d.Command != "" {
		return fault.New(fault.Denied, "sessions start no programs on the host as servers").WithHint("only the operator can, in the configuration: servers.%s.command", d.Name)
	}
	if err := errors.Join(checkName(d.Name), d.Check()); err != nil {
		return err
	}
	if err := b.config.Bindable.Check(d.Name, d.URL); err != nil {
		return err
	}
	if b.config.Admit != nil {
		return b.config.Admit(s, d)
	}
	return nil
}

// Common gives the names of the operator's servers, in order.
func (b *Broker) Common() []string { return slices.Sorted(maps.Keys(b.common)) }

// chosen gives those of the operator's servers that a session has. Where that cannot be
// told it has none.
func (b *Broker) chosen(s Session) map[string]*serverBinding {
	if b.config.Chosen == nil || s.ID == "" {
		return b.common
	}
	names, err := b.config.Chosen(s)
	if err != nil {
		b.config.Log.Warn("which servers a session has cannot be told", "session", s.ID, "cause", err)
		return map[string]*serverBinding{}
	}
	if names == nil {
		return b.common
	}
	return b.only(*names)
}

// only gives those of the operator's servers that are named, with the tools that are.
func (b *Broker) only(names []string) map[string]*serverBinding {
	some, patterns := map[string]*serverBinding{}, map[string][]string{}
	for _, entry := range names {
		name, pattern, narrowed := strings.Cut(entry, "/")
		if one := b.common[name]; one != nil {
			some[name] = one
		}
		if !narrowed {
			pattern = "*"
		}
		patterns[name] = append(patterns[name], pattern)
	}
	for name, one := range some {
		if !slices.Equal(patterns[name], []string{"*"}) {
			some[name] = one.narrowed(Narrowed(patterns[name]))
		}
	}
	return some
}

// CheckChosen tells what is wrong with an entry of a session's choice among the
// operator's servers; see Config.Chosen.
func (b *Broker) CheckChosen(entry string) error {
	name, pattern, narrowed := strings.Cut(entry, "/")
	if common := b.Common(); b.common[name] == nil {
		f := fault.New(fault.NotFound, "there is no MCP server %q", textsafe.Line(name, 100))
		if len(common) == 0 {
			return f.WithHint("none is configured; mcp_bind_http binds one to a session")
		}
		return f.WithHint("there are %s", strings.Join(common, ", "))
	}
	if !narrowed {
		return nil
	}
	return Narrowed([]string{pattern}).Check()
}

// fits tells whether a session that has these servers of its own may have another one.
func (b *Broker) fits(mine map[string]*serverBinding, d Definition) error {
	others := maps.Clone(mine)
	delete(others, d.Name)
	if b.common[d.Name] != nil {
		return fault.New(fault.Conflict, "the operator has a server called %q, which all sessions have", d.Name).
			WithHint("use it as servers.%s, or choose another name", stub.Package(d.Name))
	}
	if len(others) >= b.config.PerSession {
		return fault.New(fault.Exhausted, "the session has %d servers of its own, and no more are allowed", len(others)).WithHint("mcp_unbind lets go of one")
	}
	all := maps.Clone(b.common)
	maps.Copy(all, others)
	return check(all, d)
}

// Unbind takes a server away that the session bound. Calls that are under way fail.
func (b *Broker) Unbind(s Session, name string) error {
	one, err := b.sessionServers.remove(s, name)
	switch {
	case err != nil:
		return err
	case one == nil && b.common[name] != nil:
		return fault.New(fault.Denied, "the server %q is the operator's", name).WithHint("only servers that were bound with mcp_bind_http can be unbound")
	case one == nil:
		return b.notBound(s, name)
	}
	b.pool.Drop(func(k upstream.Key) bool { return k == one.keyFor(s) })
	return nil
}

// Forget lets go of all that a session bound and of what is kept of its runs, when it
// has ended.
func (b *Broker) Forget(s Session) {
	if err := b.sessionServers.forget(s); err != nil {
		b.config.Log.Warn("the servers of a session cannot be removed from the disk", "cause", err)
	}
	if b.config.Journal != nil {
		if err := b.config.Journal.Forget(s.Owner, s.ID); err != nil {
			b.config.Log.Warn("the calls of a session cannot be removed from the disk", "cause", err)
		}
	}
	b.mu.Lock()
	delete(b.provided, s)
	b.mu.Unlock()
	b.pool.Drop(func(k upstream.Key) bool { return k.Session == s.key() })
}

// Copy gives a session what another one of the same owner has bound, such as a fork what
// its parent has. What it bound itself before is let go of.
func (b *Broker) Copy(from, to Session) error {
	if from.Owner != to.Owner {
		return fault.New(fault.Denied, "a session's servers are not another owner's")
	}
	return b.sessionServers.copyTo(from, to)
}

// Names gives the servers that a session has, in order.
func (b *Broker) Names(s Session) []string {
	return slices.Sorted(maps.Keys(b.serversOf(s)))
}

// serversOf gives the servers that a session has. Its own are missing where they cannot
// be read from the disk now, which the log says.
func (b *Broker) serversOf(s Session) map[string]*serverBinding {
	mine, err := b.sessionServers.servers(s)
	if err != nil {
		b.config.Log.Warn("the servers of a session cannot be read", "cause", err)
	}
	all := b.chosen(s)
	if len(mine) == 0 {
		return all
	}
	all = maps.Clone(all)
	for name, one := range mine {
		if b.common[name] == nil { // the operator may have got one of that name since
			all[name] = one
		}
	}
	return all
}

// find gives the server of that name, or of that package, that a session has.
func (b *Broker) find(s Session, name string) (*serverBinding, error) {
	all := b.serversOf(s)
	if one := all[name]; one != nil {
		return one, nil
	}
	for _, one := range all {
		if stub.Package(one.Name) == name {
			return one, nil
		}
	}
	return nil, b.notBound(s, name)
}

// notBound is the fault of a name that no server of a session has.
func (b *Broker) notBound(s Session, name string) error {
	f := fault.New(fault.NotFound, "no server %q is bound", textsafe.Line(name, 100))
	names := b.Names(s)
	if len(names) == 0 {
		return f.WithHint("mcp_bind_http binds one")
	}
	return f.WithHint("there are %s", strings.Join(names, ", "))
}

// Offer is what a server offers to programs.
type Offer struct {
	Name    string   // the server's
	Package string   // what programs import: "servers.github"
	Path    string   // where its files lie
	Tools   []string // by their own names
	// Fleeting: the server is bound as long as paddock runs, and not as the session
	// lasts, because what it is reached with cannot be kept secret on the disk.
	Fleeting bool
}

// Offer tells what one of a session's servers offers, as it was listed last. A server
// that could not be asked before is asked again, such as after a login.
func (b *Broker) Offer(ctx context.Context, s Session, name string) (Offer, error) {
	one, err := b.find(s, name)
	if err != nil {
		return Offer{}, err
	}
	b.listings.clearBackoff(one.key)
	l, err := b.listings.wait(ctx, b.listings.lookup(one, true))
	if err != nil {
		return Offer{}, fmt.Errorf("asking for its tools: %w", err)
	}
	return offerOf(one, l.tools), nil
}

func offerOf(one *serverBinding, tools []bindings.Tool) Offer {
	o := Offer{Name: one.Name, Package: "servers." + stub.Package(one.Name), Path: "/servers/" + stub.Package(one.Name)}
	for _, t := range tools {
		if one.allows(t) {
			o.Tools = append(o.Tools, t.Name)
		}
	}
	return o
}
