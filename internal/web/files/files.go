// Package files moves a session's files over HTTP, past any model: single
// files, listings, whole archives, and one-time links that a tool's result can
// hand to a person. It keeps no file in memory.
//
//	GET HEAD PUT DELETE  /v1/sessions/{id}/files/{path…}
//	GET                  /v1/sessions/{id}/files/?glob=…
//	GET PUT              /v1/sessions/{id}/archive?format=tar.gz|zip
//	POST                 /v1/sessions/{id}/links
//	GET PUT              /v1/links/{token}     needs no principal
//
// Whoever asks for a session of somebody else learns what they would learn of
// one that does not exist.
package files

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/workspace"
)

// Config sets a Handler up. It is copied.
type Config struct {
	Sessions *session.Manager
	// Links makes and checks one-time links; nil: there are none.
	Links *Links
	// Base gives the address that the request's client knows this server by, such
	// as https://host; nil: links are told without it.
	Base func(context.Context) string
	// Access decides about owners; nil: all may act, and there is always room.
	Access Access
	// Named is told of each session that a request is about, before it is served;
	// nil: nobody is.
	Named func(session.Owner, session.ID)
	// Moved is told of each file or archive that was asked for and may be, and of
	// each link that is made; nil: nobody is.
	Moved func(context.Context, Moved)
	// Log takes what went wrong on this side; nil: nothing is logged.
	Log *slog.Logger
}

// Access decides which owners may act. Its methods are called by many goroutines at once.
type Access interface {
	// Alive is an error if an owner whose link is used may act no more: what they made with
	// a token that was revoked since is refused.
	Alive(owner session.Owner) error
	// Admit takes the room for a request by link, which is its owner's, until release is
	// called, or is the error that there is none. Other requests were let in before.
	Admit(owner session.Owner) (release func(), err error)
	// Beyond answers a request that needs a tool set which its token does not reach, and
	// reports whether it did; else the request is refused here.
	Beyond(w http.ResponseWriter, r *http.Request, set string) bool
}

// openAccess is the Access of a handler that has none.
type openAccess struct{}

var _ Access = openAccess{}

// Alive implements [Access].
func (openAccess) Alive(session.Owner) error { return nil }

// Admit implements [Access].
func (openAccess) Admit(session.Owner) (release func(), err error) { return func() {}, nil }

// Beyond implements [Access].
func (openAccess) Beyond(http.ResponseWriter, *http.Request, string) bool { return false }

// Moved is one request for a session's files, or for a link to one.
type Moved struct {
	Owner   session.Owner
	Session session.ID
	Path    string // empty: all of them
	Write   bool   // or removed
	Link    bool   // nothing was moved: whoever has the link may
	Err     error  // nil: it was done
}

// moved tells that a request has been served.
func (t target) moved(r *http.Request, err error) {
	if t.config.Moved != nil {
		t.config.Moved(r.Context(), Moved{Owner: t.owner, Session: t.id, Path: t.path, Write: r.Method == http.MethodPut || r.Method == http.MethodDelete, Err: err})
	}
}

// Handler serves everything below /v1/. The principal comes from [auth.From].
type Handler struct{ config Config }

var _ http.Handler = (*Handler)(nil)

// New makes a Handler.
func New(config Config) (*Handler, error) {
	if config.Sessions == nil {
		return nil, errors.New("files: sessions are needed")
	}
	if config.Access == nil {
		config.Access = openAccess{}
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Handler{config: config}, nil
}

const (
	sessionsPath = "/v1/sessions/"
	linksPath    = "/v1/links/"
	toolSet      = "files" // what a token has to be good for
)

// Signed reports whether a request carries its own permission: that it is by
// link, and needs no principal.
func Signed(r *http.Request) bool { return strings.HasPrefix(r.URL.EscapedPath(), linksPath) }

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	p := r.URL.EscapedPath() // an escaped slash separates nothing
	if token, ok := strings.CutPrefix(p, linksPath); ok {
		return h.serveLink(w, r, token)
	}
	rest, ok := strings.CutPrefix(p, sessionsPath)
	id, rest, _ := strings.Cut(rest, "/")
	what, name, _ := strings.Cut(rest, "/")
	if !ok || what != "files" && name != "" {
		return errNowhere
	}
	owner, err := ownerOf(r.Context())
	if errors.Is(err, errBeyond) && h.config.Access.Beyond(w, r, toolSet) {
		return nil
	}
	if err != nil {
		return err
	}
	t := target{Handler: h, owner: owner, id: session.ID(id)}
	if t.path, err = url.PathUnescape(name); err != nil {
		return fault.New(fault.Invalid, "the path is not escaped as URLs are")
	}
	return t.serve(w, r, what)
}

var errNowhere = fault.New(fault.NotFound, "there is nothing at this path").WithHint("files are at /v1/sessions/{id}/files/{path}, all of them at /v1/sessions/{id}/archive")

var errBeyond = fault.New(fault.Denied, "the token is not good for files").WithHint("use one whose tool sets have %q", toolSet)

// ownerOf gives whose sessions a request may see.
func ownerOf(ctx context.Context) (session.Owner, error) {
	p := auth.From(ctx)
	if p == nil {
		return "", fault.New(fault.Denied, "the request is not authenticated").WithHint("send a bearer token")
	}
	if !p.MayUse(toolSet) {
		return "", errBeyond
	}
	return session.Owner(p.ID), nil
}

// target is what one request is about.
type target struct {
	*Handler
	owner session.Owner
	id    session.ID
	path  string // below the workspace; as it was asked for
}

func (t target) serve(w http.ResponseWriter, r *http.Request, what string) error {
	var do func(http.ResponseWriter, *http.Request, *workspace.Tree) error
	var methods []string
	switch {
	case what == "files" && t.path != "":
		methods, do = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}, t.file
	case what == "files":
		methods, do = []string{http.MethodGet, http.MethodHead}, t.list
	case what == "archive":
		methods, do = []string{http.MethodGet, http.MethodHead, http.MethodPut}, t.archive
	case what == "links" && t.config.Links != nil:
		methods, do = []string{http.MethodPost}, t.newLink
	default:
		return errNowhere
	}
	if err := only(w, r, methods...); err != nil {
		return err
	}
	tree, done, err := t.files()
	if err != nil {
		return err
	}
	defer done()
	err = do(w, r, tree)
	if what == "archive" || t.path != "" {
		t.moved(r, err)
	}
	return err
}

// files are those of the session, which stays awake until done is called: for as
// long as something moves.
func (t target) files() (tree *workspace.Tree, done func(), err error) {
	tree, done, err = t.config.Sessions.Files(t.owner, t.id)
	if err == nil && t.config.Named != nil {
		t.config.Named(t.owner, t.id)
	}
	return tree, done, err
}

// only refuses other methods than these.
func only(w http.ResponseWriter, r *http.Request, methods ...string) error {
	if slices.Contains(methods, r.Method) {
		return nil
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return refusal{fault.New(fault.Invalid, "this method cannot be used here").WithHint("it can be %s", strings.Join(methods, ", ")), http.StatusMethodNotAllowed}
}
