package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"paddock/internal/fault"
)

// LLM WASM Sandbox has two files of its own, mcp.toml and policy.toml. Both are read as its
// guide prints them: a key that is named differently here sets ours, and one that has no
// counterpart is left out with a warning that says what does its work.

// elsewhere are its keys by their names, and ours. A name without a dot stands outside of
// all sections.
var elsewhere = map[string]string{
	"fuel_budget": "policy.fuel_budget", "memory_bytes": "policy.memory_bytes", "env": "policy.env",
	"stdout_max_bytes": "policy.stdout_max_bytes", "stderr_max_bytes": "policy.stderr_max_bytes",
	"sessions.max_total_sessions": "limits.max_sessions",
}

// transport is what begins the names of its keys where they are in [transport.http].
const transport = "transport.http."

// without are its keys that have no counterpart, and what does their work.
var without = map[string]string{
	"transport_stdio.enabled": "paddock mcp speaks MCP over stdio",
	"transport.stdio.enabled": "paddock mcp speaks MCP over stdio",
	"transport_http.enabled":  "paddock serve speaks MCP over HTTP",
	"transport.http.enabled":  "paddock serve speaks MCP over HTTP",
	"mount_host_dir":          "each session has files of its own in /workspace; sandbox.volumes gives folders of this machine to Linux sessions",
	"guest_mount_path":        "a session's files are in /workspace, and /app leads there",
	"mount_data_dir":          "sandbox.volumes gives folders of this machine to Linux sessions",
	"guest_data_path":         "sandbox.volumes says where a folder of this machine is seen",
	"argv":                    "the interpreter's arguments are fixed; Python is in UTF-8 mode",
}

// adopt puts keys of LLM WASM Sandbox where ours are, with their lines, and takes out those
// without a counterpart.
func (f *file) adopt(content map[string]any) {
	for name, why := range without {
		if _, ok := take(content, name); ok {
			f.config.Warnings = append(f.config.Warnings, fmt.Sprintf("%s: %s is not used: %s", f.at(name), name, why))
		}
	}
	for name, ours := range elsewhere {
		f.move(content, name, ours)
	}
	if all, ok := content["transport"].(map[string]any); ok {
		if http, ok := all["http"].(map[string]any); ok {
			for name := range http {
				f.move(content, transport+name, "transport_http."+name)
			}
		}
	}
	slices.Sort(f.config.Warnings)
}

// move puts a key where ours is, unless that is set as well.
func (f *file) move(content map[string]any, name, ours string) {
	section, key, _ := strings.Cut(ours, ".")
	v, ok := take(content, name)
	if !ok {
		return
	}
	table, ok := content[section].(map[string]any)
	if !ok && content[section] != nil {
		return // told as a section that is none
	}
	if table == nil {
		table = map[string]any{}
		content[section] = table
	}
	if _, twice := table[key]; twice {
		f.mistake(name, fault.New(fault.Invalid, "%s: %s and %s are one setting", f.at(name), name, ours).WithHint("leave one of them out"))
		return
	}
	table[key] = v
	f.lines[ours] = f.line(name)
	for line, at := range f.lines { // of a table, what is in it
		if inside, ok := strings.CutPrefix(line, name+"."); ok {
			f.lines[ours+"."+inside] = at
		}
	}
}

// take removes a key, and the sections that are empty without it.
func take(content map[string]any, name string) (v any, ok bool) {
	key, rest, nested := strings.Cut(name, ".")
	if !nested {
		v, ok = content[name]
		delete(content, name)
		return v, ok
	}
	table, isTable := content[key].(map[string]any)
	if !isTable {
		return nil, false
	}
	if v, ok = take(table, rest); ok && len(table) == 0 {
		delete(content, key)
	}
	return v, ok
}

// null is a line that sets a key to nothing, as the guide has it. TOML knows no such value.
var null = regexp.MustCompile(`^\s*([A-Za-z0-9_.-]+)\s*=\s*null\s*(#.*)?$`)

// mostNulls bounds how many lines of a file may set keys to nothing.
const mostNulls = 16

// decode reads TOML in which keys may be null: those are as if they were not there. It
// gives the text without them, the lines of which are where they were.
func (c *Config) decode(path, text string) (content map[string]any, _ string, err error) {
	for range mostNulls {
		content = nil
		var at toml.ParseError
		if _, err = toml.Decode(text, &content); !errors.As(err, &at) {
			return content, text, err
		}
		all := strings.Split(text, "\n")
		n := at.Position.Line - 1
		if n < 0 || n >= len(all) {
			return content, text, err
		}
		m := null.FindStringSubmatch(strings.TrimSuffix(all[n], "\r"))
		if m == nil {
			return content, text, err
		}
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s:%d: %s is null, which TOML does not have: it counts as not set", path, n+1, m[1]))
		all[n] = ""
		text = strings.Join(all, "\n")
	}
	return content, text, err
}
