package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"paddock/internal/fault"
	"paddock/internal/iolimit"
)

// TokenSource gives the bearer tokens for one server. It is called for each request
// and from many goroutines, so it keeps what it has.
type TokenSource interface {
	// Token gives the token to send; "": none.
	Token(ctx context.Context) (string, error)
	// Refresh is called when the server has refused a token, which was "" where none
	// was sent; the challenge is the answer's WWW-Authenticate. It gives another one, or
	// "" where there is none: then the call ends with [NeedsAuthorization]. An error
	// ends it with that.
	Refresh(ctx context.Context, refused string, challenge []string) (string, error)
}

const (
	// mostRedirects is how often a server may say that its endpoint lies elsewhere on
	// its own origin; one missing slash is what is seen.
	mostRedirects = 3
	// errorBody is how much is read of an answer that is an error, in bytes.
	errorBody = 64 << 10
)

// endpoint sends requests to one origin and to no other.
type endpoint struct {
	server Server
	url    *url.URL
	client *http.Client
}

// newEndpoint is for a checked server.
func newEndpoint(s Server, base http.RoundTripper, tokens TokenSource) (*endpoint, error) {
	if base == nil {
		return nil, fault.New(fault.Denied, "the server %q is reached over the network, and there is none", s.Name)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	e := &endpoint{server: s, url: u}
	e.client = &http.Client{
		Transport:     &guarded{base: base, origin: origin(u), headers: s.Headers, tokens: tokens},
		CheckRedirect: e.checkRedirect,
	}
	return e, nil
}

// checkRedirect follows what keeps method, body and origin; what leads elsewhere may
// be the server's mistake or somebody's trap, and the headers are not for it.
func (e *endpoint) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case origin(r.URL) != origin(e.url):
		p := newProblem(Unreachable, false, nil, "it wants to be looked for at %s", origin(r.URL))
		p.hint = "if that is right, put its new URL into the configuration"
		return p
	case r.Method != via[0].Method:
		return newProblem(Unreachable, false, nil, "it answers with a redirect that no request can follow")
	case len(via) > mostRedirects:
		return newProblem(Unreachable, false, nil, "it redirects in circles")
	}
	return nil
}

// guarded adds a server's headers and token to requests for its own origin, and
// sends no others.
type guarded struct {
	base    http.RoundTripper
	origin  string
	headers map[string]string
	tokens  TokenSource
}

// RoundTrip sends a request, and once more if the token was refused and there is
// another one.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if origin(r.URL) != g.origin {
		return nil, fault.New(fault.Denied, "requests for %s go nowhere else", g.origin)
	}
	var token string
	if g.tokens != nil {
		var err error
		if token, err = g.tokens.Token(r.Context()); err != nil {
			return nil, err
		}
	}
	resp, err := g.send(r, r.Body, token)
	if err != nil || g.tokens == nil || !wantsToken(resp) || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	better, err := g.tokens.Refresh(r.Context(), token, resp.Header.Values("Www-Authenticate"))
	if err != nil || better == "" || better == token {
		if err != nil {
			_ = resp.Body.Close()
			return nil, err
		}
		return resp, nil
	}
	var body io.ReadCloser
	if r.GetBody != nil {
		if body, err = r.GetBody(); err != nil {
			return resp, nil
		}
	}
	_ = resp.Body.Close()
	return g.send(r, body, better)
}

// logIn is what to do where a token is missing.
const logIn = "the operator logs in with paddock server login NAME, or gives the server a header with a token"

// wantsToken tells whether an answer is about the token.
func wantsToken(resp *http.Response) bool {
	return resp.StatusCode == http.StatusUnauthorized ||
		resp.StatusCode == http.StatusForbidden && strings.Contains(resp.Header.Get("Www-Authenticate"), "insufficient_scope")
}

func (g *guarded) send(r *http.Request, body io.ReadCloser, token string) (*http.Response, error) {
	c := r.Clone(r.Context())
	c.Body = body
	for name, value := range g.headers {
		c.Header.Set(name, value)
	}
	if token != "" {
		c.Header.Set("Authorization", "Bearer "+token)
	}
	return g.base.RoundTrip(c)
}

// sight is how far a request has come.
type sight struct{ began, wrote atomic.Bool }

// watch has ctx tell s.
func (s *sight) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			s.began.Store(true)
			s.wrote.Store(false) // what came before was refused, or never written: else it is not tried again
		},
		WroteHeaders: func() { s.wrote.Store(true) },
	})
}

// sent tells whether the server may have seen the request, which ended with err. A
// transport that says nothing about itself may have done anything.
func (s *sight) sent(err error) bool {
	var refused *fault.Error
	if s.began.Load() || errors.As(err, &refused) {
		return s.wrote.Load()
	}
	return err == nil || s.wrote.Load() || !knownUnsent(err)
}

func knownUnsent(err error) bool {
	var p *problem
	return errors.As(err, &p) && !p.sent
}

// do sends a request and gives an answer whose status is one of 200 to 299. An error
// is a problem.
func (e *endpoint) do(ctx context.Context, method string, u *url.URL, header http.Header, body []byte) (*http.Response, error) {
	var s sight
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(s.watch(ctx), method, u.String(), content)
	if err != nil {
		return nil, newProblem(Misused, false, err, "the request cannot be made")
	}
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := e.client.Do(r)
	if err != nil {
		err = bare(err)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, e.unsent(err, s.sent(err))
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, e.refusal(resp)
}

func (e *endpoint) unsent(err error, sent bool) error {
	var needs *NeedsAuthorization
	if errors.As(err, &needs) {
		p := &problem{reason: Unauthorized, answered: true, hint: logIn, cause: err}
		return p.say("%s", needs.Error())
	}
	p := *asProblem(err, sent)
	p.sent = sent
	return &p
}

// bare takes the URL out of an error: it may hold a key.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refusal is what an answer with another status means.
func (e *endpoint) refusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, errorBody))
	status := resp.StatusCode
	p := &problem{reason: Refused, sent: true, answered: true, cause: &statusError{status}}
	p.say("it answered with %s", saying(resp.Status, 100-len("it answered with ")))
	if m, err := decode(body); err == nil && m.Error != nil {
		_, said := m.outcome()
		p = asProblem(said, true)
		p.cause = &statusError{status}
	}
	needs := e.challenge(resp)
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden && needs.Code == "insufficient_scope":
		p.reason, p.sent, p.cause, p.hint = Unauthorized, false, needs, logIn
		p.say("it wants a token")
		if status == http.StatusForbidden {
			p.say("it wants a token with more rights")
		}
	case (status == http.StatusNotFound || status == http.StatusMethodNotAllowed) && p.code == 0:
		p.hint = "check the URL and its path: many servers answer at /mcp, or at /sse"
	case status == http.StatusTooManyRequests:
		p.reason, p.sent = Unreachable, false
		p.say("it says that there were too many requests")
		p.after = retryAfter(resp.Header.Get("Retry-After"))
	case status >= 500 && p.code == 0:
		p.reason, p.answered = Unreachable, false
		p.after = retryAfter(resp.Header.Get("Retry-After"))
	}
	return p
}

// statusError is an answer's status.
type statusError struct{ status int }

// Error is the status in words.
func (e *statusError) Error() string { return strconv.Itoa(e.status) + " " + http.StatusText(e.status) }

// statusOf gives the status that err is about; 0: none.
func statusOf(err error) int {
	var s *statusError
	if errors.As(err, &s) {
		return s.status
	}
	return 0
}

func (e *endpoint) challenge(resp *http.Response) *NeedsAuthorization {
	needs := &NeedsAuthorization{Server: e.server.Name, URL: e.server.URL, Status: resp.StatusCode}
	all, err := parseChallenge(resp.Header.Values("Www-Authenticate"))
	if err != nil {
		return needs
	}
	for _, c := range all {
		if c.Scheme == "bearer" {
			needs.ResourceMetadata, needs.Scope, needs.Code = c.Params["resource_metadata"], c.Params["scope"], c.Params["error"]
			break
		}
	}
	return needs
}

// maxChallenge bounds a WWW-Authenticate in bytes: to read one takes time that grows with
// the square of its size.
const maxChallenge = 8 << 10

// parseChallenge reads one. Of one that is too long nothing is read.
func parseChallenge(lines []string) ([]oauthex.Challenge, error) {
	if len(strings.Join(lines, ",")) > maxChallenge {
		return nil, nil
	}
	return oauthex.ParseWWWAuthenticate(lines)
}

// longestWait is the longest that a server is believed when it says to come back later.
const longestWait = time.Hour

func retryAfter(text string) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, longestWait)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longestWait)
	}
	return 0
}

// kindOf is a body's media type.
func kindOf(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// readMessage reads a whole body as one message.
func readMessage(ctx context.Context, resp *http.Response, limit int) (message, error) {
	data, err := iolimit.ReadAll(weighed(ctx, resp.Body, limit), int64(limit), newProblem(TooLarge, true, nil, "it sent a message of more than %d bytes", limit))
	var p *problem
	switch {
	case errors.As(err, &p):
		return message{}, err
	case ctx.Err() != nil:
		return message{}, asProblem(ctx.Err(), true)
	case err != nil:
		return message{}, newProblem(Closed, true, err, "its answer broke off")
	}
	m, err := decode(data)
	if err != nil {
		return message{}, newProblem(Malformed, true, err, "it sent what is not a message of the protocol")
	}
	return m, nil
}

// discard gives a connection back, if little is left to be read.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}
