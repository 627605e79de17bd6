// Package setup puts paddock into the configuration of MCP clients: it knows
// where each keeps its servers and in which form, and changes one entry of that
// file without touching anything else in it.
//
// [Client.Set] and [Client.Remove] work on bytes, [Update] on files; nothing
// here reads the environment, which comes in as a [Place].
package setup

import (
	"slices"

	"paddock/internal/fault"
)

// Scope is whose configuration is meant.
type Scope string

// The scopes: every project of the user, or the one in the current folder.
const (
	User    Scope = "user"
	Project Scope = "project"
)

// Client is an MCP client whose configuration is known.
type Client struct {
	Name  string // as on the command line
	Title string // as its makers write it
	// Next is what its user does after the configuration has changed, by scope;
	// a scope that is missing is one that the client does not have.
	Next map[Scope]string

	format   format
	table    string // what holds the servers, by name
	stdio    func(Server) entry
	http     func(Server) entry // nil: it connects to no HTTP server
	variable string             // how a header names a variable, with NAME for its name
	file     func(Place, Scope) string
}

// format is how a client's file is written.
type format int

const (
	plainJSON     format = iota // comments are mistakes
	commentedJSON               // comments and trailing commas are fine
	tomlText
)

var clients = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", table: "mcpServers",
		Next:  map[Scope]string{User: "quit Claude Desktop, also in the tray or the menu bar, and start it again"},
		stdio: commandEntry, file: claudeDesktopFile,
	},
	{
		Name: "claude-code", Title: "Claude Code", table: "mcpServers",
		Next: map[Scope]string{
			User:    "start claude again; /mcp lists its servers",
			Project: "start claude in this folder; it asks whether this project's servers may be used",
		},
		stdio: typed("stdio", commandEntry), http: typed("http", urlEntry), variable: "${NAME}", file: claudeCodeFile,
	},
	{
		Name: "cursor", Title: "Cursor", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start Cursor again and see that the server is switched on among its MCP servers",
			Project: "open this folder in Cursor and switch the server on among its MCP servers",
		},
		stdio: commandEntry, http: urlEntry, variable: "${env:NAME}", file: cursorFile,
	},
	{
		Name: "vscode", Title: "VS Code", table: "servers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "in VS Code, start the server with the command «MCP: List Servers»",
			Project: "open this folder in VS Code and start the server with the command «MCP: List Servers»",
		},
		stdio: typed("stdio", commandEntry), http: typed("http", urlEntry), variable: "${env:NAME}", file: vscodeFile,
	},
	{
		Name: "codex", Title: "Codex", table: "mcp_servers", format: tomlText,
		Next: map[Scope]string{
			User:    "start codex again; /mcp lists its servers",
			Project: "start codex in this folder; it reads this file only in a project that it trusts",
		},
		stdio: patient(commandEntry), http: patient(codexURLEntry), file: codexFile,
	},
	{
		Name: "gemini", Title: "Gemini CLI", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start gemini again; /mcp lists its servers",
			Project: "start gemini in this folder; /mcp lists its servers",
		},
		stdio: commandEntry, http: geminiURLEntry, variable: "${NAME}", file: geminiFile,
	},
}

// Names lists the clients as they are called on the command line.
func Names() []string {
	var names []string
	for _, c := range clients {
		names = append(names, c.Name)
	}
	return names
}

// Find gives the client of a name; nil: there is none.
func Find(name string) *Client {
	i := slices.IndexFunc(clients, func(c *Client) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return clients[i]
}

// File is where the client keeps its servers. A scope or a server that the
// client does not know is a fault.
func (c *Client) File(at Place, scope Scope) (string, error) {
	if _, ok := c.Next[scope]; !ok {
		return "", fault.New(fault.Unsupported, "%s has no configuration of its own for a project", c.Title).
			WithHint("without --scope project the server is there in all of them")
	}
	file := c.file(at, scope)
	if file == "" {
		return "", fault.New(fault.Unavailable, "the user has no home folder, so it is not known where %s looks", c.Title).
			WithHint("set HOME, or use --print and put it where it belongs")
	}
	return file, nil
}

// Set gives the file old, which may be empty, with the server in it. What else
// is in there stays as it is, byte for byte, the server's own members that
// paddock does not know included. A file that cannot be read as the client
// reads it is a fault that says where.
func (c *Client) Set(old []byte, s Server) ([]byte, error) {
	e, err := c.entry(s)
	if err != nil {
		return nil, err
	}
	return c.change(old, s.Name, &e)
}

// Remove gives the file old without the server called name.
func (c *Client) Remove(old []byte, name string) ([]byte, error) { return c.change(old, name, nil) }

// Print gives the entry alone, as it stands in the client's file.
func (c *Client) Print(s Server) (string, error) {
	e, err := c.entry(s)
	if err != nil {
		return "", err
	}
	empty, err := c.change(nil, s.Name, &e)
	return string(empty), err
}

// change sets an entry, or removes it (nil), and makes sure that nothing else
// has changed with it.
func (c *Client) change(old []byte, name string, e *entry) ([]byte, error) {
	edit, read := editJSON, readCommentedJSON
	switch c.format {
	case plainJSON:
		read = readPlainJSON
	case tomlText:
		edit, read = editTOML, readTOML
	}
	before, err := read(old)
	if err != nil {
		return nil, c.unreadable(err)
	}
	changed, err := edit(old, c.table, name, e)
	if err != nil {
		return nil, err
	}
	after, err := read(changed)
	if err == nil && onlyDiffers(before, after, c.table, name, e) {
		return changed, nil
	}
	return nil, fault.New(fault.Conflict, "the entry %s is written in a form that paddock cannot change", name).
		WithHint("--print shows what to put there by hand; nothing was changed").WithCause(err)
}
