package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// authenticate finds out whose request it is; nil: it needs to be nobody's. A
// refusal's challenge is in the header then.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, rt route, from *sender) (*auth.Principal, error) {
	switch {
	case rt.open, rt.upload && s.config.Signed != nil && s.config.Signed(r):
		return nil, nil
	case s.config.Dev:
		return s.unasked(r, rt, from), nil
	}
	if rt.e2b && s.config.E2BOwnToken(r) {
		return nil, nil
	}
	if passes := s.passes(r, rt, from); len(passes) > 0 {
		p, err := s.browser(r, from, passes)
		if err != nil {
			s.failed(r.Context(), from, err)
			return nil, s.challenge(w, r, err)
		}
		return p, nil
	}
	token, err := auth.BearerToken(r.Header)
	if key := r.Header.Get("X-Api-Key"); rt.e2b && key != "" {
		token, err = key, nil
	}
	if err == nil {
		var p *auth.Principal
		if p, err = s.config.Verifier.Verify(r.Context(), token); err == nil {
			from.token = token
			return p, nil
		}
	}
	full := s.failures.refuse(from.client, time.Now())
	s.failed(r.Context(), from, err)
	if full != nil && fault.KindOf(err) == fault.Denied {
		return nil, full
	}
	return nil, s.challenge(w, r, err)
}

// unasked is whose request it is where no token is asked for: this machine's user's, or a
// signed-in browser's. Who decides about calls does that with a token that may, where the
// request has one.
func (s *Server) unasked(r *http.Request, rt route, from *sender) *auth.Principal {
	if passes := s.passes(r, rt, from); len(passes) > 0 {
		if p, err := s.browser(r, from, passes); err == nil {
			return p
		}
	}
	if token, err := auth.BearerToken(r.Header); err == nil && s.config.Verifier != nil && (r.URL.Path == approvalsPath || strings.HasPrefix(r.URL.Path, approvalsPath+"/")) {
		if p, err := s.config.Verifier.Verify(r.Context(), token); err == nil {
			from.token = token
			return p
		}
	}
	return &auth.Principal{ID: auth.Local, Name: auth.Local}
}

// recheckEvery is how often it is asked whether the token of a call or a stream
// that is under way is still good.
const recheckEvery = 10 * time.Second

// recheck cancels a request of p when its token is refused while it is under
// way. That nobody can tell now ends nothing, and a call whose token expires
// goes on till its answer.
func (s *Server) recheck(ctx context.Context, from *sender, p *auth.Principal, cancel context.CancelCauseFunc) (stop func() bool) {
	check := func() {
		s.checks.enter()
		defer s.checks.leave()
		tick := time.NewTicker(recheckEvery)
		defer tick.Stop()
		for ctx.Err() == nil && (p.Expires.IsZero() || time.Now().Before(p.Expires)) {
			if _, err := s.config.Verifier.Verify(ctx, from.token); ctx.Err() == nil && fault.KindOf(err) == fault.Denied {
				cancel(errRevoked)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}
	return time.AfterFunc(recheckEvery, check).Stop // most are answered by then
}

// challenge puts what a client can do about err into the header.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, err error) refusal {
	status, challenge := auth.Challenge(err, s.metadataURL(r), s.config.Scopes...)
	if challenge != "" {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	return refusal{fault.Of(err), status}
}

// Refuse answers in place of a handler: what is asked for is beyond the token.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	answer(w, r, s.route(r.URL.Path), s.challenge(w, r, err))
}

// carriesToken reports whether somebody put a token into a URL.
func carriesToken(r *http.Request) bool {
	if r.URL.RawQuery == "" {
		return false
	}
	query, _ := url.ParseQuery(r.URL.RawQuery)
	for name := range query {
		switch strings.ToLower(name) {
		case "access_token", "auth_token", "token", "bearer", "authorization", "api_key", "apikey":
			return true
		}
	}
	return false
}

// metadataURL is where a client finds the OAuth issuers; empty: there is nothing.
func (s *Server) metadataURL(r *http.Request) string {
	if s.config.Metadata == nil {
		return ""
	}
	return BaseURL(r.Context()) + wellKnown + s.config.Path
}
