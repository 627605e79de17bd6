//go:build unix

package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
)

// page is a signed-in page of a paddock serve's.
type page struct {
	t      *testing.T
	client http.Client
	base   string
	key    string
}

// do asks as the page does.
func (p *page) do(method, path, body string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", p.base)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if p.key != "" {
		r.Header.Set("X-Paddock-Key", p.key)
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// opened signs a page in by a link of paddock open.
func opened(t *testing.T, state string) *page {
	t.Helper()
	out, err := paddock(t, true, "open", "--state-dir", state).Output()
	base, ticket, ok := strings.Cut(strings.TrimSpace(string(out)), "/#ticket=")
	if err != nil || !ok {
		t.Fatalf("paddock open prints %q (%v)", out, err)
	}
	jar, _ := cookiejar.New(nil) // never fails
	p := &page{t: t, client: http.Client{Jar: jar}, base: base}
	t.Cleanup(p.client.CloseIdleConnections)
	status, body := p.do("POST", "/api/v1/signin", `{"ticket": "`+ticket+`"}`)
	var who struct{ Key string }
	if json.Unmarshal([]byte(body), &who) != nil || who.Key == "" {
		t.Fatalf("the link signs in with %d %s", status, body)
	}
	p.key = who.Key
	return p
}

func TestOpenSignsABrowserInUntilItIsRevoked(t *testing.T) {
	state := t.TempDir()
	s := startServe(t, "--state-dir", state)
	defer s.ends()
	p, other := opened(t, state), opened(t, state)
	if status, body := p.do("GET", "/api/v1/whoami", ""); status != 200 || !strings.Contains(body, `"approve"`) {
		t.Errorf("it is %d %s", status, body)
	}
	if status, body := p.do("GET", "/api/v1/approvals", ""); status != 200 || strings.TrimSpace(body) != `{"approvals":[]}` {
		t.Errorf("what waits is %d %s", status, body)
	}
	// The token of this machine's user signs in too, and decides about nothing.
	plain := &page{t: t, base: p.base}
	plain.client.Jar, _ = cookiejar.New(nil)
	status, body := plain.do("POST", "/api/v1/signin", `{"token": "`+s.token+`"}`)
	var who struct{ Key string }
	if json.Unmarshal([]byte(body), &who) != nil || status != 200 {
		t.Fatalf("the token signs in with %d %s", status, body)
	}
	plain.key = who.Key
	if status, body := plain.do("GET", "/api/v1/approvals", ""); status != 403 {
		t.Errorf("with it approvals are %d %s", status, body)
	}
	plain.client.CloseIdleConnections()
	if status, body := other.do("POST", "/api/v1/signout", ""); status != 200 {
		t.Errorf("signing out says %d %s", status, body)
	}
	if out, err := paddock(t, true, "open", "--revoke", "--state-dir", state).Output(); err != nil || string(out) != "2\n" {
		t.Errorf("paddock open --revoke prints %q (%v)", out, err)
	}
	for _, one := range []*page{p, other, plain} {
		if status, body := one.do("GET", "/api/v1/whoami", ""); status != 401 {
			t.Errorf("afterwards it is %d %s", status, body)
		}
	}
	out, err := paddock(t, true, "audit", "ls", "--json", "--state-dir", state).Output()
	if err != nil {
		t.Fatal(err)
	}
	for action, want := range map[string]int{"sign_in_link": 2, "sign_in": 3, "sign_out": 1, "sign_in_revoke": 1} {
		if n := strings.Count(string(out), `"action": "`+action+`"`); n != want {
			t.Errorf("%s is recorded %d times, want %d", action, n, want)
		}
	}
	if strings.Contains(string(out), p.key) || strings.Contains(s.before, "#ticket") {
		t.Error("a record or the server's log has what lets in")
	}
}
