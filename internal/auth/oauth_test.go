package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"paddock/internal/fault"
)

const audience = "https://here.test/mcp"

// testIssuer is an authorization server on loopback, with TLS, whose keys can
// be changed.
type testIssuer struct {
	*httptest.Server
	url   string
	asked atomic.Int32 // for its keys

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	answer http.HandlerFunc // nil: properly
}

// newTestIssuer starts an issuer whose identifier ends with path.
func newTestIssuer(t *testing.T, path string, keys ...jose.JSONWebKey) *testIssuer {
	t.Helper()
	i := &testIssuer{keys: keys}
	i.Server = httptest.NewTLSServer(i)
	i.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	i.url = i.URL + path
	t.Cleanup(i.Close)
	return i
}

func (i *testIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	answer, keys := i.answer, i.keys
	i.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r)
	case r.URL.Path == "/keys":
		i.asked.Add(1)
		set := jose.JSONWebKeySet{}
		for _, k := range keys {
			set.Keys = append(set.Keys, k.Public())
		}
		_ = json.NewEncoder(w).Encode(set)
	case "https://"+r.Host+r.URL.Path == i.url+"/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": i.URL + "/keys"})
	default:
		http.NotFound(w, r)
	}
}

func (i *testIssuer) set(answer http.HandlerFunc, keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer, i.keys = answer, keys
}

// verifier gives a verifier of the issuer's tokens, and what moves its clock.
func (i *testIssuer) verifier(t *testing.T, c OAuthConfig) (*OAuth, func(time.Duration)) {
	t.Helper()
	c.Issuer, c.Audience, c.Sets = i.url, audience, []string{"core", "files"}
	o, err := NewOAuth(c)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(i.Certificate())
	transport := o.keys.issuer.client.Transport.(*http.Transport)
	transport.TLSClientConfig = i.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	transport.TLSClientConfig.RootCAs = pool
	var passed atomic.Int64
	o.keys.now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	return o, func(d time.Duration) { passed.Add(int64(d)) }
}

func newKey(t *testing.T, id string, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	var key any
	var err error
	switch algorithm {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(algorithm), Use: "sig"}
}

// good are the claims of a token that is accepted.
func good(issuer string) map[string]any {
	now := time.Now().Unix()
	return map[string]any{
		"iss": issuer, "aud": []string{"https://other.test", audience}, "sub": "alice", "scope": "openid paddock:core paddock:files",
		"iat": now, "nbf": now, "exp": now + 600,
	}
}

// with gives claims with one changed; nil: without it.
func with(claims map[string]any, name string, value any) map[string]any {
	c := maps.Clone(claims)
	if c[name] = value; value == nil {
		delete(c, name)
	}
	return c
}

func sign(t *testing.T, k jose.JSONWebKey, typ string, claims any) string {
	t.Helper()
	options := &jose.SignerOptions{}
	if typ != "" {
		options = options.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(k.Algorithm), Key: k}, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAccessTokens(t *testing.T) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.PS512, jose.ES256, jose.ES384, jose.EdDSA} {
		t.Run(string(algorithm), func(t *testing.T) {
			k := newKey(t, "one", algorithm)
			i := newTestIssuer(t, "/realm", newKey(t, "zero", jose.ES256), k)
			o, _ := i.verifier(t, OAuthConfig{})
			claims := good(i.url)
			p, err := o.Verify(t.Context(), sign(t, k, "at+jwt", claims))
			if err != nil {
				t.Fatal(err)
			}
			want := &Principal{
				ID: "oauth:" + subjectDigest(i.url, "alice"), Name: "alice", Tools: []string{"core", "files"},
				Expires: time.Unix(claims["exp"].(int64), 0).Add(leeway),
			}
			if !reflect.DeepEqual(p, want) {
				t.Errorf("got %+v, want %+v", p, want)
			}
		})
	}
}

func TestSubjectsAreKeptApart(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range [][2]string{{"https://a", "bob"}, {"https://a", "eve"}, {"https://b", "bob"}, {"https://a b", "ob"}, {`https://a" "`, "bob"}} {
		seen[subjectDigest(s[0], s[1])] = true
	}
	if len(seen) != 5 {
		t.Errorf("of 5 subjects %d are different", len(seen))
	}
}

func TestScopesAndWhatTheyReach(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	for _, test := range []struct {
		name     string
		required []string
		claim    string
		value    any
		tools    []string
		missing  string // what the challenge asks for; empty: it is accepted
	}{
		{"everything", nil, "scope", "paddock paddock:core", nil, ""},
		{"one set", nil, "scope", "paddock:files", []string{"files"}, ""},
		{"one set, in a list", nil, "scp", []string{"x", "paddock:core"}, []string{"core"}, ""},
		{"one set, in another's text", nil, "scp", "paddock:core", []string{"core"}, ""},
		{"a set that there is not", nil, "scope", "paddock:everything", nil, "paddock"},
		{"none of ours", nil, "scope", "openid core files", nil, "paddock"},
		{"none at all", nil, "scope", nil, nil, "paddock"},
		{"a scope that begins like ours", nil, "scope", "paddocks paddock.core", nil, "paddock"},
		{"the required one", []string{"mcp"}, "scope", "mcp", nil, ""},
		{"the required one, and one of ours", []string{"mcp"}, "scope", "mcp paddock:core", []string{"core"}, ""},
		{"the required one, and an unknown one of ours", []string{"mcp"}, "scope", "mcp paddock:no", nil, "paddock"},
		{"one of two required ones", []string{"mcp", "use"}, "scope", "mcp", nil, "mcp use"},
		{"ours without the required one", []string{"mcp"}, "scope", "paddock", nil, "mcp"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, _ := i.verifier(t, OAuthConfig{Required: test.required})
			p, err := o.Verify(t.Context(), sign(t, k, "JWT", with(with(good(i.url), "scope", nil), test.claim, test.value)))
			if test.missing == "" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				} else if !reflect.DeepEqual(p.Tools, test.tools) {
					t.Errorf("p.Tools = %q, want %q", p.Tools, test.tools)
				}
				return
			}
			status, header := Challenge(err, "https://here.test/meta")
			switch {
			case status != 403:
				t.Errorf("status = %v, want 403: %s", status, header)
			case !strings.Contains(header, `error="insufficient_scope"`):
				t.Errorf("header = %q, want %q in it", header, `error="insufficient_scope"`)
			case !strings.Contains(header, `scope="`+test.missing+`"`):
				t.Errorf("header = %q, want %q in it", header, `scope="`+test.missing+`"`)
			}
		})
	}
}

// unsigned puts a token together by hand.
func unsigned(header string, claims any, signature []byte) string {
	payload, _ := json.Marshal(claims)
	e := base64.RawURLEncoding
	return e.EncodeToString([]byte(header)) + "." + e.EncodeToString(payload) + "." + e.EncodeToString(signature)
}

// A badToken is one that is refused with this message, or with any where it is empty.
type badToken struct{ name, token, message string }

const (
	unreadable = "the token is not a JWT"
	unsignedBy = "the token is not signed by the issuer"
	otherKind  = "the token is not an access token"
	keyless    = "the token's key is not one of the issuer's"
)

func TestBadAccessTokens(t *testing.T) {
	rsaKey, ecKey := newKey(t, "rsa", jose.RS256), newKey(t, "ec", jose.ES256)
	weak, forEncryption := newKey(t, "weak", jose.RS256), newKey(t, "enc", jose.RS256)
	weak.Key, _ = rsa.GenerateKey(rand.Reader, 1024)
	forEncryption.Use = "enc"
	i := newTestIssuer(t, "", rsaKey, ecKey, weak, forEncryption)
	o, _ := i.verifier(t, OAuthConfig{})
	c := good(i.url)
	right := sign(t, rsaKey, "at+jwt", c)
	if _, err := o.Verify(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	bad := slices.Concat(wrongClaims(t, i, rsaKey), wrongSignatures(t, c, right, rsaKey), wrongTexts(right), []badToken{
		{"a weak key", sign(t, weak, "at+jwt", c), keyless},
		{"a key for encryption", sign(t, forEncryption, "at+jwt", c), keyless},
	})
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			p, err := o.Verify(t.Context(), test.token)
			if p != nil {
				t.Fatalf("it was accepted, as %+v", p)
			}
			refused(t, err, codeInvalidToken, test.message, test.token)
			if status, _ := Challenge(err, ""); status != 401 {
				t.Errorf("the status is %d", status)
			}
		})
	}
}

// wrongClaims are signed by the issuer, but for another use, time or place.
func wrongClaims(t *testing.T, i *testIssuer, rsaKey jose.JSONWebKey) []badToken {
	t.Helper()
	c := good(i.url)
	now := time.Now().Unix()
	twice := fmt.Sprintf(`{"iss":%q,"aud":"https://other.test","aud":%q,"sub":"a","scope":"paddock","exp":%d}`, i.url, audience, now+60)
	return []badToken{
		{"for another server", sign(t, rsaKey, "", with(c, "aud", "https://other.test")), "the token is for another server"},
		{"for a server whose name begins like ours", sign(t, rsaKey, "", with(c, "aud", audience+"/x")), "the token is for another server"},
		{"for no server", sign(t, rsaKey, "", with(c, "aud", nil)), "the token is for another server"},
		{"from another issuer", sign(t, rsaKey, "", with(c, "iss", "https://issuer.test")), "the token is from another issuer"},
		{"from an issuer with a slash more", sign(t, rsaKey, "", with(c, "iss", i.url+"/")), "the token is from another issuer"},
		{"from no issuer", sign(t, rsaKey, "", with(c, "iss", nil)), "the token is from another issuer"},
		{"expired", sign(t, rsaKey, "", with(c, "exp", now-60)), "the token has expired"},
		{"without an end", sign(t, rsaKey, "", with(c, "exp", nil)), "the token never expires"},
		{"with an end that is not a time", sign(t, rsaKey, "", with(c, "exp", "soon")), unsignedBy},
		{"with an end beyond all time", sign(t, rsaKey, "", with(c, "exp", 1e300)), unsignedBy},
		{"not yet", sign(t, rsaKey, "", with(c, "nbf", now+600)), "the token is not valid yet"},
		{"issued in the future", sign(t, rsaKey, "", with(c, "iat", now+600)), "the token is not valid yet"},
		{"of no one", sign(t, rsaKey, "", with(c, "sub", nil)), "the token does not say whose it is"},
		{"an ID token with a nonce", sign(t, rsaKey, "JWT", with(c, "nonce", "n")), otherKind},
		{"an ID token with the digest of an access token", sign(t, rsaKey, "", with(c, "at_hash", "h")), otherKind},
		{"an ID token as Keycloak has it", sign(t, rsaKey, "JWT", with(c, "typ", "ID")), otherKind},
		{"a refresh token as Keycloak has it", sign(t, rsaKey, "JWT", with(c, "typ", "Refresh")), otherKind},
		{"an ID token as Cognito has it", sign(t, rsaKey, "", with(c, "token_use", "id")), otherKind},
		{"a logout token", sign(t, rsaKey, "logout+jwt", c), otherKind},
		{"a type that is not text", unsigned(`{"alg":"RS256","typ":5}`, c, []byte("x")), ""},
		{"one claim twice", unsigned(`{"alg":"RS256"}`, json.RawMessage(twice), []byte("x")), unsignedBy},
		{"scopes that are a number", sign(t, rsaKey, "", with(c, "scope", 5)), unsignedBy},
		{"claims that are a list", sign(t, rsaKey, "", []int{1}), unsignedBy},
		{"claims that nest deep", sign(t, rsaKey, "", json.RawMessage(strings.Repeat("[", 3000)+strings.Repeat("]", 3000))), unsignedBy},
	}
}

// wrongSignatures have good claims, which the issuer did not sign so.
func wrongSignatures(t *testing.T, c map[string]any, right string, rsaKey jose.JSONWebKey) []badToken {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public().Key.(crypto.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	secret := jose.JSONWebKey{Key: public, KeyID: "rsa", Algorithm: "HS256"}
	embedded := newKey(t, "own", jose.ES256)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: embedded.Key}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(c)
	own, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	ownText, _ := own.CompactSerialize()
	foreignKey := newKey(t, "rsa", jose.RS256)
	parts := strings.Split(right, ".")
	another := strings.Split(sign(t, rsaKey, "at+jwt", with(c, "sub", "mallory")), ".")
	return []badToken{
		{"alg none", unsigned(`{"alg":"none","typ":"at+jwt"}`, c, nil), unreadable},
		{"alg NonE", unsigned(`{"alg":"NonE"}`, c, []byte("x")), unreadable},
		{"no alg", unsigned(`{"kid":"rsa"}`, c, []byte("x")), unreadable},
		{"HS256 with the public key as its secret", sign(t, secret, "at+jwt", c), unreadable},
		{"ES256 by a key that is RSA", unsigned(`{"alg":"ES256","kid":"rsa"}`, c, make([]byte, 64)), keyless},
		{"an empty signature", parts[0] + "." + parts[1] + ".", ""},
		{"another token's claims", parts[0] + "." + another[1] + "." + parts[2], unsignedBy},
		{"a signature with a flipped bit", right[:len(right)-10] + flip(right[len(right)-10:]), ""},
		{"another key of the same id", sign(t, foreignKey, "at+jwt", c), unsignedBy},
		{"a key that the issuer does not have", sign(t, newKey(t, "unknown", jose.ES256), "at+jwt", c), keyless},
		{"a key that the token brings along", ownText, unsignedBy},
		{"a key at an address in the token", unsigned(`{"alg":"RS256","jku":"https://evil.test/keys","x5u":"https://evil.test/c","kid":"evil"}`, c, []byte("x")), keyless},
		{"a critical header that is not known", unsigned(`{"alg":"RS256","kid":"rsa","crit":["b64"],"b64":false}`, c, []byte("x")), ""},
	}
}

// wrongTexts are not access tokens of an issuer at all.
func wrongTexts(right string) []badToken {
	return []badToken{
		{"a huge token", right + strings.Repeat("A", 100<<10), "the token is too long"},
		{"four parts", right + ".x", "the token is none of this server's"},
		{"a text", "hello", "the token is none of this server's"},
		{"two dots", "..", unreadable},
		{"bytes", "\x00.\xff.\x00", unreadable},
		{"an encrypted token", "e30.e30.e30.e30.e30", "the token is none of this server's"},
		{"JSON for a token", `{"payload":"e30","protected":"e30","signature":"a.b.c"}`, unreadable},
		{"one of paddock's own", newText("abc"), "the token is none of this server's"},
	}
}

// flip changes the first letter of base64 text.
func flip(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

func TestClocksMayDifferABit(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	o, pass := i.verifier(t, OAuthConfig{})
	ahead, now := good(i.url), time.Now().Unix()
	for _, name := range []string{"iat", "nbf"} {
		ahead[name] = now + int64(leeway/time.Second) - 5
	}
	token := sign(t, k, "", with(ahead, "exp", now+60))
	if _, err := o.Verify(t.Context(), token); err != nil {
		t.Errorf("from an issuer whose clock is ahead: %v", err)
	}
	pass(60*time.Second + leeway - 5*time.Second)
	if _, err := o.Verify(t.Context(), token); err != nil {
		t.Errorf("just after its end: %v", err)
	}
	pass(10 * time.Second)
	_, err := o.Verify(t.Context(), token)
	refused(t, err, codeInvalidToken, "the token has expired", token)
}

func TestALogHearsNothingOfATokenNorOfItsKeys(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	i.set(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
	var log bytes.Buffer
	o, _ := i.verifier(t, OAuthConfig{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	token := sign(t, k, "at+jwt", good(i.url))
	if _, err := o.Verify(t.Context(), token); fault.KindOf(err) != fault.Unavailable {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "418") {
		t.Errorf(`the log does not say what went wrong: log.String() = %q, want "418" in it`, log.String())
	} else if !strings.Contains(log.String(), i.url) {
		t.Errorf("the log does not say what went wrong: log.String() = %q, want %q in it", log.String(), i.url)
	}
	for _, part := range strings.Split(token, ".") {
		if strings.Contains(log.String(), part) {
			t.Errorf("the log has a part of the token:\n%s", &log)
		}
	}
}

func FuzzAccessToken(f *testing.F) {
	f.Add("e30.e30.e30")
	f.Add(unsigned(`{"alg":"RS256","kid":"a"}`, map[string]any{"aud": audience}, []byte("x")))
	f.Add(unsigned(`{"alg":"none"}`, map[string]any{}, nil))
	o, err := NewOAuth(OAuthConfig{Issuer: "https://issuer.test", Audience: audience})
	if err != nil {
		f.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	o.keys.keys, o.keys.asked = []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "a"}}, time.Now()
	o.keys.next = time.Now().Add(24 * time.Hour)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := o.Verify(context.Background(), text)
		if p != nil {
			t.Fatalf("%q was accepted: p = %+v, want none", text, p)
		}
		if err == nil {
			t.Fatalf("%q was accepted: got no error, want one", text)
		}
		if kind := fault.KindOf(err); kind != fault.Denied && kind != fault.Unavailable {
			t.Errorf("got %v", err)
		}
	})
}
