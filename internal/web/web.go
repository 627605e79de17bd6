// Package web is paddock's HTTP server without what it serves: it decides which
// requests reach a handler, bounds them in time and size, says who they come
// from, and ends without losing one.
//
// Every request goes through [Server.ServeHTTP] from top to bottom: where does
// it come from, may it name this host, may its origin call, is there such a
// path, who is it, is there room. The first step that says no answers, and
// nothing of the body has been read by then.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/rs/cors"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// Config sets a Server up. It is copied.
type Config struct {
	// Host and Port are where it listens; port 0: any that is free. An empty
	// host: 127.0.0.1.
	Host string
	Port int
	// Path is that of the MCP endpoint; empty: /mcp.
	Path string
	// PublicURL is the address that clients know, such as https://host; empty:
	// the one that each request was sent to.
	PublicURL string
	// AllowedHosts are further names, with or without a port, that a request may
	// call this server by.
	AllowedHosts []string
	// Origins are the web pages that may call, as scheme://host[:port], or "*"
	// for all; none: only those of this server.
	Origins []string
	// TrustedProxies are addresses and prefixes whose X-Forwarded-* and Forwarded
	// headers are believed. They have to overwrite what a client sent of them.
	TrustedProxies []string
	// CertFile and KeyFile are PEM files, read again when they change; empty:
	// plain HTTP.
	CertFile, KeyFile string
	// AllowPlain lets plain HTTP be served to other machines.
	AllowPlain bool
	// Dev asks for no token. It is refused anywhere but on loopback.
	Dev bool
	// MetricsOpen asks for no token at /metrics.
	MetricsOpen bool

	// Verifier decides about bearer tokens; nil only with Dev, where it counts for who
	// decides about calls alone.
	Verifier auth.Verifier
	// SignIns let browsers in, at /api/v1/signin; nil: 404. Operator is who comes in by a
	// link that was made on the command line. SignedIn is told of each who signs in or out;
	// nil: none is told.
	SignIns  *auth.SignIns
	Operator *auth.Principal
	SignedIn func(context.Context, SignedIn)
	// Scopes are what a client without a token is told to ask its issuer for;
	// nil: nothing.
	Scopes []string
	// Gate bounds requests; nil: there is always room, and GET requests listen.
	Gate Gate
	// Context gives a context of the request with this id to what logs and traces;
	// nil: only [RequestID] knows it.
	Context func(ctx context.Context, requestID string) context.Context
	// Ready gives reasons why the server cannot work now. They are shown to
	// anybody; nil: there are none.
	Ready func(context.Context) []string
	// Signed reports whether a request below /v1/ carries its own permission in the
	// last part of its path, so that no token is asked for; nil: none does.
	Signed func(*http.Request) bool
	// Observer is told what came of requests; nil: none is.
	Observer Observer
	// OnDrain is called once when the server begins to end, to end streams that
	// it does not know of as such; nil: nothing.
	OnDrain func()

	// MCP, Files and Metrics are what lies behind Path, /v1/ and /metrics, and
	// Metadata the OAuth protected resource's; nil: 404. The principal is in the
	// context ([auth.From]).
	MCP, Files, Metrics, Metadata http.Handler
	// RPC is what lies behind /api/v1/rpc: calls of JSON-RPC like MCP's, with the
	// errors of microsandbox. Health is behind /api/v1/health, where nobody needs a
	// token; nil: 404.
	RPC, Health http.Handler
	// Console is what lies behind / for browsers, which accept text/html, and below
	// /console/, where no token is needed but for /console/sessions; nil: 404.
	Console http.Handler
	// Approvals is what lies behind /api/v1/approvals and below it; nil: 404.
	Approvals http.Handler

	// E2B is what lies behind /e2b/, without that, and behind /files; nil: 404. E2BOwnToken
	// reports whether a request is for a sandbox there, which asks for a token itself.
	E2B         http.Handler
	E2BOwnToken func(*http.Request) bool

	// Preview answers requests to the addresses of previews (see [Server.PreviewURL]),
	// of which id is the first label; nil: there are none. Previews is what lies behind
	// /api/v1/sessions/; nil: 404.
	Preview  func(w http.ResponseWriter, r *http.Request, id string)
	Previews http.Handler
	// PreviewDomain is the domain below which previews have their hosts, and nothing
	// else has: its wildcard leads here; empty: localhost, which browsers take for their
	// own machine.
	PreviewDomain string

	// MaxBodyBytes bounds a body, but below /v1/ MaxUploadBytes does; zero: 10 MiB
	// and 1 GiB.
	MaxBodyBytes, MaxUploadBytes int64
	// MaxHeaderBytes bounds a request's line and headers; zero: 64 KiB.
	MaxHeaderBytes int
	// MaxConnections bounds open connections; further ones are closed at once;
	// zero: 2048. One address may have a quarter of them, one of this machine three
	// quarters, and a trusted proxy all.
	MaxConnections int
	// HeaderTimeout, BodyTimeout and WriteTimeout are how long the headers may
	// take, the body (below /v1/: each piece of it), and each 64 KiB that a client
	// does not read; zero: 10 s, 30 s, 30 s. IdleTimeout is how long a connection
	// may wait for the next request; zero: 2 min.
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
	// RequestTimeout is how long a request may take that is neither to MCP nor to
	// RPC; zero: 10 min.
	RequestTimeout time.Duration
	// Grace is how long running requests may go on when the server ends; zero:
	// 30 s.
	Grace time.Duration

	// Log takes each request at info level and paddock's own mistakes at error
	// level; nil: nothing is logged.
	Log *slog.Logger
}

// Gate bounds the requests of principals. Its methods are called by many goroutines at once.
type Gate interface {
	// Admit takes the room for a request of p, until release is called, or is the error that
	// there is none. It is not asked about requests without a principal, on open paths and
	// signed ones.
	Admit(ctx context.Context, p *auth.Principal, r *http.Request) (release func(), err error)
	// Listens reports whether a request to Config.Path is for a stream that its client only
	// listens to.
	Listens(r *http.Request) bool
}

// Observer is told what came of requests. Its methods are called by many goroutines at once,
// and requests wait for them.
type Observer interface {
	// RequestAnswered is told of each request that has been answered.
	RequestAnswered(ctx context.Context, a Answered)
	// RequestsFailed is told of requests that had no valid token: of an address's first one
	// at once, and of those that follow within a minute together.
	RequestsFailed(ctx context.Context, f Failures)
}

// openGate is the Gate of a server that has none.
type openGate struct{}

var _ Gate = openGate{}

// Admit implements [Gate].
func (openGate) Admit(context.Context, *auth.Principal, *http.Request) (release func(), err error) {
	return func() {}, nil
}

// Listens implements [Gate].
func (openGate) Listens(r *http.Request) bool { return r.Method == http.MethodGet }

// unobserved is the Observer of a server that has none.
type unobserved struct{}

var _ Observer = unobserved{}

// RequestAnswered implements [Observer].
func (unobserved) RequestAnswered(context.Context, Answered) {}

// RequestsFailed implements [Observer].
func (unobserved) RequestsFailed(context.Context, Failures) {}

// Answered is how a request ended, in words of which there are few.
type Answered struct {
	Route  string // a path of the server's, or the beginning of one; "other" where nothing lies
	Method string
	Status int // 499: the client left before
	Took   time.Duration
}

// Server is one HTTP server. Its methods are safe for concurrent use.
type Server struct {
	config  Config
	log     *slog.Logger
	hosts   hosts
	proxies []netip.Prefix
	origins []string // "*": all
	cors    *cors.Cors
	routes  map[string]route // by path; those that end with a slash: a prefix
	cert    *certificate     // nil: plain HTTP
	bound   bound
	port    int // that it listens at; set before the first request

	running  running
	checks   running // of tokens, beside their requests
	failures failures
	silent   silent
	draining context.Context // ends when no stream shall go on
	drain    context.CancelFunc
}

// bound is where a Server listens.
type bound struct {
	address  string // resolved
	loopback bool
	local    bool // connections from other machines that are no proxies are refused
}

// New makes a Server and finds every mistake in its Config. It does not listen
// yet.
func New(config Config) (*Server, error) {
	config.complete()
	s := &Server{config: config, log: config.Log}
	s.draining, s.drain = context.WithCancel(context.Background())
	mistakes := []error{s.readProxies(), s.readOrigins(), s.readHosts(), s.readPreviews(), s.readCertificate(), s.place(), s.checkAccess()}
	if !endpoint.MatchString(config.Path) || path.Clean(config.Path) != config.Path {
		mistakes = append(mistakes, fault.New(fault.Invalid, "%q is not a path for the MCP endpoint", config.Path).WithHint("transport_http.path begins with a slash; /mcp is what clients expect"))
	} else if s.routes = s.table(); !s.route(config.Path).rpc || config.Path == rpcPath {
		mistakes = append(mistakes, fault.New(fault.Invalid, "the MCP endpoint cannot be at %s", config.Path).WithHint("something else is there; transport_http.path chooses another, and /mcp is what clients expect"))
	}
	s.cors = cors.New(cors.Options{
		// Whether an origin may call has been decided by then.
		AllowOriginFunc: func(string) bool { return true },
		AllowedMethods:  []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete},
		// Mcp-Param-* has as many names as tools have parameters. No header gives a
		// page anything that it did not have: a browser's pass counts for pages of
		// this server alone.
		AllowedHeaders:      []string{"*"},
		ExposedHeaders:      []string{"Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate", "Retry-After", "X-Request-Id", "ETag", "Content-Range"},
		MaxAge:              600,
		AllowPrivateNetwork: true,
	})
	return s, errors.Join(mistakes...)
}

var endpoint = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$`)

func (c *Config) complete() {
	c.AllowedHosts, c.Origins, c.TrustedProxies, c.Scopes = slices.Clone(c.AllowedHosts), slices.Clone(c.Origins), slices.Clone(c.TrustedProxies), slices.Clone(c.Scopes)
	set(&c.Host, "127.0.0.1")
	set(&c.Path, "/mcp")
	set(&c.MaxBodyBytes, 10<<20)
	set(&c.MaxUploadBytes, 1<<30)
	set(&c.MaxHeaderBytes, 64<<10)
	set(&c.MaxConnections, 2048)
	set(&c.HeaderTimeout, 10*time.Second)
	set(&c.BodyTimeout, 30*time.Second)
	set(&c.WriteTimeout, 30*time.Second)
	set(&c.IdleTimeout, 2*time.Minute)
	set(&c.RequestTimeout, 10*time.Minute)
	set(&c.Grace, 30*time.Second)
	if c.Gate == nil {
		c.Gate = openGate{}
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	if c.SignedIn == nil {
		c.SignedIn = func(context.Context, SignedIn) {}
	}
	if c.Dev && c.Verifier == nil {
		c.Verifier = auth.Any()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// set gives a value its default.
func set[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

// checkAccess refuses configurations that would let in whoever comes.
func (s *Server) checkAccess() error {
	c := s.config
	switch {
	case !c.Dev && c.Verifier == nil:
		return fault.New(fault.Internal, "an HTTP server needs to know who may come in")
	case c.SignIns != nil && c.Operator == nil:
		return fault.New(fault.Internal, "an HTTP server that browsers sign in to needs to know who the operator is")
	case c.Dev && len(c.TrustedProxies) > 0:
		return fault.New(fault.Invalid, "a proxy's requests need a token").WithHint("leave --dev or the trusted proxies out")
	case c.Dev && slices.Contains(c.Origins, "*"):
		return fault.New(fault.Invalid, "without a token every web page could run programs here").WithHint("leave --dev out, or name the origins instead of \"*\"")
	}
	return nil
}
