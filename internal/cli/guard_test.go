package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/cli/config"
	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

func TestServeSaysAtTheStartWhatNobodyCouldUse(t *testing.T) {
	for _, test := range []struct {
		name, file, content, want string
	}{
		{"damaged tokens", "tokens.json", "{", "paddock: error: the file tokens.json in the state folder is damaged\npaddock: hint: "},
		{"an audit log that cannot be written", "audit", "", "paddock: error: the audit log cannot be written in "},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			state := filepath.Join(dir, "state")
			t.Setenv("PADDOCK_STATE_DIR", state)
			t.Setenv("PADDOCK_CACHE_DIR", filepath.Join(dir, "cache"))
			t.Setenv("XDG_CONFIG_HOME", dir)
			t.Setenv("GOMEMLIMIT", "off") // and this process keeps its own
			t.Setenv("GOGC", "100")
			if err := errors.Join(os.MkdirAll(state, 0o700), os.WriteFile(filepath.Join(state, test.file), []byte(test.content), 0o600)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a server that starts all the same
			defer cancel()
			var stdout, stderr bytes.Buffer
			p := &program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, newBackends: newFake}
			if code := p.main(ctx, []string{"serve", "--port", "0"}); code != exitFailed || !strings.HasPrefix(stderr.String(), test.want) || !strings.Contains(stderr.String(), "paddock: hint: ") {
				t.Errorf("it ended with %d and said\n%s", code, &stderr)
			}
		})
	}
}

func TestOnlyWhoMayStillActHasLinks(t *testing.T) {
	p := &program{places: places{state: t.TempDir()}, config: &config.Config{}}
	tokens := auth.OpenTokens(p.places.state)
	_, made, err := tokens.Create(auth.Token{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	_, revoked, err := tokens.Create(auth.Token{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tokens.Revoke("b"); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[session.Owner]fault.Kind{
		auth.Local: "", "oauth:abc": "", session.Owner("token:" + made.ID): "", session.Owner("token:" + revoked.ID): fault.Denied, configured: fault.Denied,
	} {
		if err := p.alive()(owner); fault.KindOf(err) != want {
			t.Errorf("%s: %v", owner, err)
		}
	}
	p.config.HTTP.AuthToken = "configured-token-of-the-test"
	if err := p.alive()(configured); err != nil {
		t.Error(err)
	}
}

func TestWhoListensKeepsItsCallsIn(t *testing.T) {
	g, err := limit.New(limit.Config{Concurrent: 1, Streams: 2})
	if err != nil {
		t.Fatal(err)
	}
	o := &parts{gate: g}
	stream := httptest.NewRequest("POST", "/mcp", nil)
	stream.Header.Set("Mcp-Method", "subscriptions/listen")
	for _, r := range []*http.Request{httptest.NewRequest("GET", "/mcp", nil), stream} {
		if _, err := o.admit(t.Context(), "a", listens(r)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.admit(t.Context(), "a", listens(stream)); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one stream too many: %v", err)
	}
	call := listens(httptest.NewRequest("POST", "/mcp", nil))
	if _, err := o.admit(t.Context(), "a", call); err != nil {
		t.Errorf("a call: %v", err)
	}
	if _, err := o.admit(t.Context(), "a", call); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one call too many: %v", err)
	}
}

func TestWhatHappensToFilesAndAtTheProxyIsRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	o := &parts{audit: audit.New(audit.Config{Dir: dir})}
	defer o.audit.Close()
	ctx := t.Context()
	denied := fault.New(fault.Denied, "no")
	o.failed(ctx, web.Failures{From: netip.MustParseAddr("192.0.2.1"), Count: 25, Last: denied})
	o.touchedFile(ctx, "alice", "s", "f", false, nil)
	o.touchedFile(ctx, "alice", "s", "f", true, denied)
	o.movedFile(ctx, files.Moved{Owner: "alice", Session: "s", Path: "f", Write: true, Link: true})
	links, err := files.OpenLinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := linkWith(o, links)(ctx, "alice", "s", "g"); err != nil {
		t.Fatal(err)
	}
	want := []audit.Record{
		{Action: "auth_failure", Target: "192.0.2.1", Count: 25, Outcome: "error", ErrorType: "denied"},
		{Action: "file_read", Principal: "alice", Session: "s", Target: "f", Outcome: "success"},
		{Action: "file_write", Principal: "alice", Session: "s", Target: "f", Outcome: "error", ErrorType: "denied"},
		{Action: "link_create", Principal: "alice", Session: "s", Target: "f", Outcome: "success"},
		{Action: "link_create", Principal: "alice", Session: "s", Target: "g", Outcome: "success"},
	}
	for r, err := range audit.Read(dir, audit.Filter{}) {
		if err != nil || len(want) == 0 {
			t.Fatalf("a record %+v, %v", r, err)
		}
		if got := (audit.Record{Action: r.Action, Principal: r.Principal, Session: r.Session, Target: r.Target, Count: r.Count, Outcome: r.Outcome, ErrorType: r.ErrorType}); got != want[0] {
			t.Errorf("the record is %+v, want %+v", got, want[0])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("missing are %+v", want)
	}
	if got := about(audit.Record{Target: "192.0.2.1", Count: 25}); got != "192.0.2.1 (25 times)" {
		t.Errorf("a person reads %q", got)
	}
}

func TestFilesBeyondAnIssuersTokenNameTheScope(t *testing.T) {
	var server *web.Server
	beyond := beyondScope(func(w http.ResponseWriter, r *http.Request, err error) { server.Refuse(w, r, err) })
	backend, _ := newFake(places{}, nil, nil, nil)
	defer backend.Close()
	m, err := session.New(session.Config{Dir: t.TempDir(), Backends: backend})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h, err := files.New(files.Config{Sessions: m, Beyond: beyond})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"oauth:abc": `scope="paddock:files"`, "token:abc": ""} {
		server, err = web.New(web.Config{AllowedHosts: []string{"a.test"}, Verifier: auth.Static("a-token", &auth.Principal{ID: id, Tools: []string{"core"}}), Files: h})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "http://a.test/v1/sessions/s/files/f", nil)
		r.Header.Set("Authorization", "Bearer a-token")
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.HasPrefix(w.Body.String(), `{"error":{"code":"denied","message":"the token `) {
			t.Errorf("%s: %d %s", id, w.Code, w.Body)
		}
		if challenge := w.Header().Get("WWW-Authenticate"); (challenge != "") != (want != "") || !strings.Contains(challenge, want) {
			t.Errorf("%s: the challenge is %q", id, challenge)
		}
	}
}
