package principals

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// A probe is a request with ids of A's. Where safe is set it changes nothing, and A itself
// is answered otherwise than who may not.
type probe struct {
	request
	name string
	safe bool
	// made says that it makes something for whoever asks, so that there are ids in the
	// answer that differ each time.
	made bool
}

// routes are requests for each route, by the route as the code writes it (code_test.go).
// The first word of a line says whether it is safe.
var routes = map[string]string{
	"c.Path": `
		safe GET /mcp | Mcp-Session-Id: {mcp} | Accept: text/event-stream
		safe GET /mcp | Mcp-Session-Id: {mcp} | Accept: text/event-stream | Last-Event-ID: {event}
		GET /mcp | Accept: text/event-stream | Last-Event-ID: {event}
		DELETE /mcp | Mcp-Session-Id: {mcp}
		HEAD /mcp | Mcp-Session-Id: {mcp}
		OPTIONS /mcp | Mcp-Session-Id: {mcp}
		PATCH /mcp | Mcp-Session-Id: {mcp}
		PUT /mcp | Mcp-Session-Id: {mcp}
		TRACE /mcp | Mcp-Session-Id: {mcp}`,
	"/healthz": `
		GET /healthz?session={session}
		POST /healthz | Mcp-Session-Id: {mcp}`,
	"/readyz": `
		GET /readyz?session={session}`,
	"/metrics": `
		HEAD /metrics?session={session}
		POST /metrics`,
	"/v1/": `
		GET /v1/
		GET /v1/sessions
		GET /v1/sessions/
		GET /v1/sessions/{session}
		GET /v1/links
		GET /v1/links/
		GET /v1/links/{session}`,
	"rpcPath": `
		safe POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.metrics.get","params":{"namespace":"{space}","sandbox":"{box}"}}
		safe POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.metrics.get","params":{"namespace":"{space}"}}
		safe POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.metrics.get","params":{"namespace":"*"}}
		POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.stop","params":{"namespace":"{space}","sandbox":"{box}"}}
		POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.repl.run","params":{"namespace":"{space}","sandbox":"{box}","language":"python","code":"1"}}
		POST /api/v1/rpc {"jsonrpc":"2.0","id":1,"method":"sandbox.command.run","params":{"namespace":"{space}","sandbox":"{box}","command":"ls"}}
		POST /api/v1/rpc {"jsonrpc":"2.0","method":"sandbox.stop","params":{"namespace":"{space}","sandbox":"{box}"}}
		GET /api/v1/rpc`,
	"healthPath": `
		GET /api/v1/health?session={session}
		DELETE /api/v1/health`,
	"approvalsPath": `
		DELETE /api/v1/approvals/{approval}
		PUT /api/v1/approvals/{approval}/grant`,
	"sessionsPath": `
		GET /api/v1/sessions/
		GET /api/v1/sessions/{machine}
		PUT /api/v1/sessions/{machine}/previews`,
	"/": `
		GET /?session={session} | Accept: text/html
		GET /?session={session}
		POST /?session={session} {}`,
	"consolePath": `
		GET /console/{session}
		GET /console/?session={session}`,
	"consoleList": `
		safe GET /console/sessions
		GET /console/sessions?session={session}`,
	"signInPath": `
		POST /api/v1/signin {"ticket":"{signature}"} | Content-Type: application/json
		POST /api/v1/signin {"token":"{mcp}"} | Content-Type: application/json
		GET /api/v1/signin`,
	"signOutPath": `
		POST /api/v1/signout {"session":"{session}"} | Content-Type: application/json`,
	"whoPath": `
		GET /api/v1/whoami?session={session}`,
	"e2bPath": `
		GET /e2b/sandboxes/{e2b}
		GET /e2b/sandboxes/{e2b}/metrics
		GET /e2b/sandboxes/{e2b}/logs
		GET /e2b/v2/sandboxes/{e2b}/logs
		GET /e2b/v2/sandboxes?metadata=about%3Dsomething
		GET /e2b/sandboxes/metrics?sandbox_ids={e2b}
		GET /e2b/snapshots?sandboxID={e2b}
		POST /e2b/sandboxes {"templateID":"{snapshot}"}
		POST /e2b/sandboxes/{e2b}/connect {"timeout":60}
		POST /e2b/sandboxes/{e2b}/resume {"timeout":60}
		POST /e2b/sandboxes/{e2b}/timeout {"timeout":1}
		POST /e2b/sandboxes/{e2b}/refreshes {"duration":1}
		POST /e2b/sandboxes/{e2b}/pause
		POST /e2b/sandboxes/{e2b}/fork {}
		POST /e2b/sandboxes/{e2b}/snapshots {}
		DELETE /e2b/sandboxes/{e2b}
		DELETE /e2b/templates/{snapshot}
		GET /e2b/files?path=/etc/hostname | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 49983
		POST /e2b/files?path=/tmp/x | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 49983
		POST /e2b/process.Process/List {} | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 49983
		GET / | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 8000
		GET /e2b/ | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 8000
		GET /e2b/ | E2b-Sandbox-Id: {e2b} | E2b-Sandbox-Port: 8000 | E2b-Traffic-Access-Token: x`,
	"e2bFiles": `
		GET /files?path=/etc/hostname | E2b-Sandbox-Id: {e2b}
		GET /files?path=/etc/hostname&signature=v1_x | E2b-Sandbox-Id: {e2b}
		HEAD /files?path=/etc/hostname&signature=v1_x
		POST /files?path=/tmp/x&signature=v1_x | E2b-Sandbox-Id: {e2b}`,
	"wellKnown": `
		GET /.well-known/oauth-protected-resource?session={session}`,
	"wellKnown+c.Path": `
		GET /.well-known/oauth-protected-resource/mcp`,

	// What the packages' comments list below these.
	"GET /v1/sessions/{id}/files/{path…}": `
		safe GET /v1/sessions/{session}/files/secret.txt
		safe GET /v1/sessions/{session}/files/secret.txt | Range: bytes=0-3
		safe GET /v1/sessions/{session}/files/secret.txt | If-None-Match: *
		GET /v1/sessions/{session}/files/none.txt
		GET /v1/sessions/{machine}/files/site/index.html`,
	"HEAD /v1/sessions/{id}/files/{path…}":   `safe HEAD /v1/sessions/{session}/files/secret.txt`,
	"PUT /v1/sessions/{id}/files/{path…}":    `PUT /v1/sessions/{session}/files/secret.txt overwritten`,
	"DELETE /v1/sessions/{id}/files/{path…}": `DELETE /v1/sessions/{session}/files/secret.txt`,
	"GET /v1/sessions/{id}/files/?glob=…":    `safe GET /v1/sessions/{session}/files/?glob=*`,
	"GET /v1/sessions/{id}/archive?format=tar.gz|zip": `
		safe GET /v1/sessions/{session}/archive?format=zip
		safe HEAD /v1/sessions/{session}/archive`,
	"PUT /v1/sessions/{id}/archive?format=tar.gz|zip": `PUT /v1/sessions/{session}/archive none`,
	"POST /v1/sessions/{id}/links": `
		POST /v1/sessions/{session}/links {"path":"secret.txt","method":"GET"}
		POST /v1/sessions/{session}/links {"path":"secret.txt","method":"PUT"}`,
	// Whoever has a link may use it: these leave it as it is.
	"GET /v1/links/{token}": `
		HEAD /v1/links/{download}
		POST /v1/links/{download}
		DELETE /v1/links/{download}`,
	"PUT /v1/links/{token}": `
		HEAD /v1/links/{upload}
		OPTIONS /v1/links/{upload}`,

	"GET /api/v1/approvals?state=…": `
		GET /api/v1/approvals
		GET /api/v1/approvals?state=all`,
	"GET /api/v1/approvals/{id}":        `GET /api/v1/approvals/{approval}`,
	"POST /api/v1/approvals/{id}/grant": `POST /api/v1/approvals/{approval}/grant {"reason":"mine"}`,
	"POST /api/v1/approvals/{id}/deny":  `POST /api/v1/approvals/{approval}/deny`,

	"GET /api/v1/sessions/{id}/previews":  `safe GET /api/v1/sessions/{machine}/previews`,
	"POST /api/v1/sessions/{id}/previews": `POST /api/v1/sessions/{machine}/previews {"port":8000}`,
	"DELETE /api/v1/sessions/{id}/previews": `
		DELETE /api/v1/sessions/{machine}/previews`,
	"DELETE /api/v1/sessions/{id}/previews/{preview_id}": `
		DELETE /api/v1/sessions/{machine}/previews/{preview}`,
	// At the address of A's preview, without what opens it.
	"GET /.paddock/open/{signature}": `
		GET /.paddock/open/x | Host: {preview}.localhost
		GET / | Host: {preview}.localhost
		GET / | Host: {preview}.localhost | Cookie: paddock-preview={signature}
		GET /mcp | Host: {preview}.localhost | Mcp-Session-Id: {mcp}
		GET /v1/sessions/{session}/files/secret.txt | Host: {preview}.localhost`,
}

// odd are paths and headers that are to be read as another path, or as from somebody else.
const odd = `
	GET //v1/sessions/{session}/files/secret.txt
	GET /v1//sessions/{session}/files/secret.txt
	GET /v1/./sessions/{session}/files/secret.txt
	GET /v1/sessions//{session}/files/secret.txt
	GET /v1/links/../sessions/{session}/files/secret.txt
	GET /v1/links/%2e%2e/sessions/{session}/files/secret.txt
	GET /v1/links/%2e%2e%2fsessions%2f{session}%2ffiles%2fsecret.txt
	GET /v1/links/..%5csessions/{session}/files/secret.txt
	GET /v1/%6cinks/../sessions/{session}/files/secret.txt
	GET /v1/sessions/x/../{session}/files/secret.txt
	GET /v1/sessions/x%2f..%2f{session}/files/secret.txt
	GET /v1/sessions/{session};v=1/files/secret.txt
	GET /v1/sessions/{session}%00/files/secret.txt
	GET /v1/sessions/{session}%20/files/secret.txt
	GET /v1/sessions/{session}./files/secret.txt
	GET /V1/sessions/{session}/files/secret.txt
	GET /v1/sessions/{session}/files/..%2f..%2f{session}%2fsecret.txt
	GET /v1/sessions/{session}/files/%2e%2e/%2e%2e/secret.txt
	GET /healthz/../v1/sessions/{session}/files/secret.txt
	GET /healthz%2f..%2fv1/sessions/{session}/files/secret.txt
	GET /api/v1/approvals/../sessions/{machine}/previews
	GET /api/v1/sessions/{machine}/previews/../previews
	GET /api/v1/sessions/{machine}%2fpreviews
	GET /api/v1/approvals/%2e%2e%2f{approval}
	GET /api/v1/health/../approvals/{approval}
	GET /.well-known/oauth-protected-resource/../../v1/sessions/{session}/files/secret.txt
	GET /v1/sessions/{session}/files/secret.txt | X-Original-URL: /healthz
	GET /healthz | X-Original-URL: /v1/sessions/{session}/files/secret.txt | X-Rewrite-URL: /v1/sessions/{session}/files/secret.txt
	GET /v1/sessions/{session}/files/secret.txt | X-HTTP-Method-Override: DELETE
	GET /v1/sessions/{session}/files/secret.txt | X-Forwarded-For: 127.0.0.1 | X-Forwarded-Proto: https | X-Real-IP: 127.0.0.1 | Forwarded: for=127.0.0.1
	GET /v1/sessions/{session}/files/secret.txt | X-Forwarded-User: a | X-Remote-User: a | X-Principal: a
	GET /v1/sessions/{session}/files/secret.txt | X-Forwarded-Host: {preview}.localhost
	GET /v1/sessions/{session}/files/secret.txt | Mcp-Session-Id: {mcp}
	GET /v1/sessions/{session}/files/secret.txt | Cookie: paddock-preview={signature}; session={session}
	GET /v1/sessions/{session}/files/secret.txt | Authorization: Bearer {download}
	GET /v1/sessions/{session}/files/secret.txt | Proxy-Authorization: Bearer {download}
	GET /v1/sessions/{session}/files/secret.txt?link={download}
	GET /mcp | Mcp-Session-Id: {mcp} | Mcp-Session-Id: {mcp}
	GET /mcp | Mcp-Session-Id: {mcp} | X-Forwarded-For: 127.0.0.1 | Accept: text/event-stream
`

// tools are calls of each tool: arguments with ids of A's.
var tools = map[string]string{
	"list_runtimes":       `{}`,
	"create_session":      `{"name": "{session}"}` + "\n" + `{"session_id": "{session}"}`,
	"destroy_session":     `{"session_id": "{session}"}`,
	"cancel_execution":    `{"session_id": "{busy}"}` + "\n" + `{"session_id": "{roundsession}", "execution_id": "{waiting}"}` + "\n" + `{"session_id": "{session}", "execution_id": "{execution}"}`,
	"get_workspace_info":  `safe {"session_id": "{session}"}` + "\n" + `safe {"session_id": "{machine}"}`,
	"reset_workspace":     `{"session_id": "{session}"}`,
	"execute_code":        `{"session_id": "{session}", "code": "print(x)"}` + "\n" + `{"session_id": "{roundsession}", "execution_id": "{waiting}"}` + "\n" + `{"execution_id": "{waiting}"}`,
	"read_file":           `safe {"session_id": "{session}", "path": "secret.txt"}` + "\n" + `{"session_id": "{session}", "path": "secret.txt", "link": true}` + "\n" + `{"session_id": "{machine}", "path": "http://localhost:8000/", "link": true}`,
	"write_file":          `{"session_id": "{session}", "path": "secret.txt", "content": "b"}`,
	"edit_file":           `{"session_id": "{session}", "path": "secret.txt", "old": "Marker", "new": "b"}`,
	"list_files":          `safe {"session_id": "{session}"}`,
	"search_files":        `safe {"session_id": "{session}", "pattern": "Marker"}`,
	"checkpoint_session":  `{"session_id": "{session}", "label": "b"}`,
	"list_checkpoints":    `safe {"session_id": "{session}"}`,
	"restore_session":     `{"session_id": "{session}", "checkpoint": "{checkpoint}"}` + "\n" + `{"session_id": "{session}", "checkpoint": "1"}`,
	"undo":                `{"session_id": "{session}"}`,
	"fork_session":        `{"session_id": "{session}"}` + "\n" + `{"session_id": "{session}", "checkpoint": "{checkpoint}", "count": 2}`,
	"mcp_bind_http":       `{"session_id": "{session}", "name": "{bound}", "url": "http://127.0.0.1:1/mcp"}`,
	"search_tools":        `safe {"session_id": "{session}", "query": "dance"}` + "\n" + `{"query": "dance"}`,
	"mcp_unbind":          `{"session_id": "{session}", "name": "{bound}"}`,
	"install_package":     `{"session_id": "{session}", "package_name": "attrs"}`,
	"skill_install":       `{"session_id": "{session}", "name": "{skill}", "source": "https://127.0.0.1:1/SKILL.md"}`,
	"skill_save":          `{"name": "{skill}", "code": "def g():\n    \"\"\"B's\"\"\"\n", "description": "of B"}`,
	"skill_search":        `safe {"query": "{skill}"}` + "\n" + `safe {}`,
	"skill_remove":        `{"name": "{skill}"}`,
	"sandbox_start":       `{"sandbox": "{box}", "namespace": "{space}", "config": {"volumes": ["/nowhere:/data"]}}`,
	"sandbox_stop":        `{"sandbox": "{box}", "namespace": "{space}"}`,
	"sandbox_run_code":    `{"sandbox": "{box}", "namespace": "{space}", "language": "python", "code": "1"}`,
	"sandbox_run_command": `{"sandbox": "{box}", "namespace": "{space}", "command": "ls"}`,
	"sandbox_get_metrics": `safe {"namespace": "{space}"}` + "\n" + `safe {"namespace": "*"}` + "\n" + `safe {"namespace": "{space}", "sandbox": "{box}"}`,
}

// methods are messages of MCP, by their methods: params with ids of A's. The first word is
// the era whose clients send it: legacy in an MCP session of their own and in A's, modern
// ones without.
var methods = map[string]string{
	"ping":                             `legacy {}`,
	"initialize":                       `legacy {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"{session}","version":"1"}}`,
	"tools/list":                       `both {}`,
	"tools/call":                       "", // tools has them
	"resources/list":                   `both {}`,
	"resources/templates/list":         `both {}`,
	"resources/read":                   `safe both {"uri":"paddock://sessions/{session}/files/secret.txt"}` + "\n" + `both {"uri":"paddock://sessions/{session}/files/..%2fsecret.txt"}` + "\n" + `safe both {"uri":"skill://{skill}/SKILL.md"}`,
	"resources/subscribe":              `legacy {"uri":"paddock://sessions/{session}/files/secret.txt"}`,
	"resources/unsubscribe":            `legacy {"uri":"paddock://sessions/{session}/files/secret.txt"}`,
	"resources/directory/read":         `both {"uri":"skill://{skill}"}`,
	"subscriptions/listen":             `modern {"notifications":{"resourceSubscriptions":["paddock://sessions/{session}/files/secret.txt"]}}`,
	"prompts/list":                     `both {}`,
	"prompts/get":                      `both {"name":"{session}"}`,
	"completion/complete":              `both {"ref":{"type":"ref/resource","uri":"paddock://sessions/{session}/files/{+path}"},"argument":{"name":"path","value":"sec"}}`,
	"logging/setLevel":                 `legacy {"level":"debug"}`,
	"skills/list":                      `safe both {}`,
	"skills/get":                       `safe both {"uri":"skill://{skill}/SKILL.md"}`,
	"tasks/get":                        `safe modern {"taskId":"{task}"}`,
	"tasks/update":                     `modern {"taskId":"{task}","inputResponses":{"{approval}":{"action":"accept","content":{"decision":"allow"}}}}`,
	"tasks/cancel":                     `modern {"taskId":"{task}"}`,
	"tasks/result":                     `both {"taskId":"{task}"}`,
	"tasks/list":                       `both {}`,
	"server/discover":                  `modern {}`,
	"notifications/cancelled":          `legacy {"requestId":77}`,
	"notifications/progress":           `legacy {"progressToken":"token-of-a","progress":1}`,
	"notifications/initialized":        `legacy {}`,
	"notifications/roots/list_changed": `legacy {}`,
	"elicitation/create":               `legacy {"message":"{session}"}`,
}

// known are A's ids, and the names that A chose.
func (w *server) known() map[string]string {
	all := maps.Clone(w.ids)
	maps.Copy(all, map[string]string{"skill": skillName, "box": boxName, "space": boxSpace, "bound": boundName})
	return all
}

// parse reads lines of requests.
func parse(name, text string) (all []probe) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		p := probe{name: name + ": " + line}
		line, p.safe = strings.CutPrefix(line, "safe ")
		parts := strings.Split(line, " | ")
		words := strings.SplitN(parts[0], " ", 3)
		p.line, p.headers = words[0]+" "+words[1], parts[1:]
		if len(words) == 3 {
			p.body = words[2]
		}
		all = append(all, p)
	}
	return all
}

// probes are those of all tables.
func probes() (all []probe) {
	for name, text := range routes {
		all = append(all, parse(name, text)...)
	}
	all = append(all, parse("odd", odd)...)
	for tool, text := range tools {
		for line := range strings.SplitSeq(text, "\n") {
			text, safe := strings.CutPrefix(line, "safe ")
			all = append(all, callsOf(tool, text, safe)...)
		}
	}
	for method, text := range methods {
		for line := range strings.SplitSeq(text, "\n") {
			if line != "" {
				all = append(all, messagesOf(method, line)...)
			}
		}
	}
	// What A's client is asked in rounds, answered by another one.
	round := modernCall("execute_code", map[string]any{"session_id": "{roundsession}", "code": "x"}, `{"elicitation":{"form":{}}}`)
	round.body = strings.Replace(round.body, `"params":{`, `"params":{"requestState":"{state}","inputResponses":{"{approval}":{"action":"accept","content":{"decision":"allow"}}},`, 1)
	return append(all, probe{name: "requestState", request: round})
}

// callsOf are a call as clients of each era make it.
func callsOf(tool, text string, safe bool) []probe {
	var arguments map[string]any
	if err := json.Unmarshal([]byte(text), &arguments); err != nil {
		panic(fmt.Sprint(tool, ": ", err))
	}
	line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + text + `}}`
	name := tool + " " + text
	made := tool == "create_session" || tool == "list_runtimes" || tool == "skill_save"
	return []probe{
		{name: name + ", alone", request: request{line: "POST /mcp", body: line}, safe: safe, made: made},
		{name: name + ", in its own MCP session", request: inMCP("own", line), made: made},
		{name: name + ", in A's MCP session", request: inMCP("mcp", line), made: made},
		{name: name + ", modern", request: modernCall(tool, arguments, "{}"), safe: safe, made: made},
	}
}

func messagesOf(method, line string) (all []probe) {
	line, safe := strings.CutPrefix(line, "safe ")
	era, params, _ := strings.Cut(line, " ")
	name := method + " " + params
	if era != "modern" {
		id := `"id":1,`
		if strings.HasPrefix(method, "notifications/") {
			id = ""
		}
		body := `{"jsonrpc":"2.0",` + id + `"method":"` + method + `","params":` + params + `}`
		all = append(all, probe{name: name + ", in its own MCP session", request: inMCP("own", body)},
			probe{name: name + ", in A's MCP session", request: inMCP("mcp", body)},
			probe{name: name + ", alone", request: request{line: "POST /mcp", body: body}, safe: safe, made: method == "initialize"})
	}
	if era != "legacy" {
		var in map[string]any
		if err := json.Unmarshal([]byte(params), &in); err != nil {
			panic(fmt.Sprint(method, ": ", err))
		}
		about := ""
		for _, key := range []string{"uri", "name", "taskId"} {
			if text, ok := in[key].(string); ok {
				about = text
			}
		}
		inner := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}")
		all = append(all, probe{name: name + ", modern", safe: safe, request: modern(method, about, inner, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)})
	}
	return all
}
