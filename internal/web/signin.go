package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// A browser comes in with a pass: a cookie of this host, and a key that its pages have for
// this origin alone and send as a header. A cookie alone would be anybody's who has a
// server at another port of the host, such as a program whose port is open on this machine.
// A page of another origin can send neither the header nor, with SameSite, the cookie; that
// the request comes from a page of this server's is looked at all the same.

// Where browsers sign in and out, and ask who they are.
const (
	signInPath  = "/api/v1/signin"
	signOutPath = "/api/v1/signout"
	whoPath     = "/api/v1/whoami"
)

const (
	// keyHeader has the half of a browser's pass that is not the cookie.
	keyHeader = "X-Paddock-Key"
	// securedCookie is the cookie's name under TLS: browsers take one of this name from the
	// host itself alone, and only for all of it. Without TLS its name has the port.
	securedCookie, plainCookie = "__Host-paddock", "paddock-"
	// maxCookies is how many of that name are tried.
	maxCookies  = 4
	maxSignIn   = 32 << 10
	readSignsIn = "sign in at this server's own page"
)

// SignedIn is what came of a browser's signing in or out.
type SignedIn struct {
	Who *auth.Principal
	Out bool
}

// ownOrigin is the origin of this server's pages where a request was sent to.
func ownOrigin(from *sender) string {
	origin, _ := normalOrigin(from.scheme + "://" + from.host)
	return origin
}

// ownPage reports whether a page of this server sent a request, by what the browser says.
func ownPage(r *http.Request, from *sender) bool {
	origins, site := r.Header.Values("Origin"), r.Header.Get("Sec-Fetch-Site")
	if len(origins) == 1 {
		origin, ok := normalOrigin(origins[0])
		return ok && origin == ownOrigin(from) && (site == "" || site == "same-origin")
	}
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != ""
	return len(origins) == 0 && (site == "same-origin" || site == "" && !changes)
}

// cookieName is the name of the cookie at the address that a request was sent to.
func cookieName(from *sender) (name string, secure bool) {
	if from.scheme == "https" {
		return securedCookie, true
	}
	_, port, _ := splitHost(from.host)
	return plainCookie + orDefault(port, "http"), false
}

// passes are those that a request shows; none: it is not a signed-in browser's.
func (s *Server) passes(r *http.Request, rt route, from *sender) (all []auth.Pass) {
	key := r.Header.Get(keyHeader)
	if s.config.SignIns == nil || key == "" || rt.rpc || rt.e2b || r.Header.Get("Authorization") != "" {
		return nil
	}
	name, _ := cookieName(from)
	for _, c := range r.CookiesNamed(name) {
		if len(all) < maxCookies {
			all = append(all, auth.Pass{Cookie: c.Value, Key: key})
		}
	}
	return all
}

// browser finds out whose the browser is that sent a request with these passes.
func (s *Server) browser(r *http.Request, from *sender, passes []auth.Pass) (p *auth.Principal, err error) {
	if !ownPage(r, from) {
		return nil, fault.New(fault.Denied, "only this server's own pages may use this browser's sign-in").WithHint("send a token as Authorization: Bearer")
	}
	for _, pass := range passes {
		var found auth.SignIn
		if found, err = s.config.SignIns.Find(r.Context(), pass, ownOrigin(from)); err != nil {
			continue
		}
		if p, err = s.bearerOf(r.Context(), found); fault.KindOf(err) == fault.Denied {
			_ = s.config.SignIns.End(r.Context(), pass) // its token is refused, whether this succeeds or not
		}
		if err == nil {
			from.token = found.Token
			return p, nil
		}
	}
	return nil, err
}

// bearerOf is who signed in: the operator, or the bearer of a token that is good still.
func (s *Server) bearerOf(ctx context.Context, found auth.SignIn) (*auth.Principal, error) {
	whose := s.config.Operator
	if found.Token != "" {
		var err error
		if whose, err = s.config.Verifier.Verify(ctx, found.Token); err != nil {
			return nil, err
		}
	}
	p := *whose
	if p.Expires.IsZero() || found.Expires.Before(p.Expires) {
		p.Expires = found.Expires
	}
	return &p, nil
}

// Who is a principal as browsers are told.
type Who struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Tools are the tool sets and scopes that it may use; null: all sets.
	Tools   []string  `json:"tools"`
	Expires time.Time `json:"expires_at,omitzero"`
	// Key is to be sent as X-Paddock-Key. It is in the answer to signing in alone.
	Key string `json:"key,omitempty"`
}

func whoIs(p *auth.Principal) Who {
	return Who{ID: p.ID, Name: p.Name, Tools: slices.Clone(p.Tools), Expires: p.Expires}
}

// whoami says whose a request is.
func (s *Server) whoami(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, http.StatusOK, whoIs(auth.From(r.Context())))
}

// signIn lets a browser in for a token or a ticket.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	from := r.Context().Value(senderKey{}).(*sender)
	pass, p, err := s.letIn(w, r, from)
	if err != nil {
		s.fail(w, r, s.route(signInPath), err)
		return
	}
	from.who = p.Name
	setCookie(w, from, pass.Cookie, p.Expires)
	s.config.SignedIn(r.Context(), SignedIn{Who: p})
	who := whoIs(p)
	who.Key = pass.Key
	writeJSON(w, r, http.StatusOK, who)
}

func (s *Server) letIn(w http.ResponseWriter, r *http.Request, from *sender) (pass auth.Pass, p *auth.Principal, err error) {
	var ask struct{ Token, Ticket string }
	if !isJSON(r.Header) {
		return pass, nil, refusal{fault.New(fault.Invalid, "the body's type has to be application/json").WithHint(readSignsIn), http.StatusUnsupportedMediaType}
	}
	if !ownPage(r, from) {
		return pass, nil, fault.New(fault.Denied, "another page may sign no browser in").WithHint(readSignsIn)
	}
	text, err := iolimit.ReadAll(r.Body, maxSignIn, tooLarge(maxSignIn))
	if err != nil {
		return pass, nil, err
	}
	if json.Unmarshal(text, &ask) != nil || (ask.Token == "") == (ask.Ticket == "") {
		return pass, nil, fault.New(fault.Invalid, "the body is neither {\"token\": …} nor {\"ticket\": …}").WithHint(readSignsIn)
	}
	var made auth.SignIn
	if ask.Ticket != "" {
		pass, made, err = s.config.SignIns.BeginByTicket(r.Context(), ask.Ticket, ownOrigin(from))
	} else if p, err = s.config.Verifier.Verify(r.Context(), ask.Token); err == nil {
		pass, made, err = s.config.SignIns.Begin(r.Context(), p, ask.Token, ownOrigin(from))
	}
	if err == nil {
		p, err = s.bearerOf(r.Context(), made)
	}
	if fault.KindOf(err) == fault.Denied {
		full := s.failures.refuse(from.client, time.Now())
		if s.failed(r.Context(), from, err); full != nil {
			return pass, nil, full
		}
		return pass, nil, s.challenge(w, r, err)
	}
	return pass, p, err
}

// signOut ends a browser's sign-in, whether it is good still or not.
func (s *Server) signOut(w http.ResponseWriter, r *http.Request) {
	from, rt := r.Context().Value(senderKey{}).(*sender), s.route(whoPath)
	passes := s.passes(r, rt, from)
	if len(passes) > 0 && !ownPage(r, from) {
		s.fail(w, r, rt, fault.New(fault.Denied, "another page may sign no browser out"))
		return
	}
	for _, pass := range passes {
		found, err := s.config.SignIns.Find(r.Context(), pass, ownOrigin(from))
		if err == nil {
			if p, err := s.bearerOf(r.Context(), found); err == nil {
				from.who = p.Name
				s.config.SignedIn(r.Context(), SignedIn{Who: p, Out: true})
			}
		}
		if err := s.config.SignIns.End(r.Context(), pass); err != nil {
			s.fail(w, r, rt, err)
			return
		}
	}
	setCookie(w, from, "", time.Time{})
	writeJSON(w, r, http.StatusOK, map[string]bool{"signed_out": true})
}

// setCookie gives a browser its cookie; an empty one takes it away.
func setCookie(w http.ResponseWriter, from *sender, value string, expires time.Time) {
	name, secure := cookieName(from)
	c := &http.Cookie{Name: name, Value: value, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode, Expires: expires}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}
