package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"paddock/internal/bindings/broker"
	"paddock/internal/bindings/oauth"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
	"paddock/internal/cli/config"
	"paddock/internal/cli/serverstore"
	"paddock/internal/egress"
	"paddock/internal/fault"
	"paddock/internal/secret"
	"paddock/internal/vault"
)

// known is another MCP server that this machine's user or paddock.toml names.
type known struct {
	name   string
	origin string        // who set it: "paddock.toml:3", or wasAdded
	server config.Server // as it is written
	ready  config.Server // with variables put in
	// err says why it cannot be used; then there is no definition.
	err        error
	definition broker.Definition
	login      *oauth.Client     // nil: it is used without one
	issuers    *egress.Transport // where logins lead
	transports []*egress.Transport
}

// wasAdded is where a server comes from that paddock server add has put there.
const wasAdded = "added"

// close lets go of what a server was prepared with.
func (k *known) close() {
	if k.login != nil {
		_ = k.login.Close() // it ends a login, if one was under way
	}
	for _, t := range k.transports {
		t.CloseIdleConnections()
	}
}

// addedServers are those of the state folder.
func (p *program) addedServers() *serverstore.Servers {
	return &serverstore.Servers{Dir: p.places.state, Sealer: p.vault()}
}

// knownServers gives all servers, those of the file before those that were added. One
// that cannot be used says why, and keeps no other from being used. An error says that
// those that were added are missing. The caller closes them.
func (p *program) knownServers() ([]*known, error) {
	all := p.configuredServers()
	entries, err := p.addedServers().List()
	for _, e := range entries {
		all = append(all, &known{name: e.Name, origin: wasAdded, server: e.Server, err: e.Err})
	}
	for i, k := range all {
		if k.err == nil {
			k.err = taken(all[:i], k.name)
		}
		if k.err == nil {
			k.err = p.prepareServer(k)
		}
	}
	return all, err
}

func (p *program) configuredServers() (all []*known) {
	for _, name := range sortedNames(p.config.Servers) {
		all = append(all, &known{name: name, origin: p.config.Origin("servers." + name), server: p.config.Servers[name]})
	}
	return all
}

// taken says that another server has the name already, or the one that programs would
// import it by.
func taken(others []*known, name string) error {
	for _, o := range others {
		if o.name == name {
			return fault.New(fault.Conflict, "%s has a server of that name, which counts", o.origin).WithHint("remove one of them, or give it another name")
		}
		if strings.EqualFold(stub.Package(o.name), stub.Package(name)) {
			return fault.New(fault.Conflict, "programs would import it as servers.%s, as they do %s", stub.Package(name), o.name).WithHint("give one of them another name")
		}
	}
	return nil
}

// prepareServer makes the definition of a server, with the variables of the
// environment put in.
func (p *program) prepareServer(k *known) error {
	filled := map[string]string{}
	s, err := k.server.Expand(func(name string) (string, bool) {
		value, ok := os.LookupEnv(name)
		filled[name] = value
		return value, ok
	})
	if err != nil {
		return err
	}
	d := definitionOf(k.name, s)
	d.Hide = secret.Hiding(k.credentials(s, filled))
	if err := errors.Join(d.Check(), d.Policy.Check(), checkOAuth(s.OAuth)); err != nil {
		return err
	}
	if s.URL != "" {
		if err := p.reach(k, &d, s); err != nil {
			return err
		}
	}
	k.definition, k.ready = d, s
	return nil
}

// credentials are what a server's program is given and must not give to programs: its
// variables whose names tell of a credential, and what looks like one of what it has of the
// vault and of this machine's environment. What the environment has goes by its own name as
// well, wherever it is put.
func (k *known) credentials(s config.Server, filled map[string]string) []string {
	if s.Command == "" {
		return nil // see reach
	}
	used := map[string]bool{}
	all := secret.InVariables(s.Env, func(name string) bool {
		kept := k.origin == wasAdded
		for _, of := range config.References(k.server.Env[name]) {
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
func (p *program) reach(k *known, d *broker.Definition, s config.Server) error {
	own, err := ruleFor(s.URL)
	if err != nil {
		return err
	}
	t, err := newTransport(own)
	if err != nil {
		return err
	}
	k.transports = append(k.transports, t)
	d.Transport = secret.Guard(t, sortedNames(s.Headers), s.URL) // what echoes them does not give them to programs
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
	k.issuers, k.transports = wide, append(k.transports, wide)
	k.login, err = oauth.New(p.oauthConfig(k.name, s, wide, s.OAuth.Redirect))
	d.Tokens = k.login
	return err
}

func (p *program) oauthConfig(name string, s config.Server, t http.RoundTripper, redirect string) oauth.Config {
	return oauth.Config{
		Server: name, URL: s.URL, Transport: t, Store: p.tokenFiles(), Key: tokenKey(name),
		ClientID: s.OAuth.ClientID, ClientSecret: s.OAuth.ClientSecret, Issuer: s.OAuth.Issuer, MetadataURL: s.OAuth.MetadataURL,
		Machine: s.OAuth.Grant == config.ClientCredentials, Scopes: s.OAuth.Scopes, Redirect: redirect,
	}
}

// tokenFiles are where tokens of other servers are kept, each under its tokenKey.
func (p *program) tokenFiles() *vault.Files {
	return &vault.Files{Dir: filepath.Join(p.serversFolder(), "tokens"), Sealer: p.vault()}
}

func tokenKey(server string) string { return "tokens/" + server }

// serversFolder is where the state folder has what is known of other servers.
func (p *program) serversFolder() string { return filepath.Join(p.places.state, "servers") }

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
		if text != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !loopback(u))) {
			all = append(all, fault.New(fault.Invalid, "oauth.%s is not a URL of https", name).WithHint("http is for this machine's own addresses alone"))
		}
	}
	if _, ok := localAddress(o.Redirect); o.Redirect != "" && !ok {
		all = append(all, fault.New(fault.Invalid, "oauth.redirect is not an address of this machine").WithHint("such as http://127.0.0.1:8976/callback"))
	}
	if o.Grant == config.ClientCredentials && (o.ClientID == "" || o.ClientSecret == "") {
		all = append(all, fault.New(fault.Invalid, "oauth.grant is client_credentials, and there are none").WithHint("set oauth.client_id and oauth.client_secret"))
	}
	return errors.Join(all...)
}

// localAddress reads where a login ends: at a port of this machine.
func localAddress(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, false
	}
	return u, loopback(u)
}

// checkServers finds the mistakes in the servers of the configuration, where they
// stand. What depends on a variable that is not there is not looked at.
func (p *program) checkServers() error {
	all := p.configuredServers()
	var found []misplaced
	for i, k := range all {
		at := "servers." + k.name
		s, err := k.server.Expand(os.LookupEnv)
		if err != nil {
			s = config.Server{URL: "https://host.invalid"}
		}
		d := definitionOf(k.name, s)
		found = append(found, misplaced{k.origin, at, errors.Join(d.Check(), taken(all[:i], k.name))},
			misplaced{k.origin, at + ".tools", d.Policy.Check()}, misplaced{k.origin, at + ".oauth", checkOAuth(s.OAuth)})
	}
	_, err := broker.ParseAllowlist(p.config.MCP.Allowlist)
	found = append(found, misplaced{p.config.Origin("mcp.allowlist"), "mcp.allowlist", err})
	tools := p.config.MCP.Tools
	for name, policy := range map[string]broker.Policy{"allow": {Allow: tools.Allow}, "ask": {Ask: tools.Ask}, "deny": {Deny: tools.Deny}} {
		found = append(found, misplaced{p.config.Origin("mcp.tools." + name), "mcp.tools." + name, policy.Check()})
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
	for _, e := range apart(m.err) {
		f := fault.Of(e)
		all = append(all, fault.New(fault.Invalid, "%s: %s: %s", m.origin, m.key, f.Message).WithHint("%s", f.Hint))
	}
	return all
}

// lateVault is a vault that is opened when something is to be sealed or unsealed: most
// commands need none, and a keyring may ask a person.
type lateVault struct {
	open func() (*vault.Vault, error)

	mu sync.Mutex // guards what follows
	v  *vault.Vault
}

// opened gives the vault. What went wrong is tried again the next time.
func (l *lateVault) opened() (*vault.Vault, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.v != nil {
		return l.v, nil
	}
	v, err := l.open()
	if err != nil {
		return nil, err
	}
	l.v = v
	return v, nil
}

// Seal implements [vault.Sealer].
func (l *lateVault) Seal(purpose string, plain []byte) ([]byte, error) {
	v, err := l.opened()
	if err != nil {
		return nil, err
	}
	return v.Seal(purpose, plain)
}

// Unseal implements [vault.Sealer].
func (l *lateVault) Unseal(purpose string, sealed []byte) ([]byte, error) {
	v, err := l.opened()
	if err != nil {
		return nil, err
	}
	return v.Unseal(purpose, sealed)
}

// vault gives the state folder's vault.
func (p *program) vault() *lateVault {
	if p.sealer == nil {
		p.sealer = &lateVault{open: func() (*vault.Vault, error) { return vault.Open(p.places.state, p.rings()...) }}
	}
	return p.sealer
}

// rings are the keyrings that a key may be put into. With vault.keyring = "off" there is
// none for a new key; one that is in a keyring is had from there all the same.
func (p *program) rings() []vault.Ring {
	if kept, err := vault.Kept(p.places.state); p.config.Vault.Keyring == "off" && (err != nil || kept == "") {
		return nil
	}
	return vault.System(os.Getenv)
}

// dial connects to a server, apart from all sessions.
func (p *program) dial(ctx context.Context, k *known) (*upstream.Conn, error) {
	if k.err != nil {
		return nil, k.err
	}
	return upstream.Dial(ctx, k.definition.Server, p.dialOptions(k.definition))
}

func (p *program) dialOptions(d broker.Definition) upstream.Options {
	return upstream.Options{Transport: d.Transport, Tokens: d.Tokens, Hide: d.Hide, Environ: os.Environ(), Log: p.log, Name: "paddock", Version: build().Version}
}

// findServer gives the server of a name.
func (p *program) findServer(name string) (k *known, done func(), err error) {
	all, err := p.knownServers()
	done = func() {
		for _, k := range all {
			k.close()
		}
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	i := slices.IndexFunc(all, func(k *known) bool { return k.name == name })
	if i >= 0 {
		return all[i], done, nil
	}
	done()
	var names []string
	for _, k := range all {
		names = append(names, k.name)
	}
	f := fault.New(fault.NotFound, "there is no server %q", name)
	if len(names) == 0 {
		return nil, nil, f.WithHint("paddock server add adds one")
	}
	return nil, nil, f.WithHint("%s", config.Suggest(name, names))
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// whatIs says in a line what a server is.
func whatIs(s config.Server) string {
	if s.URL != "" {
		return config.ShownURL(s.URL)
	}
	return strings.Join(append([]string{s.Command}, s.Args...), " ")
}

// transportOf is how a server is spoken to, in a word.
func transportOf(s config.Server) string {
	switch {
	case s.URL == "":
		return "stdio"
	case s.Transport == "" || s.Transport == upstream.TransportAuto:
		return "http"
	}
	return s.Transport
}
