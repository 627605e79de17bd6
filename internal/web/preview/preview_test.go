package preview_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/web/preview"
)

func tell(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s host=%s\n", r.Method, r.RequestURI, r.Host)
	_ = r.Header.Write(w)
	_, _ = io.Copy(w, r.Body)
}

func TestALinkOpensWhatAProgramServes(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	made, got := h.make(t, annToken, id, `{"port": 8000, "path": "/start?a=1", "ttl_seconds": 600}`)
	switch {
	case got.status != 201:
		t.Fatalf("got.status = %v, want 201: %s", got.status, got.body)
	case made.Port != 8000:
		t.Fatalf("made.Port = %v, want 8000: %d, %s", made.Port, got.status, got.body)
	case made.Session != id:
		t.Fatalf("made.Session = %v, want %v: %d, %s", made.Session, id, got.status, got.body)
	case time.Until(made.Expires) > 10*time.Minute:
		t.Fatalf("time.Until(made.Expires) = %v, want at most %v: %d, %s",
			time.Until(made.Expires), 10*time.Minute, got.status, got.body)
	}
	if !strings.HasPrefix(made.URL, "http://"+made.ID+".localhost:"+h.port+"/.paddock/open/") {
		t.Errorf("the URL is %s", made.URL)
	}
	c := h.browser(t)
	var cookie string
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		cookie = r.Response.Header.Get("Set-Cookie")
		if to := r.Response.Header.Get("Location"); to != "/start?a=1" {
			t.Errorf("it leads to %s", to)
		}
		return nil
	}
	got = do(t, c, "GET", made.URL, "")
	if !strings.Contains(got.body, "GET /start?a=1 host="+made.ID+".localhost:"+h.port) {
		t.Errorf("the program: got.body = %q, want %q in it",
			got.body, "GET /start?a=1 host="+made.ID+".localhost:"+h.port)
	} else if strings.Contains(got.body, "Referer") {
		t.Errorf(`the program: got.body = %q, want no "Referer" in it`, got.body)
	}
	for _, want := range []string{"paddock-preview=", "Path=/", "Max-Age=", "HttpOnly", "SameSite=Lax"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie: cookie = %q, want %q in it", cookie, want)
		} else if strings.Contains(cookie, "Domain") {
			t.Errorf(`the cookie: cookie = %q, want no "Domain" in it`, cookie)
		}
	}
	at := "http://" + made.ID + ".localhost:" + h.port
	got = do(t, c, "POST", at+"/a%2Fb?x=;&y=%zz", "body", "Authorization", "Bearer "+annToken, "Cookie", "own=1; paddock-preview=x; __Host-paddock-preview=y",
		"X-Forwarded-For", "1.2.3.4", "X-Forwarded-User", "root", "Forwarded", "for=1.2.3.4", "X-Real-Ip", "1.2.3.4", "Origin", at, "Te", "trailers",
		// What programs behind CGI or WSGI take for the same names.
		"X_Forwarded_For", "1.2.3.4", "x-forwarded_for", "1.2.3.4", "X.Forwarded.For", "1.2.3.4", "X_Forwarded-Host", "1.2.3.4", "X_Real_IP", "1.2.3.4", "Proxy_Authorization", annToken,
		"X_Own", "kept")
	for _, want := range []string{"POST /a%2Fb?x=;&y=%zz host=", "\r\nbody", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-Host: " + made.ID, "X-Forwarded-Proto: http\r\n", "Cookie: own=1\r\n", "X_own: kept\r\n"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("there is no %q in %s", want, got.body)
		}
	}
	value, _, _ := strings.Cut(strings.TrimPrefix(cookie, "paddock-preview="), ";")
	for _, secret := range []string{value, strings.Split(made.URL, "/open/")[1], annToken, "paddock-preview", "Authorization", "1.2.3.4", "X-Forwarded-User"} {
		if strings.Contains(got.body, secret) {
			t.Errorf("the program sees %q in %s", secret, got.body)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := strings.Join(h.events, ","); all != "made ann 8000 ,opened ann 8000 " {
		t.Errorf("it tells of %q", all)
	}
}

func TestNothingReachesASessionWithoutWhatLetsIn(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	var asked atomic.Int64
	h.program(t, 8000, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	h.program(t, 9000, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	id := h.session(t, ann)
	in, _, at := h.enter(t, id, 8000)
	other, _ := h.make(t, annToken, id, `{"port": 9000}`)
	theirs, _ := h.make(t, bobToken, h.session(t, bob), `{"port": 8000}`)
	u, _ := url.Parse(at)
	mine := in.Jar.Cookies(u)[0].Value
	signature := func(s preview.Shown) string { return strings.Split(s.URL, "/open/")[1] }
	address := func(s preview.Shown) string { return strings.Split(s.URL, "/.paddock/")[0] }
	stranger := h.browser(t)
	stranger.Jar = nil
	for name, test := range map[string]struct{ to, cookie string }{
		"no cookie":                       {at + "/", ""},
		"an empty one":                    {at + "/", "paddock-preview="},
		"the cookie of another port":      {address(other) + "/", "paddock-preview=" + mine},
		"the cookie of another owner":     {address(theirs) + "/", "paddock-preview=" + mine},
		"a link as a cookie":              {address(other) + "/", "paddock-preview=" + signature(other)},
		"a cookie that is cut":            {at + "/", "paddock-preview=" + mine[:42]},
		"a cookie with more":              {at + "/", "paddock-preview=" + mine + "A"},
		"a cookie under another name":     {at + "/", "Paddock-Preview=" + mine},
		"seventeen wrong ones before it":  {at + "/", strings.Repeat("paddock-preview=x; ", 17) + "paddock-preview=" + mine},
		"a cookie as a link":              {at + "/.paddock/open/" + mine, ""},
		"a link of another preview":       {at + "/.paddock/open/" + signature(other), ""},
		"a link of another owner's":       {at + "/.paddock/open/" + signature(theirs), ""},
		"no signature":                    {at + "/.paddock/open/", ""},
		"an id that no preview has":       {"http://aaaaaaaaaaaaaaaaaaaaaaaaaa.localhost/", "paddock-preview=" + mine},
		"a session of another in its id":  {"http://" + string(id) + ".localhost/", "paddock-preview=" + mine},
		"what belongs to paddock's pages": {at + "/.paddock/", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if test.cookie != "" {
				headers = []string{"Cookie", test.cookie}
			}
			got := do(t, stranger, "GET", test.to, "", append(headers, "Accept", "text/html")...)
			switch {
			case got.status != 403:
				t.Errorf("got.status = %v, want 403: %s", got.status, got.body)
			case !strings.Contains(got.body, "This is paddock, not the program"):
				t.Errorf(`got.body = %q, want "This is paddock, not the program" in it`, got.body)
			case got.header.Get("Set-Cookie") != "":
				t.Errorf(`header Set-Cookie = %q, want ""`, got.header.Get("Set-Cookie"))
			}
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests reached a program", n)
	}
	if got := do(t, stranger, "GET", at, "", "Cookie", "a=b; paddock-preview=wrong; paddock-preview="+mine); got.status != 200 {
		t.Errorf("with one wrong cookie beside it: %d %s", got.status, got.body)
	}
	if got := do(t, in, "GET", at+"/.paddock/anything", ""); got.status != 404 {
		t.Errorf("what is paddock's own reaches a program: got.status = %d, want 404: %s", got.status, got.body)
	} else if asked.Load() != 1 {
		t.Errorf("what is paddock's own reaches a program: asked = %d, want 1", asked.Load())
	}
	if got := h.raw(t, "GET / HTTP/1.1\r\nHost: ..%2f..%2fx.localhost\r\nConnection: close\r\n\r\n"); strings.Contains(got, " 200 ") {
		t.Errorf("an id that is a path gives %s", got)
	}
	for _, method := range []string{"TRACE", "POST"} {
		if got := do(t, in, method, at+"/.paddock/open/x", ""); got.status < 400 {
			t.Errorf("%s a link: %d", method, got.status)
		}
	}
	if got := do(t, in, "TRACE", at, ""); got.status != 405 {
		t.Errorf("TRACE: got.status = %d, want 405: %s", got.status, got.body)
	} else if asked.Load() != 1 {
		t.Errorf("TRACE: asked = %d, want 1", asked.Load())
	}
}

func TestPagesOfOtherOriginsReachNoPreview(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, tell)
	id := h.session(t, ann)
	c, made, at := h.enter(t, id, 8000)
	_, _, sibling := h.enter(t, id, 8000)
	for _, test := range []struct {
		name, method string
		status       int
		headers      []string
	}{
		{"its own page", "POST", 200, []string{"Origin", at, "Sec-Fetch-Site", "same-origin"}},
		{"a person", "GET", 200, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"somebody who follows a link", "GET", 200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a page of a sibling", "GET", 403, []string{"Origin", sibling}},
		{"paddock's own page", "POST", 403, []string{"Origin", h.base}},
		{"a page of another port", "GET", 403, []string{"Origin", "http://" + made.ID + ".localhost:1"}},
		{"a page over TLS", "GET", 403, []string{"Origin", strings.Replace(at, "http:", "https:", 1)}},
		{"a page without an origin", "POST", 403, []string{"Origin", "null"}},
		{"a form of its own page, which sends no referrers", "POST", 200, []string{"Origin", "null", "Sec-Fetch-Site", "same-origin"}},
		{"a form in a frame without an origin", "POST", 403, []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}},
		{"two origins", "GET", 403, []string{"Origin", at, "Origin", "http://evil.example"}},
		{"an image on a sibling's page", "GET", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{"a frame on another page", "GET", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"a form of another page", "POST", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a WebSocket of a sibling's page", "GET", 403, []string{"Origin", sibling, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Key", "x", "Sec-Websocket-Version", "13"}},
		{"a service worker of its own", "GET", 403, []string{"Service-Worker", "script", "Sec-Fetch-Site", "same-origin"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := do(t, c, test.method, at+"/", "", test.headers...); got.status != test.status {
				t.Errorf("it says %d %s", got.status, got.body)
			}
		})
	}
}

func TestNoProgramIsTakenForPaddock(t *testing.T) {
	h := open(t, t.TempDir(), nil)
	h.program(t, 8000, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "program ", r.URL.Path) })
	c, made, at := h.enter(t, h.session(t, ann), 8000)
	for _, path := range []string{"/mcp", "/healthz", "/metrics", "/v1/sessions/x/files/y", "/api/v1/approvals", "/api/v1/sessions/x/previews", "/.well-known/oauth-protected-resource"} {
		if got := do(t, c, "GET", at+path, "", "Authorization", "Bearer "+annToken); got.body != "program "+path {
			t.Errorf("at %s there is %d %s", path, got.status, got.body)
		}
	}
	for name, test := range map[string]struct {
		status  int
		headers []string
	}{
		"its origin":            {403, []string{"Origin", at}},
		"its origin, with JSON": {403, []string{"Origin", at, "Content-Type", "application/json", "Authorization", "Bearer " + annToken}},
		"its site":              {403, []string{"Sec-Fetch-Site", "same-site", "Authorization", "Bearer " + annToken}},
		"its cookie":            {401, nil},
	} {
		if got := do(t, c, "POST", h.base+"/mcp", "{}", append(test.headers, "Content-Type", "application/json")...); got.status != test.status {
			t.Errorf("%s: got.status = %d, want %d: %s", name, got.status, test.status, got.body)
		} else if got.body == "MCP" {
			t.Errorf("%s: got.body = %q, want another", name, got.body)
		}
	}
	u, _ := url.Parse(h.base)
	if cookies := c.Jar.Cookies(u); len(cookies) != 0 {
		t.Errorf("paddock is sent %v", cookies)
	}
	// Names that are none of ours, which somebody's DNS has lead here.
	for _, host := range []string{"evil.example", made.ID + ".evil.example", made.ID + ".localhost.evil.example", made.ID + ".localhost.:" + h.port, "x." + made.ID + ".localhost:" + h.port, ".localhost", made.ID + "localhost"} {
		u, _ := url.Parse(at)
		got := h.raw(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\nCookie: paddock-preview="+c.Jar.Cookies(u)[0].Value+"\r\n\r\n")
		if strings.Contains(got, "program") {
			t.Errorf(`as %s: got %q, want no "program" in it`, host, got)
		} else if !strings.HasPrefix(got, "HTTP/1.1 403") {
			t.Errorf(`as %s: got %q, want it to begin with "HTTP/1.1 403"`, host, got)
		}
	}
	if got := do(t, c, "GET", at, "", "Host", strings.ToUpper(made.ID)+".LOCALHOST:"+h.port); !strings.Contains(got.body, "program") {
		t.Errorf("in capitals: %d %s", got.status, got.body)
	}
}
