// Package oauth gets access tokens for other MCP servers, as a client without a
// browser: a login is started here, a person finishes it elsewhere, and what comes of
// it is kept and refreshed on the host. Discovery, registration, PKCE and the checks
// of issuer and state are the MCP SDK's; what it asks over the network goes through
// the transport that it is given here, bounded.
package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"paddock/internal/fault"
)

// Store keeps what must survive: tokens and what they are refreshed with. It is to
// encrypt what it writes.
type Store interface {
	// Load gives what was saved; nil: nothing.
	Load(ctx context.Context, key string) ([]byte, error)
	// Save keeps data; nil removes it.
	Save(ctx context.Context, key string, data []byte) error
}

// Config is a client of one server for one identity.
type Config struct {
	// Server is its name, for messages; URL its endpoint, which tokens are asked for.
	Server, URL string
	// Transport sends all requests; it decides which addresses may be reached. It must
	// not be nil.
	Transport http.RoundTripper
	// Store keeps tokens under Key; nil: they are lost with the process.
	Store Store
	Key   string
	// ClientID and ClientSecret are credentials that the issuer has given out before;
	// empty: the client names MetadataURL, or registers itself.
	ClientID, ClientSecret string
	// Issuer is who gave them out: to another one they are not shown. Empty: whoever
	// the server names.
	Issuer string
	// MetadataURL is where a document describes this client; empty: there is none.
	MetadataURL string
	// Machine: the client acts for itself, with its credentials alone (client
	// credentials); nobody is asked to log in.
	Machine bool
	// Scopes are what a machine asks for where the server's challenge names none; empty:
	// what its metadata lists. Who logs in gives them to Start.
	Scopes []string
	// Redirect is where a person's browser is sent at the end of a login, such as
	// http://127.0.0.1:8976/callback. Nobody has to listen there.
	Redirect string
}

const (
	// loginTime is how long a person has for a login: what issuers give a code, and a coffee.
	loginTime = 10 * time.Minute
	// askTime bounds one request to an issuer, and answerSize its answer, in bytes.
	askTime    = 30 * time.Second
	answerSize = 1 << 20
)

// Client has a server's tokens. It is a token source of package upstream, and may be
// used by any number of goroutines.
type Client struct {
	config Config
	http   *http.Client
	turn   chan struct{} // holds one token while tokens are got or refreshed

	mu      sync.Mutex // guards what follows
	pending *login
	kept    *grant // what is known of the store's content; nil: it was not looked at
}

// grant is what is kept.
type grant struct {
	URL          string           `json:"url"` // the server that it is for
	ClientID     string           `json:"client_id"`
	ClientSecret string           `json:"client_secret,omitempty"`
	TokenURL     string           `json:"token_url"`
	Style        oauth2.AuthStyle `json:"style"`
	Scopes       []string         `json:"scopes,omitempty"`
	Access       string           `json:"access_token"`
	Refresh      string           `json:"refresh_token,omitempty"`
	Expiry       time.Time        `json:"expiry,omitzero"`
}

func (g *grant) valid() bool {
	return (&oauth2.Token{AccessToken: g.Access, Expiry: g.Expiry}).Valid()
}

// New makes a client. Close ends it.
func New(config Config) (*Client, error) {
	u, err := url.Parse(config.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, fault.New(fault.Invalid, "the server %q has no URL that tokens could be for", config.Server)
	case config.Transport == nil:
		return nil, fault.New(fault.Denied, "there is no network to log in to the server %q over", config.Server)
	case config.Machine && (config.ClientID == "" || config.ClientSecret == ""):
		return nil, fault.New(fault.Invalid, "the server %q is to be used with client credentials, and there are none", config.Server)
	}
	c := &Client{config: config, turn: make(chan struct{}, 1)}
	c.http = &http.Client{Transport: bounded{config.Transport}, Timeout: askTime, CheckRedirect: followOnlyReads}
	return c, nil
}

// Close ends a login that is under way, and waits.
func (c *Client) Close() error {
	c.mu.Lock()
	l := c.pending
	c.pending = nil
	c.mu.Unlock()
	if l != nil {
		l.end()
	}
	return nil
}

// Forget removes all tokens. It does not revoke them.
func (c *Client) Forget(ctx context.Context) error { return c.save(ctx, &grant{}) }

// Token gives the access token, refreshed if it has run out; "": there is none.
func (c *Client) Token(ctx context.Context) (string, error) {
	g, err := c.load(ctx, false)
	if err != nil || g.Access == "" || g.valid() {
		return g.Access, err
	}
	return c.renew(ctx, g.Access, nil)
}

// Refresh gives another token than the one that was refused; "": somebody has to log
// in. The challenge is the WWW-Authenticate of the refusal.
func (c *Client) Refresh(ctx context.Context, refused string, challenge []string) (string, error) {
	return c.renew(ctx, refused, challenge)
}

// renew gets another token, once for all who ask at a time, and looks first whether
// another process has.
func (c *Client) renew(ctx context.Context, refused string, challenge []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTime)
	defer cancel()
	challenge = brief(challenge)
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	g, err := c.load(ctx, true)
	if err != nil {
		return "", err
	}
	if g.Access != refused && g.valid() {
		return g.Access, nil
	}
	if c.config.Machine {
		return c.asMachine(ctx, challenge)
	}
	if g.Refresh == "" || lacksScope(challenge) {
		return "", nil
	}
	return c.refresh(ctx, g)
}

// lacksScope tells whether a better token is wanted, which a refresh does not give.
func lacksScope(challenge []string) bool {
	all, err := parseChallenge(challenge)
	return err == nil && slices.ContainsFunc(all, func(c oauthex.Challenge) bool { return c.Params["error"] == "insufficient_scope" })
}

func (c *Client) refresh(ctx context.Context, g *grant) (string, error) {
	config := oauth2.Config{ClientID: g.ClientID, ClientSecret: g.ClientSecret, Endpoint: oauth2.Endpoint{TokenURL: g.TokenURL, AuthStyle: g.Style}}
	old := &oauth2.Token{RefreshToken: g.Refresh, Expiry: time.Unix(1, 0)}
	ctx, denied := observed(ctx)
	fresh, err := config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, c.http), old).Token()
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.ErrorCode == "invalid_grant" {
		g := *g
		g.Access, g.Refresh, g.Expiry = "", "", time.Time{}
		return "", c.save(ctx, &g) // its scopes are asked for again
	}
	if err != nil {
		return "", c.trouble("refreshing the token", err, denied)
	}
	next := *g
	next.Access, next.Expiry = fresh.AccessToken, fresh.Expiry
	if fresh.RefreshToken != "" {
		next.Refresh = fresh.RefreshToken
	}
	return next.Access, c.save(ctx, &next)
}

// load gives what is kept, never nil. What is for another URL is not given.
func (c *Client) load(ctx context.Context, again bool) (*grant, error) {
	c.mu.Lock()
	kept := c.kept
	c.mu.Unlock()
	if kept != nil && (!again || c.config.Store == nil) {
		return kept, nil
	}
	g := &grant{}
	if c.config.Store != nil {
		data, err := c.config.Store.Load(ctx, c.config.Key)
		if err != nil {
			return &grant{}, fmt.Errorf("reading the tokens of the server %q: %w", c.config.Server, err)
		}
		if data != nil && json.Unmarshal(data, g) != nil || g.URL != c.config.URL || c.foreign(g) {
			g = &grant{}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = g
	return g, nil
}

// foreign: it was got with other credentials than those that are configured now.
func (c *Client) foreign(g *grant) bool {
	return c.config.ClientID != "" && g.ClientID != c.config.ClientID
}

func (c *Client) save(ctx context.Context, g *grant) error {
	var data []byte
	if g.URL != "" {
		var err error
		if data, err = json.Marshal(g); err != nil {
			return err
		}
	}
	if err := g.check(c.config.Server, len(data)); err != nil {
		return err
	}
	c.mu.Lock()
	c.kept = g
	c.mu.Unlock()
	if c.config.Store == nil {
		return nil
	}
	if err := c.config.Store.Save(context.WithoutCancel(ctx), c.config.Key, data); err != nil {
		return fmt.Errorf("keeping the tokens of the server %q: %w", c.config.Server, err)
	}
	return nil
}

// keep is called by the SDK once a code was exchanged.
func (c *Client) keep(ctx context.Context, config *oauth2.Config, token *oauth2.Token) error {
	scopes := config.Scopes
	if granted, ok := token.Extra("scope").(string); ok && granted != "" {
		scopes = strings.Fields(granted)
	}
	return c.save(ctx, &grant{
		URL: c.config.URL, ClientID: config.ClientID, ClientSecret: config.ClientSecret,
		TokenURL: config.Endpoint.TokenURL, Style: config.Endpoint.AuthStyle, Scopes: scopes,
		Access: token.AccessToken, Refresh: token.RefreshToken, Expiry: token.Expiry,
	})
}

// trouble makes a fault of the SDK's error. An issuer's answers are not in it: who
// knows what they repeat.
func (c *Client) trouble(doing string, err error, denied *denial) error {
	if refused := denied.seen(); refused != nil {
		return fmt.Errorf("%s of the server %q: %w", doing, c.config.Server, refused)
	}
	var own *fault.Error
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &own):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s of the server %q: %w", doing, c.config.Server, err)
	case errors.As(err, &refused):
		status := 0
		if refused.Response != nil {
			status = refused.Response.StatusCode
		}
		return fault.New(fault.Denied, "%s of the server %q: the issuer refuses it (%d %.60q)", doing, c.config.Server, status, refused.ErrorCode).
			WithHint("%s", c.remedy())
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fault.New(fault.Unavailable, "%s of the server %q did not work", doing, c.config.Server).
		WithHint("check that its issuer answers, and that it is the one of oauth.issuer where that is set").WithCause(err)
}

// remedy is what to do where the issuer refuses.
func (c *Client) remedy() string {
	switch {
	case c.config.Machine:
		return "check oauth.client_id, oauth.client_secret and oauth.scopes"
	case c.config.ClientID != "":
		return "log in again: paddock server login " + c.config.Server + "; check oauth.client_id and oauth.client_secret"
	}
	return "log in again: paddock server login " + c.config.Server
}
