package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
)

// Found is a server that a client has in its configuration.
type Found struct {
	Name string
	// Command, Args, Env and Dir start it; or it is reached at URL, with Headers, over
	// Transport ("http", "sse"; empty: the client does not say).
	Command   string
	Args      []string
	Env       map[string]string
	Dir       string
	URL       string
	Headers   map[string]string
	Transport string
	// Timeout is how long a call may take; zero: the client does not say.
	Timeout time.Duration
	// Allow and Deny are the tools that the client may or may not use.
	Allow, Deny []string
	// Unusable says why paddock cannot take it; empty: it can. Variables in texts are
	// written as ${NAME} and ${NAME:-otherwise}.
	Unusable string
}

// Source is a file that a client keeps servers in.
type Source struct {
	Client string // its name; empty: who has it is not known
	Title  string
	File   string
}

// maxRead bounds in bytes what is read: Claude Code keeps more than servers in its file.
const maxRead = 32 << 20

// Sources lists the files of clients at a place, there or not: the user's, and the
// project's. A name narrows them to one client's; one that is not known gives nothing.
func Sources(at Place, name string) (all []Source) {
	for _, c := range clients {
		if c.Manual() || c.ownFile {
			continue
		}
		for _, scope := range []Scope{User, Project} {
			if name != "" && name != c.Name {
				continue
			}
			if file, err := c.File(at, scope); err == nil {
				all = append(all, Source{c.Name, c.Title, file})
			}
		}
	}
	return all
}

// Readable are the names of the clients whose servers can be read.
func Readable() []string {
	var names []string
	for _, c := range clients {
		if !c.Manual() && !c.ownFile {
			names = append(names, c.Name)
		}
	}
	return names
}

// Read gives the servers of a file, by their names. Which client's it is decides how it
// is read; of a file that is not known, its form. A file that is not there is an
// fs.ErrNotExist, one that cannot be read a fault that says where.
func (s Source) Read() ([]Found, error) {
	info, err := os.Stat(s.File)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxRead) {
		return nil, fault.New(fault.Invalid, "%s is not a file with servers", s.File).WithHint("name a client, or its configuration file")
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(s.File)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil:
		return nil, fault.New(fault.Denied, "%s cannot be read", s.File).WithHint("run this as the user whose client it is").WithCause(err)
	}
	return s.parse(data)
}

// tables are the members that hold servers, in the order in which they are looked for.
var tables = []string{"mcpServers", "servers", "mcp_servers", "context_servers", "extensions"}

// parse reads a file's text.
func (s Source) parse(data []byte) ([]Found, error) {
	read := readCommentedJSON
	switch strings.ToLower(filepath.Ext(s.File)) {
	case ".toml":
		read = readTOML
	case ".yaml", ".yml":
		read = readYAML
	}
	content, err := read(data)
	if err != nil {
		f := fault.New(fault.Invalid, "%s cannot be read: %v", s.File, err).WithHint("mend it first").WithCause(err)
		var at *mistake
		if errors.As(err, &at) && at.line > 0 {
			f.Message = fmt.Sprintf("%s:%d: %s", s.File, at.line, at.what)
		}
		return nil, f
	}
	if inner, ok := content["mcp"].(map[string]any); ok && content["servers"] == nil && content["mcpServers"] == nil {
		content = inner // VS Code's settings.json of before, and OpenCode 2
		if s.opencode() && inner["servers"] == nil {
			content = map[string]any{"servers": inner} // OpenCode 1
		}
	}
	var all []Found
	for _, table := range tables {
		servers, ok := content[table].(map[string]any)
		if !ok {
			continue
		}
		for name, v := range servers {
			all = append(all, found(name, v, s.dialect(table)))
		}
		break
	}
	slices.SortFunc(all, func(a, b Found) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// dialect is how a client writes what others write otherwise.
type dialect struct {
	bare    bool // variables are also written as $NAME: to other clients that is a text
	lists   bool // a command has its arguments in it, and variables are {env:NAME}
	seconds bool // timeout is in seconds, not in milliseconds
}

// dialect is Gemini's, which Qwen Code has from it, OpenCode's, or that of the clients that
// count in seconds.
func (s Source) dialect(table string) dialect {
	return dialect{
		bare:    s.Client == "gemini" || s.Client == "qwen" || s.Client == "" && filepath.Base(s.File) == "settings.json" && table == "mcpServers",
		lists:   s.opencode(),
		seconds: s.Client == "cline" || table == "extensions",
	}
}

// opencode reports whether the file is OpenCode's.
func (s Source) opencode() bool {
	return s.Client == "opencode" || s.Client == "" && strings.HasPrefix(filepath.Base(s.File), "opencode.json")
}

// found reads a server's entry. The clients' forms have no member in common that means
// two things, so that all are read as one.
func found(name string, v any, d dialect) Found {
	f := Found{Name: name}
	m, ok := v.(map[string]any)
	if !ok {
		f.Unusable = "it is not an object"
		return f
	}
	r := reader{m: m, dialect: d}
	r.splitCommand()
	f.Command, f.Args, f.Env, f.Dir = r.text("command", "cmd"), r.texts("args"), r.table("env", "environment", "envs"), r.text("cwd")
	f.Headers = r.table("headers", "http_headers")
	f.URL = r.text("url", "serverUrl", "httpUrl", "uri")
	f.Allow, f.Deny = r.texts("includeTools", "enabled_tools"), r.texts("excludeTools", "disabled_tools", "disabledTools")
	switch kind := r.text("type", "transport"); kind {
	case "", "stdio", "local":
	case "http", "streamable-http", "streamableHttp", "streamable_http", "remote":
		f.Transport = "http"
	case "sse":
		f.Transport = "sse"
	default:
		r.wrong("its kind is not known to paddock")
	}
	f.Timeout = r.timeout()
	r.byVariables(&f)
	if r.off() {
		r.wrong("it is switched off there")
	}
	if r.text("envFile") != "" {
		r.wrong("its variables are in a file of the client's")
	}
	if f.Command == "" && f.URL == "" {
		r.wrong("it has neither a command nor a URL")
	}
	r.translate(&f)
	f.Unusable = strings.Join(r.reasons, "; ")
	return f
}

// reader reads members of an entry, and keeps what is wrong with them. What stands
// there is not repeated: it may be a secret.
type reader struct {
	dialect
	m       map[string]any
	reasons []string
}

func (r *reader) wrong(why string) {
	if !slices.Contains(r.reasons, why) {
		r.reasons = append(r.reasons, why)
	}
}

func (r *reader) text(names ...string) string {
	for _, name := range names {
		switch v := r.m[name].(type) {
		case nil:
		case string:
			if v != "" {
				return v
			}
		default:
			r.wrong(name + " is not a text")
		}
	}
	return ""
}

func (r *reader) texts(names ...string) (all []string) {
	for _, name := range names {
		list, ok := r.m[name].([]any)
		if !ok && r.m[name] != nil {
			r.wrong(name + " is not a list of texts")
		}
		for _, v := range list {
			s, ok := v.(string)
			if !ok {
				r.wrong(name + " is not a list of texts")
			}
			all = append(all, s)
		}
	}
	return all
}

func (r *reader) table(names ...string) map[string]string {
	var all map[string]string
	for _, name := range names {
		table, ok := r.m[name].(map[string]any)
		if !ok && r.m[name] != nil {
			r.wrong(name + " is not a table of texts")
		}
		for key, v := range table {
			if all == nil {
				all = map[string]string{}
			}
			switch v := v.(type) {
			case string:
				all[key] = v
			case json.Number, bool, int64, float64:
				all[key] = fmt.Sprint(v)
			default:
				r.wrong(name + " is not a table of texts")
			}
		}
	}
	return all
}

// splitCommand reads OpenCode's command, which has the arguments in it.
func (r *reader) splitCommand() {
	list, ok := r.m["command"].([]any)
	if !r.lists || !ok || len(list) == 0 {
		return
	}
	split := maps.Clone(r.m)
	split["command"], split["args"] = list[0], list[1:]
	r.m = split
}

// off tells whether the entry is there, and not used.
func (r *reader) off() bool {
	return r.m["disabled"] == true || r.m["enabled"] == false || r.m["active"] == false
}

// timeout reads Gemini's milliseconds and the seconds of others.
func (r *reader) timeout() time.Duration {
	units := map[string]time.Duration{"timeout": time.Millisecond, "tool_timeout_sec": time.Second}
	if r.seconds {
		units["timeout"] = time.Second
	}
	for name, unit := range units {
		var n float64
		if _, err := fmt.Sscan(fmt.Sprint(r.m[name]), &n); err == nil && n > 0 && n*float64(unit) < float64(24*time.Hour) {
			return time.Duration(n * float64(unit)).Round(time.Second)
		}
	}
	return 0
}

// byVariables reads what Codex takes from variables.
func (r *reader) byVariables(f *Found) {
	put := func(to *map[string]string, name, value string) {
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[name] = value
	}
	if name := r.text("bearer_token_env_var"); name != "" {
		put(&f.Headers, "Authorization", "Bearer ${"+name+"}")
	}
	for header, name := range r.table("env_http_headers") {
		put(&f.Headers, header, "${"+name+"}")
	}
	list, _ := r.m["env_vars"].([]any)
	for _, v := range list {
		if name, ok := v.(string); ok {
			put(&f.Env, name, "${"+name+"}")
		} else {
			r.wrong("env_vars is not a list of texts")
		}
	}
}

// placeholder is what clients put something in for, and environment what is a variable
// in it.
var (
	placeholder  = regexp.MustCompile(`\$\{([^}]*)\}`)
	opencodeName = regexp.MustCompile(`\{env:([A-Za-z_][A-Za-z0-9_]*)\}`)
	environment  = regexp.MustCompile(`^(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-.*)?$`)
	bareName     = regexp.MustCompile(`\$([A-Za-z_][A-Za-z0-9_]*)`)
)

// translate writes variables as paddock does. Others, such as what VS Code asks its
// user for, only the client has.
func (r *reader) translate(f *Found) {
	text := func(s string) string {
		if r.lists {
			s = opencodeName.ReplaceAllString(s, "$${${1}}")
		}
		if r.bare {
			s = bareName.ReplaceAllString(s, "$${${1}}")
		}
		return placeholder.ReplaceAllStringFunc(s, func(found string) string {
			m := environment.FindStringSubmatch(found[2 : len(found)-1])
			if m == nil || slices.Contains([]string{"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"}, m[1]) {
				r.wrong("it has a value that only its client knows")
				return found
			}
			return "${" + m[1] + m[2] + "}"
		})
	}
	f.Command, f.Dir, f.URL = text(f.Command), text(f.Dir), text(f.URL)
	for i := range f.Args {
		f.Args[i] = text(f.Args[i])
	}
	for _, table := range []map[string]string{f.Env, f.Headers} {
		for name, value := range table {
			table[name] = text(value)
		}
	}
}
