package app

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/audit"
	"paddock/internal/auth"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/limit"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/files"
)

func TestOnlyWhoMayStillActHasLinks(t *testing.T) {
	p := &Env{StateDir: t.TempDir(), Config: &config.Config{}}
	tokens := auth.OpenTokens(p.StateDir)
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
	p.Config.HTTP.AuthToken = "configured-token-of-the-test"
	if err := p.alive()(configured); err != nil {
		t.Error(err)
	}
}

func TestWhoListensKeepsItsCallsIn(t *testing.T) {
	g, err := limit.New(limit.Config{Concurrent: 1, Streams: 2})
	if err != nil {
		t.Fatal(err)
	}
	o := &requestGate{base: &base{gate: g}, endpoint: "/mcp"}
	who := &auth.Principal{ID: "a"}
	stream := httptest.NewRequest("POST", "/mcp", nil)
	stream.Header.Set("Mcp-Method", "subscriptions/listen")
	for _, r := range []*http.Request{httptest.NewRequest("GET", "/mcp", nil), stream} {
		if _, err := o.Admit(t.Context(), who, r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Admit(t.Context(), who, stream); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one stream too many: %v", err)
	}
	call := httptest.NewRequest("POST", "/mcp", nil)
	if _, err := o.Admit(t.Context(), who, call); err != nil {
		t.Errorf("a call: %v", err)
	}
	if _, err := o.Admit(t.Context(), who, call); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one call too many: %v", err)
	}
}

func TestWhatHappensToFilesAndAtTheProxyIsRecorded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	o := &App{base: &base{Audit: audit.New(audit.Config{Dir: dir})}}
	defer o.Audit.Close()
	ctx := t.Context()
	denied := fault.New(fault.Denied, "no")
	requestObserver{o.base}.RequestsFailed(ctx, web.Failures{From: netip.MustParseAddr("192.0.2.1"), Count: 25, Last: denied})
	o.touchedFile(ctx, "alice", "s", "f", false, nil)
	o.touchedFile(ctx, "alice", "s", "f", true, denied)
	o.movedFile(ctx, files.Moved{Owner: "alice", Session: "s", Path: "f", Write: true, Link: true})
	links, err := files.OpenLinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.linkWith(links)(ctx, "alice", "s", "g"); err != nil {
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
}

func TestFilesBeyondAnIssuersTokenNameTheScope(t *testing.T) {
	var server *web.Server
	beyond := beyondScope(func(w http.ResponseWriter, r *http.Request, err error) { server.Refuse(w, r, err) })
	backend := Backends{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})}
	defer backend.Close()
	m, err := session.New(session.Config{Dir: t.TempDir(), Backends: backend})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h, err := files.New(files.Config{Sessions: m, Access: &fileAccess{beyond: beyond}})
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
