package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
)

const twoServers = `
[servers.files]
command = "npx"
args = ["-y", "server-filesystem", "${HOME}/data"]
env = { DEBUG = "1", KEY = "${FILES_KEY}" }
cwd = "/srv"
tools.deny = ["write_*"]

[servers.github]
url = "https://api.test/mcp?key=hush"
headers = { Authorization = "Bearer ${GITHUB_TOKEN}", X-Key = "hush" }
transport = "http"
timeout_seconds = 120
max_response_mb = 2

[servers.github.tools]
allow = ["get_*", "@read-only"]
ask = ["create_*"]

[servers.github.oauth]
client_id = "paddock"
client_secret = "hush"
scopes = ["repo"]
grant = "client_credentials"
`

func TestServersAreRead(t *testing.T) {
	c := load(t, write(t, twoServers))
	files := Server{
		Command: "npx", Args: []string{"-y", "server-filesystem", "${HOME}/data"}, Dir: "/srv",
		Env: map[string]string{"DEBUG": "1", "KEY": "${FILES_KEY}"},
	}
	files.Tools.Deny = []string{"write_*"}
	github := Server{
		URL: "https://api.test/mcp?key=hush", Headers: map[string]string{"Authorization": "Bearer ${GITHUB_TOKEN}", "X-Key": "hush"}, Transport: "http",
		Timeout: 2 * time.Minute, ResponseBytes: 2 << 20,
		OAuth: OAuth{ClientID: "paddock", ClientSecret: "hush", Scopes: []string{"repo"}, Grant: ClientCredentials},
	}
	github.Tools.Allow, github.Tools.Ask = []string{"get_*", "@read-only"}, []string{"create_*"}
	if want := map[string]Server{"files": files, "github": github}; !reflect.DeepEqual(c.Servers, want) {
		t.Errorf("got  %+v\nwant %+v", c.Servers, want)
	}
	for key, want := range map[string]string{"servers.files": "paddock.toml:2", "servers.files.tools.deny": "paddock.toml:7", "servers.github.headers": "paddock.toml:11", "servers.github.tools.ask": "paddock.toml:18", "servers.github.env": "default"} {
		if got := c.Origin(key); got != want {
			t.Errorf("%s comes from %s, want %s", key, got, want)
		}
	}
	if !github.HasSecrets() {
		t.Error("github.HasSecrets() = false, want true")
	}
	if !files.HasSecrets() {
		t.Error("files.HasSecrets() = false, want true")
	}
	if (Server{Headers: map[string]string{"A": "Bearer ${B}"}}).HasSecrets() {
		t.Error("HasSecrets of a server with a variable only = true, want false")
	}
}

func TestServersAreShownWithoutTheirSecrets(t *testing.T) {
	c := load(t, write(t, twoServers))
	shown, section := "", ""
	for _, v := range c.Values() {
		if !strings.HasPrefix(v.Key, "servers.") {
			continue
		}
		if v.Section() != section {
			section = v.Section()
			shown += "[" + section + "]\n"
		}
		for _, line := range v.Lines() {
			shown += line + "\n"
		}
		if strings.Contains(fmt.Sprint(v.Value), "hush") {
			t.Errorf("%s shows %v", v.Key, v.Value)
		}
		if doc, accepts := DescribeServer(v.Key); doc == "" {
			t.Errorf("%s is not described: doc is empty, want some", v.Key)
		} else if accepts == "" {
			t.Errorf("%s is not described: accepts is empty, want some", v.Key)
		}
	}
	want := `[servers.files]
command = "npx"
args = ["-y", "server-filesystem", "${HOME}/data"]
env = {DEBUG = "(hidden)", KEY = "${FILES_KEY}"}
cwd = "/srv"
tools.deny = ["write_*"]
[servers.github]
url = "https://api.test/mcp?key=(hidden)"
headers = {Authorization = "Bearer ${GITHUB_TOKEN}", X-Key = "(hidden)"}
transport = "http"
tools.allow = ["get_*", "@read-only"]
tools.ask = ["create_*"]
timeout_seconds = 120
max_response_mb = 2
oauth.client_id = "paddock"
oauth.client_secret = "(hidden)"
oauth.scopes = ["repo"]
oauth.grant = "client_credentials"
`
	if shown != want {
		t.Errorf("it shows\n%s\nwant\n%s", shown, want)
	}
	load(t, write(t, shown)) // it is a file again
	if got := redacted("${A:-hush}"); got != "(hidden)" {
		t.Errorf("what replaces a variable is shown: %s", got)
	}
}

func TestMistakesInServersSayWhereTheyStand(t *testing.T) {
	for _, test := range []struct{ name, file, message, hint string }{
		{"a misspelt key", "[servers.a]\n\ncomand = \"x\"\n", `paddock.toml:3: unknown key "servers.a.comand"`, "did you mean command?"},
		{"a key of its tools", "[servers.a]\ntools.alow = [\"x\"]\n", `paddock.toml:2: unknown key "servers.a.tools.alow"`, "did you mean tools.allow?"},
		{"a key of its login", "[servers.a.oauth]\nclient = \"x\"\n", `paddock.toml:2: unknown key "servers.a.oauth.client"`, ""},
		{"a key that clients have", "[servers.a]\ntype = \"stdio\"\n", `paddock.toml:2: unknown key "servers.a.type"`, ""},
		{"a name with a dot", "[servers.\"a.b\"]\nurl = \"x\"\n", `paddock.toml:1: "a.b" cannot be a server's name`, "a name has 1 to 40 letters, digits, - and _"},
		{"a server that is a text", "[servers]\na = \"npx\"\n", `paddock.toml:2: servers.a is a text, not a server's table`, "write [servers.NAME] on a line, and its command or url below"},
		{"no section", "servers = 1\n", "paddock.toml:1: servers is a section, not a key", ""},
		{"a misspelt section", "[server.a]\nurl = \"x\"\n", `paddock.toml:1: unknown key "server.a"`, ""},
		{"arguments as one text", "[servers.a]\nargs = \"-y x\"\n", "paddock.toml:2: servers.a.args: it is a text, not a list of texts", "args: its arguments; ${NAME} in them is a variable of paddock's environment"},
		{"a transport that there is not", "[servers.a]\ntransport = \"ws\"\n", `paddock.toml:2: servers.a.transport: "ws" is not one of auto, http, sse`, ""},
		{"a variable with an odd name", "[servers.a.env]\n\"a b\" = \"\"\n", `paddock.toml:1: servers.a.env: "a b" is not a variable's name`, ""},
		{"no time", "[servers.a]\ntimeout_seconds = 0\n", "paddock.toml:2: servers.a.timeout_seconds: 0 is not between 1 and 86400", ""},
		{"a huge response", "[servers.a]\nmax_response_mb = \"1GiB\"\n", "paddock.toml:2: servers.a.max_response_mb: it is not between 1KiB and 256MiB", ""},
		{"no calls at all", "[servers.a]\ncalls_per_minute = 0\n", "paddock.toml:2: servers.a.calls_per_minute: 0 is not between 1 and 60000", ""},
		{"an empty pattern", "[servers.a]\ntools.ask = [\"\"]\n", "paddock.toml:2: servers.a.tools.ask: one of them is empty", ""},
		{"a grant that there is not", "[servers.a]\noauth.grant = \"password\"\n", `paddock.toml:2: servers.a.oauth.grant: "password" is not one of authorization_code, client_credentials`, ""},
		{"a rule with a path", "[mcp]\nallowlist = [\"https://a.test\"]\n", `paddock.toml:2: mcp.allowlist: "https://a.test" is not a rule for hosts`, ""},
		{"a pause below nothing", "[mcp]\ncall_interval_seconds = -0.1\n", "paddock.toml:2: mcp.call_interval_seconds: it is not between 0 and 3600 seconds", ""},
		{"no pause at all is not text", "[mcp]\ncall_interval_seconds = \"0\"\n", "paddock.toml:2: mcp.call_interval_seconds: it is a text, not a number of seconds", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(write(t, test.file))
			all := faults(err)
			if len(all) != 1 {
				t.Fatalf("got %d mistakes, want 1: %v", len(all), err)
			}
			if all[0].Message != test.message {
				t.Errorf("the message is\n%s\nwant\n%s", all[0].Message, test.message)
			}
			if all[0].Hint == "" {
				t.Error("the mistake has no hint, want one")
			}
			if test.hint != "" && all[0].Hint != test.hint {
				t.Errorf("the hint is %q, want %q", all[0].Hint, test.hint)
			}
		})
	}
}

func TestAllMistakesOfServersAreToldInOrderAndTheRestCounts(t *testing.T) {
	c, err := Load(write(t, "[servers.b]\nurl = 1\nx = 1\n[servers.a]\nurl = \"https://a.test\"\ny = 2\n[mcp]\ncalls_per_run = 0\n"))
	var got []string
	for _, f := range faults(err) {
		where, _, _ := strings.Cut(f.Message, ": ")
		got = append(got, where)
	}
	if want := "paddock.toml:2 paddock.toml:3 paddock.toml:6 paddock.toml:8"; strings.Join(got, " ") != want {
		t.Errorf("the mistakes are in %v, want %s", got, want)
	}
	if c.Servers["a"].URL != "https://a.test" {
		t.Errorf("what is right was not taken: %+v", c.Servers)
	}
}

func TestServersAreNoVariable(t *testing.T) {
	_, err := Load(Source{Environ: []string{"PADDOCK_SERVERS=x", "PADDOCK_SERVERS_A_URL=https://a.test", "PADDOCK_SERVERS_B="}})
	if all := faults(err); len(all) != 2 {
		t.Errorf("len(all) = %d, want 2", len(all))
	} else if !strings.Contains(all[0].Hint, "paddock.toml") {
		t.Errorf(`all[0].Hint = %q, want "paddock.toml" in it`, all[0].Hint)
	}
}

func TestMayflowersVariablesCountAndPaddocksGoBefore(t *testing.T) {
	c := load(t, Source{Environ: []string{"MAYFLOWER_MCP_ALLOWLIST=a.test,.b.test", "MAYFLOWER_MCP_SESSION_TTL=10", "MAYFLOWER_MCP_CALL_INTERVAL=0.5", "PADDOCK_MCP_CALL_INTERVAL=0", "PADDOCK_MCP_CALLS_PER_RUN=7"}})
	switch got := strings.Join(c.MCP.Allowlist, " "); {
	case got != "a.test .b.test":
		t.Errorf(`got = %q, want "a.test .b.test"`, got)
	case c.MCP.SessionTTL != 10*time.Second:
		t.Errorf("c.MCP.SessionTTL = %v, want %v: %+v", c.MCP.SessionTTL, 10*time.Second, c.MCP)
	case c.MCP.CallInterval != 0:
		t.Errorf("c.MCP.CallInterval = %v, want 0: %+v", c.MCP.CallInterval, c.MCP)
	case c.MCP.CallsPerRun != 7:
		t.Errorf("c.MCP.CallsPerRun = %v, want 7: %+v", c.MCP.CallsPerRun, c.MCP)
	}
	if got := c.Origin("mcp.call_interval_seconds"); got != "environment PADDOCK_MCP_CALL_INTERVAL" {
		t.Errorf("it comes from %s", got)
	}
	if got := load(t, Source{Environ: []string{"PADDOCK_MCP_CALL_INTERVAL_SECONDS=0.25"}}).MCP.CallInterval; got != 250*time.Millisecond {
		t.Errorf("it is %v", got)
	}
	for _, text := range []string{"soon", "-1", "NaN", "Inf", "1e9"} {
		if _, err := Load(Source{Environ: []string{"PADDOCK_MCP_CALL_INTERVAL=" + text}}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
}

func TestVariablesArePutIn(t *testing.T) {
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{"A": "1", "EMPTY": ""}[name]
		return value, ok
	}
	s := Server{Args: []string{"${A}", "$A", "${A:-x}"}, Env: map[string]string{"X": "a${A}b${EMPTY}", "Y": "${EMPTY:-two}${GONE:-}"}, Headers: map[string]string{"H": "Bearer ${A}"}, URL: "https://${A}.test"}
	s.OAuth.ClientSecret = "${A}"
	got, err := s.Expand(lookup)
	want := Server{Args: []string{"1", "$A", "1"}, Env: map[string]string{"X": "a1b", "Y": "two"}, Headers: map[string]string{"H": "Bearer 1"}, URL: "https://1.test"}
	want.OAuth.ClientSecret = "1"
	if err != nil {
		t.Errorf("got error %v, want none", err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s.Args[0] != "${A}" {
		t.Errorf(`what was expanded has changed: s.Args[0] = %q, want "${A}"`, s.Args[0])
	} else if s.Env["X"] != "a${A}b${EMPTY}" {
		t.Errorf(`what was expanded has changed: s.Env["X"] = %q, want "a${A}b${EMPTY}"`, s.Env["X"])
	}
	_, err = Server{Env: map[string]string{"K": "${GONE}"}, Headers: map[string]string{"H": "${ALSO}"}}.Expand(lookup)
	all := faults(err)
	switch {
	case len(all) != 2:
		t.Errorf("of what is missing it says %v: len(all) = %d, want 2: %+v", err, len(all), all)
	case all[0].Message != "env.K: there is no variable GONE":
		t.Errorf(`of what is missing it says %v: all[0].Message = %q, want "env.K: there is no variable GONE"`,
			err, all[0].Message)
	case all[1].Message != "headers.H: there is no variable ALSO":
		t.Errorf(`of what is missing it says %v: all[1].Message = %q, want "headers.H: there is no variable ALSO"`,
			err, all[1].Message)
	case all[0].Hint == "":
		t.Errorf("of what is missing it says %v: all[0].Hint is empty, want a text", err)
	}
}

func TestToolsOfServersThatAreBoundAreTakenInAnyForm(t *testing.T) {
	for name, text := range map[string]string{
		"dotted keys": "[mcp]\ntools.ask = [\"@destructive\"]\ntools.deny = [\"admin_*\"]\n",
		"a section":   "[mcp]\ncalls_per_run = 3\n[mcp.tools]\nask = [\"@destructive\"]\ndeny = [\"admin_*\"]\n",
		"a table":     "[mcp]\ntools = { ask = [\"@destructive\"], deny = [\"admin_*\"] }\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := load(t, write(t, text))
			if got := fmt.Sprint(c.MCP.Tools); got != "{[] [@destructive] [admin_*]}" {
				t.Errorf("it is %s", got)
			}
			if c.IsSet("mcp.tools.allow") {
				t.Errorf("mcp.tools.allow is set from %q, want it not to be set", c.Origin("mcp.tools.allow"))
			} else if !strings.HasPrefix(c.Origin("mcp.tools.deny"), "paddock.toml:") {
				t.Errorf("mcp.tools.deny comes from %q, want paddock.toml", c.Origin("mcp.tools.deny"))
			}
		})
	}
	_, err := Load(write(t, "[mcp]\ntools.alow = [\"a\"]\ntools.ask = [\"\"]\n[mcp.tools.deny]\nx = 1\n"))
	var got []string
	for _, f := range faults(err) {
		got = append(got, f.Message)
	}
	want := `paddock.toml:2: unknown key "mcp.tools.alow"|paddock.toml:3: mcp.tools.ask: one of them is empty|paddock.toml:4: mcp.tools.deny: it is a table, not a list of texts`
	if strings.Join(got, "|") != want {
		t.Errorf("the mistakes are %s", strings.Join(got, "|"))
	}
}
