// Package approvals lets people decide over HTTP about calls of tools that wait for
// them.
//
//	GET   /api/v1/approvals?state=…      those that the token reaches; state: as in the records, or all
//	GET   /api/v1/approvals/{id}
//	POST  /api/v1/approvals/{id}/grant   {"reason": "…"}, which may be left out
//	POST  /api/v1/approvals/{id}/deny
//
// Running programs and deciding about them are two scopes: a token has this one only if
// it was given by name.
package approvals

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"paddock/internal/approval"
	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/web"
)

// Scope is what a token has to name, as it names tool sets.
const Scope = "approve"

// Path is where they are.
const Path = "/api/v1/approvals"

// Config sets a Handler up. It is copied.
type Config struct {
	Store *approval.Store
	// Beyond answers a request whose token does not have the scope, and reports whether it
	// has; nil: it is refused here.
	Beyond func(w http.ResponseWriter, r *http.Request, set string) bool
	// Log takes what went wrong on this side; nil: nothing is logged.
	Log *slog.Logger
}

// Handler serves Path and what is below it. The principal comes from [auth.From].
type Handler struct{ config Config }

var _ http.Handler = (*Handler)(nil)

// New makes a Handler.
func New(config Config) (*Handler, error) {
	if config.Store == nil {
		return nil, errors.New("approvals: a store is needed")
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Handler{config}, nil
}

// maxBody bounds a request's body, in bytes.
const maxBody = 16 << 10

// reach is whose approvals a request may see and decide.
type reach struct {
	principal string
	all       bool
}

// errBeyond says that a token does not have the scope.
var errBeyond = fault.New(fault.Denied, "this token may not decide about calls of tools").
	WithHint("the operator can make one that may: paddock token create NAME --approve")

// reachOf finds out whose request it is. Tokens of paddock's own are the operator's to
// give: one with the scope is for everybody's approvals, and so is the operator's browser,
// which is this machine's user with the scope. What an issuer's user may decide is their own.
func reachOf(who *auth.Principal) (reach, error) {
	if who == nil || !slices.Contains(who.Tools, Scope) { // no list of tools is all tools, and not this
		return reach{}, errBeyond
	}
	return reach{principal: who.ID, all: strings.HasPrefix(who.ID, auth.OfToken) || who.ID == auth.Local}, nil
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reach, err := reachOf(auth.From(r.Context()))
	if err != nil && h.config.Beyond != nil && h.config.Beyond(w, r, Scope) {
		return
	}
	var result any
	if err == nil {
		result, err = h.serve(w, r, reach)
	}
	status := http.StatusOK
	if err != nil {
		f := fault.Of(err)
		if f.Kind == fault.Internal || f.Kind == fault.Unavailable {
			h.config.Log.WarnContext(r.Context(), "deciding about a call failed", "error", f.Message, "cause", fault.CauseOf(err))
		}
		if status = web.StatusOf(f.Kind); errors.Is(err, errMethod) {
			status = http.StatusMethodNotAllowed
		}
		result = map[string]fault.Problem{"error": web.Describe(w, err, status)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	to := json.NewEncoder(w)
	_ = to.Encode(result) // whoever does not read has gone
}

var (
	errMethod  = fault.New(fault.Invalid, "that cannot be done here").WithHint("GET lists and shows; POST to …/grant or …/deny decides")
	errNowhere = fault.New(fault.NotFound, "there is nothing here").WithHint("approvals are at %s/{id}", Path)
)

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, reach reach) (any, error) {
	rest := strings.Trim(strings.TrimPrefix(r.URL.Path, Path), "/")
	id, verb, deciding := strings.Cut(rest, "/")
	switch {
	case deciding && verb != "grant" && verb != "deny":
		return nil, errNowhere
	case deciding && r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		return nil, errMethod
	case deciding:
		return h.decide(w, r, reach, id, verb == "grant")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		return nil, errMethod
	case id == "":
		return h.list(r, reach)
	}
	a, err := h.find(reach, id)
	return show(a), err
}

// Shown is an approval as it is answered.
type Shown struct {
	approval.Approval
	// Text are the arguments to the letter, which a client's parser may not keep: its
	// numbers may have fewer digits, and its objects each name once.
	Text string `json:"arguments_text"`
}

func show(a approval.Approval) Shown { return Shown{a, string(a.Arguments)} }

func (h *Handler) list(r *http.Request, reach reach) (any, error) {
	state := approval.State(r.URL.Query().Get("state"))
	var all []approval.Approval
	var err error
	if reach.all {
		all, err = h.config.Store.All()
	} else {
		all, err = h.config.Store.List(reach.principal)
	}
	list := []Shown{}
	for _, a := range all {
		if state == "" && a.State.Open() || state == "all" || state == a.State {
			list = append(list, show(a))
		}
	}
	return map[string][]Shown{"approvals": list}, err
}

func (h *Handler) find(reach reach, id string) (approval.Approval, error) {
	if reach.all {
		return h.config.Store.Find(id)
	}
	return h.config.Store.Get(reach.principal, id)
}

func (h *Handler) decide(w http.ResponseWriter, r *http.Request, reach reach, id string, grant bool) (any, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fault.New(fault.Invalid, "the request's body cannot be read, or has more than %d bytes", maxBody).WithCause(err)
	}
	if data = bytes.TrimSpace(data); len(data) > 0 {
		d := json.NewDecoder(bytes.NewReader(data))
		if d.DisallowUnknownFields(); d.Decode(&body) != nil {
			return nil, fault.New(fault.Invalid, "the request's body is not of the form {\"reason\": \"…\"}")
		}
	}
	a, err := h.find(reach, id)
	if err != nil {
		return nil, err
	}
	return h.config.Store.Decide(r.Context(), a.Owner, id, approval.Decision{By: reach.principal, Grant: grant, Reason: body.Reason})
}
