package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"paddock/internal/audit"
	"paddock/internal/egress"
	"paddock/internal/egress/proxy"
	"paddock/internal/egress/streams"
	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/proxyenv"
	"paddock/internal/session"
	"paddock/internal/trust"
)

// network is how what sessions' programs send leaves this host: by one proxy for each
// session that this process has open.
type network struct {
	sessions *session.Manager
	secrets  *sessionSecrets
	first    operatorPolicy // machines have a way out where these leave one
	budgets  proxy.Budgets
	packages *pkgproxy.Packages // reached whatever the rules say; nil: no packages
	seeds    caSeeds
	record   func(session.Owner, proxy.Record)
	log      *slog.Logger

	// now is what the operator allows now. Proxies are made and changed under changing, so
	// that each has the newest.
	now      atomic.Pointer[operatorPolicy]
	changing sync.RWMutex
	follower follower
	// ofProject says that the configuration came with the working folder.
	ofProject bool

	mu      sync.Mutex // guards what follows
	proxies map[sessionKey]*sessionProxy
}

// operatorPolicy is what the operator allows.
type operatorPolicy struct {
	rules  []string
	policy egress.Policy
}

// sessionKey names a session.
type sessionKey struct {
	owner session.Owner
	id    session.ID
}

// sessionProxy is a session's proxy, with the streams of guests that have no sockets.
type sessionProxy struct {
	make sync.Once
	*proxy.Proxy
	streams *streams.Table
	wished  *[]string // the session's rules
	open    bool      // guarded by network.changing
	err     error
}

// allowance says in refusals where a person allows a host.
const allowance = "in the configuration's network.allow, by --net-allow or PADDOCK_NET_ALLOW"

// newNetwork makes the sessions' network. first is what the operator allows when the process
// begins; secrets are put into requests and taken out of answers.
func (b *base) newNetwork(sessions *session.Manager, secrets *sessionSecrets, first operatorPolicy) *network {
	c := b.Config.Network
	n := &network{
		sessions: sessions, secrets: secrets, first: first, packages: b.packages, record: b.recordRequest, log: b.Log,
		proxies: map[sessionKey]*sessionProxy{}, ofProject: b.Config.OfProject,
		seeds:   caSeeds{dir: b.StateDir, vault: b.Vault()},
		budgets: proxy.Budgets{Sent: c.SentBytes, Received: c.ReceivedBytes, Requests: c.Requests},
	}
	n.now.Store(&first)
	n.follow(b.Source, filepath.Join(b.StateDir, trust.File))
	return n
}

// folder shows programs of machines how to get out.
func (n *network) folder() session.Folder {
	return session.Folder{Name: proxyenv.Folder, Machines: true, Refresh: n.fill}
}

// parseOperatorPolicy reads the operator's rules.
func parseOperatorPolicy(rules []string) (operatorPolicy, error) {
	policy, err := egress.Parse(rules, egress.Rights{All: true, Private: true, Requests: true})
	return operatorPolicy{rules, policy}, err
}

// Machine implements [session.Network]. It is nil where nothing may leave the machine, which
// then has no proxy. The rules at the beginning of the process decide that: a machine that is
// booted keeps what it has.
func (n *network) Machine(owner session.Owner, id session.ID, set session.Settings) *session.MachineNetwork {
	if policy, err := n.first.narrowed(set.Network); n.packages == nil && (err != nil || policy.Empty()) {
		return nil
	}
	env := proxyenv.Environment()
	if n.packages != nil {
		maps.Copy(env, pkgproxy.Environment("http://"+pkgproxy.Host))
	}
	return &session.MachineNetwork{Proxy: func(ctx context.Context, conn net.Conn) { n.proxy(ctx, owner, id, conn) }, Env: env}
}

// Check implements [session.Network]: a session's rules are a part of the operator's. What
// is above a host, as *.example.com, may always be asked for.
func (n *network) Check(rules []string) error {
	if _, err := egress.Parse(rules, wishes); err != nil {
		return errors.Join(fault.Apart(err)[:1]...)
	}
	now := n.now.Load()
	if now.policy.Empty() {
		return fault.New(fault.Denied, "programs have no network here, so no session can reach %s", shortList(rules)).
			WithHint("omit network; the operator can allow hosts, %s", allowance)
	}
	for _, rule := range rules {
		if host := ruleHost(rule); host != "" && !now.policy.Names(host) {
			return fault.New(fault.Denied, "%s is not among the hosts that sessions may reach here", host).
				WithHint("these are: %s; the operator can allow more, %s", shortList(now.rules), allowance)
		}
	}
	return nil
}

// wishes are the rights of a client that creates a session.
var wishes = egress.Rights{Requests: true}

// ruleHost is the host that a rule names; "": what it names are many.
func ruleHost(rule string) string {
	if _, after, ok := strings.Cut(rule, " "); ok {
		rule = after
	}
	rule, _, _ = strings.Cut(rule, "/")
	if strings.HasPrefix(rule, "*") || strings.HasPrefix(rule, ".") {
		return ""
	}
	if host, _, err := net.SplitHostPort(rule); err == nil {
		return host
	}
	return strings.Trim(rule, "[]")
}

// shortList names the first rules of a list.
func shortList(rules []string) string {
	const most = 10
	if len(rules) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(rules[:most], ", "), len(rules)-most)
	}
	return strings.Join(rules, ", ")
}

// narrowed is what the operator's rules leave of a session's. A session without rules of its
// own (nil) has all of them.
func (o operatorPolicy) narrowed(wished *[]string) (egress.Policy, error) {
	if wished == nil {
		return o.policy, nil
	}
	wish, err := egress.Parse(*wished, wishes)
	if err != nil {
		return egress.Policy{}, err
	}
	return o.policy.Narrow(wish), nil
}

// Reaches are the rules that say what a session reaches. wished is nil for a session that was
// created without rules.
func (n *network) Reaches(wished *[]string) []string {
	now := n.now.Load()
	if wished == nil {
		return now.rules
	}
	var all []string
	for _, rule := range *wished {
		if host := ruleHost(rule); !now.policy.Empty() && (host == "" || now.policy.Names(host)) {
			all = append(all, rule)
		}
	}
	return all
}

// find gives a session's proxy, if it has one.
func (n *network) find(k sessionKey) *sessionProxy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxies[k]
}

// proxyFor gives a session's proxy, which is made when it is first asked for.
func (n *network) proxyFor(owner session.Owner, id session.ID) (*sessionProxy, error) {
	k := sessionKey{owner, id}
	n.mu.Lock()
	d := n.proxies[k]
	if d == nil {
		d = &sessionProxy{}
		n.proxies[k] = d
	}
	n.mu.Unlock()
	d.make.Do(func() { d.err = n.open(d, k) })
	if d.err != nil {
		n.remove(k, d) // the next one tries again
	}
	return d, d.err
}

// remove takes a proxy out, unless another one is there by now.
func (n *network) remove(k sessionKey, d *sessionProxy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxies[k] == d {
		delete(n.proxies, k)
	}
}

// open makes a session's proxy.
func (n *network) open(d *sessionProxy, k sessionKey) error {
	info, err := n.sessions.Info(k.owner, k.id)
	if err != nil {
		return fmt.Errorf("looking at the session: %w", err)
	}
	n.changing.RLock()
	defer n.changing.RUnlock()
	policy, err := n.now.Load().narrowed(info.Settings.Network)
	if err != nil {
		n.log.Warn("a session's rules cannot be read: it has no network", "session", k.id, "cause", fault.CauseOf(err))
	}
	allow := allowance
	if info.Settings.Network != nil {
		allow += ", and a session can be created that may reach it"
	}
	var seed []byte
	if info.Isolation == sandboxIsolation { // in the others no TLS ends at the proxy
		if seed, err = n.seeds.of(k.owner); err != nil {
			n.log.Warn("restored machines will not trust this session's CA", "cause", fault.CauseOf(err))
		}
	}
	used := info.Traffic
	d.Proxy, err = proxy.New(proxy.Config{
		Session: string(k.id), Policy: policy, Local: n.local(k.owner), Budgets: n.budgets, Allow: allow, Seed: seed, Secrets: n.secrets.engine(k.owner, k.id), Log: n.log,
		Used:   proxy.Usage{Requests: used.Requests, Sent: used.Sent, Received: used.Received},
		Record: func(r proxy.Record) { n.record(k.owner, r) },
	})
	if err != nil {
		return err
	}
	d.streams = streams.New(streams.Config{Proxy: d.Proxy, Allow: allowance})
	d.wished, d.open = info.Settings.Network, true
	return nil
}

// local are the hosts that paddock itself is for each of an owner's sessions.
func (n *network) local(owner session.Owner) map[string]http.Handler {
	if n.packages == nil {
		return nil
	}
	return map[string]http.Handler{pkgproxy.Host: n.packages.Handler(string(owner))}
}

// answer answers a message of a guest that has no sockets.
func (n *network) answer(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	run.InBackground()
	d, err := n.proxyFor(run.Owner, run.Session)
	if err != nil {
		n.log.ErrorContext(ctx, "a session's network cannot be opened", "session", run.Session, "cause", fault.CauseOf(err))
		return []byte(`{"error":{"kind":"unreachable","message":"the session's network cannot be opened; the server's log says why"}}`)
	}
	return d.streams.Answer(ctx, c.Body)
}

// proxy serves a connection of a program in a machine.
func (n *network) proxy(ctx context.Context, owner session.Owner, id session.ID, conn net.Conn) {
	d, err := n.proxyFor(owner, id)
	if err != nil {
		n.log.ErrorContext(ctx, "a session's network cannot be opened", "session", id, "cause", fault.CauseOf(err))
		return // its end is all that the program is told
	}
	d.ServeProxy(ctx, conn)
}

// fill shows a machine's programs what they need to find the way out, where there is one.
func (n *network) fill(_ context.Context, owner session.Owner, id session.ID, dir string) error {
	info, err := n.sessions.Info(owner, id)
	if err != nil {
		return err
	}
	if n.Machine(owner, id, info.Settings) == nil {
		return proxyenv.Fill(dir, nil)
	}
	d, err := n.proxyFor(owner, id)
	if err != nil {
		return err
	}
	return proxyenv.Fill(dir, d.CA())
}

// Used implements [session.Network].
func (n *network) Used(owner session.Owner, id session.ID) (session.Traffic, bool) {
	d := n.find(sessionKey{owner, id})
	if !d.made() {
		return session.Traffic{}, false
	}
	u := d.Usage()
	return session.Traffic{Requests: u.Requests, Sent: u.Sent, Received: u.Received}, true
}

// made reports whether there is a proxy in it. It waits for one that is being made.
func (d *sessionProxy) made() bool {
	if d == nil {
		return false
	}
	d.make.Do(func() { d.err = errLetGo })
	return d.err == nil
}

var errLetGo = fault.New(fault.Unavailable, "the session is closed").WithHint("run the program again")

// maxRefusals is how many refusals a result tells of.
const maxRefusals = 3

// Refused implements [session.Network].
func (n *network) Refused(owner session.Owner, id session.ID) string {
	d := n.find(sessionKey{owner, id})
	if !d.made() {
		return ""
	}
	all := d.Denials()
	if len(all) == 0 {
		return ""
	}
	var said []string
	for _, one := range all[:min(len(all), maxRefusals)] {
		text := one.Message
		if one.Count > 1 {
			text += fmt.Sprintf(" (%d times)", one.Count)
		}
		if hint := n.hint(one); hint != "" {
			text += ": " + hint
		}
		said = append(said, text)
	}
	if more := len(all) - len(said); more > 0 {
		said = append(said, fmt.Sprintf("%d more requests were refused", more))
	}
	return "Network: " + strings.Join(said, "; ") + "."
}

// hint says what can be done about a refusal.
func (n *network) hint(one proxy.Denial) string {
	if one.Cause == "host" && n.now.Load().policy.Reach(one.Host, one.Port) == nil {
		return "this session was created with fewer hosts; create_session makes one that reaches it"
	}
	return one.Hint
}

// Disconnect implements [session.Network].
func (n *network) Disconnect(owner session.Owner, id session.ID) {
	k := sessionKey{owner, id}
	if d := n.find(k); d != nil {
		n.remove(k, d)
		n.shut(d)
	}
	n.secrets.release(owner, id)
}

// shut closes a proxy that is in the table no more.
func (n *network) shut(d *sessionProxy) {
	if !d.made() {
		return
	}
	if err := errors.Join(d.streams.Close(), d.Proxy.Close()); err != nil {
		n.log.Warn("a session's network was not closed cleanly", "cause", err)
	}
}

// Close closes every proxy. The sessions are closed by then.
func (n *network) Close() error {
	n.follower.close()
	n.mu.Lock()
	all := n.proxies
	n.proxies = map[sessionKey]*sessionProxy{}
	n.mu.Unlock()
	for _, d := range all {
		n.shut(d)
	}
	return nil
}

// recordRequest records and measures a request that a session's program sent.
func (b *base) recordRequest(owner session.Owner, r proxy.Record) {
	ctx := context.Background()
	b.telemetry.Egress(ctx, string(r.Decision), r.Duration, r.Sent, r.Received)
	b.note(ctx, recordedRequest(owner, r))
}

func recordedRequest(owner session.Owner, r proxy.Record) audit.Record {
	out := audit.Record{
		Action: audit.Egress, Principal: string(owner), Session: r.Session, Verdict: string(r.Decision), Outcome: audit.Success,
		Reason: r.Cause, TookMS: milliseconds(r.Duration),
		Sent: &audit.Sent{Method: r.Method, PathDigest: r.Path, Rule: r.Rule, Status: r.Status, BytesSent: r.Sent, BytesReceived: r.Received},
	}
	if r.Host != "" {
		out.Target = net.JoinHostPort(r.Host, fmt.Sprint(r.Port))
		if r.Scheme != "" {
			out.Target = r.Scheme + "://" + out.Target
		}
	}
	switch {
	case r.Decision == proxy.Denied:
		out.Outcome, out.ErrorType = audit.Error, string(fault.Denied)
	case r.Decision == proxy.Exhausted:
		out.Outcome, out.ErrorType = audit.Error, string(fault.Exhausted)
	case r.Cause != "":
		out.Outcome, out.ErrorType = audit.Error, cmp.Or(r.Cause, string(fault.Unavailable))
	}
	return out
}
