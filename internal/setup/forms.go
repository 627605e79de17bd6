package setup

import (
	"strings"

	"paddock/internal/fault"
)

// entry is how the client writes s.
func (c *Client) entry(s Server) (entry, error) {
	switch {
	case s.URL == "" && c.stdio == nil:
		return entry{}, fault.New(fault.Unsupported, "%s starts no servers; it connects to one over HTTP", c.Title).
			WithHint("paddock serve runs one, and paddock setup %s --http says what to enter", c.Name)
	case s.URL == "":
		return c.stdio(s), nil
	case c.http == nil:
		return entry{}, fault.New(fault.Unsupported, "%s starts local servers only; it reaches others through its connectors, which need a public address", c.Title).
			WithHint("without --http %s starts paddock itself", c.Title)
	case s.Token == "" && s.TokenEnv != "" && c.variable == "" && !c.ownEnv && !c.Manual():
		return entry{}, fault.New(fault.Unsupported, "%s takes no token from a variable", c.Title).
			WithHint("without --token-env the token of this machine is written into its file")
	case s.Token == "" && s.TokenEnv != "" && c.variable != "":
		s.Token = strings.Replace(c.variable, "NAME", s.TokenEnv, 1)
	}
	return c.http(s), nil
}

func commandEntry(s Server) entry {
	return entry{members: []member{{"command", s.Command}, {"args", s.Args}}}
}

func urlEntry(s Server) entry { return entry{members: withToken("headers", s, member{"url", s.URL})} }

func geminiURLEntry(s Server) entry {
	return entry{members: withToken("headers", s, member{"httpUrl", s.URL})}
}

func windsurfURLEntry(s Server) entry {
	return entry{members: withToken("headers", s, member{"serverUrl", s.URL})}
}

func cherryURLEntry(s Server) entry {
	return entry{members: withToken("headers", s, member{"baseUrl", s.URL})}
}

func codexURLEntry(s Server) entry {
	e := entry{members: withToken("http_headers", s, member{"url", s.URL})}
	if s.Token == "" && s.TokenEnv != "" {
		e.members = append(e.members, member{"bearer_token_env_var", s.TokenEnv})
	}
	return e
}

// opencodeEntry is in the form of OpenCode 1, which OpenCode 2 reads too.
func opencodeEntry(s Server) entry {
	return entry{members: []member{{"type", "local"}, {"command", append([]string{s.Command}, s.Args...)}}}
}

func gooseEntry(s Server) entry {
	e := gooseExtension(s, "stdio")
	e.members = append(e.members, member{"cmd", s.Command}, member{"args", s.Args})
	return e
}

// gooseURLEntry names the token's variable in env_keys too: goose puts only those into
// headers.
func gooseURLEntry(s Server) entry {
	e := gooseExtension(s, "streamable_http")
	e.members = append(e.members, withToken("headers", s, member{"uri", s.URL})...)
	if s.TokenEnv != "" {
		e.members = append(e.members, member{"env_keys", []string{s.TokenEnv}})
	}
	return e
}

func gooseExtension(s Server, kind string) entry {
	return entry{
		members:  []member{{"type", kind}, {"name", s.Name}},
		defaults: []member{{"enabled", true}, {"description", "Runs programs in a sandbox"}},
	}
}

func withToken(headers string, s Server, members ...member) []member {
	if s.Token == "" {
		return members
	}
	return append(members, member{headers, map[string]string{"Authorization": "Bearer " + s.Token}})
}

// typed is an entry that says its kind.
func typed(kind string, newEntry func(Server) entry) func(Server) entry {
	return func(s Server) entry {
		e := newEntry(s)
		e.members = append([]member{{"type", kind}}, e.members...)
		return e
	}
}

// patience is how many seconds a call may take in a client that has a limit of its own.
const patience = int64(600)

// patient is an entry for a client that gives up after a minute by itself.
func patient(newEntry func(Server) entry) func(Server) entry {
	return inSeconds("tool_timeout_sec", newEntry)
}

// inSeconds is an entry for a client that gives up early by itself, and whose limit is
// in that member.
func inSeconds(key string, newEntry func(Server) entry) func(Server) entry {
	return withDefault(member{key, patience}, newEntry)
}

// everyTool is an entry for a client that offers only the tools which it lists.
func everyTool(newEntry func(Server) entry) func(Server) entry {
	return withDefault(member{"tools", []string{"*"}}, newEntry)
}

// active is an entry for a client that starts only servers which are said to be on.
func active(newEntry func(Server) entry) func(Server) entry {
	return withDefault(member{"active", true}, newEntry)
}

func withDefault(m member, newEntry func(Server) entry) func(Server) entry {
	return func(s Server) entry {
		e := newEntry(s)
		e.defaults = append(e.defaults, m)
		return e
	}
}

// cherryStudio keeps its servers in a database of its own.
func cherryStudio(entry string, _ Server) []string {
	return []string{
		"Cherry Studio keeps its servers in its own database. Enter this one there:",
		"",
		"1. open Settings, MCP Servers, and choose Add, Import from JSON",
		"2. paste this:",
		"",
		strings.TrimRight(entry, "\n"),
	}
}

// openWebUI keeps its servers in a database of its own, which its administrators change.
func openWebUI(_ string, s Server) []string {
	token := s.Token
	if token == "" {
		token = "the token that the variable " + s.TokenEnv + " has"
	}
	return []string{
		"Open WebUI keeps its servers in its own database. An administrator enters this one there:",
		"",
		"1. open Admin Settings, External Tools, and choose + (Add Server)",
		"2. Type: MCP (Streamable HTTP), not OpenAPI",
		"3. URL: " + s.URL,
		"4. Auth: Bearer, and " + token,
		"5. ID and Name: " + s.Name,
		"",
		"An Open WebUI in a container reaches this machine at another address than 127.0.0.1:",
		"give that one with --http.",
	}
}
