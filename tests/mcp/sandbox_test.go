package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/sandbox/sandboxtest"
)

// imported makes a state folder with the test image, as the default one.
func imported(t *testing.T) (state string) {
	t.Helper()
	sandboxtest.Require(t, "linux", runtime.GOOS == "linux", "Linux sandboxes need Linux")
	sandboxtest.Require(t, "images", os.Geteuid() == 0, "only root can build the test images")
	build := exec.CommandContext(t.Context(), "bash", "../image/build.sh")
	build.Stderr = os.Stderr
	dir, err := build.Output()
	if err != nil {
		t.Fatal(err)
	}
	state = t.TempDir()
	paddock(t, state, "image", "import", filepath.Join(strings.TrimSpace(string(dir)), "full"), "--name", "full")
	t.Setenv("PADDOCK_SANDBOX_IMAGE", "full")
	return state
}

// paddock runs a command, which has to end well, and gives what it printed.
func paddock(t *testing.T, state string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), args...)
	cmd.Env = append(os.Environ(), environment(t, state)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("paddock %s: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// needLinux has the test skipped where Linux sandboxes do not work.
func needLinux(t *testing.T, state string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "run", "--isolation", "linux", "--language", "bash", "-c", "true")
	cmd.Env = append(os.Environ(), environment(t, state)...)
	said, err := cmd.CombinedOutput()
	sandboxtest.Require(t, "linux", err == nil, string(said))
}

// TestMicrosandboxUsers has them do what its documents show: from a client of MCP,
// and by JSON-RPC.
func TestMicrosandboxUsers(t *testing.T) {
	state := imported(t)
	needLinux(t, state)
	full := paddock(t, state, "token", "create", "full")
	core := paddock(t, state, "token", "create", "core", "--tools", "core")
	team := paddock(t, state, "token", "create", "team", "--namespaces", "team")
	t.Setenv("PADDOCK_SANDBOX_VOLUMES", t.TempDir())
	s := serveIn(t, state, "--tools", "core,sandbox")
	t.Run("over MCP", func(t *testing.T) { overMCP(t, s, full) })
	t.Run("over JSON-RPC", func(t *testing.T) { overRPC(t, s, full) })
	t.Run("other tokens", func(t *testing.T) { otherTokens(t, s, full, core, team) })
	t.Run("ports and background", func(t *testing.T) { inTheBackground(t, s, state) })
	t.Run("languages and images", func(t *testing.T) { languages(t, s, full) })
	t.Run("after a crash", func(t *testing.T) { afterACrash(t, state) })
}

// afterACrash kills a server whose sandbox works in the background.
func afterACrash(t *testing.T, state string) {
	open := func() (user, *exec.Cmd) {
		cmd := exec.Command(sandboxtest.Binary(t), "mcp", "--tools", "core,sandbox")
		cmd.Env = append(os.Environ(), environment(t, state)...)
		c, err := sdk.NewClient(&sdk.Implementation{Name: "paddock-tests", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return user{c}, cmd
	}
	u, server := open()
	u.call(t, false, "sandbox_start", of("crash"))
	u.call(t, false, "sandbox_run_code", of("crash", "language", "python", "code", "x = 1\nopen('kept.txt', 'w').write('text')"))
	u.call(t, false, "sandbox_run_command", of("crash", "command", "sh", "args", []string{"-c", "while sleep 0.01; do echo late > late.txt; done & sleep 0.1"}))
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.Close()
	u, _ = open()
	out := u.call(t, false, "sandbox_run_code", of("crash", "language", "python", "code", "print(open('kept.txt').read())\n'x' in globals()"))
	switch text := printed(out); {
	case !strings.HasPrefix(text, "text\nFalse\n"):
		t.Errorf("after the crash: %v: text = %q, want prefix %q", out, text, "text\nFalse\n")
	case !strings.Contains(text, "fresh python interpreter"):
		t.Errorf(`after the crash: %v: text = %q, want "fresh python interpreter" in it`, out, text)
	case strings.Contains(text, "files and variables are"):
		t.Errorf(`after the crash: %v: text = %q, want no "files and variables are" in it`, out, text)
	}
	if out := u.call(t, false, "sandbox_run_command", of("crash", "command", "sh", "args", []string{"-c", "rm -f late.txt; sleep 0.1; ls"})); printed(out) != "kept.txt" {
		t.Errorf("something works on: %v", out)
	}
	u.call(t, false, "sandbox_stop", of("crash"))
}

// user is a client of MCP.
type user struct{ *sdk.ClientSession }

func connect(t *testing.T, s service, token string) user {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "paddock-tests", Version: "1"}, nil)
	c, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url, HTTPClient: &http.Client{Transport: bearer(token)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.ListTools(t.Context(), nil); err != nil { // from then on it knows which arguments go into headers
		t.Fatal(err)
	}
	return user{c}
}

// call calls a tool, and gives its structured result; failed: it has to fail.
func (u user) call(t *testing.T, failed bool, tool string, args map[string]any) map[string]any {
	t.Helper()
	res, err := u.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	out, _ := res.StructuredContent.(map[string]any)
	if res.IsError != failed {
		t.Fatalf("%s: %v", tool, out)
	}
	return out
}

// of names a sandbox in arguments.
func of(name string, more ...any) map[string]any {
	args := map[string]any{"sandbox": name, "namespace": "default"}
	for k := 0; k < len(more); k += 2 {
		args[more[k].(string)] = more[k+1]
	}
	return args
}

// printed gives the lines of a result.
func printed(out map[string]any) string {
	var all []string
	lines, _ := out["output"].([]any)
	for _, one := range lines {
		all = append(all, fmt.Sprint(one.(map[string]any)["text"]))
	}
	return strings.Join(all, "\n")
}

func overMCP(t *testing.T, s service, token string) {
	u := connect(t, s, token)
	hosts := filepath.Join(os.Getenv("PADDOCK_SANDBOX_VOLUMES"), "hosts")
	if err := os.WriteFile(hosts, []byte("10.1.2.3 mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"image": "microsandbox/python", "volumes": []string{hosts + ":/etc/hosts"}, "memory": 512, "cpus": 1, "envs": []string{"GREETING=hi"}, "shell": "/bin/bash",
		"scripts": map[string]string{"greet": "echo $GREETING $1 ${BASH_VERSION:+bash}; ls kept.txt", "own": "#!/usr/bin/env python3\nprint(6 * 7)\n"}}
	if out := u.call(t, false, "sandbox_start", of("work", "config", config)); out["running"] != true || out["image"] != "microsandbox/python" {
		t.Errorf("started: %v", out)
	}
	u.call(t, false, "sandbox_run_code", of("work", "language", "python", "code", "import os\nx = 41\nopen('kept.txt', 'w').write('text')"))
	if out := u.call(t, false, "sandbox_run_code", of("work", "language", "python", "code", "import socket\nprint(os.environ['GREETING'], socket.gethostbyname('mine'))\nx + 1")); printed(out) != "hi 10.1.2.3\n42" || out["status"] != "success" {
		t.Errorf("state: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_code", of("work", "language", "nodejs", "code", "console.log([1, 2].map(n => n * 2).join())")); printed(out) != "2,4" {
		t.Errorf("node: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_code", of("work", "language", "python", "code", "1/0")); out["status"] != "error" || !strings.Contains(printed(out), "ZeroDivisionError") {
		t.Errorf("error: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "pip", "args", []string{"--version"})); out["success"] != true || !strings.HasPrefix(printed(out), "pip ") {
		t.Errorf("pip: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "ls", "args", []string{"-la"})); out["exit_code"] != 0.0 || !strings.Contains(printed(out), "kept.txt") {
		t.Errorf("ls: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "none")); out["exit_code"] != 127.0 || out["success"] != false {
		t.Errorf("a command that is not there: %v", out)
	}
	measured := func() map[string]any {
		out := u.call(t, false, "sandbox_get_metrics", map[string]any{"namespace": "*"})
		return out["sandboxes"].([]any)[0].(map[string]any)
	}
	switch m := measured(); {
	case m["running"] != true:
		t.Errorf(`m["running"] = %v, want true: %v`, m["running"], m)
	case m["memory_usage"] == nil:
		t.Errorf(`m["memory_usage"] is nil, want a value: %v`, m)
	case m["disk_usage"] == nil:
		t.Errorf(`m["disk_usage"] is nil, want a value: %v`, m)
	}
	u.call(t, false, "sandbox_stop", of("work"))
	switch m := measured(); {
	case m["running"] != false:
		t.Errorf(`metrics of a stopped one: m["running"] = %v, want false: %v`, m["running"], m)
	case m["memory_usage"] != nil:
		t.Errorf(`metrics of a stopped one: m["memory_usage"] = %v, want nil: %v`, m["memory_usage"], m)
	case m["disk_usage"] == nil:
		t.Errorf(`metrics of a stopped one: m["disk_usage"] is nil, want a value: %v`, m)
	}
	if out := u.call(t, true, "sandbox_run_command", of("work", "command", "ls")); !strings.Contains(fmt.Sprint(out), "sandbox_start") {
		t.Errorf("a stopped one: %v", out)
	}
	u.call(t, false, "sandbox_start", of("work"))
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "greet", "args", []string{"you"})); printed(out) != "hi you bash\nkept.txt" {
		t.Errorf("a script: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "own")); printed(out) != "42" {
		t.Errorf("a script that says what runs it: %v", out)
	}
	if out := u.call(t, false, "sandbox_run_command", of("work", "command", "cat", "args", []string{"kept.txt"})); printed(out) != "text" {
		t.Errorf("the file: %v", out)
	}
	for _, name := range []string{"create_python_sandbox", "create_node_sandbox"} {
		p, err := u.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: name, Arguments: map[string]string{"sandbox_name": "mine", "namespace": "default"}})
		if err != nil || !strings.Contains(p.Messages[0].Content.(*sdk.TextContent).Text, `"mine"`) {
			t.Errorf("the prompt %s: %v, %v", name, p, err)
		}
	}
}

// rpc calls a method of microsandbox's JSON-RPC with a token.
func rpc(t *testing.T, s service, token, method string, params map[string]any) (status int, answer map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(s.url, "/mcp")+"/api/v1/rpc", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

func overRPC(t *testing.T, s service, token string) {
	res, err := http.Get(strings.TrimSuffix(s.url, "/mcp") + "/api/v1/health")
	if err != nil {
		t.Fatal(err)
	}
	health, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusOK || strings.TrimSpace(string(health)) != `{"message":"Service is healthy"}` {
		t.Errorf("its health: %d %s", res.StatusCode, health)
	}
	ask := func(method string, params map[string]any) map[string]any {
		t.Helper()
		status, answer := rpc(t, s, token, method, params)
		if status != http.StatusOK || answer["error"] != nil {
			t.Fatalf("%s: %d %v", method, status, answer)
		}
		out, ok := answer["result"].(map[string]any)
		if !ok {
			out = map[string]any{"text": answer["result"]}
		}
		return out
	}
	config := map[string]any{"image": "microsandbox/python", "memory": 512, "cpus": 1, "shell": "/bin/bash", "workdir": "/workspace"}
	if out := ask("sandbox.start", of("rpc", "config", config)); out["text"] != "Sandbox rpc started successfully" {
		t.Errorf("start: %v", out)
	}
	ask("sandbox.repl.run", of("rpc", "language", "python", "code", "x = 1"))
	if out := ask("sandbox.repl.run", of("rpc", "language", "python", "code", "print(x)")); printed(out) != "1" || out["has_error"] != false {
		t.Errorf("run: %v", out)
	}
	if out := ask("sandbox.command.run", of("rpc", "command", "sh", "args", []string{"-c", "echo out; echo err >&2; exit 3"})); out["exit_code"] != 3.0 || !strings.Contains(printed(out), "err") {
		t.Errorf("command: %v", out)
	}
	if out := ask("sandbox.stop", of("rpc")); out["text"] != "Sandbox rpc stopped successfully" {
		t.Errorf("stop: %v", out)
	}
	if out := ask("sandbox.metrics.get", map[string]any{"namespace": "default"}); len(out["sandboxes"].([]any)) != 2 {
		t.Errorf("metrics: %v", out)
	}
}

func otherTokens(t *testing.T, s service, full, core, team string) {
	status, answer := rpc(t, s, "", "sandbox.metrics.get", map[string]any{"namespace": "*"})
	if failed, _ := answer["error"].(map[string]any); status != http.StatusUnauthorized || failed["code"] != -32002.0 {
		t.Errorf("without a token: %d %v", status, answer)
	}
	code := func(token, method string, params map[string]any) any {
		_, answer := rpc(t, s, token, method, params)
		failed, _ := answer["error"].(map[string]any)
		return failed["code"]
	}
	if got := code(core, "sandbox.start", of("work")); got != -32002.0 {
		t.Errorf("without the set of tools: %v", got)
	}
	if got := code(team, "sandbox.start", of("work")); got != -32002.0 {
		t.Errorf("in another namespace: %v", got)
	}
	if got := code(team, "sandbox.stop", map[string]any{"sandbox": "work", "namespace": "team"}); got != -32603.0 {
		t.Errorf("another owner's: %v", got)
	}
	if _, answer := rpc(t, s, team, "sandbox.metrics.get", map[string]any{"namespace": "*"}); len(answer["result"].(map[string]any)["sandboxes"].([]any)) != 0 {
		t.Errorf("another owner sees %v", answer)
	}
	listed, err := connect(t, s, core).ListTools(t.Context(), nil)
	if err != nil || slices.ContainsFunc(listed.Tools, func(t *sdk.Tool) bool { return strings.HasPrefix(t.Name, "sandbox_") }) {
		t.Errorf("the tools are %v, %v", listed, err)
	}
	if got := code(full, "sandbox.start", of("work", "config", map[string]any{"volumes": []string{"/etc:/data"}})); got != -32002.0 {
		t.Errorf("a folder that nobody allowed: %v", got)
	}
}

// inTheBackground has a program serve HTTP, which is reached through a port of
// this machine; then a person stops it.
func inTheBackground(t *testing.T, s service, state string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	u := connect(t, s, s.token)
	config := map[string]any{"ports": []string{port + ":8000"}}
	if out := u.call(t, true, "sandbox_start", of("web", "config", config)); !strings.Contains(fmt.Sprint(out), port) {
		t.Errorf("a port that is taken: %v", out)
	}
	l.Close()
	u.call(t, false, "sandbox_start", of("web", "config", config))
	u.call(t, false, "sandbox_run_code", of("web", "language", "python", "code", "open('page', 'w').write('served ' * 100_000)"))
	u.call(t, false, "sandbox_run_command", of("web", "command", "sh", "args", []string{"-c", "exec python3 -u -m http.server 8000 & sleep 0.1"}))
	var page []byte
	for late := time.Now().Add(timeout); len(page) == 0 && time.Now().Before(late); {
		time.Sleep(10 * time.Millisecond) // until the program listens
		if res, err := http.Get("http://" + at + "/page"); err == nil {
			page, _ = io.ReadAll(res.Body)
			res.Body.Close()
		}
	}
	if string(page) != strings.Repeat("served ", 100_000) {
		t.Errorf("the page has %d bytes", len(page))
	}
	var listed struct {
		Sessions []struct {
			ID string `json:"session_id"`
		}
	}
	if err := json.Unmarshal([]byte(paddock(t, state, "session", "ls", "--json")), &listed); err != nil || len(listed.Sessions) != 1 {
		t.Fatal(listed, err)
	}
	id := listed.Sessions[0].ID
	info := u.call(t, false, "get_workspace_info", map[string]any{"session_id": id})
	if !strings.Contains(fmt.Sprint(info["processes"]), "http.server") || !strings.Contains(fmt.Sprint(info["background_output"]), "GET /page") {
		t.Errorf("the session is %v", info)
	}
	if said := paddock(t, state, "session", "logs", id); !strings.Contains(said, "GET /page") {
		t.Errorf("it printed %q", said)
	}
	said := paddock(t, state, "session", "inspect", id)
	if !strings.Contains(said, "http.server") || regexp.MustCompile(`checkpoints +0`).MatchString(said) {
		t.Errorf("it is shown as %q", said)
	}
	var running struct{ Processes []struct{ PID int } }
	if err := json.Unmarshal([]byte(paddock(t, state, "session", "ps", id, "--json")), &running); err != nil || len(running.Processes) != 1 {
		t.Fatal(running, err)
	}
	paddock(t, state, "session", "kill", id, fmt.Sprint(running.Processes[0].PID))
	for late := time.Now().Add(timeout); time.Now().Before(late); {
		if !strings.Contains(paddock(t, state, "session", "ps", id), "http.server") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if said := paddock(t, state, "session", "ps", id); strings.Contains(said, "http.server") {
		t.Errorf("after it was stopped: %s", said)
	}
	u.call(t, false, "sandbox_stop", of("web"))
	if conn, err := net.Dial("tcp", at); err == nil {
		conn.Close()
		t.Error("the port of a stopped sandbox is open")
	}
}

func languages(t *testing.T, s service, token string) {
	u := connect(t, s, token)
	made := u.call(t, false, "create_session", map[string]any{"isolation": "wasm"})
	out := u.call(t, true, "execute_code", map[string]any{"session_id": made["session_id"], "language": "bash", "code": "ls"})
	if text := fmt.Sprint(out["error"]); !strings.Contains(text, "wasm") || !strings.Contains(text, "linux") {
		t.Errorf("bash in wasm: %v", text)
	}
	made = u.call(t, false, "create_session", map[string]any{"image": "full", "memory_mb": 1024})
	if made["isolation"] != "linux" {
		t.Errorf("with an image it is %v", made)
	}
	out = u.call(t, false, "execute_code", map[string]any{"session_id": made["session_id"], "language": "bash", "code": "echo $((6 * 7)); pwd"})
	if out["stdout"] != "42\n/workspace\n" || out["isolation"] != "linux" {
		t.Errorf("bash: %v", out)
	}
	made = u.call(t, false, "create_session", map[string]any{"image": "nowhere"})
	out = u.call(t, true, "execute_code", map[string]any{"session_id": made["session_id"], "language": "python", "code": "1"})
	if !strings.Contains(fmt.Sprint(out), "paddock image pull nowhere") {
		t.Errorf("an image that is not there: %v", out)
	}
}
