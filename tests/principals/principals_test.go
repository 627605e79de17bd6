package principals

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNobodyLearnsOrChangesWhatIsAnothers sends every request that there is with A's ids,
// as B, as a token of few scopes and as nobody. Each is answered as it is with ids of
// nothing, no answer has anything of A's, and afterwards all is as it was.
func TestNobodyLearnsOrChangesWhatIsAnothers(t *testing.T) {
	w := newServer(t)
	before := w.things()
	all := probes()
	for _, who := range []struct{ name, token string }{{"B", w.b}, {"few scopes", w.few}, {nobody, ""}} {
		own := w.own(who.token)
		for _, p := range all {
			w.compare(who.name, who.token, p, own)
		}
		after := w.things()
		for i, thing := range after {
			if thing != before[i] {
				t.Errorf("%s has changed what is A's\nbefore: %s\nafter:  %s", who.name, before[i], thing)
			}
		}
	}
	w.control(all)
	w.links()
}

// nobody is who has no token.
const nobody = "nobody"

// own is an MCP session of the asker's own.
func (w *server) own(token string) string {
	w.t.Helper()
	got := w.send(token, request{line: "POST /mcp", body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`}, nil)
	id := got.header.Get("Mcp-Session-Id")
	if (id == "") != (token == "") {
		w.t.Fatalf("its own MCP session: %d %s", got.status, got.body)
	}
	return id
}

// compare sends a request with A's ids, and with those of nothing.
func (w *server) compare(who, token string, p probe, own string) {
	w.t.Helper()
	real := w.known()
	none := map[string]string{}
	for name, id := range real {
		none[name] = other(id)
	}
	real["own"], none["own"] = own, own
	first, second := w.send(token, p.request, none), w.send(token, p.request, real)
	w.leaks(who, p, real, second)
	for makes, removes := range map[string]string{"skill_save ": "skill_remove", "create_session ": "destroy_session"} {
		if strings.HasPrefix(p.name, makes) { // the asker's own under that name, which other requests would be about
			remove := callsOf(removes, tools[removes], false)[0].request
			w.send(token, remove, none)
			w.send(token, remove, real)
		}
	}
	if first.status == http.StatusTooManyRequests || second.status == http.StatusTooManyRequests {
		if who != nobody { // of whom the address is counted, whatever they ask
			w.t.Fatalf("%s asks too often: %s", who, second.body)
		}
		return
	}
	if a, b := shape(p, first, none), shape(p, second, real); a != b {
		w.t.Errorf("%s, %s: what is A's answers otherwise than what is not there\nnot there: %s\nA's:       %s", who, p.name, a, b)
	}
	if who == nobody && second.status < 300 && !open(p) {
		w.t.Errorf("nobody, %s: %d %s", p.name, second.status, second.body)
	}
}

// open tells whether a request is to where everybody may ask.
func open(p probe) bool {
	for _, path := range []string{" /healthz", " /readyz", " /api/v1/health", " /.well-known/", " /?", " /api/v1/signout"} {
		if strings.Contains(p.line, path) {
			return true
		}
	}
	return strings.HasPrefix(p.line, "OPTIONS ")
}

// leaks looks for what is A's in an answer: what A wrote, and ids that were not sent.
func (w *server) leaks(who string, p probe, ids map[string]string, got reply) {
	w.t.Helper()
	text := got.body
	for name, values := range got.header {
		text += "\n" + name + ": " + strings.Join(values, ",")
	}
	if strings.Contains(text, marker) {
		w.t.Errorf("%s, %s: it has what A wrote: %s", who, p.name, text)
	}
	asked := p.line + strings.Join(p.headers, "") + p.body
	for name, id := range ids {
		if name != "own" && strings.Contains(text, id) && !strings.Contains(asked, "{"+name+"}") && !strings.Contains(fill(asked, ids), id) {
			w.t.Errorf("%s, %s: it has A's %s %s: %s", who, p.name, name, id, text)
		}
	}
}

// volatile is what differs between two answers to one request.
var volatile = regexp.MustCompile(`(x|s)-[a-z2-7]{26}|"(created_at|expires_at|modified|uptime|duration_ms|version|digest|mounted|path)":("[^"]*"|[0-9.]+)|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|of paddock's own|[0-9.]+ ?(ms|s)\b`)

// shape is what tells one answer from another: its status, the headers that say
// something, and its body, in which ids stand by their names.
func shape(p probe, got reply, ids map[string]string) string {
	text := named(got.body, ids)
	if text = volatile.ReplaceAllString(text, "…"); p.made {
		text = "made" // its own
	}
	kept := []string{}
	for name := range got.header {
		switch name {
		case "Date", "X-Request-Id", "Mcp-Session-Id", "Content-Length":
		case "Retry-After":
			kept = append(kept, name)
		default:
			kept = append(kept, name+": "+named(strings.Join(got.header.Values(name), ","), ids))
		}
	}
	slices.Sort(kept)
	return http.StatusText(got.status) + " " + strings.Join(kept, "; ") + " " + text
}

// named puts names in the places of ids.
func named(text string, ids map[string]string) string {
	for _, name := range slices.SortedFunc(maps.Keys(ids), func(a, b string) int { return len(ids[b]) - len(ids[a]) }) {
		if ids[name] != "" {
			text = strings.ReplaceAll(text, ids[name], "{"+name+"}")
		}
	}
	return text
}

// other is an id of the same form that nothing has.
func other(id string) string {
	b := []byte(id)
	for i, left := len(b)-1, 5; i >= 0 && left > 0; i-- {
		switch c := b[i]; {
		case c >= 'a' && c < 'z', c >= 'A' && c < 'Z':
			b[i]++
		case c == 'z', c == 'Z':
			b[i] -= 25
		default:
			continue
		}
		left--
	}
	return string(b)
}

// things are what A has, as A sees it. What only time changes is left out.
func (w *server) things() (all []string) {
	w.t.Helper()
	ids := w.known()
	look := func(token string, q request) {
		got := w.send(token, q, ids)
		if got.status >= 300 && got.status != http.StatusNotFound {
			w.t.Errorf("A looks: %s gives %d %s", q.line, got.status, got.body)
		}
		all = append(all, q.line+q.body+" gives "+stable.ReplaceAllString(got.body, "…"))
	}
	look(w.a, request{line: "GET /v1/sessions/{session}/files/secret.txt"})
	look(w.a, request{line: "GET /v1/sessions/{session}/files/"})
	look(w.a, request{line: "GET /v1/sessions/{machine}/files/?glob=site/*"})
	look(w.a, request{line: "GET /api/v1/sessions/{machine}/previews"})
	look(w.a, request{line: "POST /api/v1/rpc", body: `{"jsonrpc":"2.0","id":1,"method":"sandbox.metrics.get","params":{"namespace":"*"}}`})
	look(w.a, modern("tasks/get", "{task}", `"taskId":"{task}"`, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`))
	look(w.a, inMCP("mcp", `{"jsonrpc":"2.0","id":5,"method":"ping"}`))
	look(w.approver, request{line: "GET /api/v1/approvals?state=all"})
	for _, session := range []string{"session", "machine", "tasksession", "roundsession", "busy"} {
		for _, tool := range []string{"list_checkpoints", "get_workspace_info"} {
			look(w.a, request{line: "POST /mcp", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"session_id":"{` + session + `}"}}}`})
		}
	}
	look(w.a, request{line: "POST /mcp", body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"skill_search","arguments":{"query":"{skill}","detail_level":"full"}}}`})
	if !w.alive() {
		w.t.Error("A's call was ended")
	}
	return all
}

// stable is what time changes in what A has.
var stable = regexp.MustCompile(`\\?"(cpu_usage|memory_usage|disk_usage|uptime_seconds|uptime|idle_seconds|expires_at|expires_in_seconds|last_used_at|last_used|memory_bytes|memory_mb|elapsed_ms|running_for_ms|pollIntervalMs|lastUpdatedAt|disk_bytes|cpu_ms)\\?":(\\?"[^"\\]*\\?"|[0-9.]+)|[0-9.]+ ?(MiB|MB|%|ms|bytes|s)\b`)

// control sees that the requests say something: to A, what changes nothing is answered
// otherwise than to B.
func (w *server) control(all []probe) {
	w.t.Helper()
	ids, n := w.known(), 0
	for _, p := range all {
		if !p.safe {
			continue
		}
		n++
		mine, theirs := w.send(w.a, p.request, ids), w.send(w.b, p.request, ids)
		if a, b := shape(p, mine, ids), shape(p, theirs, ids); a == b {
			w.t.Errorf("%s says nothing: A and B get %s", p.name, a)
		}
	}
	if n < 30 {
		w.t.Errorf("only %d requests were tried as A", n)
	}
}

// links sees that A's links and preview still are good: none was used up.
func (w *server) links() {
	w.t.Helper()
	for i, want := range []int{http.StatusOK, http.StatusForbidden} {
		if got := w.send("", request{line: "GET /v1/links/{download}"}, w.ids); got.status != want {
			w.t.Errorf("the link, the %d. time: %d %s", i+1, got.status, got.body)
		}
		if got := w.send("", request{line: "PUT /v1/links/{upload}", body: "new"}, w.ids); got.status != want {
			w.t.Errorf("the link to write, the %d. time: %d %s", i+1, got.status, got.body)
		}
	}
	got := w.send("", request{line: "GET /.paddock/open/{signature}", headers: []string{"Host: {preview}.localhost"}}, w.ids)
	if got.status != http.StatusSeeOther {
		w.t.Errorf("the preview's link: %d %s", got.status, got.body)
	}
}

// toolsOf reads a token's tools from the server, with what they take.
func (w *server) toolsOf(token string) map[string]map[string]any {
	w.t.Helper()
	got := w.send(token, request{line: "POST /mcp", body: `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`}, nil)
	var answer struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Properties map[string]any }
			}
		}
	}
	if err := json.Unmarshal([]byte(got.body), &answer); err != nil {
		w.t.Fatalf("%v: %s", err, got.body)
	}
	all := map[string]map[string]any{}
	for _, tool := range answer.Result.Tools {
		all[tool.Name] = tool.InputSchema.Properties
	}
	return all
}
