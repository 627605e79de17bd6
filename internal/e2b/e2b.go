// Package e2b serves E2B's API for the client SDKs of E2B, unmodified: sandboxes are sessions
// with a machine of their own, in which package envd serves processes and files.
//
// A request is for the control plane, where a principal makes, lists and ends sandboxes, or
// for one sandbox that it names by headers: that is passed on to the daemon in the machine or
// to a port at which a program listens. The control plane asks for a principal. A sandbox asks
// for its own token, which whoever made it was told.
package e2b

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// Config describes a Server. It is copied.
type Config struct {
	Sessions *session.Manager
	// Dir is the folder in which sandboxes are written down.
	Dir string
	// Key gives the secret that the sandboxes' tokens are made of; it is asked for once.
	Key func() ([]byte, error)
	// Templates are the images of machines by the names that clients have for them; an empty
	// one is the default image.
	Templates map[string]string
	// Domain is what ports' hosts are below, as clients are told.
	Domain func() string
	// CPUs, MemoryBytes and DiskBytes are what a machine has, as clients are told.
	CPUs                   int
	MemoryBytes, DiskBytes int64
	// MaxTimeout bounds for how long a sandbox runs without hearing from its client; zero: 24
	// hours.
	MaxTimeout time.Duration
	// Alive gives an error for an owner that may act no more.
	Alive func(session.Owner) error
	// Admit counts a request of an owner's to a sandbox, or refuses it.
	Admit func(session.Owner) (release func(), err error)
	// Told is told of what clients do in sandboxes, before it is done where it is a process that
	// starts: an error keeps it from starting.
	Told func(context.Context, Event) error
	Log  *slog.Logger
}

// Event is something that a client does in a sandbox.
type Event struct {
	Owner   session.Owner
	Session session.ID
	Action  Action
	// Target is a file or a port; of a process that starts Code is its command line.
	Target, Code string
	// Status is the answer's; zero: it has not begun.
	Status int
}

// Action is what a client does.
type Action string

// The actions.
const (
	Starting Action = "execute"
	Reading  Action = "file_read"
	Writing  Action = "file_write"
)

// Server serves the API. It is safe for concurrent use.
type Server struct {
	config  Config
	key     []byte
	mux     *http.ServeMux
	forward http.Handler

	mu  sync.Mutex // guards all
	all map[string]*sandbox

	wake chan struct{} // holds a token when a deadline has changed
	stop context.CancelFunc
	jobs sync.WaitGroup
}

// New makes a Server of the sandboxes that were written down, and begins to keep their
// deadlines.
func New(config Config) (*Server, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.MaxTimeout <= 0 {
		config.MaxTimeout = 24 * time.Hour
	}
	s := &Server{config: config, all: map[string]*sandbox{}, wake: make(chan struct{}, 1)}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.forward = s.newForward()
	s.routes()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.jobs.Go(func() { s.keepDeadlines(ctx) })
	return s, nil
}

// Close ends what is under way, and waits. Sandboxes stay as they are: the sessions' Manager
// saves their machines.
func (s *Server) Close() {
	s.stop()
	s.jobs.Wait()
	for _, one := range s.list() {
		one.letGo()
	}
}

// routes are the paths of the control plane, with and without /v2.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	for _, v := range []string{"", "/v2"} {
		at := func(pattern string, serve func(r *http.Request, o session.Owner) (any, int, error)) {
			method, path, _ := cut(pattern)
			s.mux.HandleFunc(method+" "+v+path, s.control(serve))
		}
		at("POST /sandboxes", s.create)
		at("GET /sandboxes/metrics", s.metricsOfAll)
		at("GET /sandboxes/{id}", s.get)
		at("DELETE /sandboxes/{id}", s.kill)
		at("POST /sandboxes/{id}/connect", s.connect)
		at("POST /sandboxes/{id}/resume", s.connect)
		at("POST /sandboxes/{id}/timeout", s.setTimeout)
		at("POST /sandboxes/{id}/refreshes", s.refresh)
		at("POST /sandboxes/{id}/pause", s.pause)
		at("POST /sandboxes/{id}/fork", s.fork)
		at("POST /sandboxes/{id}/snapshots", s.snapshot)
		at("GET /sandboxes/{id}/metrics", s.metrics)
		at("GET /sandboxes/{id}/logs", s.logs)
		at("PUT /sandboxes/{id}/network", s.network)
		s.mux.HandleFunc("GET "+v+"/sandboxes", s.listSandboxes(v == ""))
		s.mux.HandleFunc(v+"/sandboxes", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, POST")
			fail(w, http.StatusMethodNotAllowed, r.Method+" cannot be done here")
		})
		s.mux.HandleFunc("GET "+v+"/snapshots", s.listSnapshots)
		at("DELETE /templates/{id}", s.deleteSnapshot)
	}
	for prefix, instead := range leftOut {
		s.mux.HandleFunc(prefix, func(w http.ResponseWriter, _ *http.Request) {
			fail(w, http.StatusNotImplemented, instead)
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, "there is nothing at "+r.URL.Path)
	})
}

// leftOut says what to use instead of what is not offered.
var leftOut = map[string]string{
	"/templates":    "paddock builds no templates: name an image in the section e2b.templates of its configuration",
	"/v2/templates": "paddock builds no templates: name an image in the section e2b.templates of its configuration",
	"/v3/templates": "paddock builds no templates: name an image in the section e2b.templates of its configuration",
	"/volumes":      "paddock has no volumes for E2B's clients: write files into the sandbox, or make a snapshot",
	"/secrets":      "E2B's clients cannot keep secrets in paddock: the operator sets them with paddock secret",
	"/teams":        "paddock has no teams: each token is a principal of its own",
	"/nodes":        "paddock does not tell of nodes",
}

// control serves a call of the control plane. What it gives is the answer's body and status.
func (s *Server) control(serve func(r *http.Request, o session.Owner) (any, int, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		owner, err := ownerOf(r)
		if err != nil {
			failWith(w, err)
			return
		}
		body, status, err := serve(r, owner)
		if err != nil {
			s.logFailure(r, err)
			failWith(w, err)
			return
		}
		if body == nil {
			w.WriteHeader(status)
			return
		}
		writeJSON(w, status, body)
	}
}

func (s *Server) logFailure(r *http.Request, err error) {
	if f := fault.Of(err); f.Kind == fault.Internal || f.Kind == fault.Unavailable {
		s.config.Log.WarnContext(r.Context(), "a call of E2B's API failed", "path", r.URL.Path, "error", f.Message, "cause", errors.Unwrap(f))
	}
}

// ServeHTTP implements [http.Handler], below the path of the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ForSandbox(r) {
		s.serveSandbox(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}
