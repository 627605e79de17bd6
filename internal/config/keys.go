package config

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// Key is one setting.
type Key struct {
	// Name is its section and its name in paddock.toml, with a dot between; without
	// one it is a section whose keys are the user's own.
	Name string
	// Doc says in a few words what it decides.
	Doc string
	// Flag is the flag of the commands that take it; empty: there is none.
	// Several keys may share one.
	Flag string
	// Default is its value when nobody sets it, as a flag would give it.
	Default string
	// Accepts says what it may be.
	Accepts string

	alias    string // a second, shorter variable, which goes before the first
	other    string // another program's variable, which goes after both
	usersOwn bool   // a project's file cannot set it
	fromText func(c *Config, s string) error
	fromFile func(c *Config, v any) error
	data     func(c *Config) any
}

// Vars are the environment variables that set the key; the last one given
// counts.
func (k Key) Vars() []string {
	vars := []string{variable(k.Name)}
	if k.other != "" {
		vars = append([]string{k.other}, vars...)
	}
	if k.alias != "" {
		vars = append(vars, k.alias)
	}
	return vars
}

func variable(name string) string {
	return "PADDOCK_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// Keys lists every key, section by section.
func Keys() []Key { return slices.Clone(keys) }

// Flags finds the keys of a flag.
func Flags(flag string) []Key {
	return slices.DeleteFunc(Keys(), func(k Key) bool { return k.Flag != flag })
}

func find(name string) (Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

func sections() []string {
	var all []string
	for _, k := range keys {
		section, _, _ := strings.Cut(k.Name, ".")
		if !slices.Contains(all, section) {
			all = append(all, section)
		}
	}
	return all
}

// fileSections are those of the file.
func fileSections() []string { return append(sections(), serversSection) }

func names() []string {
	var all []string
	for _, k := range keys {
		all = append(all, k.Name)
	}
	return all
}

// define makes a key whose value, of one kind, goes into one field.
func define[T any](name, doc, def string, of kind[T], field func(*Config) *T) Key {
	return Key{
		Name: name, Doc: doc, Default: def, Accepts: of.accepts,
		fromText: func(c *Config, s string) error {
			v, err := of.text(s)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		fromFile: func(c *Config, v any) error {
			value, err := of.file(v)
			if err == nil {
				*field(c) = value
			}
			return err
		},
		data: func(c *Config) any { return of.data(*field(c)) },
	}
}

func (k Key) flag(name string) Key {
	k.Flag = name
	return k
}

func (k Key) variable(name string) Key {
	k.alias = name
	return k
}

// ofUser keeps a key from the files of projects, trusted ones too: it says where paddock
// keeps what is the user's.
func (k Key) ofUser() Key {
	k.usersOwn = true
	return k
}

// like has another program's variable set the key too.
func (k Key) like(name string) Key {
	k.other = name
	return k
}

// These bound what an operator may ask for: Python needs about 20 MiB for
// itself, and a WebAssembly memory ends at 4 GiB.
const (
	leastMemory = 32 << 20
	mostMemory  = 4 << 30
	mostDisk    = 1 << 40
	// Of a Linux machine, with an interpreter and what it runs on.
	leastMachine = 64 << 20
	mostMachine  = 1 << 40
	mostOutput   = 1 << 30
	day          = 24 * time.Hour
)

// ToolSets are the sets of tools that there are.
var ToolSets = []string{"core", "files", "code-mode", "skills", "history", "sandbox"}

// Approve is the scope of tokens that may allow calls of tools. It is none of the sets,
// and no token has it that does not name it.
const Approve = "approve"

// Scopes are what a token can be for: the sets of tools, and Approve.
func Scopes() []string { return append(slices.Clone(ToolSets), Approve) }

// keys is the table that everything else here comes from.
var keys = slices.Concat(firstKeys, packagesKeys(), lastKeys)

var firstKeys = []Key{
	define("server.name", "what the server calls itself", "paddock", words(1, 100), func(c *Config) *string { return &c.Server.Name }),
	define("server.version", "the version that the server tells; empty: paddock's own", "", words(0, 100), func(c *Config) *string { return &c.Server.Version }),
	define("server.instructions", "what models are told about the server; empty: what runs here", "", words(0, 2048), func(c *Config) *string { return &c.Server.Instructions }),

	define("sessions.cwd", "where programs begin: in / they find ./servers, ./skills and ./workspace", "/workspace", oneOf("/workspace", "/"), func(c *Config) *string { return &c.Sessions.Cwd }),
	define("sessions.default_timeout_seconds", "how long a program may run when the call does not say", "30", seconds(day), func(c *Config) *time.Duration { return &c.Sessions.DefaultTimeout }).flag("timeout"),
	define("sessions.max_timeout_seconds", "how long a call may ask for", "3600", seconds(7*day), func(c *Config) *time.Duration { return &c.Sessions.MaxTimeout }),
	define("sessions.max_sessions_per_client", "how many sessions of a client are in memory at once: for one more another is put to sleep", "32", count(1, 10_000), func(c *Config) *int64 { return &c.Sessions.MaxPerClient }),
	define("sessions.max_memory_mb", "how much memory an interpreter may take, its own needs included", "256", size(1<<20, leastMemory, mostMemory), func(c *Config) *int64 { return &c.Sessions.MemoryBytes }).flag("memory"),
	define("sessions.max_disk_mb", "how much a session's files may take", "512", size(1<<20, 1<<20, mostDisk), func(c *Config) *int64 { return &c.Sessions.DiskBytes }).flag("disk"),
	define("sessions.idle_ttl_seconds", "how long a session is kept after its last use", "86400", seconds(365*day), func(c *Config) *time.Duration { return &c.Sessions.IdleTTL }),

	define("sessions.max_stored_per_client", "how many sessions a client may have, asleep or not", "10000", count(1, 1_000_000), func(c *Config) *int64 { return &c.Sessions.MaxStored }),
	define("sessions.sleep_after_seconds", "how long an unused session stays in memory; then it is on disk alone, and the next call wakes it; 0: until its place is needed", "600", count(0, 365*86400), func(c *Config) *int64 { return &c.Sessions.SleepAfter }),
	define("sessions.max_checkpoints", "how many checkpoints a session keeps that have no label", "100", count(1, 100_000), func(c *Config) *int64 { return &c.Sessions.MaxCheckpoints }),
	define("sessions.checkpoint", "whether a call is answered before or after what it left is safe on disk: after_answer is quicker, and what is killed in between is lost", BeforeAnswer, oneOf(BeforeAnswer, AfterAnswer), func(c *Config) *string { return &c.Sessions.Checkpoint }),
	define("sessions.keep_output", "whether what executions print, return and display is kept with their checkpoints, and their whole code: of each stream 128 KiB, of what is displayed 4 MiB", "true", boolean(), func(c *Config) *bool { return &c.Sessions.KeepOutput }),

	define("logging.level", "how much is logged to stderr", "warn", level(), func(c *Config) *slog.Level { return &c.Logging.Level }).flag("log-level").variable("PADDOCK_LOG_LEVEL"),
	define("logging.structured", "whether the log is JSON", "false", boolean(), func(c *Config) *bool { return &c.Logging.Structured }),

	define("policy.fuel_budget", "how much a program may do: loop rounds and calls of its interpreter; 0: they are not counted, which makes programs several times as fast", "0", count(0, 1<<62), func(c *Config) *int64 { return &c.Policy.Fuel }).flag("fuel"),
	define("policy.memory_bytes", "as sessions.max_memory_mb, in bytes; of two that are set the smaller counts; 0: not set", "0", size(1, 0, mostMemory), func(c *Config) *int64 { return &c.Policy.MemoryBytes }),
	define("policy.stdout_max_bytes", "how much of a program's standard output results keep; one that prints 64 times as much is stopped", "1048576", size(1, 1, mostOutput), func(c *Config) *int64 { return &c.Policy.StdoutBytes }).flag("max-output"),
	define("policy.stderr_max_bytes", "how much of a program's standard error results keep; one that prints 64 times as much is stopped", "1048576", size(1, 1, mostOutput), func(c *Config) *int64 { return &c.Policy.StderrBytes }).flag("max-output"),
	define("policy.env", "the environment that programs see", "", environment(), func(c *Config) *map[string]string { return &c.Policy.Env }),

	define("sandbox.isolation", "the default isolation of programs", "wasm", oneOf("wasm", "linux"), func(c *Config) *string { return &c.Sandbox.Isolation }).flag("isolation"),
	define("sandbox.image", "the default image of Linux sandboxes: a reference, a name of [images], or host: this machine's own programs, read-only", "host", words(1, 512), func(c *Config) *string { return &c.Sandbox.Image }).flag("image"),
	define("sandbox.max_image_mb", "how much an image may take when it is unpacked", "16384", size(1<<20, 1<<20, mostDisk), func(c *Config) *int64 { return &c.Sandbox.ImageBytes }),
	define("sandbox.max_image_files", "how many files and folders an image may have", "1048576", count(1, 1<<30), func(c *Config) *int64 { return &c.Sandbox.ImageFiles }),
	define("sandbox.cpus", "how many processors a Linux sandbox may use by default; 0: all", "0", count(0, 1024), func(c *Config) *int64 { return &c.Sandbox.CPUs }),
	define("sandbox.max_processes", "how many processes a Linux sandbox may have", "256", count(8, 1<<20), func(c *Config) *int64 { return &c.Sandbox.Processes }),
	define("sandbox.max_root_mb", "how much a Linux sandbox may write beside its workspace: upon its image, in memory", "256", size(1<<20, 1<<20, mostMemory), func(c *Config) *int64 { return &c.Sandbox.RootBytes }),
	define("sandbox.memory_mb", "how much memory a Linux sandbox may use by default, with everything that runs in it", "512", size(1<<20, leastMachine, mostMachine), func(c *Config) *int64 { return &c.Sandbox.MemoryBytes }),
	define("sandbox.max_memory_mb", "how much memory may be asked for", "4096", size(1<<20, leastMachine, mostMachine), func(c *Config) *int64 { return &c.Sandbox.MaxMemoryBytes }),
	define("sandbox.max_lifetime_seconds", "how long a Linux sandbox runs at most, also while programs work in its background; then it is stopped, its files stay, and the next call boots a new one; 0: for as long as it is used", "86400", count(0, 365*86400), func(c *Config) *int64 { return &c.Sandbox.MaxLifetime }),
	define("sandbox.save_after_seconds", "how long nothing runs in a Linux sandbox until it is saved with all that is in it, so that a server that is killed loses less; 0: only when its session sleeps", "30", count(0, 365*86400), func(c *Config) *int64 { return &c.Sandbox.SaveAfter }),
	define("sandbox.max_state_mb", "how much memory a Linux sandbox may have that is saved; of a larger one only files are kept; 0: none is saved", "512", size(1<<20, 0, mostMachine), func(c *Config) *int64 { return &c.Sandbox.StateBytes }),
	define("sandbox.pool", "how many Linux sandboxes paddock mcp and paddock serve keep booted at most for sessions to come, as many as there is demand for; 0: none", "4", count(0, 256), func(c *Config) *int64 { return &c.Sandbox.Pool }),
	define("sandbox.volumes", "folders of this machine that sandbox_start may give to sandboxes, with what is in them", "", folders(), func(c *Config) *[]string { return &c.Sandbox.Volumes }),
	define("images", "names for images, with the reference that each stands for; microsandbox/python and microsandbox/node are sandbox.image unless they are here", "", references(), func(c *Config) *map[string]string { return &c.Images }),
	define("e2b.enabled", "whether paddock serve answers E2B's SDKs below /e2b", "true", boolean(), func(c *Config) *bool { return &c.E2B.Enabled }),
	define("e2b.templates", "images by the names that E2B's SDKs have for templates; base and code-interpreter-v1 are sandbox.image unless they are here", "", templates(), func(c *Config) *map[string]string { return &c.E2B.Templates }),
	define("registries.credentials", "USER:PASSWORD for registries, by their host; for others those of docker login are used", "", credentials(), func(c *Config) *map[string]string { return &c.Registries.Credentials }),
	define("registries.insecure", "registries that are spoken to without TLS; those on loopback addresses always may be", "", hosts(), func(c *Config) *[]string { return &c.Registries.Insecure }),

	define("tools.enabled", "the sets of tools that clients see", "core,files,code-mode,skills", list(ToolSets...), func(c *Config) *[]string { return &c.Tools.Enabled }).flag("tools"),

	define("network.allow", "the hosts and requests that programs may reach over HTTP and HTTPS: api.example.com, *.example.com, host:port, GET api.example.com/v1/*, * for all that are public, host!private for what is not; none: they have no network", "", requestRules(), func(c *Config) *[]string { return &c.Network.Allow }).flag("net-allow").like("MAYFLOWER_SANDBOX_NET_ALLOW").variable("PADDOCK_NET_ALLOW"),
	define("network.max_sent_mb", "how much the programs of a session may send in all", "1024", size(1<<20, 1<<10, mostDisk), func(c *Config) *int64 { return &c.Network.SentBytes }),
	define("network.max_received_mb", "how much they may receive in all", "10240", size(1<<20, 1<<10, mostDisk), func(c *Config) *int64 { return &c.Network.ReceivedBytes }),
	define("network.max_requests", "how many requests they may make in all, refused ones too", "100000", count(1, 1<<40), func(c *Config) *int64 { return &c.Network.Requests }),
}

var lastKeys = []Key{
	define("secrets.allow", "the secrets, by their names, that sessions have: a session may be made with fewer of them; none: they have none", "", secretNames(), func(c *Config) *[]string { return &c.Secrets.Allow }).flag("secret"),

	define("skills.allow", "the hosts that skills may be fetched from: api.example.com, .example.com, host:port; github.com stands for what its archives come from; none: skill_install fetches nothing", "", hostRules(), func(c *Config) *[]string { return &c.Skills.Allow }),
	define("skills.github_token", "a token for GitHub's API, for skills of repositories that are not public", "", secret(), func(c *Config) *string { return &c.Skills.GitHubToken }),
	define("skills.github_api", "the root of GitHub's API where that is another server; empty: https://api.github.com", "", words(0, 2048), func(c *Config) *string { return &c.Skills.GitHubAPI }),

	define("transport_http.host", "the address that paddock serve listens at", "127.0.0.1", words(1, 253), func(c *Config) *string { return &c.HTTP.Host }).flag("host"),
	define("transport_http.port", "its port; 0: any that is free", "5555", count(0, 65535), func(c *Config) *int64 { return &c.HTTP.Port }).flag("port"),
	define("transport_http.path", "where the MCP endpoint is", "/mcp", words(1, 200), func(c *Config) *string { return &c.HTTP.Path }),
	define("transport_http.public_url", "the address that clients know the server by, such as https://paddock.example.com; empty: the one that they call", "", words(0, 2048), func(c *Config) *string { return &c.HTTP.PublicURL }),
	define("transport_http.preview_domain", "the domain below which each preview has a host of its own: *.domain leads to the server, and nothing else is there; empty: localhost, for browsers on this machine", "", words(0, 190), func(c *Config) *string { return &c.HTTP.PreviewDomain }),
	define("transport_http.allowed_hosts", "further names that the server may be called by", "", hosts(), func(c *Config) *[]string { return &c.HTTP.AllowedHosts }),
	define("transport_http.cors_origins", "the web pages that may call the server; *: all; none: its own", "", origins(), func(c *Config) *[]string { return &c.HTTP.Origins }),
	define("transport_http.trusted_proxies", "the proxies whose X-Forwarded-* headers are believed; they have to overwrite what clients send of them", "", prefixes(), func(c *Config) *[]string { return &c.HTTP.TrustedProxies }),
	define("transport_http.tls_cert", "the PEM file of the certificate; it is read again when it changes; empty: plain HTTP", "", words(0, 4096), func(c *Config) *string { return &c.HTTP.TLSCert }),
	define("transport_http.tls_key", "the PEM file of the certificate's key", "", words(0, 4096), func(c *Config) *string { return &c.HTTP.TLSKey }),
	define("transport_http.allow_plain_http", "whether other machines may call without TLS", "false", boolean(), func(c *Config) *bool { return &c.HTTP.AllowPlain }).flag("insecure-http"),
	define("transport_http.auth_token", "a token that clients may come in with, all as one", "", secret(), func(c *Config) *string { return &c.HTTP.AuthToken }),
	define("transport_http.metrics_open", "whether /metrics asks for no token", "false", boolean(), func(c *Config) *bool { return &c.HTTP.MetricsOpen }),
	define("transport_http.rate_limit_requests", "how many requests a client may make in each window", "6000", count(1, 1_000_000_000), func(c *Config) *int64 { return &c.HTTP.RateLimitRequests }),
	define("transport_http.rate_limit_window_seconds", "how long that window is", "60", seconds(day), func(c *Config) *time.Duration { return &c.HTTP.RateLimitWindow }),
	define("transport_http.max_concurrent_requests", "how many requests of a client are answered at once", "64", count(1, 1_000_000), func(c *Config) *int64 { return &c.HTTP.MaxConcurrentRequests }),
	define("transport_http.request_timeout_seconds", "how long a request may take that is neither a tool call nor a stream", "600", seconds(day), func(c *Config) *time.Duration { return &c.HTTP.RequestTimeout }),
	define("transport_http.max_request_size_mb", "how large a request may be that is not an upload of a file", "10", size(1<<20, 1<<10, 1<<30), func(c *Config) *int64 { return &c.HTTP.MaxRequestBytes }),
	define("transport_http.shutdown_grace_seconds", "how long running requests may go on when the server ends", "30", seconds(day), func(c *Config) *time.Duration { return &c.HTTP.ShutdownGrace }),

	define("limits.max_requests", "how many requests all clients together may make in each window; 0: ten times what one may", "0", count(0, 1_000_000_000), func(c *Config) *int64 { return &c.Limits.Requests }),
	define("limits.max_concurrent_requests", "how many requests of all clients are answered at once; 0: eight times what of one are", "0", count(0, 1_000_000), func(c *Config) *int64 { return &c.Limits.ConcurrentRequests }),
	define("limits.max_streams", "how many streams of all clients may be open that are only listened to", "1024", count(1, 1_000_000), func(c *Config) *int64 { return &c.Limits.Streams }),
	define("limits.max_streams_per_client", "how many of those a client may have open", "256", count(1, 1_000_000), func(c *Config) *int64 { return &c.Limits.ClientStreams }),
	define("limits.max_executions", "how many programs of all clients run at once; 0: two for each CPU", "0", count(0, 10_000), func(c *Config) *int64 { return &c.Limits.Executions }),
	define("limits.max_executions_per_client", "how many programs of a client run at once; 0: half of what of all do", "0", count(0, 10_000), func(c *Config) *int64 { return &c.Limits.ClientExecutions }),
	define("limits.max_queued_executions", "how many programs of all clients may wait", "2048", count(1, 1_000_000), func(c *Config) *int64 { return &c.Limits.QueuedExecutions }),
	define("limits.max_queued_executions_per_client", "how many programs of a client may wait", "256", count(1, 1_000_000), func(c *Config) *int64 { return &c.Limits.QueuedClient }),
	define("limits.max_queue_seconds", "how long a program may wait", "60", seconds(day), func(c *Config) *time.Duration { return &c.Limits.QueueTime }),
	define("limits.max_sessions", "how many sessions of all clients may be open", "1024", count(1, 1_000_000), func(c *Config) *int64 { return &c.Limits.Sessions }),
	define("limits.max_memory_mb", "how much memory live interpreters may take together; 0: what the machine has", "0", size(1<<20, 0, 1<<50), func(c *Config) *int64 { return &c.Limits.MemoryBytes }),
	define("limits.max_memory_per_client_mb", "how much memory a client's live interpreters may take; 0: half of what all may", "0", size(1<<20, 0, 1<<50), func(c *Config) *int64 { return &c.Limits.ClientMemoryBytes }),
	define("limits.max_disk_per_client_mb", "how much the files of a client's open sessions may take; 0: eight times what one session's may", "0", size(1<<20, 0, 1<<50), func(c *Config) *int64 { return &c.Limits.ClientDiskBytes }),

	define("auth.issuer", "whose OAuth access tokens are accepted: the exact https URL in their iss; empty: none", "", words(0, 2048), func(c *Config) *string { return &c.Auth.Issuer }),
	define("auth.audience", "what has to be in the aud of an access token; empty: the server's public URL", "", words(0, 2048), func(c *Config) *string { return &c.Auth.Audience }),
	define("auth.scopes_required", "scopes that every access token needs; they reach all tools, unless a token has scopes of paddock's own; none: a token needs paddock, or paddock:SET", "", scopes(), func(c *Config) *[]string { return &c.Auth.ScopesRequired }),
	define("auth.allow_http_issuer", "whether an issuer on a loopback address may do without TLS", "false", boolean(), func(c *Config) *bool { return &c.Auth.AllowHTTPIssuer }),

	define("mcp.allowlist", "the servers that may be bound at run time: by their hosts, as api.example.com, api.example.com:8443 or .example.com, or by their names, at any public host; none: none", "", serverRules(), func(c *Config) *[]string { return &c.MCP.Allowlist }).like("MAYFLOWER_MCP_ALLOWLIST"),
	define("mcp.session_ttl_seconds", "how long a connection to another server is kept unused", "300", seconds(day), func(c *Config) *time.Duration { return &c.MCP.SessionTTL }).like("MAYFLOWER_MCP_SESSION_TTL").variable("PADDOCK_MCP_SESSION_TTL"),
	define("mcp.call_interval_seconds", "how long after the beginning of one call of a session to a server the next begins; 0: at once", "0", interval(time.Hour), func(c *Config) *time.Duration { return &c.MCP.CallInterval }).like("MAYFLOWER_MCP_CALL_INTERVAL").variable("PADDOCK_MCP_CALL_INTERVAL"),
	define("mcp.calls_per_run", "how many calls of other servers' tools one run of a program may make", "1000", count(1, 1_000_000), func(c *Config) *int64 { return &c.MCP.CallsPerRun }),
	define("mcp.tools.allow", "the tools of servers bound at run time that may be called, by patterns; where there are none, all that the others leave", "", patterns(), func(c *Config) *[]string { return &c.MCP.Tools.Allow }),
	define("mcp.tools.ask", "those for each call of which somebody is asked", "", patterns(), func(c *Config) *[]string { return &c.MCP.Tools.Ask }),
	define("mcp.tools.deny", "those that may not be called", "", patterns(), func(c *Config) *[]string { return &c.MCP.Tools.Deny }),
	define("vault.keyring", "whether the key of what is kept encrypted is put into the system's keyring, when it is made; auto: where there is one; off: into a file of the state folder", "auto", oneOf("auto", "off"), func(c *Config) *string { return &c.Vault.Keyring }).ofUser(),

	define("telemetry.endpoint", "the collector that traces and metrics are sent to over OTLP/HTTP, such as http://127.0.0.1:4318; empty: none", "", words(0, 2048), func(c *Config) *string { return &c.Telemetry.Endpoint }).variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
	define("telemetry.traces_endpoint", "the whole URL that traces are sent to; empty: telemetry.endpoint decides", "", words(0, 2048), func(c *Config) *string { return &c.Telemetry.TracesEndpoint }).variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
	define("telemetry.metrics_endpoint", "the whole URL that metrics are sent to; empty: telemetry.endpoint decides", "", words(0, 2048), func(c *Config) *string { return &c.Telemetry.MetricsEndpoint }).variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
	define("telemetry.service_name", "what the server calls itself in traces and metrics", "paddock", words(1, 100), func(c *Config) *string { return &c.Telemetry.Service }).variable("OTEL_SERVICE_NAME"),
	define("telemetry.disabled", "whether nothing is sent whatever the endpoints say", "false", boolean(), func(c *Config) *bool { return &c.Telemetry.Disabled }).variable("OTEL_SDK_DISABLED"),

	define("audit.mode", "what a record that cannot be written means: required: the program does not run; best_effort: it is logged; off: nothing is recorded", "required", oneOf("required", "best_effort", "off"), func(c *Config) *string { return &c.Audit.Mode }),
	define("audit.keep_days", "how many days of the audit log are kept; 0: all", "90", count(0, 36500), func(c *Config) *int64 { return &c.Audit.KeepDays }),
	define("audit.include_code", "whether the audit log holds the programs, not only their digests", "false", boolean(), func(c *Config) *bool { return &c.Audit.IncludeCode }),
	define("audit.sync", "whether each record of the audit log waits until it is on the disk; else it may be lost with the machine's power", "false", boolean(), func(c *Config) *bool { return &c.Audit.Sync }),

	define("approvals.ttl_hours", "how long a person may take to allow a call of a tool, and how long what was allowed counts", "24", count(1, 365*24), func(c *Config) *int64 { return &c.Approvals.TTLHours }),
	define("approvals.ask_client", "whether the client that runs a program may have its user allow the calls; else only paddock approvals and tokens with the scope approve can", "true", boolean(), func(c *Config) *bool { return &c.Approvals.AskClient }),
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
