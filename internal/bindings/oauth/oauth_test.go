package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"paddock/internal/fault"
)

// issuer is an authorization server and the server that trusts it, on loopback.
type issuer struct {
	*httptest.Server
	mu         sync.Mutex // guards what follows
	challenges map[string]url.Values
	valid      map[string]bool // access tokens
	refreshes  map[string]bool // refresh tokens; each may be used once
	issued     int
	answerIss  string // what comes back as iss; empty: the truth
	posts      atomic.Int32
	redirects  bool // the token endpoint sends elsewhere
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{challenges: map[string]url.Values{}, valid: map[string]bool{}, refreshes: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"resource": i.URL + "/mcp", "authorization_servers": []string{i.URL}, "scopes_supported": []string{"read"}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "registration_endpoint": i.URL + "/register",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "authorization_response_iss_parameter_supported": true,
			"token_endpoint_auth_methods_supported": []string{"none", "client_secret_post"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		w.WriteHeader(http.StatusCreated)
		asked["client_id"], asked["token_endpoint_auth_method"] = "registered", "none"
		write(w, asked)
	})
	mux.HandleFunc("/authorize", i.authorize)
	mux.HandleFunc("/token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(func() { i.CloseClientConnections(); i.Close() })
	return i
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	i.mu.Lock()
	defer i.mu.Unlock()
	code := fmt.Sprint("code-", len(i.challenges))
	i.challenges[code] = q
	iss := i.URL
	if i.answerIss != "" {
		iss = i.answerIss
	}
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {iss}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	i.posts.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.redirects {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	}
	refuse := func() {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		write(w, map[string]any{"error": "invalid_grant", "error_description": "secret-description"})
	}
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		asked, ok := i.challenges[r.Form.Get("code")]
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		if !ok || asked.Get("code_challenge_method") != "S256" || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) ||
			asked.Get("resource") != i.URL+"/mcp" || r.Form.Get("resource") != i.URL+"/mcp" {
			refuse()
			return
		}
	case "refresh_token":
		if !i.refreshes[r.Form.Get("refresh_token")] {
			refuse()
			return
		}
		delete(i.refreshes, r.Form.Get("refresh_token"))
	case "client_credentials":
		if r.Form.Get("client_secret") != "machine-secret" {
			refuse()
			return
		}
	}
	i.issued++
	access, refresh := fmt.Sprint("access-", i.issued), fmt.Sprint("refresh-", i.issued)
	i.valid = map[string]bool{access: true}
	i.refreshes[refresh] = true
	write(w, map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 3600})
}

// kept is a store in memory.
type kept struct {
	mu   sync.Mutex
	data map[string][]byte
}

func (k *kept) Load(_ context.Context, key string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.data[key], nil
}

func (k *kept) Save(_ context.Context, key string, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil {
		k.data = map[string][]byte{}
	}
	k.data[key] = data
	return nil
}

func client(t *testing.T, i *issuer, change func(*Config)) *Client {
	t.Helper()
	base := &http.Transport{}
	config := Config{Server: "docs", URL: i.URL + "/mcp", Transport: base, Key: "docs/me", Redirect: "http://127.0.0.1:8976/callback"}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); base.CloseIdleConnections(); http.DefaultClient.CloseIdleConnections() })
	return c
}

func token(t *testing.T, c *Client) string {
	t.Helper()
	got, err := c.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestALoginGivesATokenThatIsKeptAndRefreshed(t *testing.T) {
	i, store := newIssuer(t), &kept{}
	c := client(t, i, func(c *Config) { c.Store = store })
	if got := token(t, c); got != "" {
		t.Errorf("before the login there is %q", got)
	}
	if err := logIn(t.Context(), c, Challenge{Scope: "read"}); err != nil {
		t.Fatal(err)
	}
	if got := token(t, c); got != "access-1" {
		t.Errorf("the token is %q", got)
	}
	again := client(t, i, func(c *Config) { c.Store = store })
	if got := token(t, again); got != "access-1" {
		t.Errorf("another process has %q", got)
	}
	if got, err := again.Refresh(t.Context(), "access-1", nil); err != nil {
		t.Errorf("refreshed: got error %v, want none", err)
	} else if got != "access-2" {
		t.Errorf(`refreshed: got %q, want "access-2"`, got)
	}
	// The refresh token that c remembers is used up; what the other process got is there.
	if got, err := c.Refresh(t.Context(), "access-1", nil); err != nil {
		t.Errorf("the first process: got error %v, want none", err)
	} else if got != "access-2" {
		t.Errorf(`the first process: got %q, want "access-2"`, got)
	}
	if err := c.Forget(t.Context()); err != nil {
		t.Errorf("forgetting: got error %v, want none", err)
	}
	if got := token(t, c); got != "" {
		t.Errorf("the token after it was forgotten: got %q, want none", got)
	}
	if got := store.data["docs/me"]; got != nil {
		t.Errorf("the store after it was forgotten has %q, want none", got)
	}
}

func TestARefreshHappensOnceForAllWhoAsk(t *testing.T) {
	i := newIssuer(t)
	c := client(t, i, nil)
	if err := logIn(t.Context(), c, Challenge{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if got, err := c.Refresh(t.Context(), "access-1", nil); err != nil {
				t.Errorf("got error %v, want none", err)
			} else if got != "access-2" {
				t.Errorf(`got %q, want "access-2"`, got)
			}
		})
	}
	if all.Wait(); i.posts.Load() != 2 {
		t.Errorf("the issuer was asked %d times", i.posts.Load())
	}
}

func TestARefreshThatIsRefusedAsksForALogin(t *testing.T) {
	i := newIssuer(t)
	c := client(t, i, nil)
	if err := logIn(t.Context(), c, Challenge{}); err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	i.refreshes = map[string]bool{}
	i.mu.Unlock()
	if got, err := c.Refresh(t.Context(), "access-1", nil); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if got != "" {
		t.Errorf(`got %q, want ""`, got)
	}
	if got := token(t, c); got != "" {
		t.Errorf("the refused token is still given: %q", got)
	}
}

// Attack 84.
func TestALoginThatIsNotThisOneIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(i *issuer)
		change  func(back url.Values)
	}{
		"another state":         {nil, func(b url.Values) { b.Set("state", "stolen") }},
		"another issuer":        {func(i *issuer) { i.answerIss = "https://evil.example" }, nil},
		"no issuer":             {nil, func(b url.Values) { b.Del("iss") }},
		"another's code":        {nil, func(b url.Values) { b.Set("code", "code-99") }},
		"no code":               {nil, func(b url.Values) { b.Del("code") }},
		"the person said no":    {nil, func(b url.Values) { b.Set("error", "access_denied") }},
		"a code sent elsewhere": {func(i *issuer) { i.redirects = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t)
			if c.prepare != nil {
				c.prepare(i)
			}
			cl := client(t, i, nil)
			login, err := cl.Start(t.Context(), Challenge{})
			if err != nil {
				t.Fatal(err)
			}
			browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			resp, err := browser.Get(login.URL)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			back, err := resp.Location()
			if err != nil {
				t.Fatal(err)
			}
			q := back.Query()
			if c.change != nil {
				c.change(q)
			}
			back.RawQuery = q.Encode()
			err = cl.Finish(t.Context(), back.String())
			if err == nil {
				t.Error("got no error, want one")
			} else if text := fault.Of(err).Message; strings.Contains(text, "secret-description") {
				t.Errorf("the error says %q, want nothing of the secret", text)
			}
			if got := token(t, cl); got != "" {
				t.Errorf("the token is %q, want none", got)
			}
			if err := cl.Finish(t.Context(), back.String()); fault.KindOf(err) != fault.Conflict {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

func TestATokenIsGivenToTheServerThatItIsForOnly(t *testing.T) {
	i, store := newIssuer(t), &kept{}
	c := client(t, i, func(c *Config) { c.Store = store })
	if err := logIn(t.Context(), c, Challenge{}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"another server's URL":       func(c *Config) { c.URL = strings.Replace(c.URL, "/mcp", "/other", 1) },
		"another client's identity":  func(c *Config) { c.Key = "docs/you" },
		"a client that was replaced": func(c *Config) { c.ClientID = "new" },
	} {
		other := client(t, i, func(c *Config) { c.Store = store; change(c) })
		if got := token(t, other); got != "" {
			t.Errorf("%s: it gets %q", name, got)
		}
	}
}

func TestCredentialsAreShownToTheirIssuerOnly(t *testing.T) {
	i := newIssuer(t)
	c := client(t, i, func(c *Config) { c.ClientID, c.ClientSecret, c.Issuer = "id", "secret", "https://good.example" })
	if _, err := c.Start(t.Context(), Challenge{}); err == nil {
		t.Error("a login at another issuer begins")
	}
	m := client(t, i, func(c *Config) {
		c.ClientID, c.ClientSecret, c.Issuer, c.Machine = "id", "machine-secret", "https://good.example", true
	})
	switch got, err := m.Refresh(t.Context(), "", nil); {
	case got != "":
		t.Errorf(`got %q, want ""`, got)
	case err == nil:
		t.Error("got no error, want one")
	case i.posts.Load() != 0:
		t.Errorf("i.posts = %d, want 0", i.posts.Load())
	}
}

func TestAMachineGetsItsTokensByItself(t *testing.T) {
	i := newIssuer(t)
	c := client(t, i, func(c *Config) { c.ClientID, c.ClientSecret, c.Machine = "id", "machine-secret", true })
	if got, err := c.Refresh(t.Context(), "", nil); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if got != "access-1" {
		t.Errorf(`got %q, want "access-1"`, got)
	} else if kept := token(t, c); kept != got {
		t.Errorf("the token that is kept is %q, want %q", kept, got)
	}
	if _, err := c.Start(t.Context(), Challenge{}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a login: %v", err)
	}
	bad := client(t, i, func(c *Config) { c.ClientID, c.ClientSecret, c.Machine = "id", "wrong", true })
	if _, err := bad.Refresh(t.Context(), "", nil); fault.KindOf(err) != fault.Denied {
		t.Errorf("with a wrong secret: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if strings.Contains(err.Error(), "secret-description") {
		t.Errorf(`with a wrong secret: got error %q, want no "secret-description" in it`, err.Error())
	}
}

func TestDiscoveryGoesThroughTheGivenTransportAlone(t *testing.T) {
	i := newIssuer(t)
	var asked []string
	var mu sync.Mutex
	guard := guardFunc(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Host)
		return nil, fault.New(fault.Denied, "the host %q is not allowed", r.URL.Host)
	})
	c := client(t, i, func(c *Config) { c.Transport = guard })
	_, err := c.Start(t.Context(), Challenge{ResourceMetadata: "http://169.254.169.254/latest"})
	if fault.KindOf(err) != fault.Denied {
		t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
	} else if len(asked) == 0 {
		t.Error("asked is empty, want some")
	}
	if _, err := New(Config{Server: "x", URL: i.URL}); fault.KindOf(err) != fault.Denied {
		t.Errorf("without a transport: %v", err)
	}
}

type guardFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f guardFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnAddressThatIsNoPageIsNotGivenToAPerson(t *testing.T) {
	for address, good := range map[string]bool{
		"https://login.example/a?b": true, "http://127.0.0.1:1/a": true, "http://localhost/a": true,
		"http://login.example/a": false, "javascript:alert(1)": false, "file:///etc/passwd": false, "https://me:you@login.example": false,
	} {
		if err := checkAddress(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestALoginThatNobodyFinishesEndsWithItsClient(t *testing.T) {
	i := newIssuer(t)
	c := client(t, i, nil)
	first, err := c.Start(t.Context(), Challenge{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.Start(t.Context(), Challenge{})
	if err != nil {
		t.Fatalf("the second one: got error %v, want none", err)
	}
	if first.URL == second.URL {
		t.Fatalf("the second one: first.URL = %q, want another", first.URL)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Finish(t.Context(), "http://127.0.0.1:8976/callback?code=x"); fault.KindOf(err) != fault.Conflict {
		t.Errorf("it ended with %v", err)
	}
}
