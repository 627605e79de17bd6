package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
)

func TestServersOfClientsAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       []Found
	}{
		"Claude Desktop": {"claude_desktop_config.json", `{"mcpServers": {"files": {"command": "npx", "args": ["-y", "fs", "/data"], "env": {"KEY": "hush", "PORT": 80}}}}`,
			[]Found{{Name: "files", Command: "npx", Args: []string{"-y", "fs", "/data"}, Env: map[string]string{"KEY": "hush", "PORT": "80"}}}},
		"Claude Code": {".claude.json", `{"numStartups": 3, "mcpServers": {"b": {"type": "sse", "url": "https://b.test/sse"}, "a": {"type": "http", "url": "${BASE:-https://a.test}/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}`,
			[]Found{{Name: "a", URL: "${BASE:-https://a.test}/mcp", Transport: "http", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"}}, {Name: "b", URL: "https://b.test/sse", Transport: "sse"}}},
		"Cursor, with comments": {"mcp.json", `{
			// mine
			"mcpServers": {"a": {"command": "a", "env": {"T": "${env:TOKEN}"}, "cwd": "/srv",},},
		}`, []Found{{Name: "a", Command: "a", Env: map[string]string{"T": "${TOKEN}"}, Dir: "/srv"}}},
		"VS Code": {"mcp.json", `{"inputs": [{"id": "key"}], "servers": {"asks": {"type": "http", "url": "https://a.test", "headers": {"K": "${input:key}"}}, "here": {"type": "stdio", "command": "${workspaceFolder}/a"}}}`,
			[]Found{{Name: "asks", URL: "https://a.test", Transport: "http", Headers: map[string]string{"K": "${input:key}"}, Unusable: "it has a value that only its client knows"},
				{Name: "here", Command: "${workspaceFolder}/a", Unusable: "it has a value that only its client knows"}}},
		"VS Code of before": {"settings.json", `{"mcp": {"servers": {"a": {"command": "a"}}}, "editor.tabSize": 4}`, []Found{{Name: "a", Command: "a"}}},
		"Codex": {"config.toml", "model = 'x'\n[mcp_servers.a]\ncommand = 'a'\nargs = ['b']\nenv_vars = ['HOMEKEY']\ntool_timeout_sec = 90\nenabled_tools = ['x']\n[mcp_servers.b]\nurl = 'https://b.test'\nbearer_token_env_var = 'TOKEN'\nhttp_headers = { A = '1' }\nenv_http_headers = { K = 'KEY' }\n[mcp_servers.c]\ncommand = 'c'\nenabled = false\n",
			[]Found{{Name: "a", Command: "a", Args: []string{"b"}, Env: map[string]string{"HOMEKEY": "${HOMEKEY}"}, Timeout: 90 * time.Second, Allow: []string{"x"}},
				{Name: "b", URL: "https://b.test", Headers: map[string]string{"A": "1", "Authorization": "Bearer ${TOKEN}", "K": "${KEY}"}},
				{Name: "c", Command: "c", Unusable: "it is switched off there"}}},
		"Gemini": {"settings.json", `{"mcpServers": {"a": {"httpUrl": "https://a.test", "timeout": 30000, "includeTools": ["x"], "excludeTools": ["y"]}}}`,
			[]Found{{Name: "a", URL: "https://a.test", Timeout: 30 * time.Second, Allow: []string{"x"}, Deny: []string{"y"}}}},
		"Gemini, with its variables": {"settings.json", `{"mcpServers": {"a": {"command": "$HOME/a", "args": ["${B}", "$", "5$"], "env": {"T": "$TOKEN-x"}}}}`,
			[]Found{{Name: "a", Command: "${HOME}/a", Args: []string{"${B}", "$", "5$"}, Env: map[string]string{"T": "${TOKEN}-x"}}}},
		"a text that is Gemini's variable": {"mcp.json", `{"mcpServers": {"a": {"command": "a", "env": {"T": "$ecret"}}}}`, []Found{{Name: "a", Command: "a", Env: map[string]string{"T": "$ecret"}}}},
		"Windsurf": {"mcp_config.json", `{"mcpServers": {"a": {"serverUrl": "https://a.test/sse", "disabled": true}}}`,
			[]Found{{Name: "a", URL: "https://a.test/sse", Unusable: "it is switched off there"}}},
		"OpenCode": {"opencode.json", `{"mcp": {"a": {"type": "local", "command": ["npx", "-y", "a"], "environment": {"T": "{env:TOKEN}"}}, "b": {"type": "remote", "url": "https://b.test", "enabled": false}}}`,
			[]Found{{Name: "a", Command: "npx", Args: []string{"-y", "a"}, Env: map[string]string{"T": "${TOKEN}"}}, {Name: "b", URL: "https://b.test", Transport: "http", Unusable: "it is switched off there"}}},
		"OpenCode 2": {"opencode.jsonc", `{"mcp": {"servers": {"a": {"type": "local", "command": ["a"],},},},}`, []Found{{Name: "a", Command: "a"}}},
		"Zed":        {"settings.json", `{"context_servers": {"a": {"command": "a", "args": ["b"]}}, "theme": "One"}`, []Found{{Name: "a", Command: "a", Args: []string{"b"}}}},
		"goose": {"config.yaml", "GOOSE_MODE: auto\nextensions:\n  a:\n    type: stdio\n    enabled: true\n    cmd: a\n    args: [b]\n    envs: {K: v}\n    timeout: 300\n  b:\n    type: streamable_http\n    uri: https://b.test\n    headers:\n      K: ${KEY}\n  developer:\n    type: builtin\n",
			[]Found{{Name: "a", Command: "a", Args: []string{"b"}, Env: map[string]string{"K": "v"}, Timeout: 5 * time.Minute},
				{Name: "b", URL: "https://b.test", Transport: "http", Headers: map[string]string{"K": "${KEY}"}},
				{Name: "developer", Unusable: "its kind is not known to paddock; it has neither a command nor a URL"}}},
		"Jan":                  {"mcp_config.json", `{"mcpServers": {"a": {"command": "a", "args": [], "active": false}}}`, []Found{{Name: "a", Command: "a", Unusable: "it is switched off there"}}},
		"one without any":      {"mcp.json", `{"theme": "dark"}`, nil},
		"an empty one":         {"mcp.json", "", nil},
		"one that is too odd":  {"mcp.json", `{"mcpServers": {"a": 5, "b": {"command": ["x"]}, "c": {"url": "https://c.test", "type": "ws"}, "d": {"command": "d", "args": "x", "env": []}, "e": {"command": "e", "envFile": ".env"}}}`, []Found{{Name: "a", Unusable: "it is not an object"}, {Name: "b", Unusable: "command is not a text; it has neither a command nor a URL"}, {Name: "c", URL: "https://c.test", Unusable: "its kind is not known to paddock"}, {Name: "d", Command: "d", Unusable: "args is not a list of texts; env is not a table of texts"}, {Name: "e", Command: "e", Unusable: "its variables are in a file of the client's"}}},
		"one with a byte mark": {"mcp.json", "\ufeff" + `{"mcpServers": {"a": {"command": "a"}}}`, []Found{{Name: "a", Command: "a"}}},
	} {
		got, err := Source{File: c.file}.parse([]byte(c.text))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v (%v)\nwant %+v", name, got, err, c.want)
		}
	}
}

func TestAFileThatCannotBeReadSaysWhere(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, says string }{
		"a.json": {"{\n  \"mcpServers\": {\"a\": hush}\n}", "a.json:2: "},
		"a.toml": {"x = 1\nhush\n", "a.toml:2: "},
		"a.yaml": {"x: 1\nhush: [\n", "a.yaml:"},
		"b.json": {"[]", "b.json cannot be read: it is not an object"},
		"b.yaml": {"- a\n", "b.yaml cannot be read: it is not an object"},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Source{File: path}.Read()
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: it says %v, want %q", name, err, c.says)
		}
	}
	if _, err := (Source{File: filepath.Join(dir, "none.json")}).Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a file that is not there it says %v", err)
	}
	if _, err := (Source{File: dir}).Read(); fault.KindOf(err) != fault.Invalid {
		t.Errorf("of a folder it says %v", err)
	}
}

func TestWhereClientsKeepServers(t *testing.T) {
	at := Place{GOOS: "linux", Home: "/home/me", Folder: "/project", Getenv: func(string) string { return "" }, Glob: func(string) []string { return nil }}
	var files []string
	for _, s := range Sources(at, "") {
		files = append(files, s.Client+" "+s.File)
	}
	for _, want := range []string{"cursor /home/me/.cursor/mcp.json", "cursor /project/.cursor/mcp.json", "claude-code /project/.mcp.json", "vscode /home/me/.config/Code/User/mcp.json", "codex /home/me/.codex/config.toml", "windsurf /home/me/.codeium/windsurf/mcp_config.json"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s is not among %v", want, files)
		}
	}
	if got := Sources(at, "windsurf"); len(got) != 1 || got[0].Title != "Windsurf" {
		t.Errorf("of windsurf there is %+v", got)
	}
	if got := Sources(at, "cherry-studio"); got != nil {
		t.Errorf("of a client without a file there is %+v", got)
	}
	if got := Sources(at, "nobody"); got != nil {
		t.Errorf("of nobody there is %+v", got)
	}
	if got := Sources(Place{GOOS: "linux", Getenv: at.Getenv, Glob: at.Glob}, "cursor"); slices.ContainsFunc(got, func(s Source) bool { return s.File == "" }) {
		t.Errorf("without a home there is %+v", got)
	}
}

func FuzzServersAreRead(f *testing.F) {
	f.Add("a.json", []byte(`{"mcpServers": {"a": {"command": "a", "env": {"A": "${env:B}"}}}}`))
	f.Add("a.toml", []byte("[mcp_servers.a]\nurl = 'x'\nenv_vars = ['A']\n"))
	f.Fuzz(func(t *testing.T, file string, text []byte) {
		all, err := Source{File: file}.parse(text)
		for _, one := range all {
			if err != nil || one.Unusable == "" && one.Command == "" && one.URL == "" {
				t.Errorf("%+v (%v)", one, err)
			}
		}
	})
}
