package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/internal/fault"
)

// Server is a table [servers.NAME]: another MCP server, which programs may call. Its
// texts are as they are written; Expand puts in what the environment has.
type Server struct {
	Command   string
	Args      []string
	Env       map[string]string // secret
	Dir       string
	URL       string
	Headers   map[string]string // secret
	Transport string            // empty: auto
	Tools     ToolPatterns
	// Timeout bounds a call, and ResponseBytes one message; zero: the connections' own.
	Timeout       time.Duration
	ResponseBytes int64
	// CallsPerMinute bounds the calls of all sessions together; zero: nothing does.
	CallsPerMinute int64
	Results        string // ResultValues, ResultsRaw; empty: the first
	OAuth          OAuth
}

// ToolPatterns are patterns of tools' names, and the words of package broker.
type ToolPatterns struct{ Allow, Ask, Deny []string }

// OAuth is how a server's access tokens are got.
type OAuth struct {
	// ClientID and ClientSecret are what an issuer has given out; empty: nothing.
	ClientID     string   `json:"client_id,omitempty"`
	ClientSecret string   `json:"-"`
	Issuer       string   `json:"issuer,omitempty"` // who gave them out; empty: whom the server names
	Scopes       []string `json:"scopes,omitempty"`
	Grant        string   `json:"grant,omitempty"`        // AuthorizationCode, ClientCredentials; empty: the first
	MetadataURL  string   `json:"metadata_url,omitempty"` // of a document about this client; empty: there is none
	Redirect     string   `json:"redirect,omitempty"`     // where a login ends; empty: any free port of this machine
}

// The ways to a token.
const (
	AuthorizationCode = "authorization_code" // somebody logs in
	ClientCredentials = "client_credentials" // the client is known by its secret
)

// What programs are given of results.
const (
	ResultValues = "values" // what they mean
	ResultsRaw   = "raw"    // what was sent
)

// serversSection is the section that has a table for each server.
const serversSection = "servers"

// serverName is what a server may be called: programs import it by that name.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// CheckServerName says what is wrong with the name of a server.
func CheckServerName(name string) error {
	if serverName.MatchString(name) {
		return nil
	}
	return fault.New(fault.Invalid, "%q cannot be a server's name", name).WithHint("a name has 1 to 40 letters, digits, - and _")
}

// serverKey is a key of such a table.
type serverKey struct {
	name, doc, accepts string
	fromFile           func(s *Server, v any) error
	data               func(s *Server) any
}

func ofServer[T any](name, doc string, of kind[T], field func(*Server) *T) serverKey {
	return serverKey{
		name: name, doc: doc, accepts: of.accepts,
		fromFile: func(s *Server, v any) error {
			value, err := of.file(v)
			if err == nil {
				*field(s) = value
			}
			return err
		},
		data: func(s *Server) any { return of.data(*field(s)) },
	}
}

// mostResponse bounds what one message of a server may be: it is held in memory.
const mostResponse = 256 << 20

// MostPerMinute bounds what calls_per_minute may be: the times of so many calls are kept.
const MostPerMinute = 60_000

var serverKeys = []serverKey{
	ofServer("command", "the program that is started and spoken to over stdin and stdout", words(1, 4096), func(s *Server) *string { return &s.Command }),
	ofServer("args", "its arguments; ${NAME} in them is a variable of paddock's environment", texts("a list of texts", whatever), func(s *Server) *[]string { return &s.Args }),
	ofServer("env", "its environment, beside PATH, HOME, LANG and TMPDIR; ${NAME} is a variable of paddock's own", hiding(environment()), func(s *Server) *map[string]string { return &s.Env }),
	ofServer("cwd", "the folder it runs in; else the one for temporary files", words(1, 4096), func(s *Server) *string { return &s.Dir }),
	ofServer("url", "its endpoint, where it is reached over HTTP", address(), func(s *Server) *string { return &s.URL }),
	ofServer("headers", "headers of every request to it; ${NAME} is a variable of paddock's environment", hiding(table("a table of texts", whateverNamed)), func(s *Server) *map[string]string { return &s.Headers }),
	ofServer("transport", "how a url is spoken to; auto finds out", oneOf("auto", "http", "sse"), func(s *Server) *string { return &s.Transport }),
	ofServer("tools.allow", "the tools that may be called, by patterns; where there are none, all that the others leave", patterns(), func(s *Server) *[]string { return &s.Tools.Allow }),
	ofServer("tools.ask", "the tools for each call of which somebody is asked", patterns(), func(s *Server) *[]string { return &s.Tools.Ask }),
	ofServer("tools.deny", "the tools that may not be called", patterns(), func(s *Server) *[]string { return &s.Tools.Deny }),
	ofServer("timeout_seconds", "how long a call may take; 60 where nothing is said", seconds(day), func(s *Server) *time.Duration { return &s.Timeout }),
	ofServer("max_response_mb", "how large one message of its may be; 16 where nothing is said", size(1<<20, 1<<10, mostResponse), func(s *Server) *int64 { return &s.ResponseBytes }),
	ofServer("calls_per_minute", "how many calls of its tools all sessions together may make within a minute, others wait; no bound where nothing is said", count(1, MostPerMinute), func(s *Server) *int64 { return &s.CallsPerMinute }),
	ofServer("results", "what programs get of results; values: what is wrapped as {\"result\": …} or is JSON in a text is taken out; raw: they are as the server sends them", oneOf(ResultValues, ResultsRaw), func(s *Server) *string { return &s.Results }),
	ofServer("oauth.client_id", "the client that its issuer knows paddock as; else paddock registers itself", words(1, 1024), func(s *Server) *string { return &s.OAuth.ClientID }),
	ofServer("oauth.client_secret", "that client's secret, best as ${NAME}: a variable of paddock's environment", hidingText(words(1, 4096)), func(s *Server) *string { return &s.OAuth.ClientSecret }),
	ofServer("oauth.issuer", "who gave the client out; else whom the server names", words(1, 2048), func(s *Server) *string { return &s.OAuth.Issuer }),
	ofServer("oauth.scopes", "what is asked for where the server does not say", scopes(), func(s *Server) *[]string { return &s.OAuth.Scopes }),
	ofServer("oauth.grant", "how tokens are got: by somebody's login, or with the client's secret alone", oneOf(AuthorizationCode, ClientCredentials), func(s *Server) *string { return &s.OAuth.Grant }),
	ofServer("oauth.metadata_url", "where a document describes this client to issuers", words(1, 2048), func(s *Server) *string { return &s.OAuth.MetadataURL }),
	ofServer("oauth.redirect", "where a login ends, such as http://127.0.0.1:8976/callback, for issuers that know the client by it", words(1, 2048), func(s *Server) *string { return &s.OAuth.Redirect }),
}

func whatever(all []string) ([]string, error) { return all, nil }
func whateverNamed(string, string) error      { return nil }
func patterns() kind[[]string]                { return each("patterns of tools' names", notEmpty) }

func notEmpty(s string) error {
	if s == "" {
		return errors.New("one of them is empty")
	}
	return nil
}

// hiding is a table whose values are not shown, unless they only name variables.
func hiding(k kind[map[string]string]) kind[map[string]string] {
	k.data = func(all map[string]string) any {
		shown := map[string]string{}
		for name, value := range all {
			shown[name] = redacted(value)
		}
		return shown
	}
	return k
}

func hidingText(k kind[string]) kind[string] {
	k.data = func(s string) any { return redacted(s) }
	return k
}

// schemes are what may stand beside a variable: they tell nothing.
var schemes = []string{"", "Bearer", "Basic", "Token", "token"}

// redacted is a value as it may be shown.
func redacted(value string) string {
	rest := strings.TrimSpace(bareReference.ReplaceAllString(value, ""))
	if value == "" || slices.Contains(schemes, rest) && rest != value {
		return value
	}
	return "(hidden)"
}

// address is a URL, of whose query only the names are shown: some have a key there.
func address() kind[string] {
	k := words(1, 2048)
	k.accepts = "a URL of http or https"
	k.data = func(s string) any { return ShownURL(s) }
	return k
}

// ShownURL is a URL without what may be secret in it.
func ShownURL(s string) string {
	at, query, found := strings.Cut(s, "?")
	if !found {
		return s
	}
	var shown []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		shown = append(shown, name+"="+redacted(value))
	}
	return at + "?" + strings.Join(shown, "&")
}

// servers takes the tables of the section.
func (f *file) servers(tables map[string]any) {
	for _, name := range sortedKeys(tables) {
		full := serversSection + "." + name
		table, ok := tables[name].(map[string]any)
		err := CheckServerName(name)
		switch {
		case err != nil:
			f.mistake(full, fault.New(fault.Invalid, "%s: %v", f.at(full), err).WithHint("%s", fault.Of(err).Hint))
			continue
		case !ok:
			f.mistake(full, fault.New(fault.Invalid, "%s: %s is %s, not a server's table", f.at(full), full, describe(tables[name])).
				WithHint("write [%s.NAME] on a line, and its command or url below", serversSection))
			continue
		}
		var s Server
		f.serverTable(&s, full, "", table)
		if f.config.Servers == nil {
			f.config.Servers = map[string]Server{}
		}
		f.config.Servers[name] = s
		f.config.origins[full] = f.at(full)
	}
}

// serverTable takes the keys of a server's table, or of one in it.
func (f *file) serverTable(s *Server, full, within string, table map[string]any) {
	for _, name := range sortedKeys(table) {
		key, at := within+name, full+"."+within+name
		if inner, ok := table[name].(map[string]any); ok && within == "" && (name == "tools" || name == "oauth") {
			f.serverTable(s, full, name+".", inner)
			continue
		}
		i := slices.IndexFunc(serverKeys, func(k serverKey) bool { return k.name == key })
		if i < 0 {
			f.mistake(at, fault.New(fault.Invalid, "%s: unknown key %q", f.at(at), at).WithHint("%s", suggest(key, serverKeyNames())))
			continue
		}
		k := serverKeys[i]
		if err := k.fromFile(s, table[name]); err != nil {
			f.mistake(at, fault.New(fault.Invalid, "%s: %s: %v", f.at(at), at, err).WithHint("%s: %s", key, k.doc))
			continue
		}
		f.config.origins[at] = f.at(at)
	}
}

func serverKeyNames() (all []string) {
	for _, k := range serverKeys {
		all = append(all, k.name)
	}
	return all
}

// serverValues lists what was set of the servers.
func (c *Config) serverValues() (all []Value) {
	for _, name := range sortedKeys(c.Servers) {
		s := c.Servers[name]
		for _, k := range serverKeys {
			full := serversSection + "." + name + "." + k.name
			if c.IsSet(full) {
				data := k.data(&s)
				all = append(all, Value{Key: full, Value: data, Origin: c.Origin(full), Literal: literal(data)})
			}
		}
	}
	return all
}

// DescribeServer says what a key of a server's table decides and accepts; key is its
// full name, such as servers.github.url.
func DescribeServer(key string) (doc, accepts string) {
	_, rest, _ := strings.Cut(key, ".")
	_, own, _ := strings.Cut(rest, ".")
	i := slices.IndexFunc(serverKeys, func(k serverKey) bool { return k.name == own })
	if i < 0 {
		return "", ""
	}
	return serverKeys[i].doc, serverKeys[i].accepts
}

// HasSecrets tells whether something stands in the server's table that is not to be
// read by everybody.
func (s Server) HasSecrets() bool {
	hidden := func(text string) bool { return text != "" && redacted(text) != text }
	for _, all := range []map[string]string{s.Env, s.Headers} {
		for _, value := range all {
			if hidden(value) {
				return true
			}
		}
	}
	return hidden(s.OAuth.ClientSecret) || ShownURL(s.URL) != s.URL
}

// reference is a variable in a text: ${NAME}, or ${NAME:-otherwise}.
var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// bareReference is one without anything that stands in for the variable.
var bareReference = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// References are the variables that a text refers to.
func References(text string) (names []string) {
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// Expand gives the server with the variables put in that its texts refer to. All that
// are missing are told at once.
func (s Server) Expand(lookup func(name string) (string, bool)) (Server, error) {
	var mistakes []error
	text := func(at, in string) string {
		return reference.ReplaceAllStringFunc(in, func(found string) string {
			m := reference.FindStringSubmatch(found)
			if value, ok := lookup(m[1]); ok && (value != "" || m[2] == "") {
				return value
			}
			if m[2] == "" {
				mistakes = append(mistakes, fault.New(fault.NotFound, "%s: there is no variable %s", at, m[1]).WithHint("set %s in the environment of paddock", m[1]))
			}
			return strings.TrimPrefix(m[2], ":-")
		})
	}
	table := func(at string, in map[string]string) map[string]string {
		out := map[string]string{}
		for _, name := range sortedKeys(in) {
			out[name] = text(at+"."+name, in[name])
		}
		return out
	}
	args := slices.Clone(s.Args)
	for i := range args {
		args[i] = text("args", args[i])
	}
	s.Args, s.Command, s.Dir, s.URL = args, text("command", s.Command), text("cwd", s.Dir), text("url", s.URL)
	s.Env, s.Headers = table("env", s.Env), table("headers", s.Headers)
	s.OAuth.ClientID, s.OAuth.ClientSecret = text("oauth.client_id", s.OAuth.ClientID), text("oauth.client_secret", s.OAuth.ClientSecret)
	return s, errors.Join(mistakes...)
}

// checkServerVariables refuses variables for what only the file has.
func checkServerVariables(environ []string) error {
	var mistakes []error
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if value != "" && (name == variable(serversSection) || strings.HasPrefix(name, variable(serversSection)+"_")) {
			mistakes = append(mistakes, fault.New(fault.Invalid, "environment %s: unknown variable", name).
				WithHint("write servers into paddock.toml as [%s.NAME]; their texts may refer to variables as ${NAME}", serversSection))
		}
	}
	return errors.Join(mistakes...)
}

// interval is a span of time as a number of seconds, from none on.
func interval(most time.Duration) kind[time.Duration] {
	check := func(f float64) (time.Duration, error) {
		if !(f >= 0 && f <= most.Seconds()) {
			return 0, fmt.Errorf("it is not between 0 and %d seconds", int64(most.Seconds()))
		}
		return time.Duration(f * float64(time.Second)), nil
	}
	return kind[time.Duration]{
		accepts: fmt.Sprintf("seconds, from 0 to %d, such as 0.1", int64(most.Seconds())),
		text: func(s string) (time.Duration, error) {
			f, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return 0, fmt.Errorf("%q is not a number of seconds", s)
			}
			return check(f)
		},
		file: func(v any) (time.Duration, error) {
			switch v := v.(type) {
			case int64:
				return check(float64(v))
			case float64:
				return check(v)
			}
			return 0, fmt.Errorf("it is %s, not a number of seconds", describe(v))
		},
		data: func(d time.Duration) any { return d.Seconds() },
	}
}
