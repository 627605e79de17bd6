package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/oauth"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/config"
	"paddock/internal/egress"
	"paddock/internal/fault"
	"paddock/internal/localhost"
	"paddock/internal/secret"
	"paddock/internal/serverstore"
	"paddock/internal/vault"
)

// Server is another MCP server, which paddock.toml or this machine's user defines.
type Server struct {
	Name    string
	Origin  string        // where it is defined: "paddock.toml:3", or Added
	Written config.Server // as it is written
	Ready   config.Server // with variables put in
	// Err says why it cannot be used; then there is no definition.
	Err        error
	definition broker.Definition
	Login      *oauth.Client     // nil: it needs none
	Issuers    *egress.Transport // where logins lead
	transports []*egress.Transport
}

// Added is where a server comes from that paddock server add has put there.
const Added = "added"

// Close lets go of what a server was prepared with.
func (k *Server) Close() {
	if k.Login != nil {
		_ = k.Login.Close() // it ends a login, if one was under way
	}
	for _, t := range k.transports {
		t.CloseIdleConnections()
	}
}

// Servers gives all servers, those of the file before those that were added. One
// that cannot be used says why, and keeps no other from being used. An error says that
// those that were added are missing. The caller closes them.
func (env *Env) Servers() ([]*Server, error) {
	all := env.configuredServers()
	entries, err := env.AddedServers().List()
	for _, e := range entries {
		all = append(all, &Server{Name: e.Name, Origin: Added, Written: e.Server, Err: e.Err})
	}
	for i, k := range all {
		if k.Err == nil {
			k.Err = taken(all[:i], k.Name)
		}
		if k.Err == nil {
			k.Err = env.PrepareServer(k)
		}
	}
	return all, err
}

func (env *Env) configuredServers() (all []*Server) {
	for _, name := range slices.Sorted(maps.Keys(env.Config.Servers)) {
		all = append(all, &Server{Name: name, Origin: env.Config.Origin("servers." + name), Written: env.Config.Servers[name]})
	}
	return all
}

// taken says that another server has the name already, or the one that programs would
// import it by.
func taken(others []*Server, name string) error {
	for _, o := range others {
		if o.Name == name {
			return fault.New(fault.Conflict, "%s has a server of that name, which counts", o.Origin).WithHint("remove one of them, or give it another name")
		}
		if strings.EqualFold(stub.Package(o.Name), stub.Package(name)) {
			return fault.New(fault.Conflict, "programs would import it as servers.%s, as they do %s", stub.Package(name), o.Name).WithHint("give one of them another name")
		}
	}
	return nil
}

// PrepareServer makes the definition of a server, with the variables of the
// environment put in.
func (env *Env) PrepareServer(k *Server) error {
	filled := map[string]string{}
	s, err := k.Written.Expand(func(name string) (string, bool) {
		value, ok := os.LookupEnv(name)
		filled[name] = value
		return value, ok
	})
	if err != nil {
		return err
	}
	d := definitionOf(k.Name, s)
	d.Hide = secret.Hiding(k.credentials(s, filled))
	if err := errors.Join(d.Check(), d.Policy.Check(), checkOAuth(s.OAuth)); err != nil {
		return err
	}
	if s.URL != "" {
		if err := env.reach(k, &d, s); err != nil {
			return err
		}
	}
	k.definition, k.Ready = d, s
	return nil
}

// credentials are what a server's program is given and must not give to programs: its
// variables whose names tell of a credential, and what looks like one of what it has of the
// vault and of this machine's environment. What the environment has goes by its own name as
// well, wherever it is put.
func (k *Server) credentials(s config.Server, filled map[string]string) []string {
	if s.Command == "" {
		return nil // see reach
	}
	used := map[string]bool{}
	all := secret.InVariables(s.Env, func(name string) bool {
		kept := k.Origin == Added
		for _, of := range config.References(k.Written.Env[name]) {
			used[of] = true
			kept = kept || !secret.Ordinary(of)
		}
		return kept
	})
	for _, v := range secret.InVariables(filled, func(name string) bool { return used[name] }) {
		if !slices.Contains(all, v) && v != s.Command && v != s.Dir {
			all = append(all, v)
		}
	}
	return all
}

func definitionOf(name string, s config.Server) broker.Definition {
	return broker.Definition{
		Server: upstream.Server{
			Name: name, Command: s.Command, Args: s.Args, Env: s.Env, Dir: s.Dir, URL: s.URL, Headers: s.Headers, Transport: s.Transport,
			CallTimeout: s.Timeout, ResponseCap: int(s.ResponseBytes),
		},
		Policy: broker.Policy(s.Tools), PerMinute: int(s.CallsPerMinute), Raw: s.Results == config.ResultsRaw,
	}
}

// reach gives a server that is reached over HTTP its ways there: to its own host and
// port alone, wherever that is, for the operator named it; and for logins to its
// issuer, which the server names: anywhere on the public Internet, and where the
// operator says.
func (env *Env) reach(k *Server, d *broker.Definition, s config.Server) error {
	own, err := ruleFor(s.URL)
	if err != nil {
		return err
	}
	t, err := newTransport(own)
	if err != nil {
		return err
	}
	k.transports = append(k.transports, t)
	d.Transport = secret.Guard(t, slices.Sorted(maps.Keys(s.Headers)), s.URL) // what echoes them does not give them to programs
	if hasAuthorization(s.Headers) {
		return nil
	}
	rules := []string{"*:*", own}
	if s.OAuth.Issuer != "" {
		rule, err := ruleFor(s.OAuth.Issuer)
		if err != nil {
			return err
		}
		rules = append(rules, rule)
	}
	wide, err := newTransport(rules...)
	if err != nil {
		return err
	}
	k.Issuers, k.transports = wide, append(k.transports, wide)
	k.Login, err = oauth.New(env.OAuthConfig(k.Name, s, wide, s.OAuth.Redirect))
	d.Tokens = k.Login
	return err
}

// OAuthConfig says how a server is logged in to.
func (env *Env) OAuthConfig(name string, s config.Server, t http.RoundTripper, redirect string) oauth.Config {
	return oauth.Config{
		Server: name, URL: s.URL, Transport: t, Store: env.TokenFiles(), Key: TokenKey(name),
		ClientID: s.OAuth.ClientID, ClientSecret: s.OAuth.ClientSecret, Issuer: s.OAuth.Issuer, MetadataURL: s.OAuth.MetadataURL,
		Machine: s.OAuth.Grant == config.ClientCredentials, Scopes: s.OAuth.Scopes, Redirect: redirect,
	}
}

// TokenFiles are where tokens of other servers are kept, each under its TokenKey.
func (env *Env) TokenFiles() *vault.Files {
	return &vault.Files{Dir: filepath.Join(env.ServersFolder(), "tokens"), Sealer: env.Vault()}
}

// TokenKey is what a server's tokens are kept under.
func TokenKey(server string) string { return "tokens/" + server }

func hasAuthorization(headers map[string]string) bool {
	for name := range headers {
		if strings.EqualFold(name, "Authorization") {
			return true
		}
	}
	return false
}

// ruleFor is the rule that lets through to a URL's host, also where that is not public.
func ruleFor(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", fault.New(fault.Invalid, "%s is not a URL", config.ShownURL(text)).WithHint("write it whole, such as https://api.example.com/mcp")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return net.JoinHostPort(u.Hostname(), port) + "!private", nil
}

func newTransport(rules ...string) (*egress.Transport, error) {
	policy, err := egress.Parse(rules, egress.Rights{All: true, Private: true})
	if err != nil {
		return nil, err
	}
	// A call may be answered late: its own time bounds it.
	return egress.NewTransport(policy, egress.Options{Header: -1}), nil
}

// checkOAuth says what cannot be right of a login's settings.
func checkOAuth(o config.OAuth) error {
	var all []error
	for name, text := range map[string]string{"issuer": o.Issuer, "metadata_url": o.MetadataURL} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !IsLoopback(u))) {
			all = append(all, fault.New(fault.Invalid, "oauth.%s is not a URL of https", name).WithHint("http is for this machine's own addresses alone"))
		}
	}
	if _, ok := LocalAddress(o.Redirect); o.Redirect != "" && !ok {
		all = append(all, fault.New(fault.Invalid, "oauth.redirect is not an address of this machine").WithHint("such as http://127.0.0.1:8976/callback"))
	}
	if o.Grant == config.ClientCredentials && (o.ClientID == "" || o.ClientSecret == "") {
		all = append(all, fault.New(fault.Invalid, "oauth.grant is client_credentials, and there are none").WithHint("set oauth.client_id and oauth.client_secret"))
	}
	return errors.Join(all...)
}

// LocalAddress reads where a login ends: at a port of this machine.
func LocalAddress(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, false
	}
	return u, IsLoopback(u)
}

// CheckServers finds the mistakes in the servers of the configuration, where they
// stand. What depends on a variable that is not there is not looked at.
func (env *Env) CheckServers() error {
	all := env.configuredServers()
	var found []misplaced
	for i, k := range all {
		at := "servers." + k.Name
		s, err := k.Written.Expand(os.LookupEnv)
		if err != nil {
			s = config.Server{URL: "https://host.invalid"}
		}
		d := definitionOf(k.Name, s)
		found = append(found, misplaced{k.Origin, at, errors.Join(d.Check(), taken(all[:i], k.Name))},
			misplaced{k.Origin, at + ".tools", d.Policy.Check()}, misplaced{k.Origin, at + ".oauth", checkOAuth(s.OAuth)})
	}
	_, err := broker.ParseAllowlist(env.Config.MCP.Allowlist)
	found = append(found, misplaced{env.Config.Origin("mcp.allowlist"), "mcp.allowlist", err})
	tools := env.Config.MCP.Tools
	for name, policy := range map[string]broker.Policy{"allow": {Allow: tools.Allow}, "ask": {Ask: tools.Ask}, "deny": {Deny: tools.Deny}} {
		found = append(found, misplaced{env.Config.Origin("mcp.tools." + name), "mcp.tools." + name, policy.Check()})
	}
	slices.SortStableFunc(found, func(a, b misplaced) int { // lines of one file, in their order
		return cmp.Or(cmp.Compare(len(a.origin), len(b.origin)), cmp.Compare(a.origin, b.origin))
	})
	var mistakes []error
	for _, m := range found {
		mistakes = append(mistakes, m.faults()...)
	}
	return errors.Join(mistakes...)
}

// misplaced is what is wrong with a key, and where it stands; a nil err: nothing is.
type misplaced struct {
	origin, key string
	err         error
}

// faults gives each mistake as the configuration's own are told.
func (m misplaced) faults() (all []error) {
	if m.err == nil {
		return nil
	}
	for _, e := range fault.Apart(m.err) {
		f := fault.Of(e)
		all = append(all, fault.New(fault.Invalid, "%s: %s: %s", m.origin, m.key, f.Message).WithHint("%s", f.Hint))
	}
	return all
}

// Dial connects to a server, apart from all sessions.
func (env *Env) Dial(ctx context.Context, k *Server) (*upstream.Conn, error) {
	if k.Err != nil {
		return nil, k.Err
	}
	return upstream.Dial(ctx, k.definition.Server, env.dialOptions(k.definition))
}

func (env *Env) dialOptions(d broker.Definition) upstream.Options {
	return upstream.Options{Transport: d.Transport, Tokens: d.Tokens, Hide: d.Hide, Environ: os.Environ(), Log: env.Log, Name: "paddock", Version: env.Version}
}

// FindServer gives the server of a name.
func (env *Env) FindServer(name string) (k *Server, done func(), err error) {
	all, err := env.Servers()
	done = func() {
		for _, k := range all {
			k.Close()
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	i := slices.IndexFunc(all, func(k *Server) bool { return k.Name == name })
	if i >= 0 {
		return all[i], done, nil
	}
	done()
	var names []string
	for _, k := range all {
		names = append(names, k.Name)
	}
	f := fault.New(fault.NotFound, "there is no server %q", name)
	if len(names) == 0 {
		return nil, nil, f.WithHint("paddock server add adds one")
	}
	return nil, nil, f.WithHint("%s", config.Suggest(name, names))
}

// WhatIs says in a line what a server is.
func WhatIs(s config.Server) string {
	if s.URL != "" {
		return config.ShownURL(s.URL)
	}
	return strings.Join(append([]string{s.Command}, s.Args...), " ")
}

// TransportOf is how a server is spoken to, in a word.
func TransportOf(s config.Server) string {
	switch {
	case s.URL == "":
		return "stdio"
	case s.Transport == "" || s.Transport == upstream.TransportAuto:
		return "http"
	}
	return s.Transport
}

// IsLoopback reports whether a URL's host is this machine.
func IsLoopback(u *url.URL) bool { return localhost.Is(u.Hostname()) }

// Policy says which of the server's tools may be called.
func (k *Server) Policy() broker.Policy { return k.definition.Policy }

// CheckNewServer says what is wrong with a server that will be added to others. What depends
// on a variable that is not set is not checked.
func (env *Env) CheckNewServer(name string, s config.Server, to []serverstore.Entry) error {
	if _, err := s.Expand(func(string) (string, bool) { return "", false }); err == nil {
		d := definitionOf(name, s)
		if err := errors.Join(d.Check(), d.Policy.Check(), checkOAuth(s.OAuth)); err != nil {
			return err
		}
	}
	others := env.configuredServers()
	for _, e := range to {
		if e.Name != name {
			others = append(others, &Server{Name: e.Name, Origin: Added})
		}
	}
	return taken(others, name)
}
