package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// Scope is the OAuth scope of everything; with a colon and a tool set behind it
// it is that of the set: paddock:files.
const Scope = "paddock"

// ScopeOf is the scope that gives one tool set.
func ScopeOf(set string) string { return Scope + ":" + set }

// OfIssuer begins the ID of every principal that an issuer vouches for.
const OfIssuer = "oauth:"

// leeway is how far the issuer's clock may be from ours.
const leeway = 30 * time.Second

// algorithms are those of the signatures that are accepted: only asymmetric
// ones, since a public key must never do as a shared secret.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// OAuthConfig says whose access tokens are accepted.
type OAuthConfig struct {
	// Issuer is the authorization server's identifier, an https URL that is
	// compared exactly with a token's iss.
	Issuer string
	// AllowHTTP has an issuer do without TLS, on a loopback address only.
	AllowHTTP bool
	// Audience is what a token's aud has to contain, and the resource that
	// [Metadata] names: this server's public URL.
	Audience string
	// Required are the scopes that every token needs; they let in to all tool
	// sets, unless the token names scopes of ours. None: a token needs one of ours.
	Required []string
	// Sets are the tool sets that there are.
	Sets []string
	// Log hears when the issuer's keys cannot be had; nil: nobody.
	Log *slog.Logger
}

// OAuth verifies the JWT access tokens of one external issuer, as an OAuth 2.1
// resource server does (RFC 9068). It is safe for concurrent use, and there is
// nothing to close.
//
// The issuer is first asked at the first token. While its keys cannot be had,
// tokens are a fault.Unavailable that says when to try again.
type OAuth struct {
	config OAuthConfig
	keys   *keyring
}

var _ Verifier = (*OAuth)(nil)

// NewOAuth asks nobody for anything. Its error joins every mistake in c.
func NewOAuth(c OAuthConfig) (*OAuth, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Required, c.Sets = slices.Clone(c.Required), slices.Clone(c.Sets)
	var mistakes []error
	if err := CheckIssuer(c.Issuer, c.AllowHTTP); err != nil {
		mistakes = append(mistakes, err)
	}
	if c.Audience == "" {
		mistakes = append(mistakes, fault.New(fault.Invalid, "access tokens need an audience").WithHint("set auth.audience or transport_http.public_url: it is this server's public URL"))
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	return &OAuth{config: c, keys: newKeyring(c.Issuer, c.AllowHTTP, c.Log)}, nil
}

// Metadata is where clients learn how to get a token for this server.
func (o *OAuth) Metadata() Metadata {
	scopes := append(slices.Clone(o.config.Required), Scope)
	for _, set := range o.config.Sets {
		scopes = append(scopes, Scope+":"+set)
	}
	slices.Sort(scopes)
	return Metadata{
		Resource: o.config.Audience, AuthorizationServers: []string{o.config.Issuer},
		ScopesSupported: slices.Compact(scopes), BearerMethodsSupported: []string{"header"},
	}
}

// Scopes are what a client without a token should ask for.
func (o *OAuth) Scopes() []string {
	if len(o.config.Required) > 0 {
		return slices.Clone(o.config.Required)
	}
	return []string{Scope}
}

// Verify implements [Verifier].
func (o *OAuth) Verify(ctx context.Context, text string) (*Principal, error) {
	if isText(text) || strings.Count(text, ".") != 2 {
		return nil, foreign()
	}
	if len(text) > maxToken {
		return nil, invalid("the token is too long")
	}
	token, err := jwt.ParseSigned(text, algorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, invalid("the token is not a JWT that is signed with an asymmetric algorithm")
	}
	header := token.Headers[0]
	if !mayBeAccessToken(header) {
		return nil, invalid("the token is not an access token")
	}
	keys, err := o.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, err
	}
	var c claims
	if !verified(token, keys, &c) {
		return nil, invalid("the token is not signed by the issuer, or says what cannot be read")
	}
	if err := o.check(c, header); err != nil {
		return nil, err
	}
	tools, err := o.tools(c.scopes())
	if err != nil {
		return nil, err
	}
	return &Principal{
		ID: OfIssuer + subjectDigest(c.Issuer, c.Subject), Name: c.name(), Tools: tools,
		Expires: c.Expiry.Time().Add(leeway),
	}, nil
}

// verified reads the claims if one of the keys made the signature.
func verified(token *jwt.JSONWebToken, keys []jose.JSONWebKey, c *claims) bool {
	for _, k := range keys {
		var own claims
		if token.Claims(k.Key, &own) == nil {
			*c = own
			return true
		}
	}
	return false
}

// typ gives the token's type as its header tells it, in lower case.
func typ(h jose.Header) string {
	t, _ := h.ExtraHeaders[jose.HeaderType].(string)
	return strings.TrimPrefix(strings.ToLower(t), "application/")
}

// mayBeAccessToken tells whether a header is one of an access token: those of
// other kinds name theirs, logout+jwt for one.
func mayBeAccessToken(h jose.Header) bool {
	_, there := h.ExtraHeaders[jose.HeaderType]
	return !there || slices.Contains([]string{"at+jwt", "jwt"}, typ(h))
}

// check decides about the claims of a token with a right signature.
func (o *OAuth) check(c claims, h jose.Header) error {
	if typ(h) != "at+jwt" && c.otherKind() {
		return invalid("the token is not an access token").WithHint("send the access token, not the ID token")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: o.config.Issuer, AnyAudience: jwt.Audience{o.config.Audience}, Time: o.keys.now()}, leeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return invalid("the token has expired")
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return invalid("the token is not valid yet")
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return invalid("the token is from another issuer")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return invalid("the token is for another server").WithHint("ask for one whose audience is %s", o.config.Audience)
	case err != nil:
		return invalid("the token's claims are not right")
	case c.Expiry == nil:
		return invalid("the token never expires")
	case c.Subject == "":
		return invalid("the token does not say whose it is")
	}
	return nil
}

// tools gives the tool sets of a token's scopes; nil: all.
func (o *OAuth) tools(scopes []string) ([]string, error) {
	for _, s := range o.config.Required {
		if !slices.Contains(scopes, s) {
			return nil, InsufficientScope(o.config.Required...)
		}
	}
	var tools []string
	ours := false
	for _, s := range scopes {
		if s == Scope {
			return nil, nil
		}
		set, isOurs := strings.CutPrefix(s, Scope+":")
		ours = ours || isOurs
		if slices.Contains(o.config.Sets, set) && isOurs && !slices.Contains(tools, set) {
			tools = append(tools, set)
		}
	}
	if tools == nil && (ours || len(o.config.Required) == 0) {
		return nil, InsufficientScope(Scope)
	}
	return tools, nil
}

// claims are what a token says.
type claims struct {
	jwt.Claims
	Scope    words  `json:"scope"`
	Scp      words  `json:"scp"`
	Username string `json:"preferred_username"`

	// What only tokens of other kinds have: ID tokens, and, by Keycloak's and
	// Cognito's own claims, whatever says so.
	Nonce    any `json:"nonce"`
	AtHash   any `json:"at_hash"`
	CHash    any `json:"c_hash"`
	Events   any `json:"events"`
	Kind     any `json:"typ"`
	TokenUse any `json:"token_use"`
}

// otherKind tells whether a token whose header leaves that open is something
// else than an access token.
func (c claims) otherKind() bool {
	return c.Nonce != nil || c.AtHash != nil || c.CHash != nil || c.Events != nil ||
		c.Kind != nil && c.Kind != "Bearer" || c.TokenUse != nil && c.TokenUse != "access"
}

func (c claims) scopes() []string { return slices.Concat(c.Scope, c.Scp) }

// name is what people call the token's subject: text for a line of a log.
func (c claims) name() string {
	name := c.Username
	if name == "" {
		name = c.Subject
	}
	name = textsafe.Mask(name)
	if long := []rune(name); len(long) > 100 {
		return string(long[:100])
	}
	return name
}

// words are scopes: in one text with spaces between them, or in a list.
type words []string

func (w *words) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*w = strings.Fields(text)
		return nil
	}
	var list []string
	if json.Unmarshal(data, &list) != nil {
		return errors.New("scopes are neither a text nor a list of texts")
	}
	*w = list
	return nil
}

// subjectDigest names a subject of an issuer: the same text for the same one,
// and no other for anybody else.
func subjectDigest(issuer, subject string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", issuer, subject))
	return hex.EncodeToString(sum[:16])
}
