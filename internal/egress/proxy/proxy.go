// Package proxy is one session's way out: an HTTP proxy on the host, through which
// everything goes that leaves a sandbox, and that lets out what the session's
// [egress.Policy] allows.
//
// A program speaks to it in one of two ways. [Proxy.ServeProxy] is for programs that have
// been told of a proxy: requests in absolute form, and CONNECT, behind which the proxy ends
// TLS itself, with certificates of an authority of its own ([Proxy.CA]). [Proxy.ServeOrigin]
// is for those that have not: a stream that was opened to a host. In both ways there are
// HTTP requests in the end, and each is decided for itself by one canonical scheme, host,
// port, method and path; secrets are put in; it is sent to an address that was looked at;
// and its answer comes back as it is streamed, without the secrets, and counted. What
// is not HTTP is not let out.
//
// Locks, in their order: Proxy.mu, exchange.mu.
package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

// Secrets puts a session's secrets into what goes out, and takes them out of what comes
// back. It is asked from many goroutines.
type Secrets interface {
	// Request puts the values in for the placeholders in an outgoing request, where the
	// destination may have them; it may replace the body, the query and headers, but not
	// the method, the scheme, the host and the path. A placeholder that may not go there
	// is an error, a fault.Denied, and nothing is sent.
	Request(r *http.Request) error
	// Response takes values out of an answer: header and body, which it wraps. It is
	// called a second time, with an empty body, for an answer's trailer as the header.
	Response(resp *http.Response) error
}

// Config says what a proxy is. The zero Config lets nothing out.
type Config struct {
	// Session is the name of the session in records.
	Session string
	// Policy is what may be reached; zero: nothing. [Proxy.SetPolicy] changes it.
	Policy egress.Policy
	// Secrets are the session's; nil: none.
	Secrets Secrets
	// Local are hosts that paddock serves itself, by name, over http and https at their
	// usual ports: no rule has to allow them, and nothing is dialled. A handler sees the
	// program's request, whose URL has scheme and host; it has to end when the request's
	// context does.
	Local map[string]http.Handler
	// Budgets bound the session; see there for what zeros mean.
	Budgets Budgets
	// Used is what the session has used of its budgets before.
	Used Usage
	// Record is told of each request, and of each connection that came to nothing, when
	// it has ended; nil: nobody is. It is called from many goroutines.
	Record func(Record)
	// Resolver finds addresses; nil: the system's.
	Resolver egress.Resolver
	// TLS is the configuration towards hosts; nil: the system's certificates. It is copied.
	TLS *tls.Config
	// Seed makes the key of the session's authority: another proxy with the same one is
	// trusted by programs that have read the certificate of this one, as they have in a
	// machine that was saved. 32 bytes at least, which nobody but this host knows, such as
	// what was sealed when the session was made. Nil: each proxy's key is a new one.
	Seed []byte
	// Log gets what went wrong, without what programs sent; nil: nothing is logged.
	Log *slog.Logger
	// Allow says in denials where a person allows a host; "": "in the configuration's
	// network.allow, or PADDOCK_NET_ALLOW".
	Allow string
}

// Proxy is a session's way out; [New] makes it. It is for any number of goroutines.
type Proxy struct {
	config  Config
	local   map[string]http.Handler // by canonical name
	ca      *authority
	budget  budget
	denials denials
	server  *http.Server
	proxy   *httputil.ReverseProxy
	cancel  context.CancelFunc
	ctx     context.Context // ends with Close
	working sync.WaitGroup  // what serves a connection or a request
	waiting atomic.Int64    // the guest's connections

	mu     sync.Mutex
	closed bool
	route  *route
	open   map[*exchange]struct{} // requests under way
	links  map[*link]struct{}     // the guest's connections
}

// route is a policy and the transport that keeps to it.
type route struct {
	policy    egress.Policy
	transport *egress.Transport
}

// New makes a proxy. All mistakes of the configuration are told at once.
func New(c Config) (*Proxy, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Record == nil {
		c.Record = func(Record) {}
	}
	c.Allow = cmp.Or(c.Allow, "in the configuration's network.allow, or PADDOCK_NET_ALLOW")
	c.Budgets = c.Budgets.filled()
	d := &Proxy{config: c, local: map[string]http.Handler{}, open: map[*exchange]struct{}{}, links: map[*link]struct{}{}}
	d.budget = newBudget(c.Budgets, c.Used)
	var mistakes []error
	for name, handler := range c.Local {
		host, err := egress.Host(name)
		if err != nil || handler == nil {
			mistakes = append(mistakes, cmp.Or(err, error(fault.New(fault.Internal, "the host %q has no handler", name))))
			continue
		}
		d.local[host] = handler
	}
	ca, err := newAuthority(c.Seed)
	if err := errors.Join(append(mistakes, err)...); err != nil {
		return nil, err
	}
	d.ca = ca
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.route = d.newRoute(c.Policy)
	d.server, d.proxy = d.newServer(), d.newReverseProxy()
	return d, nil
}

// newRoute makes a transport for a policy. How long an answer may take is the budgets'.
func (d *Proxy) newRoute(p egress.Policy) *route {
	o := egress.Options{
		Resolver: d.config.Resolver, TLS: d.config.TLS, Connect: d.config.Budgets.Connect,
		Header: -1, HeaderBytes: int64(d.config.Budgets.HeaderBytes), Redirects: -1, Verbatim: true,
	}
	return &route{policy: p, transport: egress.NewTransport(p, o)}
}

// CA is the certificate of the session's authority in PEM, for the program's trust
// store. Its key is nowhere but in the memory of this process, and it is another one
// for each proxy, but for what Config.Seed says.
func (p *Proxy) CA() []byte { return p.ca.pem }

// Policy is what may be reached now.
func (p *Proxy) Policy() egress.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.route.policy
}

// SetPolicy changes what may be reached, at once: requests under way that are no longer
// allowed are cut short, and so are connections to hosts that are not.
func (d *Proxy) SetPolicy(p egress.Policy) {
	next := d.newRoute(p)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	last := d.route
	d.route = next
	var cut []func()
	for e := range d.open {
		if err := e.stillAllowed(p); err != nil {
			cut = append(cut, func() { e.cut(err) })
		}
	}
	for l := range d.links {
		if err := d.stillReached(p, l); err != nil {
			cut = append(cut, l.abort)
		}
	}
	d.mu.Unlock()
	for _, f := range cut {
		f()
	}
	last.transport.CloseIdleConnections()
}

// stillReached says why a connection that is meant for one host is no longer allowed.
func (d *Proxy) stillReached(p egress.Policy, l *link) error {
	if l.origin == nil || d.local[l.origin.host] != nil {
		return nil
	}
	return p.Reach(l.origin.host, l.origin.port)
}

// Reach says why a program may not open a connection to a host at all: a fault.Denied,
// which is recorded, or a fault.Invalid; nil: it may, and its requests will be decided
// upon.
func (p *Proxy) Reach(host string, port int) error {
	name, err := egress.Host(host)
	if err != nil {
		return err
	}
	if p.isLocal(name, port) {
		return nil
	}
	if err := p.Policy().Reach(name, port); err != nil {
		_ = p.budget.requests.take(1)
		p.refuse(&origin{host: name, port: port}, http.MethodConnect, reasonHost, err)
		return err
	}
	return nil
}

// Knows tells whether a program may know that a host exists: it may be reached at some
// port, or is one of paddock's own.
func (p *Proxy) Knows(host string) bool {
	name, err := egress.Host(host)
	return err == nil && (p.local[name] != nil || p.Policy().Names(name))
}

// isLocal tells whether a canonical host is served here, at its usual ports.
func (p *Proxy) isLocal(host string, port int) bool {
	return p.local[host] != nil && (port == 80 || port == 443)
}

// Denials gives what was refused since it was last asked for: each kind of refusal
// once, with how often, and no more than 20 of them.
func (p *Proxy) Denials() []Denial { return p.denials.take() }

// Usage is what the session has used of its budgets.
func (p *Proxy) Usage() Usage { return p.budget.usage() }

// Close cuts everything that is under way, and waits for its end. It works twice.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	var links []*link
	for l := range p.links {
		links = append(links, l)
	}
	last := p.route
	p.mu.Unlock()
	p.cancel()
	for _, l := range links {
		l.abort()
	}
	p.working.Wait()
	last.transport.CloseIdleConnections()
	return nil
}

// tell records something. A session that has used up its requests fills no log with what
// it is refused.
func (p *Proxy) tell(r Record) {
	if a := p.budget.requests; a.bound >= 0 && a.used.Load() > a.bound+maxBeyond {
		return
	}
	p.config.Record(r)
}

// maxBeyond is how many requests beyond their budget are recorded.
const maxBeyond = 100

// errClosed is what a proxy that was closed says.
func errClosed() error {
	return fault.New(fault.Unavailable, "the session's network has been closed").WithHint("run the program again")
}

// now is the time of records.
func now() time.Time { return time.Now().UTC() }
