package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
	"paddock/internal/session"
)

func get(t *testing.T, c Config, path string, who *auth.Principal, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if who != nil {
		r = r.WithContext(auth.With(r.Context(), who))
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func none(session.Owner) ([]session.Info, error) { return nil, nil }

func TestThePagesLoadNothingFromElsewhere(t *testing.T) {
	c := Config{Sessions: none, Files: fstest.MapFS{"index.html": {Data: []byte("page")}, "app.js": {Data: []byte("script")}, "README.md": {Data: []byte("x")}, "stamp": {}}}
	w := get(t, c, "/", nil)
	if w.Code != 200 || w.Body.String() != "page" || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("the page is %d %s %v", w.Code, w.Body, w.Header())
	}
	said := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
		if !strings.Contains(said, part) {
			t.Errorf("the policy %q has no %q", said, part)
		}
	}
	if strings.Contains(said, "unsafe") || strings.Contains(said, "http") || strings.Contains(said, "*") {
		t.Errorf("the policy is %q", said)
	}
	w = get(t, c, "/console/app.js", nil)
	if w.Code != 200 || w.Body.String() != "script" || w.Header().Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("the script is %d %s %v", w.Code, w.Body, w.Header())
	}
	if w := get(t, c, "/console/app.js", nil, "If-None-Match", w.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("the same script again is %d", w.Code)
	}
	for _, path := range []string{"/console/README.md", "/console/stamp", "/console/../index.html", "/console/", "/console/x.js"} {
		if w := get(t, c, path, nil); w.Code != 404 {
			t.Errorf("%s is %d %s", path, w.Code, w.Body)
		}
	}
}

func TestAPaddockWithoutItsConsoleSaysSo(t *testing.T) {
	w := get(t, Config{Sessions: none, Files: fstest.MapFS{"README.md": {Data: []byte("x")}}}, "/", nil, "Accept", "text/html")
	if w.Code != 404 || w.Body.String() != NotBuilt || strings.Count(NotBuilt, "\n") != 1 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("it says %d %q", w.Code, w.Body)
	}
}

func TestSessionsAreThoseOfWhoAsks(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := Config{Files: fstest.MapFS{}, Sessions: func(o session.Owner) ([]session.Info, error) {
		switch o {
		case "token:a":
			return []session.Info{{ID: "s-1", Owner: o, Settings: session.Settings{Name: "<b>", Machine: &session.Machine{Image: "debian"}}, Isolation: "linux", State: "live", CreatedAt: at, Executions: 3, Waiting: &session.WaitingRun{}}}, nil
		case "token:b":
			return nil, nil
		}
		return nil, fault.New(fault.Unavailable, "the store is not there")
	}}
	var got struct{ Sessions []shown }
	w := get(t, c, SessionsPath, &auth.Principal{ID: "token:a"})
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.Sessions) != 1 {
		t.Fatalf("it says %d %s", w.Code, w.Body)
	}
	if want := (shown{ID: "s-1", Name: "<b>", Isolation: "linux", Image: "debian", State: "live", Created: at, Executions: 3, Waiting: true}); got.Sessions[0] != want {
		t.Errorf("it has %+v", got.Sessions[0])
	}
	if w := get(t, c, SessionsPath, &auth.Principal{ID: "token:b"}); strings.TrimSpace(w.Body.String()) != `{"sessions":[]}` {
		t.Errorf("another's are %s", w.Body)
	}
	if w := get(t, c, SessionsPath, &auth.Principal{ID: "x"}); w.Code != 503 || !strings.Contains(w.Body.String(), "the store is not there") {
		t.Errorf("an error is %d %s", w.Code, w.Body)
	}
	if w := get(t, c, SessionsPath, nil); w.Code != 403 {
		t.Errorf("without a principal it is %d %s", w.Code, w.Body)
	}
}
