package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"paddock/internal/approval"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// console is a `paddock serve` with a session, and what its operator does.
type console struct {
	*server
	state string
	env   []string
	store *approval.Store
}

func newConsole(t *testing.T) *console {
	t.Helper()
	_, err := exec.LookPath(chromium)
	sandboxtest.Require(t, "browser", err == nil, fmt.Sprint(err))
	paddocktest.Require(t, "wasm")
	state := sandboxtest.Memory(t)
	env := paddocktest.Environment(t, state)
	// The token of this machine's user is there, and then no longer asked for.
	paddocktest.Serve(t, state, env).Stop()
	s := &server{paddocktest.Serve(t, state, env, "--dev"), t}
	return &console{s, state, env, approval.Open(filepath.Join(state, "approvals"), approval.Options{
		TTL: time.Hour, Record: func(context.Context, approval.Approval) error { return nil },
	})}
}

// paddock runs a command as the operator does.
func (c *console) paddock(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), os.Getenv("PADDOCK_BIN"), args...)
	cmd.Env = c.env
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("paddock %s: %v, %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// text waits until a page shows something, and gives all that it shows.
func (c *console) text(ctx context.Context, wanted string) string {
	c.t.Helper()
	got := c.eval(ctx, `let all = ""; for (let i = 0; i < 400; i++) { all = document.body.innerText; if (all.includes(`+quoted(wanted)+`)) break; await new Promise(r => setTimeout(r, 50)) } return all`)
	if !strings.Contains(got, wanted) {
		c.t.Fatalf("the page shows %q and not %q", got, wanted)
	}
	return got
}

func (c *console) click(ctx context.Context, button string) {
	c.t.Helper()
	c.eval(ctx, `for (;;) { const b = [...document.querySelectorAll("button, nav a")].find(b => b.innerText.startsWith(`+quoted(button)+`)); if (b) { b.click(); return "" } await new Promise(r => setTimeout(r, 50)) }`)
}

// corpus are texts that become something else where they are taken for markup, code, an
// address or a template, or that show other letters than they have.
var corpus = []string{
	`<script>window.ran=1</script>`, `<img src=x onerror="window.ran=1">`, `"><svg onload=window.ran=1>`, `'-alert(window.ran=1)-'`, `<iframe srcdoc="<script>parent.ran=1</script>">`,
	`javascript:window.ran=1//`, `{{constructor.constructor('window.ran=1')()}}`, `${window.ran=1}`, `</textarea><script>window.ran=1</script>`, `<a href="javascript:window.ran=1" autofocus onfocus=window.ran=1 tabindex=1>x</a>`,
	`<style>*{display:none}</style>`, `<base href="https://evil.test/">`, `<meta http-equiv=refresh content="0;url=https://evil.test">`, `<form action=https://evil.test><button>Allow once`, `&lt;script&gt;window.ran=1&lt;/script&gt;`,
	"pay \u202eneve\u202c\u200b\u2066x\u2069", `__proto__`, `constructor`, `%3Cscript%3E`,
}

// asks has a call wait for a person.
func (c *console) asks(n int, words string) approval.Approval {
	c.t.Helper()
	args, err := json.Marshal(map[string]any{"text": words, "n": json.Number("12345678901234567890.10")})
	if err != nil {
		c.t.Fatal(err)
	}
	a, err := c.store.Request(c.t.Context(), approval.Request{
		Key:         approval.Key{Owner: "token:" + words, Session: "s-" + words, Execution: fmt.Sprint("e", n), Number: 1},
		Call:        approval.Call{Server: words, Definition: "d", Tool: words, Arguments: args},
		Description: words,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// TestTheConsoleInABrowser walks its pages: in by a link that works once, sessions, what
// waits, with texts that would do something were they not only texts, and out.
func TestTheConsoleInABrowser(t *testing.T) {
	c := newConsole(t)
	var made struct {
		ID string `json:"session_id"`
	}
	c.call("create_session", map[string]any{"language": "python", "name": "<i onclick=window.ran=1>first"}, &made)
	link := c.paddock("open")
	ctx := c.browser()
	c.open(ctx, link)
	c.text(ctx, "<i onclick=window.ran=1>first")
	if got := c.eval(ctx, `return location.hash + history.length + document.cookie`); strings.Contains(got, "ticket") || strings.Contains(got, "paddock-") {
		t.Errorf("a script of the page sees %s", got)
	}
	c.accessible(ctx, "sessions")
	// What is new is there without a person doing anything.
	var second struct {
		ID string `json:"session_id"`
	}
	c.call("create_session", map[string]any{"language": "python"}, &second)
	c.text(ctx, second.ID)

	// What waits is shown to the letter, and nothing of it runs.
	for i, words := range corpus {
		c.asks(i, words)
	}
	c.text(ctx, fmt.Sprint("Approvals", len(corpus)))
	c.click(ctx, "Approvals")
	c.text(ctx, "Arguments, as they will be sent")
	got := c.eval(ctx, `for (;;) { const all = [...document.querySelectorAll("article")]; if (all.length == `+fmt.Sprint(len(corpus))+`) return JSON.stringify(all.map(a => [...a.querySelectorAll("h2, dd, pre")].map(e => e.textContent).join("\n"))); await new Promise(r => setTimeout(r, 50)) }`)
	var articles []string
	if err := json.Unmarshal([]byte(got), &articles); err != nil {
		t.Fatal(err)
	}
	whole := strings.Join(articles, "\n")
	for _, words := range corpus {
		seen := strings.NewReplacer("\u202e", `\u{202e}`, "\u202c", `\u{202c}`, "\u200b", `\u{200b}`, "\u2066", `\u{2066}`, "\u2069", `\u{2069}`).Replace(words)
		args, _ := json.Marshal(words) // never fails
		inArguments := strings.NewReplacer("\u202e", `\u{202e}`, "\u202c", `\u{202c}`, "\u200b", `\u{200b}`, "\u2066", `\u{2066}`, "\u2069", `\u{2069}`).Replace(string(args))
		if n := strings.Count(whole, seen); n < 4 || !strings.Contains(whole, inArguments) {
			t.Errorf("%q is not shown in each field to the letter (%d times)", words, n)
		}
	}
	if !strings.Contains(whole, "12345678901234567890.10") {
		t.Error("a number of the arguments is another")
	}
	if got := c.eval(ctx, `return window.ran + " " + document.querySelectorAll("#app :is(script, iframe, img, svg, style, base, meta, form)").length + " " + document.baseURI.startsWith(origin)`); got != "undefined 0 true" {
		t.Errorf("of the texts became %s", got)
	}
	if got := c.eval(ctx, `try { document.body.innerHTML = "<b>x"; return "markup" } catch { } try { const s = document.createElement("script"); s.textContent = "window.ran = 1"; document.head.append(s) } catch { } return String(window.ran)`); got != "undefined" {
		t.Errorf("a page's mistake becomes %s", got)
	}
	c.accessible(ctx, "approvals")
	for _, grant := range []bool{true, false} {
		button := map[bool]string{true: "Allow once", false: "Deny"}[grant]
		id := c.eval(ctx, `const b = [...document.querySelectorAll("article")][0]; const id = b.getAttribute("aria-labelledby").replace("-title", ""); [...b.querySelectorAll("button")].find(e => e.innerText == `+quoted(button)+`).click(); for (;;) { if (!document.getElementById(id + "-title")) return id; await new Promise(r => setTimeout(r, 50)) }`)
		a, err := c.store.Find(id)
		if want := map[bool]approval.State{true: approval.Granted, false: approval.Denied}[grant]; err != nil || a.State != want || a.By != "local" {
			t.Errorf("after %s it is %s by %s (%v)", button, a.State, a.By, err)
		}
	}

	c.comesFromElsewhere(ctx, link)
}

// comesFromElsewhere is the rest of the walk: other pages, and the ways out.
func (c *console) comesFromElsewhere(ctx context.Context, link string) {
	c.t.Helper()
	t, base := c.t, strings.Split(link, "/#")[0]
	// A page at another port of the host has the cookie sent, and gets nothing by it.
	var cookies atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			cookies.Store(r.Header.Get("Cookie"))
		}
		fmt.Fprint(w, "<!DOCTYPE html><title>x</title>")
	}))
	defer other.Close()
	c.open(ctx, other.URL+"/")
	got := c.eval(ctx, `
		const all = []
		for (const [method, path] of [["GET", "/api/v1/whoami"], ["POST", "/api/v1/signout"], ["GET", "/api/v1/approvals"]])
			all.push(await fetch(`+quoted(base)+` + path, {method, credentials: "include", headers: method == "POST" ? {"Content-Type": "application/json"} : {}}).then(r => r.status, () => "refused"))
		const f = document.createElement("iframe"); f.src = `+quoted(base)+` + "/"; document.body.append(f)
		await new Promise(r => f.onload = r)
		try { all.push(f.contentDocument.body.innerText || "refused") } catch { all.push("refused") }
		return all.join(" ")`)
	if got != "refused refused refused refused" {
		t.Errorf("a page at another port: %s", got)
	}
	cookie, _ := cookies.Load().(string)
	if !strings.Contains(cookie, "paddock-") {
		t.Errorf("the server at another port gets the cookie %q: is this test still one?", cookie)
	}
	if got := c.whoHas(base, cookie); strings.Contains(got, "approve") {
		t.Errorf("with the cookie that it got it is the operator: %s", got)
	}
	c.open(ctx, strings.Replace(base, "127.0.0.1", "rebound.test", 1)+"/")
	if got := c.text(ctx, "is not called"); strings.Contains(got, "Sessions") {
		t.Errorf("by another name: %s", got)
	}
	// The sign-in is there still, and the link is not good any more.
	c.open(ctx, base+"/")
	c.text(ctx, "Sign out")
	second := c.browser()
	c.open(second, link)
	if got := c.eval(second, `return (await fetch("api/v1/signin", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({ticket: `+quoted(strings.Split(link, "ticket=")[1])+`})})).status`); got != "403" {
		t.Errorf("the link opened a second browser: %s", got)
	}
	who := `return JSON.stringify((await (await fetch("api/v1/whoami", {headers: {"X-Paddock-Key": localStorage.getItem("paddock-key")}})).json()).tools)`
	if got := c.eval(ctx, who); !strings.Contains(got, "approve") {
		t.Errorf("the operator's browser is %s", got)
	}
	c.paddock("open", "--revoke")
	if got := c.eval(ctx, who); got != "null" { // the server asks for no token
		t.Errorf("after its end the browser is %s", got)
	}
}

// whoHas asks whose a cookie is, without a page.
func (c *console) whoHas(base, cookie string) string {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, base+"/api/v1/whoami", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}

// accessible has a page checked by the rules of axe-core.
func (c *console) accessible(ctx context.Context, page string) {
	c.t.Helper()
	axe, err := os.ReadFile(filepath.Join(paddocktest.BuildCache(c.t), "axe.min.js"))
	if err != nil {
		c.t.Fatalf("axe-core is not there (make console fetches it): %v", err)
	}
	// A page's own policy lets no text become a script: the browser's tools do.
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[string](string(axe)+"\n;'loaded'")); err != nil {
		c.t.Fatal(err)
	}
	if got := c.eval(ctx, `return JSON.stringify((await axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html)]))`); got != "[]" {
		c.t.Errorf("the page of %s breaks the rules %s", page, got)
	}
}
