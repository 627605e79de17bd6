package oauth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"paddock/internal/fault"
	"paddock/internal/localhost"
)

// Challenge is what a server said when it refused: what upstream.NeedsAuthorization
// holds of it.
type Challenge struct {
	ResourceMetadata string
	Scope            string
	Code             string
}

// header is the challenge as the SDK reads it.
func (c Challenge) header() http.Header {
	var all []string
	for name, value := range map[string]string{"resource_metadata": c.ResourceMetadata, "scope": c.Scope, "error": c.Code} {
		if len(value) > maxChallenge/4 {
			continue
		}
		if value != "" && !strings.ContainsAny(value, "\"\\\r\n") {
			all = append(all, name+`="`+value+`"`)
		}
	}
	slices.Sort(all)
	return http.Header{"Www-Authenticate": {strings.TrimSpace("Bearer " + strings.Join(all, ", "))}}
}

// Login is a login that waits for a person.
type Login struct {
	// URL is to be opened in a browser.
	URL string
	// Until is when it is too late.
	Until time.Time
}

// login is one that is under way. Its goroutine ends with it.
type login struct {
	until  time.Time
	cancel context.CancelFunc
	url    chan string
	code   chan *auth.AuthorizationResult
	denied *denial
	done   chan struct{} // closed when err is set
	err    error
}

func (l *login) end() {
	l.cancel()
	<-l.done
}

// Start begins a login: it asks the server whom it trusts, makes this client known
// there, and gives the URL that a person has to open. One that was under way ends.
// What was granted before is asked for again, with what the challenge wants.
func (c *Client) Start(ctx context.Context, challenge Challenge) (Login, error) {
	if c.config.Machine {
		return Login{}, fault.New(fault.Invalid, "the server %q needs no login: it uses client credentials", c.config.Server)
	}
	g, err := c.load(ctx, true)
	if err != nil {
		return Login{}, err
	}
	l := &login{until: time.Now().Add(loginTime), url: make(chan string, 1), code: make(chan *auth.AuthorizationResult), done: make(chan struct{})}
	handler, err := c.handler(l, g.Scopes)
	if err != nil {
		return Login{}, fault.New(fault.Invalid, "a login to the server %q is not well configured", c.config.Server).WithCause(err)
	}
	life, cancel := context.WithDeadline(context.WithoutCancel(ctx), l.until)
	life, l.denied = observed(life)
	l.cancel = cancel
	c.mu.Lock()
	before := c.pending
	c.pending = l
	c.mu.Unlock()
	if before != nil {
		before.end()
	}
	go func() {
		defer close(l.done)
		defer cancel()
		l.err = handler.Authorize(life, c.request(life), refusal(challenge.header()))
	}()
	select {
	case address := <-l.url:
		if err := checkAddress(address); err != nil {
			l.end()
			return Login{}, err
		}
		return Login{URL: address, Until: l.until}, nil
	case <-l.done:
		return Login{}, c.trouble("a login to an issuer", l.err, l.denied)
	case <-ctx.Done():
		l.end()
		return Login{}, ctx.Err()
	}
}

// handler is the SDK's, with a person in the middle.
func (c *Client) handler(l *login, granted []string) (*auth.AuthorizationCodeHandler, error) {
	config := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL:         c.config.Redirect,
		RequestRefreshToken: true,
		Client:              c.http,
		AuthorizationCodeFetcher: func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			l.url <- args.URL
			select {
			case result := <-l.code:
				return result, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		ScopeFilter: func(discovered []string) []string { return union(granted, discovered) },
		NewTokenSource: func(ctx context.Context, config *oauth2.Config, token *oauth2.Token) (oauth2.TokenSource, error) {
			return oauth2.StaticTokenSource(token), c.keep(ctx, config, token)
		},
	}
	switch {
	case c.config.ClientID != "":
		config.PreregisteredClient = c.credentials()
	default:
		if c.config.MetadataURL != "" {
			config.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: c.config.MetadataURL}
		}
		config.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName:   "paddock",
			RedirectURIs: []string{c.config.Redirect},
			GrantTypes:   []string{"authorization_code", "refresh_token"},
		}}
	}
	return auth.NewAuthorizationCodeHandler(config)
}

func (c *Client) credentials() *oauthex.ClientCredentials {
	credentials := &oauthex.ClientCredentials{ClientID: c.config.ClientID, Issuer: c.config.Issuer}
	if c.config.ClientSecret != "" {
		credentials.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: c.config.ClientSecret}
	}
	return credentials
}

// request is the request that was refused, as far as the SDK wants to know it.
func (c *Client) request(ctx context.Context) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.URL, nil)
	if err != nil {
		panic(err) // New has read the URL
	}
	return r
}

func refusal(header http.Header) *http.Response {
	return &http.Response{StatusCode: http.StatusUnauthorized, Header: header, Body: io.NopCloser(strings.NewReader(""))}
}

// checkAddress keeps a person from opening what is not a page of an issuer's, and their
// terminal from what it would obey.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err == nil && len(address) <= maxAddress && plain(address) && (u.Scheme == "https" || u.Scheme == "http" && localhost.Is(u.Hostname())) && u.User == nil {
		return nil
	}
	return fault.New(fault.Denied, "the issuer wants a login at an address that is not safe to open")
}

// Finish ends a login with the URL that the browser was sent to, which holds a code.
// It checks that it is this login's, and its issuer's, and keeps the tokens.
func (c *Client) Finish(ctx context.Context, redirected string) error {
	u, err := url.Parse(strings.TrimSpace(redirected))
	if err != nil {
		return fault.New(fault.Invalid, "that is not the address that the browser was sent to")
	}
	c.mu.Lock()
	l := c.pending
	c.pending = nil
	c.mu.Unlock()
	if l == nil {
		return fault.New(fault.Conflict, "no login to the server %q is under way", c.config.Server).WithHint("start one; it has to be finished within %v, and by the same process", loginTime)
	}
	q := u.Query()
	if code := q.Get("error"); code != "" || q.Get("code") == "" {
		l.end()
		return fault.New(fault.Denied, "the issuer did not grant the login (%.60q)", code)
	}
	select {
	case l.code <- &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}:
	case <-l.done:
	case <-ctx.Done():
		l.end()
		return ctx.Err()
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		l.end()
	}
	if l.err != nil {
		return c.trouble("the end of a login", l.err, l.denied)
	}
	return nil
}

// asMachine gets a token with the client's credentials.
func (c *Client) asMachine(ctx context.Context, challenge []string) (string, error) {
	handler, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{Credentials: c.credentials(), HTTPClient: c.http})
	if err != nil {
		return "", fault.New(fault.Invalid, "the client credentials for the server %q are not well configured", c.config.Server).WithCause(err)
	}
	ctx, denied := observed(ctx)
	if err := handler.Authorize(ctx, c.request(ctx), refusal(c.withScopes(challenge))); err != nil {
		return "", c.trouble("getting a token", err, denied)
	}
	source, err := handler.TokenSource(ctx)
	if err != nil || source == nil {
		return "", c.trouble("getting a token", err, denied)
	}
	token, err := source.Token() // Authorize has asked for it
	if err != nil {
		return "", c.trouble("getting a token", err, denied)
	}
	return token.AccessToken, c.save(ctx, &grant{URL: c.config.URL, ClientID: c.config.ClientID, Access: token.AccessToken, Expiry: token.Expiry})
}

// withScopes gives a server's challenge with the scopes of the configuration, where it
// has none itself.
func (c *Client) withScopes(challenge []string) http.Header {
	all, err := parseChallenge(challenge)
	if err != nil || len(c.config.Scopes) == 0 {
		return http.Header{"Www-Authenticate": challenge}
	}
	own := Challenge{Scope: strings.Join(c.config.Scopes, " ")}
	for _, one := range all {
		if one.Scheme != "bearer" {
			continue
		}
		if one.Params["scope"] != "" {
			return http.Header{"Www-Authenticate": challenge}
		}
		own.ResourceMetadata, own.Code = one.Params["resource_metadata"], one.Params["error"]
	}
	return own.header()
}

// bounded caps what is read of an answer.
type bounded struct{ base http.RoundTripper }

// RoundTrip sends a request.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(r)
	if err != nil {
		if d, ok := r.Context().Value(denialKey{}).(*denial); ok {
			d.see(err)
		}
		return nil, err
	}
	resp.Body = cut{io.LimitReader(resp.Body, answerSize), resp.Body}
	return resp, nil
}

// denial is the first fault of the transport's in a flow, which the SDK's errors do
// not carry: it says which host is not allowed.
type denial struct {
	mu  sync.Mutex // guards what follows
	err *fault.Error
}

type denialKey struct{}

func observed(ctx context.Context) (context.Context, *denial) {
	d := &denial{}
	return context.WithValue(ctx, denialKey{}, d), d
}

func (d *denial) see(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var own *fault.Error
	if d.err == nil && errors.As(err, &own) {
		d.err = own
	}
}

func (d *denial) seen() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return nil
	}
	return d.err
}

type cut struct {
	io.Reader
	io.Closer
}

// followOnlyReads follows redirects of reads, some of them: what was posted, such as a
// code or a secret, is posted nowhere else.
func followOnlyReads(r *http.Request, via []*http.Request) error {
	if via[0].Method != http.MethodGet || len(via) > 3 {
		return http.ErrUseLastResponse
	}
	return nil
}
