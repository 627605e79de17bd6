// Package browser opens previews of hostile and of other programs in a real browser, with
// the built paddock: what the headers and refusals of previews come to is the browser's to
// say.
package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// server is a `paddock serve` that asks for no token, which is the most that a page on the
// same machine could wish for.
type server struct {
	*paddocktest.Server
	t *testing.T
}

func newServer(t *testing.T) *server {
	t.Helper()
	_, err := exec.LookPath(chromium)
	sandboxtest.Require(t, "browser", err == nil, fmt.Sprint(err))
	paddocktest.Require(t, "linux")
	state := sandboxtest.Memory(t)
	paddocktest.Admit(t, filepath.Dir(state), state)
	// The token of this machine's user is there, and then no longer asked for.
	first := paddocktest.Serve(t, state, paddocktest.Environment(t, state))
	first.Stop()
	return &server{paddocktest.Serve(t, state, paddocktest.Environment(t, state), "--isolation", "linux", "--dev"), t}
}

// chromium is Debian's.
const chromium = "chromium"

// site answers each request with what its query says: headers h, a body b. At /seen it
// gives all requests before, as lines of method, path and headers.
const site = `
cat > site.py <<'END'
import http.server, json, socketserver, urllib.parse
seen = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        seen.append(self.command + " " + self.path + " " + json.dumps(dict(self.headers)))
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        body = "\n".join(seen) if url.path == "/seen" else query.get("b", ["<!DOCTYPE html><title>site</title><p>secret-of-" + self.headers["Host"].split(".")[0]])[0]
        body = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain" if url.path == "/seen" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        for line in query.get("h", []):
            name, value = line.split(": ", 1)
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    do_GET = do_POST = do_PUT = do_OPTIONS = do_HEAD = answer
    def log_message(self, *a): pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", 8000), Handler).serve_forever()
END
python3 site.py > site.log 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done`

// preview is one of a session that serves the site.
type preview struct {
	session, link, origin string
}

// serve makes a session that serves the site, and a preview of it.
func (h *server) serve() preview {
	h.t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	h.call("create_session", map[string]any{}, &made)
	h.call("execute_code", map[string]any{"session_id": made.ID, "language": "bash", "code": site}, nil)
	var p struct{ URL string }
	h.post("/api/v1/sessions/"+made.ID+"/previews", map[string]any{"port": 8000}, &p)
	u, err := url.Parse(p.URL)
	if err != nil {
		h.t.Fatal(err)
	}
	return preview{made.ID, p.URL, u.Scheme + "://" + u.Host}
}

// call calls one of paddock's tools.
func (h *server) call(tool string, args map[string]any, out any) {
	h.t.Helper()
	var got struct {
		Result struct {
			IsError           bool
			StructuredContent json.RawMessage
		}
	}
	h.post("/mcp", map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}}, &got)
	if got.Result.IsError || out != nil && json.Unmarshal(got.Result.StructuredContent, out) != nil {
		h.t.Fatalf("%s says %s", tool, got.Result.StructuredContent)
	}
}

func (h *server) post(path string, in, out any) {
	h.t.Helper()
	text, err := json.Marshal(in)
	if err != nil {
		h.t.Fatal(err)
	}
	res, err := http.Post(h.Base()+path, "application/json", bytes.NewReader(text))
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(out); err != nil || res.StatusCode >= 300 {
		h.t.Fatalf("%s: %s, %v", path, res.Status, err)
	}
}

// get asks the server itself, past any browser.
func (h *server) get(path string) string {
	h.t.Helper()
	res, err := http.Get(h.Base() + path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// browser starts a browser with no profile, which ends with the test.
func (h *server) browser() context.Context {
	h.t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium), chromedp.Flag("no-sandbox", true), chromedp.Flag("disable-gpu", true), chromedp.UserDataDir(h.t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// A name of somebody's that leads to this machine: DNS rebinding.
		chromedp.Flag("host-resolver-rules", "MAP rebound.test 127.0.0.1"),
	)
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(h.t.Context()), options...)
	h.t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, paddocktest.Timeout)
	h.t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	h.t.Cleanup(func() { _ = chromedp.Cancel(ctx); cancel() })
	return ctx
}

// open leads the browser to an address.
func (h *server) open(ctx context.Context, at string) {
	h.t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Navigate(at)); err != nil {
		h.t.Fatalf("%s: %v", at, err)
	}
}

// eval runs a page's script, and gives what its promise comes to as text.
func (h *server) eval(ctx context.Context, script string) string {
	h.t.Helper()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("(async () => String(await (async () => {"+script+"})()))()", chromedp.EvalAwaitPromise, asAPerson))
	if err != nil {
		h.t.Fatalf("%s: %v", script, err)
	}
	return got
}

// asAPerson lets a script open windows.
func asAPerson(p *runtime.EvaluateParams) {
	yes := true
	p.UserGesture = &yes
}

// seen are the requests that a preview's program has had, asked for as its own page does.
func (h *server) seen(ctx context.Context, p preview) string {
	h.t.Helper()
	h.open(ctx, p.origin+"/seen")
	return h.eval(ctx, "return document.body.innerText")
}

// quoted is a text as JavaScript has it.
func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// with is the path of an answer with these headers and this body.
func with(body string, headers ...string) string {
	q := url.Values{"h": headers}
	if body != "" {
		q.Set("b", body)
	}
	return "/with?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// visit leads the browser to an address that may be saved in place of shown.
func (h *server) visit(ctx context.Context, at string) {
	h.t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Navigate(at)); err != nil && !strings.Contains(err.Error(), "ERR_ABORTED") {
		h.t.Fatalf("%s: %v", at, err)
	}
}
