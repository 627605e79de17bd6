// Package broker stands between programs in sandboxes and other MCP servers. It knows
// which servers a session has, makes the files by which programs find their tools,
// and answers their calls: it checks the arguments, decides by the server's policy,
// calls, and gives the program what it wants of the result.
//
// A server's credentials never leave it. What a server says of itself is data: it is
// shown, searched and compared, and decides nothing but what it is asked about more
// often.
//
// Locks: Broker.mu is never held while a server is spoken to.
package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

// Definition is a server that programs may call.
type Definition struct {
	upstream.Server
	Policy Policy
	// Tokens gives its bearer tokens; nil: none are sent.
	Tokens upstream.TokenSource
	// Transport sends its requests; nil: Config.Dial's.
	Transport http.RoundTripper
	// Identity says as whom the server is spoken to, where that is not the same for
	// everybody: connections are never shared between identities.
	Identity string

	own bool // a session bound it for itself
}

// Session names a session and its owner.
type Session struct{ Owner, ID string }

// Config sets a Broker up. It is copied.
type Config struct {
	// Servers are those that every session has: the operator's.
	Servers []Definition
	// Dial is what connections are made with; its Tokens are each definition's. The
	// zero value reaches no network.
	Dial upstream.Options
	// Pool is how connections are kept; its Dial is the Broker's own.
	Pool upstream.PoolConfig
	// Bindable are the servers that sessions may bind for themselves.
	Bindable Allowlist
	// Chosen tells which of the Servers a session has; nil for all of them. A nil
	// function gives all of them to every session. It may be called from several
	// goroutines, often, and must not call the Broker.
	Chosen func(s Session) (names *[]string, err error)
	// CallsPerRun bounds the calls of one run; zero: 50.
	CallsPerRun int
	// PerSession bounds the servers that a session binds for itself; zero: 32.
	PerSession int
	// Seen keeps what tools were when they were first used, and a tool that is another
	// one now is refused; nil: nobody looks.
	Seen catalog.Seen
	// Approve is asked about a call for which somebody has to be asked, and waits; an
	// error is the program's. Nil: such calls are denied.
	Approve func(ctx context.Context, c Asked) error
	// Record is told of each call when it has ended; nil: nobody is. It may be called
	// from several goroutines.
	Record func(ctx context.Context, e Event)
	// Log takes what an operator should see, and no contents; nil: nothing is logged.
	Log *slog.Logger
}

// Broker answers calls. It is safe for concurrent use; Close ends it.
type Broker struct {
	config    Config
	pool      *upstream.Pool
	watch     *catalog.Watch // nil: nobody looks
	validator schema.Validator
	indexes   indexes
	outlets   *outlets

	mu       sync.Mutex // guards what follows
	closed   bool
	common   map[string]*bound // by name
	sessions map[Session]map[string]*bound
	keys     map[string]Definition // by upstream.Server.Key, for the pool
}

// bound is a server that somebody has; it is not changed.
type bound struct {
	Definition
	key string
}

// New makes a broker. All mistakes in the definitions are told at once.
func New(config Config) (*Broker, error) {
	config.Servers = slices.Clone(config.Servers)
	config.CallsPerRun, config.PerSession = cmp.Or(config.CallsPerRun, 50), cmp.Or(config.PerSession, 32)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{config: config, common: map[string]*bound{}, sessions: map[Session]map[string]*bound{}, keys: map[string]Definition{}, indexes: indexes{all: map[string]*index{}}}
	if config.Seen != nil {
		b.watch = &catalog.Watch{Seen: config.Seen}
	}
	var errs []error
	for _, d := range config.Servers {
		if err := b.add(b.common, d); err != nil {
			errs = append(errs, fmt.Errorf("the server %q: %w", d.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var err error
	if b.outlets, err = openOutlets(config.Bindable); err != nil {
		return nil, err
	}
	config.Pool.Dial = b.dial
	b.pool = upstream.NewPool(config.Pool)
	return b, nil
}

// Close ends the connections, and calls that are under way with them.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.indexes.close()
	defer b.outlets.close()
	return b.pool.Close()
}

// dial makes a connection for the pool.
func (b *Broker) dial(ctx context.Context, key upstream.Key) (*upstream.Conn, error) {
	b.mu.Lock()
	d, ok := b.keys[key.Server]
	b.mu.Unlock()
	if !ok {
		return nil, fault.New(fault.NotFound, "the server is not bound any more").WithHint("bind it again")
	}
	o := b.config.Dial
	o.Tokens = d.Tokens
	if d.Transport != nil {
		o.Transport = d.Transport
	}
	if d.own {
		way, err := b.outlets.to(d.Name, d.URL)
		if err != nil {
			return nil, err
		}
		o.Transport = way
	}
	return upstream.Dial(ctx, d.Server, o)
}

// add puts a definition among others. The caller holds b.mu, or is alone.
func (b *Broker) add(to map[string]*bound, d Definition) error {
	if err := checkName(d.Name); err != nil {
		return err
	}
	if err := errors.Join(d.Check(), d.Policy.Check()); err != nil {
		return err
	}
	for name := range to {
		if name != d.Name && strings.EqualFold(stub.Package(name), stub.Package(d.Name)) {
			return fault.New(fault.Conflict, "the servers %q and %q would both be servers.%s", name, d.Name, stub.Package(d.Name)).WithHint("give one of them another name")
		}
	}
	one := &bound{Definition: d, key: d.Key() + "/" + d.Identity}
	to[d.Name], b.keys[one.key] = one, d
	return nil
}

// maxName bounds a server's name, as mcp_bind_http takes it.
const maxName = 40

func checkName(name string) error {
	ok := name != "" && len(name) <= maxName
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	}
	if !ok {
		return fault.New(fault.Invalid, "a server's name has 1 to %d letters, digits, - and _", maxName)
	}
	return nil
}

// Bind gives a session a server of its own, in the place of one of the same name, and
// tells what it offers. The server has a URL that Config.Bindable allows, and is
// connected to: one that cannot be is not bound.
func (b *Broker) Bind(ctx context.Context, s Session, d Definition) (Offer, error) {
	if d.own = true; d.Command != "" {
		return Offer{}, fault.New(fault.Denied, "sessions start no programs on the host as servers").WithHint("only the operator can, in the configuration: servers.%s.command", d.Name)
	}
	if err := errors.Join(checkName(d.Name), d.Check()); err != nil {
		return Offer{}, err
	}
	if err := b.config.Bindable.Check(d.Name, d.URL); err != nil {
		return Offer{}, err
	}
	b.mu.Lock()
	mine := maps.Clone(b.sessions[s])
	if mine == nil {
		mine = map[string]*bound{}
	}
	delete(mine, d.Name)
	_, common := b.common[d.Name]
	var err error
	switch {
	case b.closed:
		err = fault.New(fault.Unavailable, "paddock is being stopped").WithHint("try again when it runs")
	case common:
		err = fault.New(fault.Conflict, "the operator has a server called %q, which all sessions have", d.Name).WithHint("use it as servers.%s, or choose another name", stub.Package(d.Name))
	case len(mine) >= b.config.PerSession:
		err = fault.New(fault.Exhausted, "the session has %d servers of its own, and no more are allowed", len(mine)).WithHint("mcp_unbind lets go of one")
	default:
		all := maps.Clone(b.common)
		maps.Copy(all, mine)
		err = b.add(all, d)
		mine[d.Name] = all[d.Name]
	}
	b.mu.Unlock()
	if err != nil {
		return Offer{}, err
	}
	offer, err := b.offer(ctx, s, mine[d.Name])
	if err != nil {
		return Offer{}, fmt.Errorf("asking for its tools: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s] == nil {
		b.sessions[s] = map[string]*bound{}
	}
	b.sessions[s][d.Name] = mine[d.Name]
	return offer, nil
}

// Unbind takes a server away that the session bound. Calls that are under way fail.
func (b *Broker) Unbind(s Session, name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.sessions[s][name]
	switch {
	case one == nil && b.common[name] != nil:
		return fault.New(fault.Denied, "the server %q is the operator's", name).WithHint("only servers that were bound with mcp_bind_http can be let go of")
	case one == nil:
		return fault.New(fault.NotFound, "no server %q is bound", name)
	}
	delete(b.sessions[s], name)
	b.pool.Drop(func(k upstream.Key) bool { return k.Session == s.ID && k.Server == one.key })
	return nil
}

// Forget lets go of all that a session bound, when it has ended.
func (b *Broker) Forget(s Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
	b.pool.Drop(func(k upstream.Key) bool { return k.Session == s.ID })
}

// Names gives the servers that a session has, in order.
func (b *Broker) Names(s Session) []string {
	return slices.Sorted(maps.Keys(b.serversOf(s)))
}

func (b *Broker) serversOf(s Session) map[string]*bound {
	chosen := b.chosen(s)
	b.mu.Lock()
	defer b.mu.Unlock()
	all := maps.Clone(b.common)
	if chosen != nil {
		maps.DeleteFunc(all, func(name string, _ *bound) bool { return !slices.Contains(*chosen, name) })
	}
	maps.Copy(all, b.sessions[s])
	return all
}

// chosen gives the names of the operator's servers that a session has; nil: all. Where
// that cannot be told it has none.
func (b *Broker) chosen(s Session) *[]string {
	if b.config.Chosen == nil || s.ID == "" {
		return nil
	}
	names, err := b.config.Chosen(s)
	if err != nil {
		b.config.Log.Warn("which servers a session has cannot be told", "session", s.ID, "cause", err)
		return &[]string{}
	}
	return names
}

// Common gives the names of the operator's servers, in order.
func (b *Broker) Common() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.common))
}

// Offer is what a server offers to programs.
type Offer struct {
	Name    string   // the server's
	Package string   // what programs import: "servers.github"
	Path    string   // where its files lie
	Tools   []string // by their own names
}

func (b *Broker) offer(ctx context.Context, s Session, one *bound) (Offer, error) {
	tools, err := b.pool.Tools(ctx, one.keyFor(s))
	if err != nil {
		return Offer{}, err
	}
	o := Offer{Name: one.Name, Package: "servers." + stub.Package(one.Name), Path: "/servers/" + stub.Package(one.Name)}
	for _, t := range tools {
		if one.Policy.Of(t) != Denied {
			o.Tools = append(o.Tools, t.Name)
		}
	}
	return o, nil
}

// keyFor is whose connection a session's calls go over.
func (one *bound) keyFor(s Session) upstream.Key {
	return upstream.Key{Session: s.ID, Server: one.key, Identity: s.Owner + "/" + one.Identity}
}
