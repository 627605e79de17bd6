package browser

import (
	"strings"
	"testing"
)

// TestAHostilePreviewReachesNothingElse opens two previews in one browser: a page of the
// one tries what pages can to reach the other and the server, which asks for no token.
func TestAHostilePreviewReachesNothingElse(t *testing.T) {
	h := newServer(t)
	victim, evil := h.serve(), h.serve()
	ctx := h.browser()
	for _, p := range []preview{victim, evil} {
		h.open(ctx, p.link)
		if got := h.eval(ctx, "return location.pathname + ' ' + document.referrer + ' ' + performance.getEntriesByType('navigation').map(e => e.name) + ' ' + history.length"); strings.Contains(got, ".paddock") || !strings.HasPrefix(got, "/ ") {
			t.Errorf("the page knows of its link: %s", got)
		}
	}
	sessions := h.sessions()
	api := strings.Replace(h.Base(), "127.0.0.1", "localhost", 1)
	for _, target := range []struct{ name, at string }{{"the other preview", victim.origin}, {"the server", api}, {"the server by its address", h.Base()}} {
		for name, script := range reads {
			h.open(ctx, evil.origin+"/")
			got := h.eval(ctx, "const at = "+quoted(target.at)+", session = "+quoted(victim.session)+";\n"+script)
			if got != "refused" {
				t.Errorf("%s, %s: %s", target.name, name, got)
			}
		}
	}
	if after := h.sessions(); after != sessions {
		t.Errorf("there were %s sessions, and now are %s", sessions, after)
	}
	got := h.seen(ctx, victim)
	for line := range strings.SplitSeq(got, "\n") {
		// Only what a person does arrives: going there, with the cookie that lets in.
		if strings.Contains(line, "/tried") && !strings.Contains(line, "/tried-window") {
			t.Errorf("the other preview's program was asked %s", line)
		}
		switch {
		case strings.Contains(line, "tossed"):
			t.Errorf(`the other preview's program sees: line = %q, want no "tossed" in it`, line)
		case strings.Contains(line, "paddock-preview"):
			t.Errorf(`the other preview's program sees: line = %q, want no "paddock-preview" in it`, line)
		case strings.Contains(line, ".paddock"):
			t.Errorf(`the other preview's program sees: line = %q, want no ".paddock" in it`, line)
		}
	}
}

// sessions are how many there are.
func (h *server) sessions() string {
	h.t.Helper()
	for line := range strings.SplitSeq(h.get("/metrics"), "\n") {
		if value, ok := strings.CutPrefix(line, "paddock_sessions "); ok {
			return value
		}
	}
	h.t.Fatal("how many sessions there are is not in /metrics")
	return ""
}

// reads are scripts that try to reach the origin at, and say refused.
var reads = map[string]string{
	"fetch": `
		const all = ["/tried-fetch", "/mcp", "/healthz", "/v1/sessions/" + session + "/files/", "/api/v1/approvals"]
		for (const path of all) for (const credentials of ["include", "omit"]) {
			try { const r = await fetch(at + path, {credentials}); return "read " + path + await r.text() } catch {}
		}
		return "refused"`,
	"fetch without CORS": `
		const r = await fetch(at + "/tried-opaque", {mode: "no-cors", credentials: "include"}).catch(e => null)
		return r === null || r.type == "opaque" && r.status == 0 ? "refused" : "read " + r.status`,
	"a call with simple content types": `
		const call = JSON.stringify({jsonrpc: "2.0", id: 1, method: "tools/call", params: {name: "create_session", arguments: {}}})
		for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json"]) for (const mode of ["cors", "no-cors"])
			for (const path of ["/mcp", "/api/v1/rpc", "/tried-post"]) {
				try { const r = await fetch(at + path, {method: "POST", mode, credentials: "include", headers: {"Content-Type": type}, body: call}); if (r.type != "opaque") return "read " + await r.text() } catch {}
			}
		navigator.sendBeacon(at + "/mcp", new Blob([call], {type: "text/plain"}))
		navigator.sendBeacon(at + "/tried-beacon", "x")
		return "refused"`,
	"a form": `
		const frame = document.createElement("iframe"); frame.name = "target"; document.body.append(frame)
		for (const enctype of ["text/plain", "application/x-www-form-urlencoded"]) for (const path of ["/mcp", "/tried-form"]) {
			const f = document.createElement("form"); f.method = "POST"; f.enctype = enctype; f.action = at + path; f.target = "target"
			const i = document.createElement("input"); i.name = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_session","arguments":{"x":"'; i.value = '"}}}'
			f.append(i); document.body.append(f)
			const done = new Promise(r => frame.onload = r); f.submit(); await done
		}
		try { return frame.contentDocument && frame.contentDocument.body.innerText ? "read " + frame.contentDocument.body.innerText : "refused" } catch { return "refused" }`,
	"a frame": `
		for (const path of ["/tried-frame", "/healthz", "/v1/sessions/" + session + "/files/"]) {
			const f = document.createElement("iframe"); f.src = at + path; document.body.append(f)
			await new Promise(r => f.onload = r)
			try { if (f.contentDocument && f.contentDocument.body && f.contentDocument.body.innerText) return "read " + f.contentDocument.body.innerText } catch {}
		}
		return "refused"`,
	"scripts, styles and pictures": `
		for (const [name, attribute] of [["script", "src"], ["img", "src"], ["link", "href"], ["video", "src"], ["object", "data"], ["embed", "src"]]) {
			const e = document.createElement(name); e[attribute] = at + "/tried-" + name; if (name == "link") e.rel = "stylesheet"
			if (name == "script") { const got = await new Promise(r => { e.onload = () => r("loads"); e.onerror = () => r(""); document.head.append(e) }); if (got) return got } else document.body.append(e)
		}
		return "refused"`,
	"a WebSocket": `
		return await new Promise(r => { const s = new WebSocket(at.replace("http", "ws") + "/tried-socket"); s.onopen = () => r("open"); s.onerror = () => r("refused") })`,
	"an EventSource": `
		return await new Promise(r => { const s = new EventSource(at + "/tried-events", {withCredentials: true}); s.onopen = () => r("open"); s.onerror = () => { s.close(); r("refused") } })`,
	"a window that it opens": `
		const w = window.open(at + "/tried-window")
		for (let i = 0; i < 200; i++) {
			if (w.closed) return "refused"
			await new Promise(r => setTimeout(r, 50))
		}
		return "it has a hold on the window"`,
	"cookies of the site": `
		for (const domain of ["localhost", ".localhost", new URL(at).hostname]) for (const name of ["tossed", "paddock-preview", "__Host-paddock-preview"])
			document.cookie = name + "=tossed; path=/; domain=" + domain
		await fetch("/with?h=" + encodeURIComponent("Set-Cookie: tossed=tossed; Domain=localhost; Path=/") + "&h=" + encodeURIComponent("Set-Cookie: paddock-preview=tossed"))
		return document.cookie.includes("paddock-preview") ? "read " + document.cookie : "refused"`,
}

// TestAPreviewKeepsToItsOrigin looks at what a program's answers do in a browser.
func TestAPreviewKeepsToItsOrigin(t *testing.T) {
	h := newServer(t)
	p := h.serve()
	ctx := h.browser()
	h.open(ctx, p.link)

	// No worker of its own sees what comes to its address later: links' signatures.
	if got := h.eval(ctx, `return await navigator.serviceWorker.register("`+with("//", "Content-Type: text/javascript", "Service-Worker-Allowed: /")+`", {scope: "/"}).then(() => "registered", () => "refused")`); got != "refused" {
		t.Errorf("a service worker is %s", got)
	}
	// What reaches beyond the origin does not arrive.
	beyond := []string{"Clear-Site-Data: \"*\"", "Strict-Transport-Security: max-age=9", "Alt-Svc: h3=\":1\"", "Nel: {}", "Report-To: {}", "Reporting-Endpoints: a=\"/r\"", "Secure-Session-Registration: (ES256)", "X-Own: kept"}
	got := h.eval(ctx, `const r = await fetch(`+quoted(with("x", beyond...))+`); return [...r.headers.keys()].join(" ")`)
	for _, line := range beyond {
		name, _, _ := strings.Cut(strings.ToLower(line), ": ")
		if strings.Contains(" "+got+" ", " "+name+" ") != (name == "x-own") {
			t.Errorf("of the header %s the page sees %s", name, got)
		}
	}
	// Its own page in a frame of its own is its business, its window too.
	if got := h.eval(ctx, `const f = document.createElement("iframe"); f.src = "/own"; document.body.append(f); await new Promise(r => f.onload = r); return f.contentDocument.body.innerText.includes("secret-of") + " " + window.opener`); got != "true null" {
		t.Errorf("its own frame: %s", got)
	}
	// A page elsewhere learns of the address nothing but the origin, if it does.
	other := h.serve()
	h.open(ctx, other.link)
	h.open(ctx, p.origin+"/secret-path?secret-query")
	h.eval(ctx, `const a = document.createElement("a"); a.href = `+quoted(other.origin+"/clicked")+`; a.target = "_blank"; document.body.append(a); a.click(); return ""`)
	for got := ""; !strings.Contains(got, "/clicked"); { // until the browser's time is over
		if got = h.seen(ctx, other); strings.Contains(got, "secret-path") || strings.Contains(got, "secret-query") {
			t.Fatalf("the other program learns %s", got)
		}
	}
}

// TestCookiesOfOnePreviewHarmNoOther fills a host's cookies until its own requests are too
// large: others and the server go on.
func TestCookiesOfOnePreviewHarmNoOther(t *testing.T) {
	h := newServer(t)
	victim, evil := h.serve(), h.serve()
	ctx := h.browser()
	h.open(ctx, victim.link)
	h.open(ctx, evil.link)
	h.eval(ctx, `for (let i = 0; i < 150; i++) for (const more of ["", "; domain=localhost", "; domain=" + location.hostname]) document.cookie = "bomb" + i + more.length + "=" + "x".repeat(3900) + "; path=/" + more; return ""`)
	h.open(ctx, victim.origin+"/after")
	if got := h.eval(ctx, "return document.body.innerText"); !strings.Contains(got, "secret-of") {
		t.Errorf("the other preview says %s", got)
	}
	api := strings.Replace(h.Base(), "127.0.0.1", "localhost", 1)
	h.open(ctx, api+"/healthz")
	if got := h.eval(ctx, "return document.documentElement.textContent"); !strings.Contains(got, `"ok"`) {
		t.Errorf("the server says %s", got)
	}
}

// TestAReboundNameReachesNothing opens the server by a name of somebody's that leads to it.
func TestAReboundNameReachesNothing(t *testing.T) {
	h := newServer(t)
	ctx := h.browser()
	at := strings.Replace(h.Base(), "127.0.0.1", "rebound.test", 1)
	h.open(ctx, at+"/healthz")
	got := h.eval(ctx, `
		const all = [document.documentElement.textContent]
		for (const path of ["/mcp", "/metrics", "/v1/sessions/", "/api/v1/approvals"]) all.push((await fetch(path).then(r => r.status, () => "refused")))
		return all.join(" ")`)
	switch {
	case strings.Contains(got, "200"):
		t.Errorf(`by another name: got = %q, want no "200" in it`, got)
	case strings.Contains(got, `"ok"`):
		t.Errorf("by another name: got = %q, want no %q in it", got, `"ok"`)
	case !strings.Contains(got, "is not called"):
		t.Errorf(`by another name: got = %q, want "is not called" in it`, got)
	}
}

// TestFilesAreNoPages opens files of a session that are pages: they are saved, and nothing
// of them runs.
func TestFilesAreNoPages(t *testing.T) {
	h := newServer(t)
	var made struct {
		ID string `json:"session_id"`
	}
	h.call("create_session", map[string]any{"isolation": "wasm", "language": "python"}, &made)
	ctx := h.browser()
	for name, content := range map[string]string{
		"a.html": "<script>document.title='ran'</script>", "a.svg": `<svg xmlns="http://www.w3.org/2000/svg"><script>document.title='ran'</script></svg>`,
		"a.xml": `<?xml-stylesheet href="data:text/css,x"?><x/>`, "a.png": "<script>document.title='ran'</script>", "a": "<html><script>document.title='ran'</script>",
	} {
		h.call("write_file", map[string]any{"session_id": made.ID, "path": name, "content": content}, nil)
		var link struct{ URL string }
		h.post("/v1/sessions/"+made.ID+"/links", map[string]any{"path": name, "method": "GET"}, &link)
		h.visit(ctx, link.URL)
		if got := h.eval(ctx, "return document.title + ' ' + origin"); strings.Contains(got, "ran") {
			t.Errorf("%s ran: %s", name, got)
		}
	}
}
