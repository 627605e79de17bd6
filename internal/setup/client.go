// Package setup puts paddock into the configuration of MCP clients: it knows
// where each keeps its servers and in which form, and changes one entry of that
// file without touching anything else in it.
//
// [Client.Set] and [Client.Remove] work on bytes, [Update] on files; nothing
// here reads the environment, which comes in as a [Place].
package setup

import (
	"slices"
	"strings"

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
	table    string             // what holds the servers, by name
	stdio    func(Server) entry // nil: it starts no server
	http     func(Server) entry // nil: it connects to no HTTP server
	variable string             // how a header names a variable, with NAME for its name; empty: it cannot
	ownEnv   bool               // http writes the variable's name itself
	file     func(Place, Scope) string
	ownFile  bool // the file holds paddock's entry alone, so there is nothing to read in it
	// enter says what a person enters, where the client has no file (file is nil). It gets
	// the entry as text.
	enter func(entry string, s Server) []string
	// marks are what is there once the client has been used; nil: its file's folder.
	marks    func(Place) []string
	commands []string // by which its users start it
}

// format is how a client's file is written.
type format int

const (
	plainJSON     format = iota // comments are mistakes
	commentedJSON               // comments and trailing commas are fine
	tomlText
	yamlText
)

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
	if c.Manual() {
		return "", fault.New(fault.Unsupported, "%s has no file for its servers", c.Title).
			WithHint("paddock setup %s says what to enter in it", c.Name)
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

// Check says what the client cannot do of s.
func (c *Client) Check(s Server) error {
	_, err := c.entry(s)
	return err
}

// Print gives the entry alone, as it stands in the client's file.
func (c *Client) Print(s Server) (string, error) {
	e, err := c.entry(s)
	if err != nil {
		return "", err
	}
	empty, err := c.change(nil, s.Name, &e)
	return string(empty), err
}

// Manual reports whether the client has no file: a person enters its servers in it.
func (c *Client) Manual() bool { return c.file == nil }

// Steps says what a person enters in a client that has no file.
func (c *Client) Steps(s Server) (string, error) {
	e, err := c.entry(s)
	if err != nil {
		return "", err
	}
	text, err := c.change(nil, s.Name, &e)
	if err != nil {
		return "", err
	}
	return strings.Join(c.enter(string(text), s), "\n") + "\n", nil
}

// Holds reports whether the client's file has an entry of that name. A file that cannot be
// read has none.
func (c *Client) Holds(file []byte, name string) bool {
	data, err := c.reader()(file)
	servers, _ := data[c.table].(map[string]any)
	return err == nil && servers[name] != nil
}

// Installed reports whether the client seems to be on the machine: it has left something
// there, or its command is on the PATH. looked names what was looked for.
func (c *Client) Installed(at Place) (found bool, looked []string) {
	switch {
	case c.marks != nil:
		looked = c.marks(at)
	case c.file != nil:
		looked = []string{at.folder(c.file(at, User))}
	}
	looked = slices.DeleteFunc(looked, func(path string) bool { return path == "" })
	for _, path := range looked {
		found = found || at.exists(path)
	}
	for _, name := range c.commands {
		found = found || at.has(name)
		looked = append(looked, "command "+name)
	}
	return found, looked
}

// reader is how the client reads its file.
func (c *Client) reader() func([]byte) (map[string]any, error) {
	switch c.format {
	case plainJSON:
		return readPlainJSON
	case tomlText:
		return readTOML
	case yamlText:
		return readYAML
	}
	return readCommentedJSON
}

// change sets an entry, or removes it (nil), and makes sure that nothing else
// has changed with it.
func (c *Client) change(old []byte, name string, e *entry) ([]byte, error) {
	edit, read := editJSON, c.reader()
	switch c.format {
	case tomlText:
		edit = editTOML
	case yamlText:
		edit = editYAML
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
