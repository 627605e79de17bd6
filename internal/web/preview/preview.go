// Package preview lets a browser open what a program of a session serves at a port of
// its machine.
//
// Each preview is an origin of its own: a host name below localhost, or below a domain
// that is there for nothing else, whose first label cannot be guessed. The link to it is
// signed, for this port of this session until that moment; who opens it gets a cookie of
// that host alone, signed as well, and is sent on to an address without the signature.
// Without the cookie nothing reaches the session. What the program answers can do
// nothing beyond its origin, as far as headers say so (header.go); what the program gets
// to see has nothing in it that lets anybody in.
//
//	GET   /.paddock/open/{signature}                  at the preview's own address
//	GET POST DELETE  /api/v1/sessions/{id}/previews   at paddock's (api.go)
package preview

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
)

// Config sets a Handler up. It is copied.
type Config struct {
	Sessions *session.Manager
	Store    *Store
	// URL gives the address of a preview by its id, without a path: where web.Server
	// finds it again.
	URL func(id string) string
	// Alive says whether an owner may still act: the previews of one whose token was
	// revoked since are closed. Nil: all may.
	Alive func(owner session.Owner) error
	// Beyond answers a request whose token does not reach the set of tools that runs
	// programs, and reports whether it has; nil: it is refused here.
	Beyond func(w http.ResponseWriter, r *http.Request, set string) bool
	// Told is told of each preview that is made, opened with its link, or revoked, and
	// of each that could not be; nil: nobody is.
	Told func(context.Context, Event)
	// AnswerTimeout is how long a program may take to begin an answer; zero: 10 min.
	AnswerTimeout time.Duration
	// AtOnce bounds the requests to one preview that are under way; zero: 64. More wait
	// for 10 s. Those to an owner's previews are four times as many at most, and those to
	// all sixteen times; more are refused.
	AtOnce int
	// MaxBytes bounds what passes in both directions together while this process has a
	// preview; zero: 8 GiB.
	MaxBytes int64
	// Log takes what went wrong on this side; nil: nothing is logged.
	Log *slog.Logger
}

// Action is what an Event tells of.
type Action string

// The actions.
const (
	Made    Action = "made"
	Opened  Action = "opened" // with its link
	Revoked Action = "revoked"
)

// Event is one action on a preview.
type Event struct {
	Action  Action
	Preview Preview // as far as it came to be
	Err     error   // nil: it was done
}

// Handler serves previews, and the API that makes them. Its methods are safe for
// concurrent use.
type Handler struct {
	config  Config
	forward http.Handler // to the session of the context's visit
	lanes   lanes
}

// New makes a Handler.
func New(config Config) (*Handler, error) {
	if config.Sessions == nil || config.Store == nil || config.URL == nil {
		return nil, errors.New("preview: sessions, a store and addresses are needed")
	}
	if config.AnswerTimeout == 0 {
		config.AnswerTimeout = 10 * time.Minute
	}
	if config.AtOnce == 0 {
		config.AtOnce = 64
	}
	if config.MaxBytes == 0 {
		config.MaxBytes = 8 << 30
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{config: config}
	h.forward = h.proxy()
	return h, nil
}

const (
	// ownPath is what programs have to do without at their own address.
	ownPath  = "/.paddock/"
	openPath = ownPath + "open/"
)

func reserved(path string) bool { return path+"/" == ownPath || strings.HasPrefix(path, ownPath) }

// recheckEvery is how often it is asked whether what is under way still may be.
const recheckEvery = time.Second

var (
	errClosed  = fault.New(fault.Denied, "this preview is closed to you").WithHint("open its link again, or ask for a new one: previews expire, can be revoked, and end with their session")
	errExpired = fault.New(fault.Denied, "this preview has expired").WithHint("ask for a new one")
	errWorker  = fault.New(fault.Unsupported, "service workers are not served in previews")
	errMethod  = fault.New(fault.Invalid, "this method cannot be used here")
	errNothing = fault.New(fault.NotFound, "there is nothing at this path").WithHint("what begins with %s is not the program's", ownPath)
	errBusy    = fault.New(fault.Exhausted, "there are too many concurrent requests to this preview").WithHint("try again when some have ended")
	errCrowded = fault.New(fault.Exhausted, "the previews of its owner, or all together, answer as many requests as they may").WithHint("close some of their pages, or try again when some have ended")
	errSpent   = fault.New(fault.Exhausted, "this preview has carried as many bytes as it may").WithHint("make a new one")
)

// ServePreview answers a request to the address of a preview. Where it comes from has
// been decided by then (web.Server).
func (h *Handler) ServePreview(w http.ResponseWriter, r *http.Request, id string) {
	if err := h.serve(w, r, id); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, id string) error {
	p, err := h.config.Store.Get(id)
	in, opens := false, false
	if err == nil {
		var signature string
		if signature, opens = strings.CutPrefix(r.URL.Path, openPath); opens {
			in, err = h.config.Store.signed(byLink, p, signature)
		} else {
			in, err = h.admitted(r, p)
		}
	}
	if in && err == nil {
		err = h.good(p)
	}
	switch {
	case fault.KindOf(err) == fault.NotFound, err == nil && !in:
		return errClosed
	case err != nil:
		return err
	case opens:
		return h.open(w, r, p)
	case reserved(r.URL.Path):
		return errNothing
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return errMethod
	case r.Header.Get("Service-Worker") != "":
		// One would see every request to its origin from then on, with the signature of
		// links to it.
		return errWorker
	}
	lane := h.lanes.of(p, h.config.AtOnce)
	leave, err := lane.enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := h.within(r.Context(), p)
	defer done()
	h.forward.ServeHTTP(finals{w}, r.WithContext(context.WithValue(ctx, visitKey{}, &visit{ctx, p, lane})))
	return nil
}

// good reports whether a preview's session is the one that it was made for, and its owner
// still may act.
func (h *Handler) good(p Preview) error {
	if h.config.Alive != nil {
		switch err := h.config.Alive(p.Owner); {
		case fault.KindOf(err) == fault.Denied:
			return errGone
		case err != nil:
			return err
		}
	}
	i, err := h.config.Sessions.Info(p.Owner, p.Session)
	if err == nil && !i.CreatedAt.Equal(p.Made) {
		err = errGone
	}
	return err
}

// open lets the browser in that has the link: with a cookie, by which it comes to the
// address without the signature.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, p Preview) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return errMethod
	}
	value, err := h.config.Store.sign(byCookie, p)
	if err != nil {
		return err
	}
	name, secure := cookieOf(r)
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: max(int(time.Until(p.Expires).Seconds()), 1),
		Secure: secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	h.told(r.Context(), Event{Action: Opened, Preview: p})
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", p.Path)
	w.WriteHeader(http.StatusSeeOther)
	return nil
}

// The names of the cookie that lets in. Over TLS no other host can set it.
const (
	hostCookie  = "__Host-paddock-preview"
	plainCookie = "paddock-preview"
)

// cookieOf is the name of the cookie that lets in where a request was sent to, and
// whether it was sent over TLS.
func cookieOf(r *http.Request) (name string, secure bool) {
	if strings.HasPrefix(web.BaseURL(r.Context()), "https:") {
		return hostCookie, true
	}
	return plainCookie, false
}

// maxTries bounds the cookies of our name that are looked at: without TLS pages of sibling
// hosts may have set some.
const maxTries = 16

// admitted reports whether a request's cookie lets it in to a preview.
func (h *Handler) admitted(r *http.Request, p Preview) (bool, error) {
	name, _ := cookieOf(r)
	tries := 0
	for _, c := range r.CookiesNamed(name) {
		if good, err := h.config.Store.signed(byCookie, p, c.Value); err != nil || good {
			return good, err
		}
		if tries++; tries == maxTries {
			break
		}
	}
	return false, nil
}

func ours(cookie string) bool { return cookie == hostCookie || cookie == plainCookie }

// within bounds a request's time: until its preview ends.
func (h *Handler) within(ctx context.Context, p Preview) (context.Context, func()) {
	ctx, stop := context.WithDeadlineCause(ctx, p.Expires, errExpired)
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(recheckEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if h.closed(p) {
				cancel(errClosed)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		stop()
		watching.Wait()
	}
}

// closed reports whether a preview is closed for certain. That it cannot be known ends
// nothing.
func (h *Handler) closed(p Preview) bool {
	_, err := h.config.Store.Get(p.ID)
	if err == nil {
		err = h.good(p)
	}
	return fault.KindOf(err) == fault.NotFound
}

func (h *Handler) told(ctx context.Context, e Event) {
	if h.config.Told != nil {
		h.config.Told(ctx, e)
	}
}
