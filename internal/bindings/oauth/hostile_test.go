package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
)

// hostile is a server and its issuer that answer as a test says. {} is its address.
func hostile(t *testing.T, answers map[string]http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	var s *httptest.Server
	usual := map[string]string{
		"/.well-known/oauth-protected-resource/mcp": `{"resource":"{}/mcp","authorization_servers":["{}"],"scopes_supported":["read"]}`,
		"/.well-known/oauth-authorization-server":   `{"issuer":"{}","authorization_endpoint":"{}/authorize","token_endpoint":"{}/token","registration_endpoint":"{}/register","response_types_supported":["code"],"code_challenge_methods_supported":["S256"],"token_endpoint_auth_methods_supported":["none","client_secret_post"]}`,
		"/register": `{"client_id":"registered","token_endpoint_auth_method":"none","redirect_uris":["http://127.0.0.1:8976/callback"]}`,
		"/token":    `{"access_token":"a-token","token_type":"Bearer"}`,
	}
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := answers[r.URL.Path]; f != nil {
			f(w, r)
			return
		}
		text, known := usual[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/register" {
			w.WriteHeader(http.StatusCreated)
		}
		fmt.Fprint(w, strings.ReplaceAll(text, "{}", s.URL))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	c, err := New(Config{Server: "docs", URL: s.URL + "/mcp", Transport: &http.Transport{}, Redirect: "http://127.0.0.1:8976/callback"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

// says answers with a JSON text, in which {} is the server's address.
func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(text, "{}", "http://"+r.Host))
	}
}

const (
	protected = "/.well-known/oauth-protected-resource/mcp"
	metadata  = "/.well-known/oauth-authorization-server"
)

// issuerWith is metadata with an address to log in at, where tokens are, and more.
func issuerWith(authorize, token, more string) http.HandlerFunc {
	quoted, _ := json.Marshal(authorize)
	return says(200, `{"issuer":"{}","authorization_endpoint":`+string(quoted)+`,"token_endpoint":"`+token+`","registration_endpoint":"{}/register","response_types_supported":["code"],"code_challenge_methods_supported":["S256"]`+more+`}`)
}

// A login to a hostile issuer ends as a fault, or with an address that can be shown.
func TestALoginToAHostileIssuer(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"issuer":"`)
		for part := strings.Repeat("x", 1<<16); r.Context().Err() == nil; {
			if _, err := fmt.Fprint(w, part); err != nil {
				return
			}
		}
	}
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprint("s", i)
	}
	scopes, _ := json.Marshal(many)
	for about, answers := range map[string]map[string]http.HandlerFunc{
		"metadata without end":    {metadata: endless},
		"a resource without end":  {protected: endless, metadata: endless},
		"deep":                    {metadata: says(200, strings.Repeat(`{"issuer":`, 100_000))},
		"another's name":          {metadata: says(200, `{"issuer":"https://other.example","authorization_endpoint":"{}/a","token_endpoint":"{}/t","code_challenge_methods_supported":["S256"]}`)},
		"a name twice":            {metadata: says(200, `{"issuer":"{}","issuer":"https://other.example","authorization_endpoint":"{}/a","token_endpoint":"{}/t","code_challenge_methods_supported":["S256"]}`)},
		"javascript:":             {metadata: issuerWith("javascript:alert(1)", "{}/token", "")},
		"file:":                   {metadata: issuerWith("file:///etc/passwd", "{}/token", "")},
		"without TLS":             {metadata: issuerWith("http://evil.example/a", "{}/token", "")},
		"tokens in a file":        {metadata: issuerWith("https://a.example/a", "file:///etc/passwd", "")},
		"lines":                   {metadata: issuerWith("https://a.example/a\npaddock: all is well", "{}/token", "")},
		"what terminals obey":     {metadata: issuerWith("https://a.example/\x1b[31m", "{}/token", "")},
		"what terminals obey, C1": {metadata: issuerWith("https://a.example/a?b=\u009b31m", "{}/token", "")},
		"another direction":       {metadata: issuerWith("https://a.example/a?b=\u202egnp.live", "{}/token", "")},
		"a user":                  {metadata: issuerWith("https://bank.example@evil.example/", "{}/token", "")},
		"a long address":          {metadata: issuerWith("https://a.example/"+strings.Repeat("a", 500<<10), "{}/token", "")},
		"a long name":             {"/register": says(201, `{"client_id":"`+strings.Repeat("c", 900<<10)+`","client_secret_expires_at":-1}`)},
		"many scopes":             {protected: says(200, `{"resource":"{}/mcp","authorization_servers":["{}"],"scopes_supported":`+string(scopes)+`}`)},
		"a redirect to a file": {metadata: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		}},
		"a redirect to itself":             {metadata: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, metadata, http.StatusFound) }},
		"no JSON":                          {metadata: says(200, "<html>")},
		"an issuer that is not an address": {protected: says(200, `{"resource":"{}/mcp","authorization_servers":["javascript:x","\u001b[2J"]}`), metadata: says(404, "")},
	} {
		t.Run(about, func(t *testing.T) {
			s, c := hostile(t, answers)
			login, err := c.Start(t.Context(), Challenge{ResourceMetadata: s.URL + protected})
			if err != nil {
				if fault.Of(err) == nil {
					t.Error("got no fault, want one")
				} else if len(err.Error()) > 2<<10 {
					t.Errorf("the fault says too much: len(err.Error()) = %d, want at most %d",
						len(err.Error()), 2<<10)
				}
				return
			}
			switch {
			case len(login.URL) > maxAddress:
				t.Errorf("the login's address has %d bytes, want at most %d: %.300q", len(login.URL), maxAddress, login.URL)
			case !plain(login.URL):
				t.Errorf("the login's address is %.300q, want plain characters", login.URL)
			case !strings.HasPrefix(login.URL, s.URL) && !strings.HasPrefix(login.URL, "https://a.example/"):
				t.Errorf("the login's address is %.300q, want it at %q or https://a.example/", login.URL, s.URL)
			}
			if about != "many scopes" && about != "tokens in a file" && about != "a redirect to itself" && !strings.Contains(about, "redirect") && about != "a name twice" {
				t.Logf("it gives %.200q", login.URL)
			}
		})
	}
}

func TestAnIssuerThatIsSlowEndsWithItsCaller(t *testing.T) {
	asked := make(chan struct{}, 10)
	_, c := hostile(t, map[string]http.HandlerFunc{metadata: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{")
		_ = http.NewResponseController(w).Flush()
		asked <- struct{}{}
		<-r.Context().Done()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := c.Start(ctx, Challenge{}); !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

// What is given out as a token has to be one.
func TestTokensThatAreNone(t *testing.T) {
	for about, c := range map[string]struct{ answer, want string }{
		"long":     {`{"access_token":"` + strings.Repeat("t", 900<<10) + `","token_type":"Bearer"}`, "not a token"},
		"longer":   {`{"access_token":"` + strings.Repeat("t", 10<<20) + `","token_type":"Bearer"}`, ""},
		"lines":    {`{"access_token":"a\r\nX-Evil: 1","token_type":"Bearer"}`, "not a token"},
		"refresh":  {`{"access_token":"a","refresh_token":"\u001b[31m","token_type":"Bearer"}`, "not a token"},
		"scopes":   {`{"access_token":"a","token_type":"Bearer","scope":"` + strings.Repeat("s ", 100_000) + `"}`, "not a token"},
		"no JSON":  {`<html>`, ""},
		"an error": {`{"error":"` + strings.Repeat("e", 1<<19) + `"}`, ""},
	} {
		t.Run(about, func(t *testing.T) {
			_, client := hostile(t, map[string]http.HandlerFunc{"/token": says(200, c.answer)})
			login, err := client.Start(t.Context(), Challenge{})
			if err != nil {
				t.Fatal(err)
			}
			state := login.URL[strings.Index(login.URL, "state=")+len("state="):]
			state, _, _ = strings.Cut(state, "&")
			err = client.Finish(t.Context(), "http://127.0.0.1:8976/callback?code=x&state="+state)
			switch {
			case err == nil:
				t.Error("got no error, want one")
			case !strings.Contains(err.Error(), c.want):
				t.Errorf("got error %q, want %q in it", err.Error(), c.want)
			case len(err.Error()) > 2<<10:
				t.Errorf("len(err.Error()) = %d, want at most %d", len(err.Error()), 2<<10)
			}
			if token, err := client.Token(t.Context()); err != nil {
				t.Errorf("got error %v, want none", err)
			} else if token != "" {
				t.Errorf("a token of %d bytes is kept, want none", len(token))
			}
		})
	}
	// One that has run out before it was given is asked for again once a call, at most.
	_, client := hostile(t, map[string]http.HandlerFunc{"/token": says(200, `{"access_token":"a","token_type":"\u001b","expires_in":-5}`)})
	login, err := client.Start(t.Context(), Challenge{})
	if err != nil {
		t.Fatal(err)
	}
	state, _, _ := strings.Cut(login.URL[strings.Index(login.URL, "state=")+len("state="):], "&")
	if err := client.Finish(t.Context(), "http://127.0.0.1:8976/callback?code=x&state="+state); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Token(t.Context()); err != nil {
		t.Error(err)
	}
}

// The SDK's reading of a challenge takes time that grows with the square of its size.
func TestALongChallengeIsNotRead(t *testing.T) {
	for _, long := range []string{"Bearer " + strings.Repeat(",", 1<<20) + "=", "Bearer " + strings.Repeat("a=b,", 1<<18), strings.Repeat(`"`, 1<<20)} {
		if all, err := parseChallenge([]string{long}); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if all != nil {
			t.Errorf("%d challenges were read, want none", len(all))
		}
	}
	switch all, err := parseChallenge([]string{`Bearer scope="a b"`}); {
	case err != nil:
		t.Errorf("got error %v, want none", err)
	case len(all) != 1:
		t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
	case all[0].Params["scope"] != "a b":
		t.Errorf(`all[0].Params["scope"] = %q, want "a b"`, all[0].Params["scope"])
	}
	lists := make([]string, 200_000)
	for i := range lists {
		lists[i] = fmt.Sprint(i)
	}
	begin := time.Now()
	if got := union([]string{"own"}, lists); len(got) > maxScopes {
		t.Errorf("there are %d scopes, want at most %d, after %v", len(got), maxScopes, time.Since(begin))
	} else if got[0] != "own" {
		t.Errorf(`got[0] = %q, want "own"`, got[0])
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer resource_metadata="https://a.example/x", scope="a b", error="invalid_token"`)
	f.Add(`Basic realm="x,\"y", Bearer a=b,,c`)
	f.Fuzz(func(t *testing.T, line string) {
		all, err := parseChallenge([]string{line})
		if err != nil {
			return
		}
		for _, c := range all {
			for _, values := range (Challenge{c.Params["resource_metadata"], c.Params["scope"], c.Params["error"]}).header() {
				for _, v := range values {
					if strings.ContainsAny(v, "\r\n") {
						t.Errorf("%q: v = %q, want none of %q in it", line, v, "\r\n")
					} else if len(v) > maxChallenge {
						t.Errorf("%q: len(v) = %d, want at most %d: %q", line, len(v), maxChallenge, v)
					}
				}
			}
		}
	})
}
