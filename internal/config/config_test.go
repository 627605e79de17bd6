package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
)

// write puts a configuration file into the current folder, which is a fresh
// one, so that mistakes name it as paddock.toml.
func write(t *testing.T, text string) Source {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("paddock.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Source{Search: []string{"paddock.toml"}}
}

func load(t *testing.T, src Source) *Config {
	t.Helper()
	c, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// faults takes a joined error apart.
func faults(err error) []*fault.Error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*fault.Error
		for _, e := range joined.Unwrap() {
			all = append(all, faults(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []*fault.Error{fault.Of(err)}
}

func TestWithoutAnythingEveryKeyHasItsDefault(t *testing.T) {
	c := load(t, Source{})
	switch {
	case c.Sessions.DefaultTimeout != 30*time.Second:
		t.Errorf("the defaults: c.Sessions.DefaultTimeout = %v, want %v: %+v",
			c.Sessions.DefaultTimeout, 30*time.Second, c)
	case c.Sessions.MaxTimeout != time.Hour:
		t.Errorf("the defaults: c.Sessions.MaxTimeout = %v, want %v: %+v",
			c.Sessions.MaxTimeout, time.Hour, c)
	case c.Memory() != 256<<20:
		t.Errorf("the defaults: c.Memory() = %v, want %v: %+v", c.Memory(), 256<<20, c)
	case c.Sessions.DiskBytes != 512<<20:
		t.Errorf("the defaults: c.Sessions.DiskBytes = %v, want %v: %+v",
			c.Sessions.DiskBytes, 512<<20, c)
	case c.Policy.Fuel != 0:
		t.Errorf("the defaults: c.Policy.Fuel = %v, want 0: %+v", c.Policy.Fuel, c)
	case c.Sandbox.Isolation != "wasm":
		t.Errorf(`the defaults: c.Sandbox.Isolation = %q, want "wasm"`, c.Sandbox.Isolation)
	case c.Logging.Level != slog.LevelWarn:
		t.Errorf("the defaults: c.Logging.Level = %v, want %v: %+v", c.Logging.Level, slog.LevelWarn, c)
	}
	if len(c.Values()) != len(Keys()) {
		t.Errorf("%d values for %d keys", len(c.Values()), len(Keys()))
	}
	for _, v := range c.Values() {
		if v.Origin != "default" {
			t.Errorf("%s comes from %q", v.Key, v.Origin)
		}
	}
}

func TestEveryKeyReadsBackWhatIsShownOfIt(t *testing.T) {
	text, section := "", ""
	for _, v := range load(t, Source{Environ: []string{`PADDOCK_POLICY_ENV=A=1,B="x\`, "PADDOCK_SERVER_NAME=two\nlines\t\x01é", "PADDOCK_IMAGES=data=python:3,microsandbox/node=node:22"}}).Values() {
		if own, _, _ := strings.Cut(v.Key, "."); own != section {
			section = own
			text += "[" + section + "]\n"
		}
		for _, line := range v.Lines() {
			text += line + "\n"
		}
	}
	c := load(t, write(t, text))
	if want := map[string]string{"A": "1", "B": `"x\`}; !maps.Equal(c.Policy.Env, want) {
		t.Errorf("policy.env is %v, want %v", c.Policy.Env, want)
	}
	if want := map[string]string{"data": "python:3", "microsandbox/node": "node:22"}; !maps.Equal(c.Images, want) {
		t.Errorf("[images] is %v, want %v", c.Images, want)
	}
	if c.Server.Name != "two\nlines\t\x01é" {
		t.Errorf("server.name is %q", c.Server.Name)
	}
	for _, k := range Keys() {
		if !c.IsSet(k.Name) {
			t.Errorf("%s was not read from\n%s", k.Name, text)
		}
	}
}

// united is a file that the systems that paddock unites could read.
const united = `
[server]
name = "my sandbox"
version = "1.2"
instructions = """
be kind
"""

[sessions]
default_timeout_seconds = 10
max_sessions_per_client = 5
max_memory_mb = "1GiB"

[logging]
level = "INFO"
structured = true

[policy]
fuel_budget = 10_000_000_000
memory_bytes = 134217728
stdout_max_bytes = "2MB"
env = { PYTHONUTF8 = "1" }

[tools]
enabled = [
  "files", # the other set is left out
]

[transport_http]
host = "0.0.0.0"
port = 8080
path = "/sandbox"
cors_origins = ["http://localhost:3000"]
auth_token = "0123456789abcdef"
rate_limit_requests = 100
rate_limit_window_seconds = 10
max_concurrent_requests = 7
request_timeout_seconds = 20
max_request_size_mb = 5
`

func TestAFileOfTheSystemThatWeUniteIsRead(t *testing.T) {
	c := load(t, write(t, united))
	want := readOfUnited(t)
	got := *c
	got.origins = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for key, origin := range map[string]string{
		"server.instructions": "paddock.toml:5", "sessions.max_memory_mb": "paddock.toml:12", "policy.env": "paddock.toml:22",
		"tools.enabled": "paddock.toml:25", "sessions.max_timeout_seconds": "default",
	} {
		if got := c.Origin(key); got != origin {
			t.Errorf("%s comes from %q, want %q", key, got, origin)
		}
	}
}

// readOfUnited is what the file united says, and the defaults for the rest.
func readOfUnited(t *testing.T) Config {
	t.Helper()
	want := Config{File: "paddock.toml"}
	want.Server.Name, want.Server.Version, want.Server.Instructions = "my sandbox", "1.2", "be kind\n"
	want.Sessions.Cwd = "/workspace"
	want.Sessions.DefaultTimeout, want.Sessions.MaxTimeout = 10*time.Second, time.Hour
	want.Sessions.MaxPerClient, want.Sessions.MemoryBytes = 5, 1<<30
	want.Sessions.DiskBytes, want.Sessions.IdleTTL = 512<<20, 24*time.Hour
	want.Sessions.MaxStored, want.Sessions.SleepAfter, want.Sessions.MaxCheckpoints, want.Sessions.Checkpoint = 10_000, 600, 100, BeforeAnswer
	want.Sessions.KeepOutput = true
	want.Logging.Level, want.Logging.Structured = slog.LevelInfo, true
	want.Policy.Fuel, want.Policy.MemoryBytes = 10e9, 128<<20
	want.Policy.StdoutBytes, want.Policy.StderrBytes = 2e6, 1<<20
	want.Policy.Env = map[string]string{"PYTHONUTF8": "1"}
	want.Sandbox.Isolation, want.Tools.Enabled = "wasm", []string{"files"}
	want.Sandbox.Image, want.Sandbox.ImageBytes, want.Sandbox.ImageFiles = "host", 16<<30, 1<<20
	want.Sandbox.Processes, want.Sandbox.RootBytes = 256, 256<<20
	want.Sandbox.MemoryBytes, want.Sandbox.MaxMemoryBytes, want.Sandbox.MaxLifetime = 512<<20, 4<<30, 86400
	want.Sandbox.SaveAfter, want.Sandbox.StateBytes = 30, 512<<20
	want.Sandbox.Pool, want.Sandbox.Volumes = 4, []string{}
	want.E2B = E2B{Enabled: true, Templates: map[string]string{}}
	want.Skills.Allow, want.Secrets.Allow = []string{}, []string{}
	want.Network.Allow, want.Network.SentBytes, want.Network.ReceivedBytes, want.Network.Requests = []string{}, 1<<30, 10<<30, 100_000
	want.Packages = Packages{
		Machine: true, Public: true, PyPI: PackageIndex{Index: []string{}, Allow: []string{"*"}}, NPM: PackageIndex{Index: []string{}, Allow: []string{"*"}},
		Credentials: map[string]string{}, Files: []string{}, CacheBytes: 2 << 30, FileBytes: 512 << 20,
	}
	want.Images, want.Registries.Credentials, want.Registries.Insecure = map[string]string{}, map[string]string{}, []string{}
	want.Telemetry.Service, want.Audit.Mode, want.Audit.KeepDays = "paddock", "required", 90
	want.HTTP = TransportHTTP{
		Host: "0.0.0.0", Port: 8080, Path: "/sandbox", AllowedHosts: []string{}, Origins: []string{"http://localhost:3000"}, TrustedProxies: []string{},
		AuthToken: "0123456789abcdef", RateLimitRequests: 100, RateLimitWindow: 10 * time.Second, MaxConcurrentRequests: 7,
		RequestTimeout: 20 * time.Second, ShutdownGrace: 30 * time.Second, MaxRequestBytes: 5 << 20,
	}
	want.MCP.Allowlist, want.MCP.SessionTTL, want.MCP.CallInterval, want.MCP.CallsPerRun = []string{}, 300*time.Second, time.Duration(0), 1000
	want.MCP.Tools = ToolPatterns{Allow: []string{}, Ask: []string{}, Deny: []string{}}
	want.Vault.Keyring = "auto"
	want.Approvals.TTLHours, want.Approvals.AskClient = 24, true
	want.Limits = load(t, Source{}).Limits // the united systems have none of them
	return want
}

func TestWhoGoesBeforeWhom(t *testing.T) {
	file := "[logging]\nlevel = \"error\"\n"
	for _, test := range []struct {
		name          string
		environ       []string
		flags         map[string]string
		level, origin string
	}{
		{"the file before the default", nil, nil, "error", "paddock.toml:2"},
		{"a variable before the file", []string{"PADDOCK_LOGGING_LEVEL=info"}, nil, "info", "environment PADDOCK_LOGGING_LEVEL"},
		{"the short variable before the long one", []string{"PADDOCK_LOG_LEVEL=debug", "PADDOCK_LOGGING_LEVEL=info"}, nil, "debug", "environment PADDOCK_LOG_LEVEL"},
		{"an empty variable is none", []string{"PADDOCK_LOG_LEVEL="}, nil, "error", "paddock.toml:2"},
		{"a flag before all", []string{"PADDOCK_LOG_LEVEL=debug"}, map[string]string{"log-level": "warn"}, "warn", "flag --log-level"},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := write(t, file)
			src.Environ, src.Flags = test.environ, test.flags
			c := load(t, src)
			if got := strings.ToLower(c.Logging.Level.String()); got != test.level {
				t.Errorf("the level: got %q, want %q", got, test.level)
			} else if c.Origin("logging.level") != test.origin {
				t.Errorf(`the level: c.Origin("logging.level") = %q, want %q`, c.Origin("logging.level"), test.origin)
			}
		})
	}
}

func TestEveryKeyCanBeSetByItsVariable(t *testing.T) {
	samples := map[string]string{
		"server.version": "9", "server.instructions": "text", "policy.env": "A=b", "tools.enabled": "files", "sandbox.isolation": "wasm", "logging.structured": "true",
		"policy.memory_bytes": "64MiB", "images": "data=python:3", "e2b.enabled": "false", "e2b.templates": "mine=python:3", "sandbox.volumes": "/data", "registries.credentials": "registry.test=me:secret", "registries.insecure": "registry.test:5000", "auth.issuer": "https://issuer.test", "auth.audience": "https://here.test/mcp", "auth.scopes_required": "mcp",
		"telemetry.endpoint": "http://127.0.0.1:4318", "telemetry.traces_endpoint": "http://127.0.0.1:4318/t", "telemetry.metrics_endpoint": "http://127.0.0.1:4318/m",
		"transport_http.public_url": "https://here.test", "transport_http.preview_domain": "previews.test", "transport_http.allowed_hosts": "here.test", "transport_http.cors_origins": "*", "transport_http.trusted_proxies": "10.0.0.0/8,::1",
		"transport_http.tls_cert": "cert.pem", "transport_http.tls_key": "key.pem", "transport_http.auth_token": "0123456789abcdef",
		"mcp.allowlist": "api.test:8443,.example.test", "mcp.tools.allow": "@read-only,get_*", "mcp.tools.ask": "*", "mcp.tools.deny": "@destructive",
		"network.allow":       "GET api.test/v1/*, *.example.com 10.0.0.1:8080!private",
		"secrets.allow":       "GITHUB_TOKEN,MAPS_KEY",
		"packages.pypi.index": "https://index.test/simple,/srv/wheels", "packages.npm.index": "http://registry.test:4873/", "packages.credentials": "index.test=me:secret,registry.test:4873=token",
		"packages.files": "files.test!private", "packages.cert": "/etc/ca.pem",
		"skills.allow": "github.com,.example.com", "skills.github_token": "0123456789abcdef", "skills.github_api": "https://git.test/api/v3",
	}
	for _, k := range Keys() {
		text := samples[k.Name]
		if text == "" {
			text = k.Default
		}
		for _, name := range k.Vars() {
			c := load(t, Source{Environ: []string{name + "=" + text}})
			if want := "environment " + name; c.Origin(k.Name) != want {
				t.Errorf("%s comes from %q, want %q", k.Name, c.Origin(k.Name), want)
			}
		}
	}
}

func TestSizesAndTimesAsPeopleWriteThem(t *testing.T) {
	for _, test := range []struct {
		flag, text string
		key        string
		want       any
	}{
		{"memory", "512", "sessions.max_memory_mb", int64(512)},
		{"memory", "512MiB", "sessions.max_memory_mb", int64(512)},
		{"memory", "1.5g", "sessions.max_memory_mb", int64(1536)},
		{"memory", "100 MB", "sessions.max_memory_mb", "100000000B"},
		{"max-output", "64MiB", "policy.stderr_max_bytes", int64(64 << 20)},
		{"max-output", "10", "policy.stdout_max_bytes", int64(10)},
		{"fuel", "5_000_000", "policy.fuel_budget", int64(5e6)},
		{"timeout", "2", "sessions.default_timeout_seconds", int64(2)},
		{"timeout", "2m", "sessions.default_timeout_seconds", int64(120)},
		{"timeout", "1500ms", "sessions.default_timeout_seconds", 1.5},
	} {
		t.Run("--"+test.flag+" "+test.text, func(t *testing.T) {
			c := load(t, Source{Flags: map[string]string{test.flag: test.text}})
			all := c.Values()
			i := slices.IndexFunc(all, func(v Value) bool { return v.Key == test.key })
			if all[i].Value != test.want {
				t.Errorf("%s is %v, want %v", test.key, all[i].Value, test.want)
			}
		})
	}
}

func TestTheSmallerOfTwoMemoryLimitsCounts(t *testing.T) {
	for _, test := range []struct {
		name    string
		environ []string
		want    int64
	}{
		{"neither is set", nil, 256 << 20},
		{"sessions.max_memory_mb alone", []string{"PADDOCK_SESSIONS_MAX_MEMORY_MB=1024"}, 1 << 30},
		{"policy.memory_bytes alone, above the other's default", []string{"PADDOCK_POLICY_MEMORY_BYTES=1GiB"}, 1 << 30},
		{"both", []string{"PADDOCK_SESSIONS_MAX_MEMORY_MB=100", "PADDOCK_POLICY_MEMORY_BYTES=1GiB"}, 100 << 20},
		{"both, the other way round", []string{"PADDOCK_SESSIONS_MAX_MEMORY_MB=1024", "PADDOCK_POLICY_MEMORY_BYTES=64MiB"}, 64 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := load(t, Source{Environ: test.environ}).Memory(); got != test.want {
				t.Errorf("it is %d, want %d", got, test.want)
			}
		})
	}
}

func TestMistakesSayWhereTheyStand(t *testing.T) {
	for _, test := range []struct{ name, file, message, hint string }{
		{"a misspelt key", "[sessions]\n\nmax_memory_bm = 1\n", `paddock.toml:3: unknown key "sessions.max_memory_bm"`, "did you mean sessions.max_memory_mb?"},
		{"a key under the wrong section", "[policy]\nmax_memory_mb = 1\n", `paddock.toml:2: unknown key "policy.max_memory_mb"`, "did you mean sessions.max_memory_mb?"},
		{"a key under no section", "idle_ttl_seconds = 1\n", `paddock.toml:1: unknown key "idle_ttl_seconds" outside of a section`, "did you mean sessions.idle_ttl_seconds?"},
		{"a key like no other", "[tools]\nzzzzzz = 1\n", `paddock.toml:2: unknown key "tools.zzzzzz"`, "[tools] has enabled"},
		{"a misspelt section", "# one\n[session]\nmax_disk_mb = 1\n", "paddock.toml:2: unknown section [session]", "did you mean sessions?"},
		{"a section of a later time", "[console]\nport = 1\n", "paddock.toml:1: unknown section [console]", ""},
		{"a token that is too short, which is not repeated", "[transport_http]\nauth_token = \"abc\"\n", "paddock.toml:2: transport_http.auth_token: it has fewer than 16 characters", ""},
		{"a token with a line's end", "[transport_http]\nauth_token = \"0123456789abcdef\\n\"\n", "paddock.toml:2: transport_http.auth_token: it holds a space, or what is not ASCII", ""},
		{"an origin with a pattern", "[transport_http]\ncors_origins = [\"https://*.test\"]\n", `paddock.toml:2: transport_http.cors_origins: "https://*.test" is not of the form scheme://host[:port]`, ""},
		{"a proxy by its name", "[transport_http]\ntrusted_proxies = [\"proxy\"]\n", `paddock.toml:2: transport_http.trusted_proxies: "proxy" is neither an address nor a prefix`, ""},
		{"a host with a path", "[transport_http]\nallowed_hosts = [\"a/b\"]\n", `paddock.toml:2: transport_http.allowed_hosts: "a/b" is not a host`, ""},
		{"a section that is a value", "sessions = 3\n", "paddock.toml:1: sessions is a section, not a key", "write [sessions] on a line, and its keys below"},
		{"a dotted key", "sessions.max_disk_mb = \"all\"\n", `paddock.toml:1: sessions.max_disk_mb: "all" is not a size such as 256MiB`, ""},
		{"a key in an inline table", "\nsessions = { max_disk_bm = 1 }\n", `paddock.toml:2: unknown key "sessions.max_disk_bm"`, ""},
		{"a key behind a long text", "[server]\ninstructions = '''\n[policy]\nx = 1\n'''\nnmae = \"\"\n", `paddock.toml:6: unknown key "server.nmae"`, "did you mean server.name?"},
		{"a text for an integer", "[policy]\nfuel_budget = \"lots\"\n", "paddock.toml:2: policy.fuel_budget: it is a text, not an integer", ""},
		{"an integer for a text", "[server]\nname = 5\n", "paddock.toml:2: server.name: it is the integer 5, not a text", ""},
		{"a number with a point for a size", "[policy]\nmemory_bytes = 1e9\n", `paddock.toml:2: policy.memory_bytes: it is a number with a point, not an integer or a size such as "256MiB"`, ""},
		{"a text for a boolean", "[logging]\nstructured = \"yes\"\n", "paddock.toml:2: logging.structured: it is a text, not true or false", ""},
		{"a text for a list", "[tools]\nenabled = \"core\"\n", "paddock.toml:2: tools.enabled: it is a text, not a list of texts", ""},
		{"a number in a list", "[tools]\nenabled = [\"core\", 1]\n", "paddock.toml:2: tools.enabled: it is a list, not a list of texts", ""},
		{"an unknown set of tools", "[tools]\nenabled = [\"core\", \"magic\"]\n", `paddock.toml:2: tools.enabled: "magic" is not one of ` + strings.Join(ToolSets, ", "), ""},
		{"a rule that is none", "[network]\nallow = [\"api.test\", \"https://api.test/\"]\n", `paddock.toml:2: network.allow: "https://api.test/" is not a rule for hosts: a rule has no scheme`, ""},
		{"a method alone", "[network]\nallow = [\"GET\"]\n", `paddock.toml:2: network.allow: "GET" is not a rule for hosts: it is a method without a host`, ""},
		{"a host with a path", "[skills]\nallow = [\"example.com/a\"]\n", `paddock.toml:2: skills.allow: "example.com/a" is not a rule for hosts: a rule has no scheme and no path`, ""},
		{"a secret that has no name", "[secrets]\nallow = [\"lower\"]\n", `paddock.toml:2: secrets.allow: "lower" cannot be a secret's name`, ""},
		{"a set of tools twice", "[tools]\nenabled = [\"core\", \"core\"]\n", `paddock.toml:2: tools.enabled: "core" is there twice`, ""},
		{"an unknown isolation", "[sandbox]\nisolation = \"none\"\n", `paddock.toml:2: sandbox.isolation: "none" is not one of wasm, linux`, ""},
		{"too little memory", "[sessions]\nmax_memory_mb = 1\n", "paddock.toml:2: sessions.max_memory_mb: it is not between 32MiB and 4GiB", "sessions.max_memory_mb: how much memory an interpreter may take, its own needs included"},
		{"a negative size", "[policy]\nstdout_max_bytes = -1\n", "paddock.toml:2: policy.stdout_max_bytes: it is not between 1B and 1GiB", ""},
		{"no time", "[sessions]\nmax_timeout_seconds = 0\n", "paddock.toml:2: sessions.max_timeout_seconds: 0 is not between 1 and 604800", ""},
		{"a number that fits nowhere", "[sessions]\ndefault_timeout_seconds = 9223372036854775807\n", "paddock.toml:2: sessions.default_timeout_seconds: 9223372036854775807 is not between 1 and 86400", ""},
		{"a time above its maximum", "[sessions]\ndefault_timeout_seconds = 60\nmax_timeout_seconds = 50\n", "paddock.toml:2: sessions.default_timeout_seconds (60) is above sessions.max_timeout_seconds (50)", "set sessions.max_timeout_seconds too"},
		{"a maximum below the default time", "[sessions]\nmax_timeout_seconds = 5\n", "paddock.toml:2: sessions.default_timeout_seconds (30) is above sessions.max_timeout_seconds (5)", "set sessions.default_timeout_seconds too"},
		{"a share below what one interpreter may take", "[limits]\nmax_memory_per_client_mb = 100\n", "paddock.toml:2: sessions.max_memory_mb (256) is above limits.max_memory_per_client_mb (100)", "set sessions.max_memory_mb too"},
		{"an environment of numbers", "[policy.env]\nA = 1\n", "paddock.toml:1: policy.env: A is the integer 1, not a text", ""},
		{"an environment with an odd name", "[policy.env]\n\"a b\" = \"\"\n", `paddock.toml:1: policy.env: "a b" is not a variable's name`, ""},
		{"an issuer without TLS", "[auth]\nissuer = \"http://issuer.test\"\n", `paddock.toml:2: auth.issuer: "http://issuer.test" cannot be the issuer of access tokens: it is not https`, "it is the https URL in the tokens' iss, exactly; auth.allow_http_issuer lets in http on a loopback address"},
		{"an issuer without TLS elsewhere", "[auth]\nissuer = \"http://issuer.test\"\nallow_http_issuer = true\n", `paddock.toml:2: auth.issuer: "http://issuer.test" cannot be the issuer of access tokens: plain http is for loopback addresses only`, ""},
		{"an issuer with a query", "[auth]\nissuer = \"https://issuer.test/?a\"\n", `paddock.toml:2: auth.issuer: "https://issuer.test/?a" cannot be the issuer of access tokens: it has a query, a fragment or a user`, ""},
		{"what is not a scope", "[auth]\nscopes_required = [\"a b\"]\n", `paddock.toml:2: auth.scopes_required: "a b" is not a scope`, ""},
		{"an image with a name that it cannot have", "[images]\nhost = \"x\"\n", `paddock.toml:1: images: "host" cannot be the name of an image`, ""},
		{"an image that is a number", "[images]\nx = 1\n", "paddock.toml:1: images: x is the integer 1, not a text", ""},
		{"images that are no section", "images = 1\n", "paddock.toml:1: images is a section, not a key", ""},
		{"credentials without a password, which are not repeated", "[registries]\ncredentials = { \"a.test\" = \"secret\" }\n", "paddock.toml:2: registries.credentials: what it has for a.test is not of the form USER:PASSWORD", ""},
		{"what is not TOML", "[sessions]\nmax_disk_mb 5\n", "paddock.toml:2: ", "the file is not TOML from there on"},
		{"a key twice", "[sessions]\nmax_disk_mb = 5\nmax_disk_mb = 6\n", "paddock.toml:3: ", ""},
		{"a huge file", strings.Repeat("# page\n", 10_000), "paddock.toml: it is larger than 64KiB", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(write(t, test.file))
			all := faults(err)
			if len(all) != 1 {
				t.Fatalf("got %d mistakes, want 1: %v", len(all), err)
			}
			if got := all[0].Message; got != test.message && !(strings.HasSuffix(test.message, ": ") && strings.HasPrefix(got, test.message)) {
				t.Errorf("the message is\n%s\nwant\n%s", got, test.message)
			}
			if test.hint != "" && all[0].Hint != test.hint {
				t.Errorf("the hint is %q, want %q", all[0].Hint, test.hint)
			}
			if all[0].Kind != fault.Invalid {
				t.Errorf("the kind is %q", all[0].Kind)
			}
		})
	}
}

func TestAllMistakesAreReportedAtOnceAndTheRestCounts(t *testing.T) {
	src := write(t, "[sessions]\nmax_memory_mb = 1\nidle_ttl = 5\nmax_disk_mb = 7\n[what]\n")
	src.Environ = []string{"PADDOCK_POLICY_FUEL=1", "PADDOCK_LOG_LEVEL=loud", "PADDOCK_TEST_REQUIRE=wasm", "PADDOCK_POLICY_ENV=A"}
	src.Flags = map[string]string{"timeout": "soon", "max-output": "0"}
	c, err := Load(src)
	var got []string
	for _, f := range faults(err) {
		got = append(got, f.Message)
	}
	want := []string{
		`paddock.toml:2: sessions.max_memory_mb: it is not between 32MiB and 4GiB`,
		`paddock.toml:3: unknown key "sessions.idle_ttl"`,
		`paddock.toml:5: unknown section [what]`,
		`environment PADDOCK_LOG_LEVEL: logging.level: "loud" is not one of debug, info, warn, error`,
		`environment PADDOCK_POLICY_ENV: policy.env: "A" is not of the form NAME=value`,
		`environment PADDOCK_POLICY_FUEL: unknown variable`,
		`flag --timeout: sessions.default_timeout_seconds: "soon" is neither seconds nor a duration such as 30s or 2m`,
		`flag --max-output: policy.stdout_max_bytes: it is not between 1B and 1GiB`,
		`flag --max-output: policy.stderr_max_bytes: it is not between 1B and 1GiB`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	switch {
	case c.Sessions.DiskBytes != 7<<20:
		t.Errorf("the rest: c.Sessions.DiskBytes = %v, want %v: %+v",
			c.Sessions.DiskBytes, 7<<20, c.Sessions)
	case c.Memory() != 256<<20:
		t.Errorf("the rest: c.Memory() = %v, want %v: %+v", c.Memory(), 256<<20, c.Sessions)
	case c.Sessions.DefaultTimeout != 30*time.Second:
		t.Errorf("the rest: c.Sessions.DefaultTimeout = %v, want %v: %+v",
			c.Sessions.DefaultTimeout, 30*time.Second, c.Sessions)
	}
}

func TestWhichFileIsRead(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.toml"), filepath.Join(dir, "second.toml")
	for path, name := range map[string]string{first: "first", second: "second"} {
		if err := os.WriteFile(path, []byte("[server]\nname = \""+name+"\"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		src  Source
		want string
	}{
		{"the first that is there", Source{Search: []string{filepath.Join(dir, "none.toml"), second, first}}, "second"},
		{"no folder of that name", Source{Search: []string{dir, first}}, "first"},
		{"the one that was asked for", Source{File: second, Search: []string{first}}, "second"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := load(t, test.src).Server.Name; got != test.want {
				t.Errorf("it was the %s", got)
			}
		})
	}
	t.Run("one that was asked for has to be there", func(t *testing.T) {
		if _, err := Load(Source{File: filepath.Join(dir, "none.toml"), Search: []string{first}}); fault.KindOf(err) != fault.NotFound {
			t.Errorf("got %v", err)
		}
	})
}

func FuzzFile(f *testing.F) {
	f.Add("[sessions]\nmax_disk_mb = 7\n[policy.env]\nA = \"b\"\n")
	f.Add("server = { name = 'x' }\na.b.c = [1,\n2]\n")
	f.Add("[[policy]]\nenv = 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "paddock.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Source{File: path})
		var e *fault.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("the mistake is not a fault: %v", err)
		}
		for _, v := range c.Values() {
			if v.Origin == path+":0" {
				t.Errorf("%s is said to be in line 0 of\n%s", v.Key, text)
			}
		}
	})
}

func TestASecretIsNotShown(t *testing.T) {
	c := load(t, write(t, "[transport_http]\nauth_token = \"0123456789abcdef\"\n"))
	for _, v := range c.Values() {
		if text := v.Literal + fmt.Sprint(v.Value); strings.Contains(text, "0123456789abcdef") {
			t.Errorf("%s shows %s", v.Key, text)
		}
		if v.Key == "transport_http.auth_token" && (v.Value != "(hidden)" || v.Origin != "paddock.toml:2") {
			t.Errorf("of the token is shown %+v", v)
		}
	}
}
