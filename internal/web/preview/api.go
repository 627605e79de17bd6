package preview

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
)

// The API, which needs a token that may run programs:
//
//	GET     /api/v1/sessions/{id}/previews        those that the session has
//	POST    /api/v1/sessions/{id}/previews        {"port": 8000, "path": "/", "ttl_seconds": 3600}; only port is needed
//	DELETE  /api/v1/sessions/{id}/previews        revokes them
//	DELETE  /api/v1/sessions/{id}/previews/{preview_id}

// ToolSet is what a token has to be good for.
const ToolSet = "core"

const (
	sessionsPath = "/api/v1/sessions/"
	what         = "previews"
	// maxAsk bounds the JSON that asks for a preview, in bytes.
	maxAsk = 16 << 10
)

// Shown is a preview as results show it.
type Shown struct {
	ID      string     `json:"preview_id"`
	Session session.ID `json:"session_id"`
	Port    uint16     `json:"port"`
	// URL opens it in a browser, whosever; it is told once, by who makes the preview.
	URL     string    `json:"url,omitempty"`
	Expires time.Time `json:"expires_at"`
}

// Show is what results say of a preview.
func Show(p Preview) Shown {
	return Shown{ID: p.ID, Session: p.Session, Port: p.Port, Expires: p.Expires}
}

var (
	errBeyond  = fault.New(fault.Denied, "the token is not good for previews").WithHint("use one whose tool sets have %q", ToolSet)
	errNowhere = fault.New(fault.NotFound, "there is nothing at this path").WithHint("previews are at %s{id}/%s", sessionsPath, what)
)

// ServeHTTP answers a request to the API. The principal comes from [auth.From].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who := auth.From(r.Context())
	var result any
	var err error
	switch {
	case who == nil:
		err = fault.New(fault.Denied, "the request is not authenticated").WithHint("send a bearer token")
	case !who.MayUse(ToolSet):
		if h.config.Beyond != nil && h.config.Beyond(w, r, ToolSet) {
			return
		}
		err = errBeyond
	default:
		result, err = h.answer(w, r, who)
	}
	status := http.StatusOK
	if r.Method == http.MethodPost {
		status = http.StatusCreated
	}
	if err != nil {
		f := fault.Of(err)
		if f.Kind == fault.Internal || f.Kind == fault.Unavailable {
			h.config.Log.WarnContext(r.Context(), "a request for previews failed", web.Attr(r.Context()), "error", f.Message, "cause", fault.CauseOf(err))
		}
		if status = web.StatusOf(f.Kind); errors.Is(err, errMethod) {
			status = http.StatusMethodNotAllowed
		}
		result = map[string]fault.Problem{"error": web.Describe(w, f, status)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(result) // whoever does not read has gone
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, who *auth.Principal) (any, error) {
	rest, _ := strings.CutPrefix(r.URL.EscapedPath(), sessionsPath)
	part, rest, _ := strings.Cut(rest, "/")
	name, one, single := strings.Cut(rest, "/")
	id, err := url.PathUnescape(part)
	if err != nil || name != what || single && !label.MatchString(one) {
		return nil, errNowhere
	}
	owner, of := session.Owner(who.ID), session.ID(id)
	switch {
	case r.Method == http.MethodPost && !single:
		return h.createPreview(r, of)
	case r.Method == http.MethodGet && !single:
		if _, err := h.config.Sessions.Info(owner, of); err != nil {
			return nil, err
		}
		all, err := h.config.Store.List(owner, of)
		return map[string][]Shown{"previews": shown(all)}, err
	case r.Method == http.MethodDelete:
		return h.revoke(r.Context(), owner, of, one)
	}
	w.Header().Set("Allow", "GET, POST, DELETE")
	return nil, errMethod
}

func shown(all []Preview) []Shown {
	list := []Shown{}
	for _, p := range all {
		list = append(list, Show(p))
	}
	return list
}

func (h *Handler) createPreview(r *http.Request, id session.ID) (any, error) {
	var ask struct {
		Port uint16 `json:"port"`
		Path string `json:"path"`
		TTL  int64  `json:"ttl_seconds"`
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAsk+1))
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if len(data) > maxAsk || in.Decode(&ask) != nil {
		return nil, fault.New(fault.Invalid, "the body is not what is expected").WithHint(`send {"port": 8000}, with "path" and "ttl_seconds" where they matter`)
	}
	if ask.TTL < 0 || ask.TTL > int64(MaxTTL/time.Second) {
		return nil, fault.New(fault.Invalid, "ttl_seconds lies between 1 and %d", int64(MaxTTL/time.Second)).WithHint("omit it for %d", int64(DefaultTTL/time.Second))
	}
	return h.New(r.Context(), id, ask.Port, ask.Path, time.Duration(ask.TTL)*time.Second)
}

// New makes a preview of a port of a session of the principal in ctx, and gives its URL.
// It lives no longer than their token.
func (h *Handler) New(ctx context.Context, id session.ID, port uint16, path string, ttl time.Duration) (Shown, error) {
	who := auth.From(ctx)
	if who == nil || !who.MayUse(ToolSet) {
		return Shown{}, errBeyond
	}
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if !who.Expires.IsZero() {
		ttl = min(ttl, time.Until(who.Expires))
	}
	owner := session.Owner(who.ID)
	p, link, err := Make(h.config.Sessions, h.config.Store, owner, id, port, path, ttl)
	if err != nil {
		p = Preview{Owner: owner, Session: id, Port: port}
	}
	h.told(ctx, Event{Action: Made, Preview: p, Err: err})
	if err != nil {
		return Shown{}, err
	}
	s := Show(p)
	s.URL = h.config.URL(p.ID) + link
	return s, nil
}

// Make makes a preview of a port of an owner's session, and gives the path of the link
// that opens it. A session whose programs cannot listen is a fault.Unsupported.
func Make(sessions *session.Manager, store *Store, owner session.Owner, id session.ID, port uint16, path string, ttl time.Duration) (p Preview, link string, err error) {
	i, err := sessions.Listens(owner, id)
	if err != nil {
		return p, "", err
	}
	if p, err = store.New(i, port, path, ttl); err != nil {
		return p, "", err
	}
	link, err = store.Link(p)
	return p, link, err
}

func (h *Handler) revoke(ctx context.Context, owner session.Owner, id session.ID, one string) (any, error) {
	revoked, err := h.config.Store.Revoke(owner, id, func(p Preview) bool { return one == "" || p.ID == one })
	for _, p := range revoked {
		h.told(ctx, Event{Action: Revoked, Preview: p})
	}
	if err == nil && one != "" && len(revoked) == 0 {
		err = errGone
	}
	return map[string][]Shown{"revoked": shown(revoked)}, err
}
