package auth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"paddock/internal/fault"
)

func TestKeysAreRotated(t *testing.T) {
	old, next := newKey(t, "old", jose.RS256), newKey(t, "next", jose.ES256)
	i := newTestIssuer(t, "", old)
	o, pass := i.verifier(t, OAuthConfig{})
	verify := func(k jose.JSONWebKey) error {
		_, err := o.Verify(t.Context(), sign(t, k, "", with(good(i.url), "exp", time.Now().Unix()+7200)))
		return err
	}
	if err := verify(old); err != nil {
		t.Fatal(err)
	}
	i.set(nil, old, next)
	pass(askPause)
	if err := verify(next); err != nil {
		t.Errorf("a key that was added: %v", err)
	}
	i.set(nil, next)
	if err := verify(old); err != nil {
		t.Errorf("a key that was taken back just now: %v", err)
	}
	pass(freshFor)
	if err := verify(old); fault.KindOf(err) != fault.Denied {
		t.Errorf("a key that was taken back minutes ago: %v", err)
	}
	if n := i.asked.Load(); n != 3 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

func TestAFloodOfUnknownKeysDoesNotReachTheIssuer(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	o, pass := i.verifier(t, OAuthConfig{})
	right := sign(t, k, "", good(i.url))
	if _, err := o.Verify(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for n := range 20 {
					token := unsigned(fmt.Sprintf(`{"alg":"ES256","kid":"%d-%d-%d"}`, round, g, n), good(i.url), make([]byte, 64))
					_, err := o.Verify(t.Context(), token)
					refused(t, err, codeInvalidToken, "the token's key is not one of the issuer's", token)
				}
				if _, err := o.Verify(t.Context(), right); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := int(i.asked.Load()); n != round+1 {
			t.Errorf("after %d rounds the issuer was asked %d times", round+1, n)
		}
		pass(askPause)
	}
}

func TestAnIssuerThatIsDownIsTriedAgain(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	asked := 0
	down := func(w http.ResponseWriter, _ *http.Request) {
		asked++
		http.Error(w, "down", http.StatusBadGateway)
	}
	i.set(down)
	o, pass := i.verifier(t, OAuthConfig{})
	token := sign(t, k, "", with(good(i.url), "exp", time.Now().Unix()+7200))
	for round, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		for range 5 {
			_, err := o.Verify(t.Context(), token)
			switch f := fault.Of(err); {
			case f == nil:
				t.Fatalf("got %v: no fault, want one", err)
			case f.Kind != fault.Unavailable:
				t.Fatalf("got %v: f.Kind = %v, want %v", err, f.Kind, fault.Unavailable)
			case f.RetryAfter > pause:
				t.Fatalf("got %v: f.RetryAfter = %v, want at most %v", err, f.RetryAfter, pause)
			case f.RetryAfter < time.Second:
				t.Fatalf("got %v: f.RetryAfter = %v, want at least %v", err, f.RetryAfter, time.Second)
			}
			if status, header := Challenge(err, ""); status != 503 {
				t.Errorf("a client: status = %d, want 503", status)
			} else if header != "" {
				t.Errorf(`a client: header = %q, want ""`, header)
			}
			silent(t, err, token)
		}
		if want := 3 * (round + 1); asked != want { // three places of metadata
			t.Errorf("the issuer was asked %d times, want %d", asked, want)
		}
		pass(pause)
	}
	i.set(nil, k)
	if _, err := o.Verify(t.Context(), token); err != nil {
		t.Fatalf("when it is up: %v", err)
	}
	i.set(down)
	pass(staleFor - time.Minute)
	if _, err := o.Verify(t.Context(), token); err != nil {
		t.Errorf("when it has been down for less than an hour: %v", err)
	}
	other := sign(t, newKey(t, "other", jose.ES256), "", good(i.url))
	if _, err := o.Verify(t.Context(), other); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a key that may be a new one: %v", err)
	}
	pass(2 * time.Minute)
	if _, err := o.Verify(t.Context(), token); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("when it has been down for an hour: %v", err)
	}
}

func TestManyWaitForOneAnswer(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	i := newTestIssuer(t, "", k)
	o, _ := i.verifier(t, OAuthConfig{})
	token := sign(t, k, "", good(i.url))
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := o.Verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := i.asked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times", n)
	}
}

func TestWhereAnIssuersMetadataLies(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	for _, at := range []string{"/realm/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/realm", "/.well-known/openid-configuration/realm"} {
		t.Run(at, func(t *testing.T) {
			i := newTestIssuer(t, "/realm", k)
			i.set(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case at:
					http.Redirect(w, r, "/moved", http.StatusFound)
				case "/moved":
					_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": i.URL + "/keys"})
				case "/keys":
					_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.Public()}})
				default:
					http.NotFound(w, r)
				}
			})
			o, _ := i.verifier(t, OAuthConfig{})
			if _, err := o.Verify(t.Context(), sign(t, k, "", good(i.url))); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnIssuersAnswersAreNotTrusted(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	right := func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.Public()}})
	}
	evil := httptest.NewTLSServer(http.HandlerFunc(right))
	defer evil.Close()
	plain := httptest.NewServer(evil.Config.Handler)
	defer plain.Close()
	for _, test := range []struct {
		name     string
		metadata map[string]any
		keys     http.HandlerFunc
	}{
		{"metadata of another issuer", map[string]any{"issuer": "https://issuer.test"}, right},
		{"keys without TLS", map[string]any{"jwks_uri": plain.URL + "/keys"}, nil},
		{"keys in a file", map[string]any{"jwks_uri": "file:///etc/passwd"}, nil},
		{"keys nowhere", map[string]any{"jwks_uri": ""}, nil},
		{"keys that lead to another host", nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, evil.URL, http.StatusTemporaryRedirect)
		}},
		{"keys that lead around in circles", nil, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) }},
		{"keys without end", nil, func(w http.ResponseWriter, r *http.Request) {
			right(w, r)
			_, _ = w.Write([]byte(strings.Repeat(" ", 2*maxDocument)))
		}},
		{"no keys", nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) }},
		{"only a secret", nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[{"kty":"oct","kid":"one","k":"c2VjcmV0"}]}`))
		}},
		{"what is not JSON", nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := newTestIssuer(t, "", k)
			i.set(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/keys" {
					test.keys(w, r)
					return
				}
				metadata := map[string]any{"issuer": i.url, "jwks_uri": i.URL + "/keys"}
				for name, v := range test.metadata {
					metadata[name] = v
				}
				_ = json.NewEncoder(w).Encode(metadata)
			})
			o, _ := i.verifier(t, OAuthConfig{})
			o.keys.issuer.client.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(evil.Certificate())
			if p, err := o.Verify(t.Context(), sign(t, k, "", good(i.url))); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestOddKeysAreLeftOutOfASet(t *testing.T) {
	k := newKey(t, "one", jose.ES256)
	right, err := k.Public().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := parseKeys([]byte(`{"keys":[{"kty":"new"},5,{"kty":"OKP","crv":"Ed448","x":"AA"},{"kty":"RSA","n":"AQ","e":"AQAB"},` + string(right) + `]}`))
	switch {
	case err != nil:
		t.Error(err)
	case len(keys) != 1:
		t.Errorf("len(keys) = %d, want 1: %+v", len(keys), keys)
	case keys[0].KeyID != "one":
		t.Errorf(`keys[0].KeyID = %q, want "one"`, keys[0].KeyID)
	}
}

func TestWhoMayBeAnIssuer(t *testing.T) {
	for _, test := range []struct {
		url       string
		allowHTTP bool
		ok        bool
	}{
		{"https://issuer.test", false, true},
		{"https://issuer.test/realms/a", false, true},
		{"http://127.0.0.1:8080", true, true},
		{"http://[::1]:8080/a", true, true},
		{"http://localhost", true, true},
		{"http://127.0.0.1:8080", false, false},
		{"http://issuer.test", true, false},
		{"http://localhost.issuer.test", true, false},
		{"http://127.0.0.1@issuer.test", true, false},
		{"https://a:b@issuer.test", false, false},
		{"https://issuer.test?a=b", false, false},
		{"https://issuer.test#a", false, false},
		{"https://", false, false},
		{"https://:443", false, false},
		{"issuer.test", false, false},
		{"ftp://issuer.test", true, false},
		{"", false, false},
	} {
		if err := CheckIssuer(test.url, test.allowHTTP); (err == nil) != test.ok {
			t.Errorf("%q (%v): %v", test.url, test.allowHTTP, err)
		}
	}
	switch _, err := NewOAuth(OAuthConfig{Issuer: "http://issuer.test"}); {
	case err == nil:
		t.Error("both mistakes should be there: no error, want one")
	case !strings.Contains(err.Error(), "audience"):
		t.Errorf(`both mistakes should be there: err = %q, want "audience" in it`, err.Error())
	case !strings.Contains(err.Error(), "https"):
		t.Errorf(`both mistakes should be there: err = %q, want "https" in it`, err.Error())
	}
}
