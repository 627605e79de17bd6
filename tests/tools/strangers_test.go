package tools

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
	"paddock/tests/paddocktest"
)

// strangers has the whole table run, and its results written (make strangers); onlyServers
// is for those who mend one.
var (
	strangers   = flag.String("strangers", "", "run the whole table of servers, and write this file's section about them")
	onlyServers = flag.String("only", "", "names of packages, with commas between")
)

// stranger is a server of npm's: the package with its version, what it is started with, and
// a call in Python with what it prints ("…" stands for anything at its end). Servers whose
// calls go to somebody else's machine are listed and imported only.
type stranger struct{ name, args, env, call, prints string }

// key is what servers take for a key when they start.
const key = "a-key-that-opens-nothing"

var strangersOfNPM = []stranger{
	{"@modelcontextprotocol/server-everything@2026.8.31", "", "", "get_sum(a=1, b=2)", "'The sum of 1 and 2 is 3.'"},
	{"@modelcontextprotocol/server-filesystem@2026.8.31", "{}", "", "list_allowed_directories()", "{'content': 'Allowed directories:…"},
	{"@modelcontextprotocol/server-memory@2026.8.31", "", "MEMORY_FILE_PATH={}/memory.json", "create_entities(entities=[{'name': 'a', 'entityType': 'b', 'observations': ['c']}])", "{'entities': [{'name': 'a', 'entityType': 'b', 'observations': ['c']}]}"},
	{"@modelcontextprotocol/server-sequential-thinking@2026.8.31", "", "", "sequentialthinking(thought='x', nextThoughtNeeded=False, thoughtNumber=1, totalThoughts=1)", "{'thoughtNumber': 1, 'totalThoughts': 1, 'nextThoughtNeeded': False, 'branches': [], 'thoughtHistoryLength': 1}"},
	{"@modelcontextprotocol/server-github@2025.4.8", "", "GITHUB_PERSONAL_ACCESS_TOKEN=" + key, "", ""},
	{"@modelcontextprotocol/server-google-maps@0.6.2", "", "GOOGLE_MAPS_API_KEY=" + key, "", ""},
	{"@modelcontextprotocol/server-postgres@0.6.2", "postgresql://localhost/x", "", "", ""},
	{"@modelcontextprotocol/server-slack@2025.4.25", "", "SLACK_BOT_TOKEN=" + key + " SLACK_TEAM_ID=" + key, "", ""},
	{"@modelcontextprotocol/server-brave-search@0.6.2", "", "BRAVE_API_KEY=" + key, "", ""},
	{"@modelcontextprotocol/server-puppeteer@2025.5.12", "", "", "", ""},
	{"@playwright/mcp@0.0.83", "--headless --no-sandbox --isolated --executable-path /usr/bin/chromium", "", "browser_navigate(url='data:text/html,<title>t</title><p>hello</p>')", `"### Ran Playwright code…`},
	{"@upstash/context7-mcp@4.1.1", "", "", "", ""},
	{"@notionhq/notion-mcp-server@2.5.2", "", "", "", ""},
	{"firecrawl-mcp@3.22.2", "", "FIRECRAWL_API_KEY=" + key, "", ""},
	{"exa-mcp-server@3.4.1", "", "EXA_API_KEY=" + key, "", ""},
	{"tavily-mcp@0.2.22", "", "TAVILY_API_KEY=" + key, "", ""},
	{"@sentry/mcp-server@0.36.0", "--access-token=" + key, "", "", ""},
	{"mcp-server-kubernetes@4.1.7", "", "", "", ""},
	{"@wonderwhy-er/desktop-commander@0.2.52", "", "", "start_process(command='echo hi', timeout_ms=5000)", "'Process started with PID …"},
	{"@executeautomation/playwright-mcp-server@1.0.12", "", "", "", ""},
	{"figma-developer-mcp@0.13.2", "--stdio --figma-api-key=" + key, "", "", ""},
	{"@mapbox/mcp-server@0.2.0", "", "MAPBOX_ACCESS_TOKEN=sk.eyJ1IjoieCJ9.x", "", ""},
	{"@eslint/mcp@0.3.13", "", "", "", ""},
	{"chrome-devtools-mcp@1.11.0", "", "", "", ""},
	{"next-devtools-mcp@0.4.0", "", "", "", ""},
	{"@antv/mcp-server-chart@0.9.10", "", "", "", ""},
	{"mcp-mermaid@0.4.1", "", "", "", ""},
	{"airtable-mcp-server@1.14.0", "", "AIRTABLE_API_KEY=" + key, "", ""},
	{"@hubspot/mcp-server@0.4.0", "", "PRIVATE_APP_ACCESS_TOKEN=" + key, "", ""},
	{"@browserbasehq/mcp-server-browserbase@2.4.3", "", "BROWSERBASE_API_KEY=" + key + " BROWSERBASE_PROJECT_ID=" + key + " GEMINI_API_KEY=" + key, "", ""},
	{"mongodb-mcp-server@3.0.4", "", "", "", ""},
	{"@elastic/mcp-server-elasticsearch@0.3.1", "", "ES_URL=http://localhost:1 ES_API_KEY=" + key, "", ""},
	{"@shopify/dev-mcp@1.16.0", "", "", "", ""},
	{"@magicuidesign/mcp@2.0.0", "", "", "", ""},
	{"shadcn@4.23.0", "mcp", "", "get_project_registries()", "'The following registries are configured …"},
	{"nx-mcp@0.25.0", "", "", "", ""},
	{"mcp-server-code-runner@0.1.8", "", "", "run_code(code='console.log(1 + 1)', languageId='javascript')", `'2\n'`},
	{"mcp-fetch-server@1.1.2", "", "", "", ""},
	{"time-mcp@1.0.6", "", "", "days_in_month(date='2024-02-10')", "'…"},
	{"@cyanheads/git-mcp-server@2.15.3", "", "", "git_status(path='{}')", "{'success': True, 'currentBranch': 'main', …"},
	{"@brave/brave-search-mcp-server@2.1.4", "", "BRAVE_API_KEY=" + key, "", ""},
	{"@perplexity-ai/mcp-server@1.2.1", "", "PERPLEXITY_API_KEY=" + key, "", ""},
	{"mcp-server-docker@1.0.0", "", "", "", ""},
	{"linear-mcp-server@0.1.0", "", "LINEAR_API_KEY=" + key, "", ""},
	{"@kazuph/mcp-taskmanager@1.1.1", "", "TASK_MANAGER_FILE_PATH={}/tasks.json", "request_planning(originalRequest='x', tasks=[{'title': 'a', 'description': 'b'}])['status']", "'planned'"},
	{"puppeteer-mcp-server@0.7.2", "", "", "", ""},
	{"@openbnb/mcp-server-airbnb@0.3.0", "", "", "", ""},
	{"@circleci/mcp-server-circleci@0.20.0", "", "CIRCLECI_TOKEN=" + key, "", ""},
	{"@googlemaps/code-assist-mcp@0.2.1", "", "", "", ""},
	{"@mcp-get-community/server-curl@0.1.0", "", "", "", ""},
	{"mcp-searxng@1.16.0", "", "SEARXNG_URL=http://localhost:1", "", ""},
	{"@angular/cli@21.2.28", "mcp", "", "", ""},
	{"@microsoft/clarity-mcp-server@2.0.1", "", "", "", ""},
}

// bare is the package's name without its version.
func (s stranger) bare() string { return s.name[:strings.LastIndexByte(s.name, '@')] }

// install has npm install the package, and gives the program that is the server. Programs
// that packages bring for their installation are not run.
func (s stranger) install(t *testing.T, dir string) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	sandboxtest.Require(t, "node", err == nil, "npm is not installed")
	at := filepath.Join(dir, strings.NewReplacer("/", "+", "@", "").Replace(s.name))
	installed := filepath.Join(at, "node_modules", filepath.FromSlash(s.bare()))
	if _, err := os.Stat(installed); err != nil {
		cmd := exec.CommandContext(t.Context(), npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", at, s.name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm: %v: %s", err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join(installed, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Bin json.RawMessage }
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	one, several := "", map[string]string{}
	if json.Unmarshal(manifest.Bin, &one) != nil && json.Unmarshal(manifest.Bin, &several) != nil || one == "" && len(several) == 0 {
		t.Fatalf("it has no program: %s", manifest.Bin)
	}
	if one == "" { // the first as it is written
		first, _, _ := strings.Cut(string(manifest.Bin), ":")
		one = several[strings.Trim(first, "{ \r\n\t\"")]
	}
	return filepath.Join(installed, filepath.FromSlash(one))
}

// The MCP servers that npm has most of can be listed, imported in both languages and called.
// The reference servers are in other tests, in each run; all of them with -strangers.
func TestServersOfStrangers(t *testing.T) {
	if *strangers == "" && *onlyServers == "" {
		t.Skip("make strangers runs it: npm installs some fifty servers")
	}
	packages := suite.Install(t)
	dir := filepath.Join(paddocktest.BuildCache(t), "strangers")
	var rows []string
	for _, s := range strangersOfNPM {
		if *onlyServers != "" && !slices.Contains(strings.Split(*onlyServers, ","), s.bare()) {
			continue
		}
		result := "does not start"
		t.Run(strings.ReplaceAll(s.name, "/", "+"), func(t *testing.T) { result = s.try(t, packages, dir) })
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", s.bare(), s.name[len(s.bare())+1:], result))
	}
	if *strangers != "" && *onlyServers == "" {
		paddocktest.WriteSection(t, *strangers, "MCP servers", []string{"package", "version", "what was done"}, rows)
	}
}

// try lists, imports and calls a server, and says what was done.
func (s stranger) try(t *testing.T, packages suite.Packages, dir string) string {
	program, own := s.install(t, dir), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", "-b", "main", own).CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	args := []string{program}
	for arg := range strings.FieldsSeq(s.args) {
		args = append(args, strings.ReplaceAll(arg, "{}", own))
	}
	environ := map[string]string{"HOME": own, "PATH": packages.Bin("") + string(os.PathListSeparator) + os.Getenv("PATH")}
	for one := range strings.FieldsSeq(s.env) {
		name, value, _ := strings.Cut(one, "=")
		environ[name] = strings.ReplaceAll(value, "{}", own)
	}
	var config strings.Builder
	fmt.Fprintf(&config, "[servers.stranger]\ncommand = %q\nargs = [", packages.Bin("node"))
	for _, arg := range args {
		fmt.Fprintf(&config, "%q, ", arg)
	}
	config.WriteString("]\n[servers.stranger.env]\n")
	for name, value := range environ {
		fmt.Fprintf(&config, "%s = %q\n", name, value)
	}
	m := open(t, options{setting: setting{"stdio", "wasm"}, config: config.String()})
	m.waitFor(t, "stranger")
	count := m.run(t, "python", "import os, servers.stranger as stranger\nfrom servers.stranger import *\ntools = [f[:-3] for f in os.listdir('/servers/stranger') if f.endswith('.py') and f not in ('__init__.py', 'tools.py')]\nassert all(callable(getattr(stranger, n)) for n in tools), tools\nprint(len(tools))")
	if !count.Success || count.Stdout == "0\n" {
		t.Fatalf("Python cannot import it: %s %+v", count.Stderr, count.Error)
	}
	n := strings.TrimSpace(count.Stdout)
	if e := m.run(t, "javascript", `import * as all from "servers/stranger"; console.log(Object.values(all).filter((f) => typeof f === "function").length >= `+n+`)`); e.Stdout != "true\n" {
		t.Errorf("JavaScript does not have %s functions: %s %s", n, e.Stdout, e.Stderr)
	}
	if s.call == "" {
		return n + " tools listed and imported"
	}
	e := m.run(t, "python", "print(repr(stranger."+strings.ReplaceAll(s.call, "{}", own)+"))")
	got, want := strings.TrimSpace(e.Stdout), s.prints
	if before, anything := strings.CutSuffix(want, "…"); anything && strings.HasPrefix(got, before) {
		got = want
	}
	if !e.Success || got != want {
		t.Errorf("%s gives %s, want %s: %s", s.call, e.Stdout, want, e.Stderr)
	}
	name, _, _ := strings.Cut(s.call, "(")
	return n + " tools listed and imported, `" + name + "` called"
}
