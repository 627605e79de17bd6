package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

const (
	to       = "HTTP/1.1\nHost: 127.0.0.1:PORT\n"
	withAuth = to + "Authorization: Bearer " + token + "\n"
)

func TestWhatIsAnsweredToWhom(t *testing.T) {
	metadata := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "metadata") })
	s := start(t, Config{Metadata: metadata, Metrics: http.HandlerFunc(echo), RPC: http.HandlerFunc(echo), Health: http.HandlerFunc(echo)})
	for _, test := range []struct {
		name, request string
		status        int
		body          string
	}{
		{"a call", post("", `{"a":1}`), 200, `ann: {"a":1}`},
		{"a type with its charset", "POST /mcp " + withAuth + "Content-Type: application/json; charset=utf-8\nContent-Length: 0\n\n", 200, "ann: "},
		{"the scheme in small letters", "GET /mcp " + to + "authorization: bearer " + token + "\n\n", 200, "ann: "},
		{"no token", "GET /mcp " + to + "\n", 401, `"code":"denied"`},
		{"another token", "GET /mcp " + to + "Authorization: Bearer wrong\n\n", 401, `"jsonrpc":"2.0"`},
		{"a password", "GET /mcp " + to + "Authorization: Basic " + token + "\n\n", 401, ""},
		{"two tokens", "GET /mcp " + withAuth + "Authorization: Bearer x\n\n", 400, ""},
		{"a token in the URL", "GET /mcp?access_token=" + token + " " + to + "\n", 400, "no place in a URL"},
		{"a token in the URL and one in the header", "GET /mcp?Token=x " + withAuth + "\n", 400, "no place in a URL"},
		{"a token in the URL of an open path", "GET /healthz?api_key=x " + to + "\n", 400, "no place in a URL"},
		{"a form", "POST /mcp " + withAuth + "Content-Type: application/x-www-form-urlencoded\nContent-Length: 0\n\n", 415, "application/json"},
		{"a text, without a token", "POST /mcp " + to + "Content-Type: text/plain\nContent-Length: 0\n\n", 415, ""},
		{"a form with a file", "POST /mcp " + withAuth + "Content-Type: multipart/form-data; boundary=x\nContent-Length: 0\n\n", 415, ""},
		{"no type", "POST /mcp " + withAuth + "Content-Length: 0\n\n", 415, ""},
		{"two types", "POST /mcp " + withAuth + "Content-Type: application/json\nContent-Type: text/plain\nContent-Length: 0\n\n", 415, ""},
		{"files", "PUT /v1/sessions/a/files/b " + withAuth + "Content-Length: 3\n\nabc", 200, "ann: abc"},
		{"files without a token", "GET /v1/sessions/a/files/b " + to + "\n", 401, `{"error":{"code":"denied"`},
		{"metrics", "GET /metrics " + withAuth + "\n", 200, "ann: "},
		{"metrics without a token", "GET /metrics " + to + "\n", 401, ""},
		{"health", "GET /healthz " + to + "\n", 200, `{"status":"ok"}`},
		{"readiness", "GET /readyz " + to + "\n", 200, `{"status":"ready"}`},
		{"another method", "POST /healthz " + to + "Content-Length: 0\n\n", 405, `"invalid"`},
		{"the metadata", "GET /.well-known/oauth-protected-resource " + to + "\n", 200, "metadata"},
		{"the metadata of the endpoint", "GET /.well-known/oauth-protected-resource/mcp " + to + "\n", 200, "metadata"},
		{"microsandbox's JSON-RPC", "POST /api/v1/rpc " + withAuth + "Content-Type: application/json\nContent-Length: 2\n\n{}", 200, "ann: {}"},
		{"it without a token", "POST /api/v1/rpc " + to + "Content-Type: application/json\nContent-Length: 2\n\n{}", 401, `{"error":{"code":-32002,"data":{"code":"denied",`},
		{"it as a text", "POST /api/v1/rpc " + withAuth + "Content-Type: text/plain\nContent-Length: 2\n\n{}", 415, `"jsonrpc":"2.0"`},
		{"it with another method", "GET /api/v1/rpc " + withAuth + "\n", 405, `"code":-32600`},
		{"its health", "GET /api/v1/health " + to + "\n", 200, "anonymous: "},
		{"nothing", "GET / " + withAuth + "\n", 404, "the MCP endpoint is /mcp"},
		{"another way to write a path", "GET //mcp " + withAuth + "\n", 404, ""},
		{"a profiler", "GET /debug/pprof/ " + withAuth + "\n", 404, ""},
		{"a method of long ago", "TRACE /mcp " + to + "\n", 401, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.raw(t, test.request)
			if got.status != test.status {
				t.Errorf("got.status = %d, want %d: %s", got.status, test.status, got.body)
			} else if !strings.Contains(got.body, test.body) {
				t.Errorf("got.body = %q, want %q in it", got.body, test.body)
			}
			if strings.Contains(got.body, token) {
				t.Errorf("the answer has the token: %s", got.body)
			}
			if has := got.header.Get("WWW-Authenticate") != ""; has != (got.status == 401) && got.status != 400 {
				t.Errorf("with status %d the challenge is %q", got.status, got.header.Get("WWW-Authenticate"))
			}
			if got.status == 401 && !strings.Contains(got.header.Get("WWW-Authenticate"), `resource_metadata="`+s.url+`/.well-known/oauth-protected-resource/mcp"`) {
				t.Errorf("the challenge is %q", got.header.Get("WWW-Authenticate"))
			}
			for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"} {
				if got.header.Get(name) != want {
					t.Errorf("%s is %q", name, got.header.Get(name))
				}
			}
			if !saneID(got.header.Get("X-Request-Id")) {
				t.Errorf("the request's id is %q", got.header.Get("X-Request-Id"))
			}
		})
	}
}

func TestWithoutATokenWhoeverCallsIsTheLocalUser(t *testing.T) {
	s := start(t, Config{Dev: true, Metrics: http.HandlerFunc(echo)})
	for _, path := range []string{"/mcp", "/v1/x", "/metrics"} {
		if got := s.raw(t, "GET "+path+" "+to+"\n"); got.status != 200 {
			t.Errorf("%s: got.status = %d, want 200: %+v", path, got.status, got)
		} else if got.body != "local: " {
			t.Errorf(`%s: got.body = %q, want "local: ": %+v`, path, got.body, got)
		}
	}
}

// admitFunc is a Gate to which GET requests listen.
type admitFunc func(*auth.Principal) (release func(), err error)

func (f admitFunc) Admit(_ context.Context, p *auth.Principal, _ *http.Request) (func(), error) {
	return f(p)
}

func (admitFunc) Listens(r *http.Request) bool { return openGate{}.Listens(r) }

func TestAnErrorOnTheEndpointIsJSONRPC(t *testing.T) {
	full := fault.New(fault.Exhausted, "too much").WithHint("wait")
	full.RetryAfter = 1500 * time.Millisecond
	s := start(t, Config{Gate: admitFunc(func(p *auth.Principal) (func(), error) {
		if p.Name != "ann" {
			t.Errorf("it was asked about %v", p)
		}
		return nil, full
	})})
	got := s.raw(t, post("", "{}"))
	want := `{"error":{"code":-32000,"data":{"code":"exhausted","message":"too much","hint":"wait","retryable":true,"retry_after":2},"message":"too much"},"id":null,"jsonrpc":"2.0"}`
	switch {
	case got.status != 429:
		t.Errorf("got.status = %v, want 429: %+v", got.status, got)
	case got.header.Get("Retry-After") != "2":
		t.Errorf(`header Retry-After = %q, want "2"`, got.header.Get("Retry-After"))
	case strings.TrimSpace(got.body) != want:
		t.Errorf("got.body = %q, want %q", strings.TrimSpace(got.body), want)
	}
	got = s.raw(t, "GET /v1/a "+withAuth+"\n")
	if want := `{"error":{"code":"exhausted","message":"too much","hint":"wait","retryable":true,"retry_after":2}}`; got.status != 429 {
		t.Errorf("got.status = %d, want 429: %+v", got.status, got)
	} else if strings.TrimSpace(got.body) != want {
		t.Errorf("strings.TrimSpace(got.body) = %q, want %q", strings.TrimSpace(got.body), want)
	}
	if got := s.raw(t, "GET /healthz "+to+"\n"); got.status != 200 {
		t.Errorf("health gives %+v", got)
	}
}

func TestWhatWasTakenIsGivenBack(t *testing.T) {
	var released atomic.Int32
	s := start(t, Config{
		Gate: admitFunc(func(*auth.Principal) (func(), error) {
			return func() { released.Add(1) }, nil
		}),
		MCP: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake") }),
	})
	s.raw(t, post("", "{}"))
	if s.raw(t, "GET /v1/a "+withAuth+"\n"); released.Load() != 2 {
		t.Errorf("%d of 2 were released", released.Load())
	}
}

func TestASignedRequestNeedsNoToken(t *testing.T) {
	log := &lines{}
	s := start(t, Config{
		Log:    log.logger(),
		Signed: func(r *http.Request) bool { return strings.HasPrefix(r.URL.EscapedPath(), "/v1/links/") },
		Gate: admitFunc(func(p *auth.Principal) (func(), error) {
			t.Errorf("it was asked about %v", p)
			return func() {}, nil
		}),
	})
	if got := s.raw(t, "GET /v1/links/the-secret "+to+"\n"); got.status != 200 {
		t.Errorf("got.status = %d, want 200: %+v", got.status, got)
	} else if got.body != "anonymous: " {
		t.Errorf(`got.body = %q, want "anonymous: ": %+v`, got.body, got)
	}
	for _, path := range []string{"/v1/a", "/mcp/v1/links/a", "/v1//links/a"} {
		if got := s.raw(t, "GET "+path+" "+to+"\n"); got.status/100 != 4 {
			t.Errorf("%s gives %+v", path, got)
		}
	}
	if text := log.String(); strings.Contains(text, "the-secret") {
		t.Errorf(`the log is: text = %q, want no "the-secret" in it`, text)
	} else if !strings.Contains(text, "/v1/links/…") {
		t.Errorf(`the log is: text = %q, want "/v1/links/…" in it`, text)
	}
}

func TestAPanicCostsOneRequest(t *testing.T) {
	log := &lines{}
	s := start(t, Config{Log: log.logger(), MCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, "half of it")
			http.NewResponseController(w).Flush()
		}
		panic("secret\nof the host")
	})})
	got := s.raw(t, post("", "{}"))
	switch {
	case got.status != 500:
		t.Errorf("got.status = %v, want 500: %+v", got.status, got)
	case !strings.Contains(got.body, `"code":"internal"`):
		t.Errorf("got.body = %q, want %q in it", got.body, `"code":"internal"`)
	case strings.Contains(got.body, "secret"):
		t.Errorf(`got.body = %q, want no "secret" in it`, got.body)
	}
	switch text := log.String(); {
	case !strings.Contains(text, "secret?of the host"):
		t.Errorf(`the log: text = %q, want "secret?of the host" in it`, text)
	case !strings.Contains(text, "serve_test.go"):
		t.Errorf(`the log: text = %q, want "serve_test.go" in it`, text)
	case !strings.Contains(text, "request_id="+got.header.Get("X-Request-Id")):
		t.Errorf("the log: text = %q, want %q in it", text, "request_id="+got.header.Get("X-Request-Id"))
	}
	r, err := http.NewRequest("GET", s.url+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if content, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("half an answer looks whole: %q", content)
	}
	if got := s.raw(t, "GET /healthz "+to+"\n"); got.status != 200 {
		t.Errorf("then health gives %+v", got)
	}
}

func TestALineOfTheLogForEachRequest(t *testing.T) {
	log := &lines{}
	s := create(t, Config{Log: log.logger(), Verifier: auth.Static(token, &auth.Principal{ID: "token:1", Name: "ann\n\x1b[31mlevel=ERROR"})})
	r := httptest.NewRequest("GET", "http://localhost/mcp?handle=hidden", nil)
	r.URL.Path = "/mcp"
	r.Header.Set("Authorization", "Bearer "+token)
	s.listensAt(80)
	s.ServeHTTP(httptest.NewRecorder(), r)
	r = httptest.NewRequest("GET", "http://localhost/a%0Alevel=ERROR%1b%c2%9b31m", nil)
	s.ServeHTTP(httptest.NewRecorder(), r)
	r = httptest.NewRequest("GET", "http://localhost/mcp", nil)
	r.Host = "evil\x1b[31m.test"
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	text := log.String()
	switch n := strings.Count(text, "\n"); {
	case n != 3:
		t.Errorf("n = %v, want 3: %q", n, text)
	case strings.ContainsAny(text, "\x1b\u009b"):
		t.Errorf("text = %q, want none of %q in it", text, "\x1b\u009b")
	case strings.Contains(text, "hidden"):
		t.Errorf(`text = %q, want no "hidden" in it`, text)
	case strings.Contains(text, token):
		t.Errorf("text = %q, want no %q in it", text, token)
	}
	for _, want := range []string{"level=INFO", "msg=request", `principal="ann??[31mlevel=ERROR"`, "method=GET", "path=/mcp", "status=200", "bytes=22", "client=192.0.2.1", "request_id="} {
		if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, want) {
			t.Errorf("%s is not in %s", want, first)
		}
	}
	if strings.Contains(w.Body.String(), "\x1b") {
		t.Errorf("the answer repeats: w.Body.String() = %q, want no %q in it", w.Body.String(), "\x1b")
	} else if strings.Contains(w.Body.String(), `\u001b`) {
		t.Errorf("the answer repeats: w.Body.String() = %q, want no %q in it", w.Body.String(), `\u001b`)
	}
}

func TestTheContextKnowsTheRequest(t *testing.T) {
	type key struct{}
	s := start(t, Config{
		Context: func(ctx context.Context, id string) context.Context { return context.WithValue(ctx, key{}, id) },
		MCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			fmt.Fprint(w, ctx.Value(key{}) == RequestID(ctx), " ", ClientAddr(ctx), " ", BaseURL(ctx))
		}),
	})
	if got := s.raw(t, post("X-Request-Id: mine\nX-Forwarded-For: 1.2.3.4\n", "")); got.body != "true 127.0.0.1 "+s.url {
		t.Errorf("got.body = %q, want %q: %+v", got.body, "true 127.0.0.1 "+s.url, got)
	} else if got.header.Get("X-Request-Id") == "mine" {
		t.Errorf("header X-Request-Id = %q, want another: %+v", got.header.Get("X-Request-Id"), got)
	}
	switch {
	case RequestID(t.Context()) != "":
		t.Errorf(`a context of no request knows one: RequestID(t.Context()) = %q, want ""`,
			RequestID(t.Context()))
	case ClientAddr(t.Context()).IsValid():
		t.Error("a context of no request knows one: ClientAddr(t.Context()).IsValid() = true, want false")
	case BaseURL(t.Context()) != "":
		t.Errorf(`a context of no request knows one: BaseURL(t.Context()) = %q, want ""`,
			BaseURL(t.Context()))
	}
}

func TestWhyItIsNotReady(t *testing.T) {
	s := start(t, Config{Ready: func(context.Context) []string { return []string{"the interpreters are being compiled"} }})
	got := s.raw(t, "GET /readyz "+to+"\n")
	var h health
	if err := json.Unmarshal([]byte(got.body), &h); err != nil {
		t.Fatal(err)
	}
	if got.status != 503 {
		t.Errorf("got.status = %d, want 503: %+v", got.status, got)
	} else if len(h.Reasons) != 1 {
		t.Errorf("len(h.Reasons) = %d, want 1", len(h.Reasons))
	}
	res, err := http.Head(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 503 {
		t.Errorf("without a body the status is %d", res.StatusCode)
	}
}

func TestAStreamPassesProxiesUnbuffered(t *testing.T) {
	s := start(t, Config{MCP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})})
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, port, _ := net.SplitHostPort(s.at)
	fmt.Fprintf(c, "GET /mcp HTTP/1.0\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\n\r\n", port, token)
	head := make([]byte, 4096)
	var text string
	for !strings.Contains(text, "data: 1") {
		n, err := c.Read(head)
		if err != nil {
			t.Fatal(err)
		}
		text += string(head[:n])
	}
	if !strings.Contains(text, "X-Accel-Buffering: no\r\n") {
		t.Errorf("it begins with %q", text)
	}
}
