// Package app joins paddock's parts: backends, sessions, other MCP servers, the network,
// secrets, skills, previews, the audit log and telemetry.
//
// An [Env] is what a process works with: its configuration, its folders, its log. Commands
// that need one part only ask the Env for it. [Env.Open] joins all of them to an [App],
// which serves MCP clients ([App.NewMCP], [App.AddHandlers]) or runs programs.
//
// What a session's program asks of the host goes through hostcalls.go.
package app

import (
	"log/slog"
	"os"
	"path/filepath"

	"paddock/internal/config"
	"paddock/internal/secret"
	"paddock/internal/serverstore"
	"paddock/internal/vault"
)

// How a process is asked, in the audit log.
const (
	OverCLI   = "cli"
	OverStdio = "stdio"
	OverHTTP  = "http"
)

// Env is what a process of paddock works with. It is filled before anything is asked of it
// and not copied afterwards. One goroutine uses it until an App is open.
type Env struct {
	Config *config.Config
	Source config.Source // of the configuration
	// StateDir has what must not be lost, CacheDir what can be made again.
	StateDir, CacheDir string
	Log                *slog.Logger
	// Transport is how the process is asked; empty: by its command line.
	Transport string
	Version   string
	// NewBackends makes what programs run in; nil: [NewBackends] does. Tests give fakes.
	NewBackends MakeBackends

	sealer *lateVault // made by Vault
}

// serves tells whether the process answers calls until it is told to end, not one command.
func (env *Env) serves() bool { return env.Transport != "" }

// Vault gives the state folder's vault. It is opened when something is to be sealed.
func (env *Env) Vault() vault.Sealer { return env.lateVault() }

// OpenVault opens the vault, and tells why it cannot be opened.
func (env *Env) OpenVault() error {
	_, err := env.lateVault().opened()
	return err
}

func (env *Env) lateVault() *lateVault {
	if env.sealer == nil {
		env.sealer = &lateVault{open: func() (*vault.Vault, error) { return vault.Open(env.StateDir, env.Rings()...) }}
	}
	return env.sealer
}

// Rings are the keyrings that a key may be put into. With vault.keyring = "off" there is
// none for a new key; one that is in a keyring is had from there all the same.
func (env *Env) Rings() []vault.Ring {
	if kept, err := vault.Kept(env.StateDir); env.Config.Vault.Keyring == "off" && (err != nil || kept == "") {
		return nil
	}
	return vault.System(os.Getenv)
}

// Secrets gives the store of secrets.
func (env *Env) Secrets() *secret.Store { return secret.Open(env.StateDir, env.Vault()) }

// AddedServers are the servers that paddock server add has put into the state folder.
func (env *Env) AddedServers() *serverstore.Servers {
	return &serverstore.Servers{Dir: env.StateDir, Sealer: env.Vault()}
}

// ServersFolder is where the state folder has what is known of other servers.
func (env *Env) ServersFolder() string { return filepath.Join(env.StateDir, "servers") }
