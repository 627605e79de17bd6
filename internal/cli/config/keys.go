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
	// Name is its section and its name in paddock.toml, with a dot between.
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
	fromText func(c *Config, s string) error
	fromFile func(c *Config, v any) error
	data     func(c *Config) any
}

// Vars are the environment variables that set the key; the last one given
// counts.
func (k Key) Vars() []string {
	vars := []string{variable(k.Name)}
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

// These bound what an operator may ask for: Python needs about 20 MiB for
// itself, and a WebAssembly memory ends at 4 GiB.
const (
	leastMemory = 32 << 20
	mostMemory  = 4 << 30
	mostDisk    = 1 << 40
	mostOutput  = 1 << 30
	day         = 24 * time.Hour
)

// keys is the table that everything else here comes from.
var keys = []Key{
	define("server.name", "what the server calls itself", "paddock", words(1, 100), func(c *Config) *string { return &c.Server.Name }),
	define("server.version", "the version that the server tells; empty: paddock's own", "", words(0, 100), func(c *Config) *string { return &c.Server.Version }),
	define("server.instructions", "what models are told about the server; empty: what runs here", "", words(0, 2048), func(c *Config) *string { return &c.Server.Instructions }),

	define("sessions.default_timeout_seconds", "how long a program may run when the call does not say", "30", seconds(day), func(c *Config) *time.Duration { return &c.Sessions.DefaultTimeout }).flag("timeout"),
	define("sessions.max_timeout_seconds", "how long a call may ask for", "3600", seconds(7*day), func(c *Config) *time.Duration { return &c.Sessions.MaxTimeout }),
	define("sessions.max_sessions_per_client", "how many sessions a client may have", "32", count(1, 10_000), func(c *Config) *int64 { return &c.Sessions.MaxPerClient }),
	define("sessions.max_memory_mb", "how much memory an interpreter may take, its own needs included", "256", size(1<<20, leastMemory, mostMemory), func(c *Config) *int64 { return &c.Sessions.MemoryBytes }).flag("memory"),
	define("sessions.max_disk_mb", "how much a session's files may take", "512", size(1<<20, 1<<20, mostDisk), func(c *Config) *int64 { return &c.Sessions.DiskBytes }).flag("disk"),
	define("sessions.idle_ttl_seconds", "how long a session is kept after its last use", "86400", seconds(365*day), func(c *Config) *time.Duration { return &c.Sessions.IdleTTL }),

	define("logging.level", "how much is logged to stderr", "warn", level(), func(c *Config) *slog.Level { return &c.Logging.Level }).flag("log-level").variable("PADDOCK_LOG_LEVEL"),
	define("logging.structured", "whether the log is JSON", "false", boolean(), func(c *Config) *bool { return &c.Logging.Structured }),

	define("policy.fuel_budget", "how much a program may do: loop rounds and calls of its interpreter; 0: they are not counted, which makes programs several times as fast", "0", count(0, 1<<62), func(c *Config) *int64 { return &c.Policy.Fuel }).flag("fuel"),
	define("policy.memory_bytes", "as sessions.max_memory_mb, in bytes; of two that are set the smaller counts; 0: not set", "0", size(1, 0, mostMemory), func(c *Config) *int64 { return &c.Policy.MemoryBytes }),
	define("policy.stdout_max_bytes", "how much of a program's standard output is passed on", "1048576", size(1, 1, mostOutput), func(c *Config) *int64 { return &c.Policy.StdoutBytes }).flag("max-output"),
	define("policy.stderr_max_bytes", "how much of a program's standard error is passed on", "1048576", size(1, 1, mostOutput), func(c *Config) *int64 { return &c.Policy.StderrBytes }).flag("max-output"),
	define("policy.env", "the environment that programs see", "", environment(), func(c *Config) *map[string]string { return &c.Policy.Env }),

	define("sandbox.isolation", "what programs run in when nobody says", "wasm", oneOf("wasm"), func(c *Config) *string { return &c.Sandbox.Isolation }).flag("isolation"),
	define("tools.enabled", "the sets of tools that clients see", "core,files", list("core", "files"), func(c *Config) *[]string { return &c.Tools.Enabled }).flag("tools"),
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
