package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// signing is a server that browsers sign in to.
type signing struct {
	*server
	ins    *auth.SignIns
	tokens *auth.Tokens
	origin string

	mu  sync.Mutex
	log []string // guarded: who signed in and out
}

func startSigning(t *testing.T, c Config) *signing {
	t.Helper()
	dir := t.TempDir()
	s := &signing{ins: auth.OpenSignIns(dir), tokens: auth.OpenTokens(dir)}
	c.Verifier, c.SignIns, c.Operator = s.tokens, s.ins, &auth.Principal{ID: auth.Local, Name: auth.Local, Tools: []string{"core", "approve"}}
	c.SignedIn = func(_ context.Context, e SignedIn) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, fmt.Sprint(e.Who.ID, " ", e.Out))
	}
	for _, to := range []*http.Handler{&c.RPC, &c.Approvals, &c.E2B, &c.Metrics} {
		*to = http.HandlerFunc(echo)
	}
	c.E2BOwnToken = func(*http.Request) bool { return false }
	s.server = start(t, c)
	s.origin = strings.Replace(s.url, "127.0.0.1", "localhost", 1)
	return s
}

// ask sends a request as a page of this server's does; headers are lines that go before
// those, and one without a value leaves it out.
func (s *signing) ask(t *testing.T, line, body string, headers ...string) reply {
	t.Helper()
	all := map[string]string{"Host": "localhost:PORT", "Origin": "http://localhost:PORT", "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
	if strings.HasPrefix(line, "GET") {
		delete(all, "Origin")
		delete(all, "Content-Type")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if all[name] = value; value == "" {
			delete(all, name)
		}
	}
	request := line + " HTTP/1.1\nHost: " + all["Host"] + "\n"
	for name, value := range all {
		if name != "Host" {
			request += name + ": " + value + "\n"
		}
	}
	return s.raw(t, request+fmt.Sprintf("Content-Length: %d\n\n%s", len(body), body))
}

// pass is what an answer to signing in has, as headers.
func (s *signing) pass(t *testing.T, got reply) []string {
	t.Helper()
	var who Who
	if err := json.Unmarshal([]byte(got.body), &who); err != nil || got.status != 200 || who.Key == "" {
		t.Fatalf("signing in says %d %s", got.status, got.body)
	}
	pair, _, _ := strings.Cut(got.header.Get("Set-Cookie"), ";")
	return []string{"Cookie: " + pair, "X-Paddock-Key: " + who.Key}
}

func (s *signing) ticket(t *testing.T) string {
	t.Helper()
	ticket, _, err := s.ins.NewTicket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return `{"ticket": "` + ticket + `"}`
}

func TestALinkSignsOneBrowserIn(t *testing.T) {
	s := startSigning(t, Config{})
	ticket := s.ticket(t)
	got := s.ask(t, "POST /api/v1/signin", ticket)
	pass := s.pass(t, got)
	cookie := got.header.Get("Set-Cookie")
	_, port, _ := strings.Cut(s.at, ":")
	for _, part := range []string{"paddock-" + port + "=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Expires="} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %s has no %q", cookie, part)
		}
	}
	if strings.Contains(cookie, "Domain") || strings.Contains(cookie, "Secure") {
		t.Errorf("the cookie is %s", cookie)
	}
	if got := s.ask(t, "POST /api/v1/signin", ticket); got.status != 403 || !strings.Contains(got.body, "paddock open makes a new one") {
		t.Errorf("a second time it says %d %s", got.status, got.body)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 200 || !strings.Contains(got.body, `"id":"local"`) || strings.Contains(got.body, `"key"`) {
		t.Errorf("it is %d %s", got.status, got.body)
	}
	if got := s.ask(t, "POST /api/v1/approvals", "{}", pass...); got.status != 200 || got.body != "local: {}" {
		t.Errorf("it says %d %s", got.status, got.body)
	}
	if got := s.ask(t, "POST /api/v1/signout", "", pass...); got.status != 200 || !strings.Contains(got.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("signing out says %d %s", got.status, got.body)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 401 {
		t.Errorf("afterwards it is %d %s", got.status, got.body)
	}
	if got := s.ask(t, "POST /api/v1/signout", "", pass...); got.status != 200 {
		t.Errorf("a second time signing out says %d %s", got.status, got.body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := strings.Join(s.log, ", "); all != "local false, local true" {
		t.Errorf("what is recorded is %s", all)
	}
}

func TestASignInEndsWithItsToken(t *testing.T) {
	s := startSigning(t, Config{})
	text, _, err := s.tokens.Create(auth.Token{Name: "ann", Tools: []string{"core"}, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	got := s.ask(t, "POST /api/v1/signin", `{"token": "`+text+`"}`)
	pass := s.pass(t, got)
	if strings.Contains(got.header.Get("Set-Cookie")+got.body, text) {
		t.Error("the token is in the answer")
	}
	got = s.ask(t, "GET /api/v1/whoami", "", pass...)
	var who Who
	if err := json.Unmarshal([]byte(got.body), &who); err != nil || who.Name != "ann" || len(who.Tools) != 1 || time.Until(who.Expires) > time.Hour {
		t.Errorf("it is %s", got.body)
	}
	if _, err := s.tokens.Revoke("ann"); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 401 || !strings.Contains(got.body, "revoked") {
		t.Errorf("once its token is revoked it is %d %s", got.status, got.body)
	}
	if n, err := s.ins.EndAll(t.Context()); err != nil || n != 0 {
		t.Errorf("%d are left (%v)", n, err)
	}
	// The operator ends all.
	pass = s.pass(t, s.ask(t, "POST /api/v1/signin", s.ticket(t)))
	if n, err := s.ins.EndAll(t.Context()); err != nil || n != 1 {
		t.Errorf("%d ended (%v)", n, err)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 401 {
		t.Errorf("once all have ended it is %d %s", got.status, got.body)
	}
}

// TestOnlyItsOwnPageUsesASignIn sends requests as other pages and other programs do that
// have come by the cookie, or by the key, or by neither.
func TestOnlyItsOwnPageUsesASignIn(t *testing.T) {
	s := startSigning(t, Config{Origins: []string{"https://friend.test"}, AllowedHosts: []string{"paddock.test"}})
	pass := s.pass(t, s.ask(t, "POST /api/v1/signin", s.ticket(t)))
	cookie, key := pass[0], pass[1]
	for name, test := range map[string]struct {
		line    string
		headers []string
		status  int
	}{
		"its own page":                            {"POST /api/v1/approvals", pass, 200},
		"its own page reads":                      {"GET /api/v1/approvals", pass, 200},
		"an old browser reads":                    {"GET /api/v1/approvals", append([]string{"Sec-Fetch-Site: "}, pass...), 200},
		"an old browser's own page":               {"POST /api/v1/approvals", append([]string{"Sec-Fetch-Site: "}, pass...), 200},
		"it among cookies of others":              {"GET /api/v1/approvals", []string{"Cookie: " + strings.Split(cookie[8:], "=")[0] + "=x; a=b; " + cookie[8:], key}, 200},
		"the cookie alone, as other ports get it": {"GET /api/v1/approvals", []string{cookie}, 401},
		"the cookie alone, to change":             {"POST /api/v1/approvals", []string{cookie}, 401},
		"the key alone":                           {"POST /api/v1/approvals", []string{key}, 401},
		"another key":                             {"POST /api/v1/approvals", []string{cookie, "X-Paddock-Key: " + strings.Repeat("A", 26)}, 401},
		"a page at another port":                  {"POST /api/v1/approvals", append([]string{"Origin: http://localhost:1", "Sec-Fetch-Site: same-site"}, pass...), 403},
		"a page at another port reads":            {"GET /api/v1/approvals", append([]string{"Sec-Fetch-Site: same-site"}, pass...), 403},
		"a page elsewhere":                        {"POST /api/v1/approvals", append([]string{"Origin: https://evil.test", "Sec-Fetch-Site: cross-site"}, pass...), 403},
		"a page without an origin":                {"POST /api/v1/approvals", append([]string{"Origin: null", "Sec-Fetch-Site: cross-site"}, pass...), 403},
		"a page that may call with a token":       {"POST /api/v1/approvals", append([]string{"Origin: https://friend.test", "Sec-Fetch-Site: cross-site"}, pass...), 403},
		"a page that may call reads":              {"GET /api/v1/approvals", append([]string{"Origin: https://friend.test", "Sec-Fetch-Site: cross-site"}, pass...), 403},
		"no page":                                 {"POST /api/v1/approvals", append([]string{"Origin: ", "Sec-Fetch-Site: "}, pass...), 403},
		"no page that a person opened":            {"POST /api/v1/approvals", append([]string{"Origin: ", "Sec-Fetch-Site: none"}, pass...), 403},
		"a link elsewhere":                        {"GET /api/v1/approvals", append([]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, pass...), 403},
		"a socket of no page":                     {"GET /api/v1/approvals", append([]string{"Sec-Fetch-Site: ", "Upgrade: websocket"}, pass...), 403},
		"a name of somebody's":                    {"POST /api/v1/approvals", append([]string{"Host: rebound.test:PORT", "Origin: http://rebound.test:PORT"}, pass...), 403},
		"another name of the server's":            {"POST /api/v1/approvals", append([]string{"Host: paddock.test:PORT", "Origin: http://paddock.test:PORT"}, pass...), 401},
		"a token goes first":                      {"GET /api/v1/approvals", append([]string{"Authorization: Bearer wrong"}, pass...), 401},
		"MCP":                                     {"POST /mcp", pass, 401},
		"JSON-RPC":                                {"POST /api/v1/rpc", pass, 401},
		"E2B":                                     {"GET /e2b/sandboxes", pass, 401},
		"signing out, from elsewhere":             {"POST /api/v1/signout", append([]string{"Origin: https://friend.test", "Sec-Fetch-Site: cross-site"}, pass...), 403},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.ask(t, test.line, "", test.headers...); got.status != test.status {
				t.Errorf("it says %d, want %d: %s", got.status, test.status, got.body)
			}
		})
	}
	// No page elsewhere signs a browser in as somebody else.
	for name, test := range map[string]struct {
		headers []string
		status  int
	}{
		"a page at another port": {[]string{"Origin: http://localhost:1", "Sec-Fetch-Site: same-site"}, 403},
		"a friend":               {[]string{"Origin: https://friend.test", "Sec-Fetch-Site: cross-site"}, 403},
		"no page":                {[]string{"Origin: ", "Sec-Fetch-Site: "}, 403},
		"a form":                 {[]string{"Content-Type: application/x-www-form-urlencoded"}, 415},
		"a text":                 {[]string{"Content-Type: text/plain"}, 415},
	} {
		ticket := s.ticket(t)
		if got := s.ask(t, "POST /api/v1/signin", ticket, test.headers...); got.status != test.status || got.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: it says %d, want %d: %s", name, got.status, test.status, got.body)
		}
		if got := s.ask(t, "POST /api/v1/signin", ticket); got.status != 200 {
			t.Errorf("%s used the link up: %d %s", name, got.status, got.body)
		}
	}
	for _, body := range []string{"", "{", "{}", `{"token": "a", "ticket": "b"}`, "[]", `{"token": ` + strings.Repeat(" ", maxSignIn) + `"a"}`} {
		if got := s.ask(t, "POST /api/v1/signin", body); got.status != 400 && got.status != 413 {
			t.Errorf("%.30q says %d %s", body, got.status, got.body)
		}
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 200 {
		t.Errorf("after all of that it is %d %s", got.status, got.body)
	}
}

func TestUnderTLSTheCookieIsTheHostsAlone(t *testing.T) {
	s := startSigning(t, Config{TrustedProxies: []string{"127.0.0.1"}, PublicURL: "https://paddock.test"})
	secure := []string{"Host: paddock.test", "X-Forwarded-Proto: https", "X-Forwarded-For: 192.0.2.7", "Origin: https://paddock.test"}
	got := s.ask(t, "POST /api/v1/signin", s.ticket(t), secure...)
	pass := s.pass(t, got)
	if cookie := got.header.Get("Set-Cookie"); !strings.HasPrefix(cookie, "__Host-paddock=") || !strings.Contains(cookie, "; Secure") || !strings.Contains(cookie, "; Path=/;") || strings.Contains(cookie, "Domain") {
		t.Errorf("the cookie is %s", cookie)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", append(secure[:3:3], pass...)...); got.status != 200 {
		t.Errorf("it is %d %s", got.status, got.body)
	}
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 401 {
		t.Errorf("without TLS it is %d %s", got.status, got.body)
	}
}

func TestWithoutTokensABrowserIsStillTheOperators(t *testing.T) {
	s := startSigning(t, Config{Dev: true})
	if got := s.ask(t, "GET /api/v1/whoami", ""); got.status != 200 || !strings.Contains(got.body, `"tools":null`) {
		t.Errorf("it is %d %s", got.status, got.body)
	}
	pass := s.pass(t, s.ask(t, "POST /api/v1/signin", s.ticket(t)))
	if got := s.ask(t, "GET /api/v1/whoami", "", pass...); got.status != 200 || !strings.Contains(got.body, "approve") {
		t.Errorf("signed in it is %d %s", got.status, got.body)
	}
}

func TestWhoGuessesWaits(t *testing.T) {
	s := startSigning(t, Config{})
	for range maxFailures {
		s.own.failed(t.Context(), &sender{client: s.own.senderOf(&http.Request{RemoteAddr: "127.0.0.1:1", Header: http.Header{}}).client}, fault.New(fault.Denied, "no"))
	}
	if got := s.ask(t, "POST /api/v1/signin", `{"token": "guess"}`); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("it says %d %s", got.status, got.body)
	}
	if got := s.ask(t, "POST /api/v1/signin", s.ticket(t)); got.status != 200 {
		t.Errorf("who has a link hears %d %s", got.status, got.body)
	}
}

func TestABrowserGetsAPageWhereOthersGetTheError(t *testing.T) {
	s := startSigning(t, Config{Console: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		fmt.Fprint(w, "page of ", r.URL.Path)
	})})
	page := "Accept: text/html,application/xhtml+xml,*/*;q=0.8"
	for name, test := range map[string]struct {
		line    string
		headers []string
		status  int
		body    string
	}{
		"a browser":             {"GET /", []string{page, "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"}, 200, "page of /"},
		"a link elsewhere":      {"GET /", []string{page, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 200, "page of /"},
		"a client":              {"GET /", []string{"Accept: */*"}, 404, `"message":"there is nothing at /"`},
		"a client of JSON":      {"GET /", []string{"Accept: application/json"}, 404, `"hint":"the MCP endpoint is /mcp"`},
		"a client without type": {"POST /", nil, 404, "there is nothing at /"},
		"a form":                {"POST /", []string{page}, 405, ""},
		"a page that embeds it": {"GET /", []string{page, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, 403, ""},
		"a name of somebody's":  {"GET /", []string{page, "Host: rebound.test:PORT"}, 403, "is not called"},
		"a file":                {"GET /console/app.js", nil, 200, "page of /console/app.js"},
		"its sessions":          {"GET /console/sessions", nil, 401, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.ask(t, test.line, "", test.headers...)
			if got.status != test.status || !strings.Contains(got.body, test.body) {
				t.Errorf("it says %d %s", got.status, got.body)
			}
			if got.header.Get("X-Frame-Options") != "DENY" {
				t.Error("it may be shown in a frame")
			}
		})
	}
}
