// Package serverstore keeps the other MCP servers that somebody added on the command line,
// in a file of the state folder: a person's paddock.toml is never written to.
//
// What is secret of a server (its variables, its headers, its client's secret, the
// query of its URL) is sealed by a vault; arguments are not, for every user of a
// machine sees those of a running program.
package serverstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"paddock/internal/blob"
	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/table"
	"paddock/internal/vault"
)

const (
	// File is the file's name in the state folder.
	File     = "servers.json"
	lockFile = "servers.lock"
	// lockTimeout is how long the lock is tried for; others hold it for milliseconds.
	lockTimeout = 5 * time.Second
	// maxServers bounds what is kept: more than anybody uses, less than the file takes.
	maxServers = 500
	version    = 1
)

// Servers are those of a state folder, or of a cluster. It is for any number of goroutines
// and processes.
type Servers struct {
	Dir    string // the state folder, made when something is added
	Sealer vault.Sealer
	// Table is where they are a document, called File; nil: it is the file in Dir.
	Table table.Table
}

// Entry is a server that was added.
type Entry struct {
	Name   string
	Added  time.Time
	Server config.Server
	// Err says why what is secret of it cannot be had; it cannot be used then.
	Err error
}

// content is what the file has.
type content struct {
	Version int                 `json:"version"`
	Servers map[string]*written `json:"servers"`
}

// written is a server as the file has it.
type written struct {
	Added           time.Time    `json:"added"`
	Command         string       `json:"command,omitempty"`
	Args            []string     `json:"args,omitempty"`
	Dir             string       `json:"cwd,omitempty"`
	URL             string       `json:"url,omitempty"` // without its query, where that is sealed
	Transport       string       `json:"transport,omitempty"`
	Allow           []string     `json:"allow,omitempty"`
	Ask             []string     `json:"ask,omitempty"`
	Deny            []string     `json:"deny,omitempty"`
	TimeoutSeconds  int64        `json:"timeout_seconds,omitempty"`
	MaxResponseSize int64        `json:"max_response_bytes,omitempty"`
	CallsPerMinute  int64        `json:"calls_per_minute,omitempty"`
	Results         string       `json:"results,omitempty"`
	OAuth           config.OAuth `json:"oauth,omitzero"` // without its secret
	Sealed          []byte       `json:"sealed,omitempty"`
}

// secrets are what is sealed.
type secrets struct {
	Env          map[string]string `json:"env,omitempty"`
	Headers      map[string]string `json:"headers,omitempty"`
	ClientSecret string            `json:"client_secret,omitempty"`
	URL          string            `json:"url,omitempty"`
}

// purpose binds what is sealed to the server's name, and to where it goes.
func purpose(name string, w *written) string {
	return fmt.Sprintf("server/%s %q %q", name, w.URL, w.Command)
}

// List gives all, by their names. Of one whose secrets cannot be had it says so.
func (s *Servers) List() ([]Entry, error) {
	c, _, err := s.read(context.Background())
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range slices.Sorted(maps.Keys(c.Servers)) {
		all = append(all, s.entry(name, c.Servers[name]))
	}
	return all, nil
}

// Count tells how many there are.
func (s *Servers) Count() (int, error) {
	c, _, err := s.read(context.Background())
	return len(c.Servers), err
}

// Add puts a server in. One of that name is a fault.Conflict, unless it is to be
// replaced.
func (s *Servers) Add(name string, server config.Server, replace bool) error {
	if err := config.CheckServerName(name); err != nil {
		return err
	}
	w, err := s.write(name, server)
	if err != nil {
		return err
	}
	return s.change(func(c *content) error {
		switch old := c.Servers[name]; {
		case old != nil && !replace:
			return fault.New(fault.Conflict, "there is a server %q already", name).WithHint("--replace puts this one in its place; paddock server rm removes it")
		case old == nil && len(c.Servers) >= maxServers:
			return fault.New(fault.Exhausted, "there are %d servers already", maxServers).WithHint("paddock server rm removes one")
		}
		c.Servers[name] = w
		return nil
	})
}

// Remove takes a server out.
func (s *Servers) Remove(name string) error {
	return s.change(func(c *content) error {
		if c.Servers[name] == nil {
			return fault.New(fault.NotFound, "no server %q was added", name).WithHint("paddock server ls lists those that there are")
		}
		delete(c.Servers, name)
		return nil
	})
}

// write is how a server is kept.
func (s *Servers) write(name string, server config.Server) (*written, error) {
	w := &written{
		Added: time.Now().UTC().Truncate(time.Second), Command: server.Command, Args: server.Args, Dir: server.Dir, URL: server.URL, Transport: server.Transport,
		Allow: server.Tools.Allow, Ask: server.Tools.Ask, Deny: server.Tools.Deny,
		TimeoutSeconds: int64(server.Timeout / time.Second), MaxResponseSize: server.ResponseBytes, CallsPerMinute: server.CallsPerMinute, Results: server.Results, OAuth: server.OAuth,
	}
	hidden := secrets{Env: server.Env, Headers: server.Headers, ClientSecret: server.OAuth.ClientSecret}
	if at, _, found := strings.Cut(server.URL, "?"); found {
		w.URL, hidden.URL = at, server.URL
	}
	if len(hidden.Env)+len(hidden.Headers) == 0 && hidden.ClientSecret == "" && hidden.URL == "" {
		return w, nil
	}
	text, err := json.Marshal(hidden)
	if err == nil {
		w.Sealed, err = s.Sealer.Seal(purpose(name, w), text)
	}
	return w, err
}

// entry is how a server is read.
func (s *Servers) entry(name string, w *written) Entry {
	e := Entry{Name: name, Added: w.Added}
	e.Server = config.Server{
		Command: w.Command, Args: w.Args, Dir: w.Dir, URL: w.URL, Transport: w.Transport,
		Timeout: time.Duration(w.TimeoutSeconds) * time.Second, ResponseBytes: w.MaxResponseSize, CallsPerMinute: w.CallsPerMinute, Results: w.Results, OAuth: w.OAuth,
	}
	e.Server.Tools.Allow, e.Server.Tools.Ask, e.Server.Tools.Deny = w.Allow, w.Ask, w.Deny
	if w.Sealed == nil {
		return e
	}
	text, err := s.Sealer.Unseal(purpose(name, w), w.Sealed)
	var hidden secrets
	if err == nil {
		err = json.Unmarshal(text, &hidden)
	}
	if err != nil {
		e.Err = err
		return e
	}
	e.Server.Env, e.Server.Headers, e.Server.OAuth.ClientSecret = hidden.Env, hidden.Headers, hidden.ClientSecret
	if hidden.URL != "" {
		e.Server.URL = hidden.URL
	}
	return e
}

func (s *Servers) path() string { return filepath.Join(s.Dir, File) }

func (s *Servers) table() table.Table {
	if s.Table != nil {
		return s.Table
	}
	return table.NewFolder(table.FolderConfig{
		Dir: s.Dir, Read: readFile, Write: writeFile,
		Lock: func(string) string { return lockFile }, Timeout: lockTimeout, Locked: unusable,
		Before: func(string) error {
			if err := os.MkdirAll(s.Dir, 0o700); err != nil {
				return unusable(err)
			}
			return nil
		},
	})
}

func readFile(path string) ([]byte, fs.FileInfo, error) {
	data, info, err := privatefile.Read(path)
	var said *fault.Error
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &said) {
		err = unusable(err)
	}
	return data, info, err
}

func writeFile(path string, data []byte) error {
	if err := blob.WriteFile(blob.OS, path, data); err != nil {
		return unusable(err)
	}
	return nil
}

// read gives what there is, and its revision.
func (s *Servers) read(ctx context.Context) (content, table.Revision, error) {
	c := content{Version: version, Servers: map[string]*written{}}
	d, err := s.table().Get(ctx, File, table.None)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, table.None, nil
	case err != nil:
		return c, table.None, err
	}
	err = json.Unmarshal(d.Data, &c)
	if err == nil && c.Version != version {
		err = fmt.Errorf("its version is %d", c.Version)
	}
	for name, w := range c.Servers {
		if w == nil || config.CheckServerName(name) != nil {
			err = errors.New("it has a server that is none")
		}
	}
	if err != nil {
		return content{Version: version}, table.None, fault.New(fault.Unavailable, "the file %s in the state folder is damaged: %v", File, err).
			WithHint("put a copy back, or remove it and add the servers again").WithCause(err)
	}
	if c.Servers == nil {
		c.Servers = map[string]*written{}
	}
	return c, d.Revision, nil
}

// change has f change the content, and writes it. f is called again where others changed it
// meanwhile.
func (s *Servers) change(f func(*content) error) error {
	in := s.table()
	return table.Alone(context.Background(), in, File, func(ctx context.Context) error {
		c, revision, err := s.read(ctx)
		if err != nil {
			return err
		}
		if err := f(&c); err != nil {
			return err
		}
		text, err := json.MarshalIndent(c, "", "  ")
		if err != nil {
			return err
		}
		if len(text) >= privatefile.MaxBytes { // or it could not be read again
			return fault.New(fault.Exhausted, "all servers together may take %d KiB, and with this one they take %d KiB", privatefile.MaxBytes>>10, len(text)>>10).
				WithHint("paddock server rm removes one; put long values into variables, as ${NAME}")
		}
		_, err = in.Put(ctx, File, append(text, '\n'), revision)
		return err
	})
}

func unusable(err error) error {
	hint := "let this user write in the state folder"
	if errors.Is(err, syscall.ENOSPC) {
		hint = "make room on the disk that holds the state folder; what was added before is still there"
	}
	return fault.New(fault.Unavailable, "the servers that were added cannot be read or changed: %v", err).WithHint("%s", hint).WithCause(err)
}
