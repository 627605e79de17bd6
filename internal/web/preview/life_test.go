package preview_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/web"
	"paddock/internal/web/preview"
)

func TestAPreviewEndsWithItsTimeItsSessionAndWhenItIsRevoked(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	id := h.session(t, ann)
	revokesAPreview(t, h, id)
	endsASession(t, h, id)
	makesASessionAgain(t, h, dir)
	forgesAPreview(t, h, dir)
}

// wantClosed checks that neither who is in a preview nor who has its link reaches the program.
func wantClosed(t *testing.T, h *fixture, name string, c *http.Client, made preview.Shown, at string) {
	t.Helper()
	if got := do(t, c, "GET", at, ""); got.status != 403 {
		t.Errorf("%s: the status is %d, want 403: %s", name, got.status, got.body)
	}
	if got := do(t, h.browser(t), "GET", made.URL, ""); got.status != 403 {
		t.Errorf("%s: the link's status is %d, want 403: %s", name, got.status, got.body)
	}
}

// revokesAPreview checks that its owner revokes a preview, and no one else does.
func revokesAPreview(t *testing.T, h *fixture, id session.ID) {
	t.Helper()
	c, made, at := h.enter(t, id, 8000)
	one := h.base + "/api/v1/sessions/" + string(id) + "/previews/" + made.ID
	if got := do(t, http.DefaultClient, "DELETE", one, "", "Authorization", "Bearer "+bobToken); got.status != 404 {
		t.Errorf("somebody else revokes it: %d %s", got.status, got.body)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" {
		t.Fatalf("it says %d %s", got.status, got.body)
	}
	if got := do(t, http.DefaultClient, "DELETE", one, "", "Authorization", "Bearer "+annToken); got.status != 200 {
		t.Errorf("revoking: got.status = %d, want 200: %s", got.status, got.body)
	} else if !strings.Contains(got.body, made.ID) {
		t.Errorf("revoking: got.body = %q, want %q in it", got.body, made.ID)
	}
	wantClosed(t, h, "revoked", c, made, at)
}

// endsASession checks that a preview ends with its session, of which a fork has none.
func endsASession(t *testing.T, h *fixture, id session.ID) {
	t.Helper()
	c, made, at := h.enter(t, id, 8000)
	forks, err := h.sessions.Fork(t.Context(), ann, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := h.store.List(ann, forks[0].ID); err != nil {
		t.Errorf("a fork: got error %v, want none", err)
	} else if len(all) != 0 {
		t.Errorf("a fork: len(all) = %d, want none: %+v", len(all), all)
	}
	if err := h.sessions.Destroy(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	wantClosed(t, h, "without its session", c, made, at)
}

// makesASessionAgain checks that a session of the same id is another one, also where the
// preview's file was put back.
func makesASessionAgain(t *testing.T, h *fixture, dir string) {
	t.Helper()
	name := session.ID("again")
	create := func() {
		if _, err := h.sessions.Create(t.Context(), ann, name, session.Settings{}); err != nil {
			t.Fatal(err)
		}
		if err := h.sessions.Boot(t.Context(), ann, name); err != nil {
			t.Fatal(err)
		}
	}
	create()
	c, made, at := h.enter(t, name, 8000)
	file := filepath.Join(dir, "previews", made.ID+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.sessions.Destroy(t.Context(), ann, name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	create()
	wantClosed(t, h, "with another session of its id", c, made, at)
}

// forgesAPreview checks that what a preview's file says is nothing without its signature.
func forgesAPreview(t *testing.T, h *fixture, dir string) {
	t.Helper()
	c, made, at := h.enter(t, h.session(t, ann), 8000)
	file := filepath.Join(dir, "previews", made.ID+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{`"port":8000`: `"port":22`, made.Expires.UTC().Format(time.RFC3339): made.Expires.Add(time.Hour).UTC().Format(time.RFC3339)} {
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		wantClosed(t, h, "with another "+from, c, made, at)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" {
		t.Errorf("as it was it says %d %s", got.status, got.body)
	}
}

func TestAPreviewExpires(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	id := h.session(t, ann)
	made, _ := h.make(t, annToken, id, `{"port": 8000, "ttl_seconds": 2}`)
	c := h.browser(t)
	res, err := c.Get(made.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer without end ends well")
	}
	if got := do(t, c, "GET", strings.Split(made.URL, "/.paddock/")[0], ""); got.status != 403 {
		t.Errorf("then it says %d %s", got.status, got.body)
	}
	if all, err := h.store.List(ann, id); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(all) != 0 {
		t.Errorf("len(all) = %d, want none: %+v", len(all), all)
	}
}

func TestAPreviewOutlivesItsServer(t *testing.T) {
	dir := t.TempDir()
	h := open(t, dir, nil)
	id := h.session(t, ann)
	c, made, _ := h.enter(t, id, 8000)
	jar := c.Jar.(*cookiejar.Jar)
	h.stop()
	h = open(t, dir, nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	if err := h.sessions.Boot(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	c = h.browser(t)
	c.Jar = jar // cookies know no ports
	if got := do(t, c, "GET", h.server.PreviewURL(made.ID), ""); got.body != "program" {
		t.Errorf("it says %d %s", got.status, got.body)
	}
}

func TestASessionThatSleepsIsWokenIfItsMachineWasSaved(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program") })
	id := h.session(t, ann)
	c, _, at := h.enter(t, id, 8000)
	state := func() session.State {
		i, err := h.sessions.Info(ann, id)
		if err != nil {
			t.Fatal(err)
		}
		return i.State
	}
	if err := h.sessions.Sleep(ann, id); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.body != "program" {
		t.Errorf(`asleep: got.body = %q, want "program"`, got.body)
	} else if state() != session.Live {
		t.Errorf("asleep: state() = %q, want %q", state(), session.Live)
	}
	if err := h.sessions.Halt(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	if got := do(t, c, "GET", at, ""); got.status != 503 {
		t.Errorf("stopped: got.status = %d, want 503: %s", got.status, got.body)
	} else if !strings.Contains(got.body, "is stopped") {
		t.Errorf(`stopped: got.body = %q, want "is stopped" in it`, got.body)
	}
	if err := h.sessions.Boot(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	h.backend.serves(8000, "")
	switch got := do(t, c, "GET", at, "", "Accept", "text/html"); {
	case got.status != 502:
		t.Errorf("where no program listens: got.status = %v, want 502: %s", got.status, got.body)
	case !strings.Contains(got.body, "listens at port 8000"):
		t.Errorf(`where no program listens: got.body = %q, want "listens at port 8000" in it`, got.body)
	case !strings.Contains(got.body, "start a program there"):
		t.Errorf(`where no program listens: got.body = %q, want "start a program there" in it`, got.body)
	}
	if _, err := h.sessions.Reset(t.Context(), ann, id); err != nil {
		t.Fatal(err)
	}
	switch got := do(t, c, "GET", at, ""); {
	case got.status != 502:
		t.Errorf("without a machine: got.status = %v, want 502: %s", got.status, got.body)
	case !strings.Contains(got.body, "no machine of the session"):
		t.Errorf(`without a machine: got.body = %q, want "no machine of the session" in it`, got.body)
	case state() == session.Live:
		t.Errorf("without a machine: state() = %v, want other than %v: %d, %s",
			state(), session.Live, got.status, got.body)
	}
}

func TestWhoMayMakeWhichPreviews(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	id := h.session(t, ann)
	guest, err := h.sessions.Create(t.Context(), ann, "", session.Settings{Isolation: "wasm"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token  string
		id     session.ID
		ask    string
		status int
		says   string
	}{
		"another owner's":            {bobToken, id, `{"port":8000}`, 404, "there is no session"},
		"a token for files":          {filesToken, id, `{"port":8000}`, 403, "not good for previews"},
		"an unknown token":           {"wrong-token-0123456789", id, `{"port":8000}`, 401, ""},
		"a session in WebAssembly":   {annToken, guest.ID, `{"port":8000}`, 501, "listen at no ports"},
		"no port":                    {annToken, id, `{}`, 400, "a port lies between"},
		"too large a port":           {annToken, id, `{"port":65536}`, 400, "not what is expected"},
		"another field":              {annToken, id, `{"port":1,"host":"x"}`, 400, "not what is expected"},
		"too long a time":            {annToken, id, `{"port":1,"ttl_seconds":86401}`, 400, "ttl_seconds"},
		"a time below nothing":       {annToken, id, `{"port":1,"ttl_seconds":-1}`, 400, "ttl_seconds"},
		"a path of another host":     {annToken, id, `{"port":1,"path":"//evil.example"}`, 400, "is not one of the preview's"},
		"a path with a backslash":    {annToken, id, `{"port":1,"path":"/\\evil.example"}`, 400, "is not one of the preview's"},
		"a path with a line":         {annToken, id, `{"port":1,"path":"/a\r\nSet-Cookie: a=b"}`, 400, "is not one of the preview's"},
		"a path that is paddock's":   {annToken, id, `{"port":1,"path":"/.paddock/open/x"}`, 400, "is not one of the preview's"},
		"a session that never was":   {annToken, "nothing", `{"port":1}`, 404, "there is no session"},
		"what is not a session's id": {annToken, "..%2Fx", `{"port":1}`, 400, "a session id has"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := h.make(t, test.token, test.id, test.ask); got.status != test.status {
				t.Errorf("got.status = %d, want %d: %s", got.status, test.status, got.body)
			} else if !strings.Contains(got.body, test.says) {
				t.Errorf("got.body = %q, want %q in it", got.body, test.says)
			}
		})
	}
	for range 3 {
		if _, got := h.make(t, annToken, id, `{"port":8000}`); got.status != 201 {
			t.Fatalf("it says %d %s", got.status, got.body)
		}
	}
	list := h.base + "/api/v1/sessions/" + string(id) + "/previews"
	if got := do(t, http.DefaultClient, "GET", list, "", "Authorization", "Bearer "+annToken); strings.Count(got.body, `"preview_id"`) != 3 {
		t.Errorf("got %d previews, want 3: %s", strings.Count(got.body, `"preview_id"`), got.body)
	} else if strings.Contains(got.body, "open/") {
		t.Errorf(`got.body = %q, want no "open/" in it`, got.body)
	}
	if got := do(t, http.DefaultClient, "GET", list, "", "Authorization", "Bearer "+bobToken); got.status != 404 {
		t.Errorf("somebody else is told %d %s", got.status, got.body)
	}
	if got := do(t, http.DefaultClient, "PATCH", list, "", "Authorization", "Bearer "+annToken); got.status != 405 {
		t.Errorf("PATCH: %d %s", got.status, got.body)
	}
	for range 300 {
		if _, got := h.make(t, annToken, id, `{"port":8000}`); got.status == 429 {
			return
		}
	}
	t.Error("there is no end to previews")
}

func TestOverTLSTheCookieIsThisHostsAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	h := open(t, t.TempDir(), func(c *web.Config, _ *preview.Config) {
		c.Port = port
		c.PublicURL, c.PreviewDomain, c.TrustedProxies = "https://paddock.example.com", "Preview.example.net", []string{"127.0.0.1"}
	})
	h.base = fmt.Sprint("http://127.0.0.1:", port)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	r := []string{"Authorization", "Bearer " + annToken, "X-Forwarded-Proto", "https", "X-Forwarded-Host", "paddock.example.com", "Content-Type", "application/json"}
	got := do(t, http.DefaultClient, "POST", h.base+"/api/v1/sessions/"+string(id)+"/previews", `{"port":8000}`, r...)
	at, _, _ := strings.Cut(strings.SplitN(got.body, `"url":"`, 2)[1], `"`)
	u, err := url.Parse(at)
	switch {
	case err != nil:
		t.Fatalf("the URL is %s: %v", at, err)
	case u.Scheme != "https":
		t.Fatalf(`the URL is %s: u.Scheme = %q, want "https"`, at, u.Scheme)
	case !strings.HasSuffix(u.Host, ".preview.example.net"):
		t.Fatalf(`the URL is %s: u.Host = %q, want suffix ".preview.example.net"`, at, u.Host)
	}
	forwarded := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", u.Host, "X-Forwarded-For", "192.0.2.7"}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got = do(t, c, "GET", h.base+u.Path, "", forwarded...)
	cookie := got.header.Get("Set-Cookie")
	switch {
	case !strings.HasPrefix(cookie, "__Host-paddock-preview="):
		t.Fatalf(`it says %d, with the cookie: cookie = %q, want prefix "__Host-paddock-preview="`,
			got.status, cookie)
	case !strings.Contains(cookie, "; Secure"):
		t.Fatalf(`it says %d, with the cookie: cookie = %q, want "; Secure" in it`, got.status, cookie)
	case strings.Contains(cookie, "Domain"):
		t.Fatalf(`it says %d, with the cookie: cookie = %q, want no "Domain" in it`, got.status, cookie)
	}
	value, _, _ := strings.Cut(cookie, ";")
	got = do(t, c, "GET", h.base+"/", "", append(forwarded, "Cookie", value)...)
	switch {
	case !strings.Contains(got.body, "host="+u.Host):
		t.Errorf("the program sees: got.body = %q, want %q in it", got.body, "host="+u.Host)
	case !strings.Contains(got.body, "X-Forwarded-Proto: https"):
		t.Errorf(`the program sees: got.body = %q, want "X-Forwarded-Proto: https" in it`, got.body)
	case !strings.Contains(got.body, "X-Forwarded-For: 192.0.2.7"):
		t.Errorf(`the program sees: got.body = %q, want "X-Forwarded-For: 192.0.2.7" in it`, got.body)
	}
	plain := strings.Repeat("paddock-preview=x; ", 17) // which pages of sibling hosts can set
	if got := do(t, c, "GET", h.base+"/", "", append(forwarded, "Cookie", plain+value)...); got.status != 200 {
		t.Errorf("beside cookies of siblings: got.status = %d, want 200: %s", got.status, got.body)
	} else if strings.Contains(got.body, "paddock-preview") {
		t.Errorf(`beside cookies of siblings: got.body = %q, want no "paddock-preview" in it`, got.body)
	}
	if got := do(t, c, "GET", h.base+"/", "", append(forwarded, "Cookie", strings.TrimPrefix(value, "__Host-"))...); got.status != 403 {
		t.Errorf("with a cookie that a sibling can set it says %d %s", got.status, got.body)
	}
	if got := do(t, c, "GET", h.base+"/", "", "Host", strings.Split(u.Host, ".")[0]+".localhost", "Cookie", value); got.status != 403 {
		t.Errorf("at localhost it says %d %s", got.status, got.body)
	}
}

func TestADomainOfPreviewsIsForNothingElse(t *testing.T) {
	for _, domain := range []string{"paddock.example.com", "example.com", "localhost", "127.0.0.1", "a..example", "-a.example", "a.example:80", "*.example.com", "exa mple.com"} {
		_, err := web.New(web.Config{Dev: true, PublicURL: "https://paddock.example.com", PreviewDomain: domain})
		if f := fault.Of(err); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: got an error of the kind %q, want %q: %v", domain, fault.KindOf(err), fault.Invalid, err)
		} else if !strings.Contains(f.Hint, "preview_domain") {
			t.Errorf(`%s: f.Hint = %q, want "preview_domain" in it`, domain, f.Hint)
		}
	}
	if _, err := web.New(web.Config{Dev: true, PublicURL: "https://paddock.example.com", PreviewDomain: "previews.example.com"}); err != nil {
		t.Error(err)
	}
}
