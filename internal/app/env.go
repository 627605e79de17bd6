// Package app joins paddock's parts: backends, sessions, other MCP servers, the network,
// secrets, skills, previews, the audit log and telemetry.
//
// An [Env] is what a process works with: its configuration, its folders, its log. Commands
// that need one part only ask the Env for it. [Env.Open] joins all of them to an [App],
// which serves MCP clients ([App.NewMCP], [App.NewHTTP]) or runs programs.
//
// Constructors take what they use as arguments, or are methods of base, which is whole: a
// part that is missing does not compile. What a session's program asks of the host goes
// through the table in hostcalls.go, which takes secrets out of the answers.
package app

import (
	"log/slog"
	"path/filepath"

	"paddock/internal/config"
	"paddock/internal/secret"
	"paddock/internal/serverstore"
)

// How requests reach a process, in the audit log.
const (
	OverCLI   = "cli"
	OverStdio = "stdio"
	OverHTTP  = "http"
)

// Env is what a process of paddock works with. Its fields are set before its methods are
// called, and it is not copied afterwards. Its methods are safe for concurrent use.
type Env struct {
	Config *config.Config
	Source config.Source // of the configuration
	// StateDir has what must not be lost, CacheDir what can be made again.
	StateDir, CacheDir string
	Log                *slog.Logger
	// Transport is how requests reach the process; empty means its command line.
	Transport string
	// Version is paddock's own: MCP clients, other servers and telemetry learn it.
	Version string
	// NewBackends makes what programs run in; nil means [NewBackends]. Tests set fakes.
	NewBackends MakeBackends

	vault vaultOnce
}

// serves reports whether the process answers calls until it is told to end, instead of
// running one command.
func (env *Env) serves() bool { return env.Transport != "" }

// Secrets gives the store of secrets.
func (env *Env) Secrets() *secret.Store { return secret.Open(env.StateDir, env.Vault()) }

// AddedServers are the servers that paddock server add keeps in the state folder.
func (env *Env) AddedServers() *serverstore.Servers {
	return &serverstore.Servers{Dir: env.StateDir, Sealer: env.Vault()}
}

// ServersFolder is the part of the state folder that is about other servers.
func (env *Env) ServersFolder() string { return filepath.Join(env.StateDir, "servers") }
