// Package config is paddock's configuration: one table of keys (see [Keys])
// says for each how it is called in paddock.toml, in the environment and as a
// flag, what it may be and what it is when nobody says anything. A flag goes
// before a variable, a variable before the file, the file before the default. There is
// one file: the one that was asked for, else the working folder's where a person has
// trusted it, else the user's own.
package config

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
)

// Config is what paddock is set up with. Every value is within its bounds.
type Config struct {
	// File is the configuration file that was read; empty: there was none.
	File string
	// OfProject says that File came with the working folder, and is trusted.
	OfProject bool
	// Ignored is the working folder's file, which is there and was not read: nobody has
	// trusted it as it is. Empty: there is none.
	Ignored string
	// Warnings say which keys of another program's file have no counterpart here, and
	// where they stand: one text each.
	Warnings []string

	Server struct {
		Name         string
		Version      string // empty: paddock's own
		Instructions string // empty: made from what runs here
	}
	Sessions struct {
		Cwd                        string
		DefaultTimeout, MaxTimeout time.Duration
		MaxPerClient               int64
		MemoryBytes, DiskBytes     int64
		IdleTTL                    time.Duration
		MaxStored                  int64
		SleepAfter                 int64 // seconds; zero: when the place is needed
		MaxCheckpoints             int64
		Checkpoint                 string // BeforeAnswer or AfterAnswer
		KeepOutput                 bool
	}
	Logging struct {
		Level      slog.Level
		Structured bool
	}
	Policy struct {
		Fuel                     int64
		MemoryBytes              int64 // zero: Sessions.MemoryBytes alone decides
		StdoutBytes, StderrBytes int64
		Env                      map[string]string
	}
	Sandbox struct {
		Isolation                   string
		Image                       string
		ImageBytes, ImageFiles      int64 // at most, of each image
		CPUs, Processes, RootBytes  int64
		MemoryBytes, MaxMemoryBytes int64    // of a machine
		MaxLifetime                 int64    // seconds; zero: for as long as it is used
		SaveAfter                   int64    // seconds without a run; zero: when its session sleeps
		StateBytes                  int64    // of a machine that is saved; zero: none is
		Pool                        int64    // machines that are kept booted at most
		Volumes                     []string // folders of this machine
	}
	E2B        E2B
	Images     map[string]string // references, by the names that they have here
	Registries struct {
		Credentials map[string]string // secret: USER:PASSWORD, by the registry's host
		Insecure    []string
	}
	Tools   struct{ Enabled []string }
	Network struct {
		Allow                    []string // rules of package egress, of whoever runs paddock
		SentBytes, ReceivedBytes int64    // of each session, in all
		Requests                 int64
	}
	Secrets  struct{ Allow []string } // names, of those that sessions have
	Packages Packages
	Skills   struct {
		Allow       []string // rules of package egress, of whoever runs paddock
		GitHubAPI   string   // empty: GitHub's own
		GitHubToken string   // secret; empty: none
	}
	HTTP   TransportHTTP
	Limits Limits
	Auth   struct {
		Issuer          string // empty: no access tokens
		Audience        string // empty: the server's public URL
		ScopesRequired  []string
		AllowHTTPIssuer bool
	}

	// Servers are other MCP servers by their names.
	Servers map[string]Server
	MCP     struct {
		Allowlist                []string
		SessionTTL, CallInterval time.Duration
		CallsPerRun              int64
		Tools                    ToolPatterns // of servers bound at run time
	}
	Vault struct{ Keyring string } // "auto", "off"

	Telemetry struct {
		Endpoint                        string // empty: nothing is sent, but what the next two say
		TracesEndpoint, MetricsEndpoint string
		Service                         string
		Disabled                        bool
	}
	Audit struct {
		Mode              string // "required", "best_effort", "off"
		KeepDays          int64  // zero: all
		IncludeCode, Sync bool
	}
	Approvals struct {
		TTLHours  int64 // how long somebody may take to decide, and how long a grant counts
		AskClient bool  // the client whose call it is
	}

	origins map[string]string // by key; what is not here is a default
}

// When a call's checkpoint is on disk.
const (
	BeforeAnswer = "before_answer"
	AfterAnswer  = "after_answer"
)

// Limits are what the clients of one process share. Zero is decided where it is
// used, by what the machine has or by another limit.
type Limits struct {
	Requests, ConcurrentRequests   int64 // of all clients
	Streams, ClientStreams         int64
	Executions, ClientExecutions   int64
	QueuedExecutions, QueuedClient int64
	QueueTime                      time.Duration
	Sessions                       int64
	MemoryBytes, ClientMemoryBytes int64
	ClientDiskBytes                int64
}

// Source is where Load looks.
type Source struct {
	// File is a configuration file that must be there; empty: Search.
	File string
	// Project is the file of the working folder, which goes before those of Search where
	// Trusted says so of what was read from it. Empty: none is looked for.
	Project string
	// Trusted tells whether a person has trusted a file with this text; nil: none.
	Trusted func(path string, text []byte) bool
	// Search are files of which the first that exists is read.
	Search []string
	// Environ is the environment, as os.Environ gives it.
	Environ []string
	// Flags are the flags that were given, by their name.
	Flags map[string]string
}

// Load reads the configuration and checks all of it. Its error joins one
// fault for each mistake, each saying where it stands; the Config has the
// other values then, and defaults for the mistaken ones.
func Load(src Source) (*Config, error) {
	c := defaults()
	mistakes := []error{c.readFile(src), c.readEnviron(src.Environ), checkServerVariables(src.Environ), c.readFlags(src.Flags)}
	if c.Sessions.DefaultTimeout > c.Sessions.MaxTimeout {
		mistakes = append(mistakes, c.conflict("sessions.default_timeout_seconds", "sessions.max_timeout_seconds"))
	}
	if c.Sandbox.MemoryBytes > c.Sandbox.MaxMemoryBytes {
		mistakes = append(mistakes, c.conflict("sandbox.memory_mb", "sandbox.max_memory_mb"))
	}
	for key, most := range map[string]int64{"limits.max_memory_mb": c.Limits.MemoryBytes, "limits.max_memory_per_client_mb": c.Limits.ClientMemoryBytes} {
		if most > 0 && c.Memory() > most {
			mistakes = append(mistakes, c.conflict("sessions.max_memory_mb", key))
		}
	}
	mistakes = append(mistakes, c.checkIssuer(), c.checkTools())
	return c, errors.Join(mistakes...)
}

// defaults is the configuration that nobody has set.
func defaults() *Config {
	c := &Config{origins: map[string]string{}}
	for _, k := range keys {
		if err := k.fromText(c, k.Default); err != nil {
			panic("config: the default of " + k.Name + ": " + err.Error())
		}
	}
	return c
}

// checkTools refuses to offer nothing at all.
func (c *Config) checkTools() error {
	if len(c.Tools.Enabled) > 0 {
		return nil
	}
	at := c.Origin("tools.enabled")
	f := fault.New(fault.Invalid, "%s: tools.enabled: it names no set of tools", at).WithHint("known are %s", strings.Join(ToolSets, ", "))
	if strings.HasPrefix(at, "flag ") {
		f = f.WithCause(ErrFlag)
	}
	return f
}

// conflict says that the value of small is above that of large, and where the
// one stands that was set.
func (c *Config) conflict(small, large string) error {
	at := small
	if !c.IsSet(small) {
		at = large
	}
	s, _ := find(small)
	l, _ := find(large)
	return fault.New(fault.Invalid, "%s: %s (%s) is above %s (%s)", c.Origin(at), small, literal(s.data(c)), large, literal(l.data(c))).
		WithHint("set %s too", map[string]string{small: large, large: small}[at])
}

// Memory is what an interpreter may take at most: the smaller of
// sessions.max_memory_mb and policy.memory_bytes where both were set, else
// the one that was.
func (c *Config) Memory() int64 {
	switch {
	case c.Policy.MemoryBytes == 0:
		return c.Sessions.MemoryBytes
	case !c.IsSet("sessions.max_memory_mb"):
		return c.Policy.MemoryBytes
	}
	return min(c.Policy.MemoryBytes, c.Sessions.MemoryBytes)
}

// MachineMemory is what a Linux sandbox may take where nobody says, and the most
// that may be asked for. What a flag says of interpreters holds for it as well.
func (c *Config) MachineMemory() (usual, most int64) {
	usual, most = c.Sandbox.MemoryBytes, c.Sandbox.MaxMemoryBytes
	if strings.HasPrefix(c.Origin("sessions.max_memory_mb"), "flag ") {
		usual = max(c.Sessions.MemoryBytes, leastMachine)
		most = max(most, usual)
	}
	return usual, most
}

// IsSet tells whether somebody set the key.
func (c *Config) IsSet(name string) bool { return c.origins[name] != "" }

// Origin tells who set the key: "default", "FILE:LINE", "environment NAME" or
// "flag --NAME".
func (c *Config) Origin(name string) string {
	if o := c.origins[name]; o != "" {
		return o
	}
	return "default"
}

// Value is one key's value and where it comes from.
type Value struct {
	Key     string `json:"key"`
	Value   any    `json:"value"`
	Origin  string `json:"origin"`
	Literal string `json:"-"` // Value as paddock.toml has it
}

// Section is the table of paddock.toml that has the key.
func (v Value) Section() string {
	section, rest, _ := strings.Cut(v.Key, ".")
	if server, _, ok := strings.Cut(rest, "."); ok && section == serversSection {
		return section + "." + server
	}
	return section
}

// Lines are the key with its value as paddock.toml has it in its section.
func (v Value) Lines() []string {
	name, ok := strings.CutPrefix(v.Key, v.Section()+".")
	if ok {
		return []string{name + " = " + v.Literal}
	}
	table, _ := v.Value.(map[string]string) // the section itself
	var lines []string
	for _, name := range sortedKeys(table) {
		lines = append(lines, quote(name)+" = "+quote(table[name]))
	}
	return lines
}

// Values lists every key in the table's order, and then what was set of servers.
func (c *Config) Values() []Value {
	var all []Value
	for _, k := range keys {
		data := k.data(c)
		all = append(all, Value{Key: k.Name, Value: data, Origin: c.Origin(k.Name), Literal: literal(data)})
	}
	return append(all, c.serverValues()...)
}

func (c *Config) readFlags(flags map[string]string) error {
	var mistakes []error
	for _, k := range keys {
		text, given := flags[k.Flag]
		if k.Flag == "" || !given {
			continue
		}
		if err := k.fromText(c, text); err != nil {
			mistakes = append(mistakes, mistake("flag --"+k.Flag, k, err).WithCause(ErrFlag))
			continue
		}
		c.origins[k.Name] = "flag --" + k.Flag
	}
	return errors.Join(mistakes...)
}

// readEnviron reads the keys' variables. An empty variable is none; one that
// looks like a key's and is not is a mistake.
func (c *Config) readEnviron(environ []string) error {
	values, known := map[string]string{}, map[string]bool{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" {
			values[name] = value
		}
	}
	var mistakes []error
	for _, k := range keys {
		for _, name := range k.Vars() {
			known[name] = true
			text, given := values[name]
			if !given {
				continue
			}
			if err := k.fromText(c, text); err != nil {
				mistakes = append(mistakes, mistake("environment "+name, k, err))
				continue
			}
			c.origins[k.Name] = "environment " + name
		}
	}
	for _, name := range sortedKeys(values) {
		if section := variableSection(name); section != "" && !known[name] {
			mistakes = append(mistakes, fault.New(fault.Invalid, "environment %s: unknown variable", name).
				WithHint("%s", suggest(name, sortedKeys(known))))
		}
	}
	return errors.Join(mistakes...)
}

// variableSection gives the section that a variable's name begins with.
func variableSection(name string) string {
	i := slices.IndexFunc(sections(), func(s string) bool {
		return strings.HasPrefix(name, variable(s)+"_")
	})
	if i < 0 {
		return ""
	}
	return sections()[i]
}

// ErrFlag is the cause of a mistake in a flag: in the command line itself.
var ErrFlag = errors.New("a flag's value")

func mistake(where string, k Key, err error) *fault.Error {
	return fault.New(fault.Invalid, "%s: %s: %v", where, k.Name, err).WithHint("%s: %s", k.Name, k.Doc)
}
