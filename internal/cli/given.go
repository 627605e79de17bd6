package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"paddock/internal/audit"
	"paddock/internal/bindings/broker"
	"paddock/internal/egress"
	"paddock/internal/egress/streams"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/secret"
	"paddock/internal/session"
	"paddock/internal/skill"
)

// sessionSecrets is how sessions have secrets: those that the operator names, of those that are
// kept for their owners. A session may be made with fewer, and never has more.
type sessionSecrets struct {
	store  *secret.Store
	allow  []string      // names
	policy egress.Policy // what programs reach
	// sessions tells what sessions are; it is set before any of them is made.
	sessions *session.Manager
	fail     func(msg string, args ...any) // logs what nobody else is told
	record   func(context.Context, audit.Record) error

	jobs sync.WaitGroup
	stop context.CancelFunc

	mu      sync.Mutex // guards what follows
	engines map[sessionKey]*secret.Engine
}

// allowSecret says in refusals where a person allows a secret.
const allowSecret = "in the configuration's secrets.allow, by --secret or PADDOCK_SECRETS_ALLOW"

// openSecrets makes it, and puts it into the sessions' configuration.
func (p *program) openSecrets(sc *session.Config, n *network, log *audit.Log) *sessionSecrets {
	g := &sessionSecrets{
		store: p.secrets(), allow: p.config.Secrets.Allow, policy: n.first.policy, fail: p.log.Warn, record: log.Write, stop: func() {},
		engines: map[sessionKey]*secret.Engine{},
	}
	sc.Secrets = session.Secrets{Choose: g.choose, Give: g.give, Variables: g.variables}
	forget, letGo := sc.OnRemoved, sc.Egress.Close
	sc.OnRemoved = func(owner session.Owner, id session.ID) {
		if forget != nil {
			forget(owner, id)
		}
		if err := g.store.Forget(keyOf(owner, id)); err != nil {
			g.fail("which secrets a session had is not forgotten", "session", id, "cause", fault.CauseOf(err))
		}
	}
	sc.Egress.Close = func(owner session.Owner, id session.ID) {
		letGo(owner, id)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.engines, sessionKey{owner, id})
	}
	sc.Call = g.cleaning(sc.Call)
	n.secrets = g.engine
	return g
}

// keyOf is what the store knows a session by. Sessions of two owners may have one ID,
// which has no slash in it.
func keyOf(owner session.Owner, id session.ID) string { return string(owner) + "/" + string(id) }

// choose gives the names of the secrets that a session is made with.
func (g *sessionSecrets) choose(owner session.Owner, wish *[]string) ([]string, error) {
	if len(g.allow) == 0 && wish == nil {
		return nil, nil
	}
	kept, err := g.keptFor(owner)
	if err != nil {
		return nil, err
	}
	var names []string
	if wish == nil {
		for _, name := range g.allow {
			if kept[name] {
				names = append(names, name)
			}
		}
		return names, nil
	}
	for _, name := range *wish {
		if err := g.check(name, kept[name]); err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// check says why a session cannot be made with a secret.
func (g *sessionSecrets) check(name string, kept bool) error {
	if err := secret.CheckName(name); err != nil {
		return err
	}
	switch {
	case len(g.allow) == 0:
		return fault.New(fault.Denied, "sessions have no secrets here, so none has %s", name).
			WithHint("omit secrets; the operator can allow some, %s", allowSecret)
	case !slices.Contains(g.allow, name):
		return fault.New(fault.Denied, "%s is not among the secrets that sessions may have here", name).
			WithHint("these are: %s; the operator can allow more, %s", shortList(g.allow), allowSecret)
	case !kept:
		return fault.New(fault.NotFound, "there is no secret %s", name).WithHint("the operator can keep one: paddock secret set %s", name)
	}
	return nil
}

// keptFor are the names of the secrets that are kept for an owner.
func (g *sessionSecrets) keptFor(owner session.Owner) (map[string]bool, error) {
	entries, err := g.store.List()
	kept := map[string]bool{}
	for _, e := range entries {
		if e.Owner == string(owner) {
			kept[e.Name] = true
		}
	}
	return kept, err
}

// give has a session that is being made have secrets, and records their names: what cannot
// be recorded is not given. What a session of its name had, of whom nobody was told that it
// has ended, is none of them.
func (g *sessionSecrets) give(owner session.Owner, id session.ID, names []string, parent session.ID) error {
	gift := secret.GrantRequest{Session: keyOf(owner, id), Owner: string(owner), Names: names}
	if parent != "" && len(names) > 0 {
		kept, err := g.keptFor(owner)
		if err != nil {
			return err
		}
		gift.From = keyOf(owner, parent)
		gift.Names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !kept[name] })
	}
	if err := g.store.Forget(gift.Session); err != nil {
		return err
	}
	if len(names) == 0 {
		return nil
	}
	if _, err := g.store.Grant(gift); err != nil || len(gift.Names) == 0 {
		return err
	}
	r := audit.Record{Action: audit.SecretGive, Principal: string(owner), Session: string(id), Target: strings.Join(gift.Names, " "), Outcome: audit.Success}
	if parent != "" {
		r.Reason = "fork of " + string(parent)
	}
	err := g.record(context.Background(), r)
	if err != nil {
		err = errors.Join(err, g.store.Forget(gift.Session))
	}
	return err
}

func (g *sessionSecrets) variables(owner session.Owner, id session.ID) (map[string]string, error) {
	return g.store.Variables(keyOf(owner, id))
}

// engine does a session's secrets' work, as long as this process has the session.
func (g *sessionSecrets) engine(owner session.Owner, id session.ID) *secret.Engine {
	k := sessionKey{owner, id}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.engines[k] == nil {
		g.engines[k] = g.store.Engine(keyOf(owner, id)).RestrictTo(g.allow)
	}
	return g.engines[k]
}

// cleaning takes values out of what tools answer: a server may know them from elsewhere.
func (g *sessionSecrets) cleaning(call func(context.Context, session.Run, sandbox.Call) []byte) func(context.Context, session.Run, sandbox.Call) []byte {
	if call == nil {
		return nil
	}
	return func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		if streams.Asked(c.Body) { // at the proxy it was done
			return call(ctx, run, c)
		}
		info, err := g.sessions.Info(run.Owner, run.Session)
		if err == nil && info.Settings.Secrets == nil {
			return call(ctx, run, c)
		}
		engine := g.engine(run.Owner, run.Session)
		if put := run.Put; put != nil {
			run.Put = func(name string, data []byte) (string, error) {
				values, err := engine.Redactor()
				if err != nil {
					return "", err
				}
				return put(name, values.Bytes(data))
			}
		}
		answer := call(broker.WithClean(ctx, func(text []byte) []byte {
			values, err := engine.Redactor()
			if err != nil {
				return nil // nor is the answer passed on
			}
			return values.Bytes(text)
		}), run, c)
		values, err := engine.Redactor()
		if err != nil {
			g.fail("what a tool answered is not passed on, as it might hold secrets", "session", run.Session, "cause", fault.CauseOf(err))
			return refusal("the session's secrets cannot be read, so what the tool answered is not passed on; the server's log says why")
		}
		return values.Bytes(answer)
	}
}

// clean takes a session's values out of what is written down.
func (g *sessionSecrets) clean(owner session.Owner, id session.ID, text []byte) ([]byte, error) {
	values, err := g.engine(owner, id).Redactor()
	if err != nil {
		return nil, err
	}
	return values.Bytes(text), nil
}

// begin logs what keeps the local user's programs from using secrets, and forgets, in the
// background, what was given to sessions that are no more.
func (g *sessionSecrets) begin() {
	g.tellLacking()
	var ctx context.Context
	ctx, g.stop = context.WithCancel(context.Background())
	g.jobs.Go(func() {
		err := g.store.Sweep(ctx, func(key string) bool {
			slash := strings.LastIndexByte(key, '/')
			if slash < 0 {
				return false
			}
			_, err := g.sessions.Info(session.Owner(key[:slash]), session.ID(key[slash+1:]))
			return fault.KindOf(err) != fault.NotFound || err == nil
		})
		if err != nil && ctx.Err() == nil {
			g.fail("what was given to sessions that have ended is not forgotten", "cause", fault.CauseOf(err))
		}
	})
}

func (g *sessionSecrets) tellLacking() {
	if len(g.allow) == 0 {
		return
	}
	kept, err := g.keptFor(session.Local)
	if err != nil {
		g.fail("the secrets cannot be read", "cause", fault.CauseOf(err))
		return
	}
	for _, name := range g.allow {
		if !kept[name] {
			g.fail("sessions do not have a secret yet, as it is not kept for the local user: paddock secret set", "name", name)
		}
	}
	far, _ := g.unreached(session.Local, g.allow, g.policy) // what could be read just now
	for _, text := range far {
		g.fail(text)
	}
}

// Close ends what works in the background.
func (g *sessionSecrets) Close() error {
	g.stop()
	g.jobs.Wait()
	return nil
}

// lacks warns whoever runs a program of what keeps it from using the secrets that were
// named, and says whether its session, where it was named, can have them.
func (p *program) lacks(o *parts, f runFlags) error {
	if f.secrets == nil {
		return nil
	}
	if f.session != "" {
		info, err := o.sessions.Info(session.Local, session.ID(f.session))
		if err != nil {
			return unknownSession(err)
		}
		for _, name := range *f.secrets {
			if had := info.Settings.Secrets; had == nil || !slices.Contains(*had, name) {
				return usage("the session %s was made without the secret %s", plain(f.session), name).
					WithHint("leave --secret away, or --session: a session has the secrets that it is made with")
			}
		}
	}
	far, err := o.given.unreached(session.Local, *f.secrets, o.given.policy)
	for _, text := range far {
		p.say("warning", text)
	}
	return err
}

// declared has a session be made with what a skill declares, of what sessions may have,
// and tells what is missing of it.
func (p *program) declared(o *parts, m skill.Manifest, f *runFlags) error {
	hosts, secrets := []string{}, []string{}
	for _, rule := range m.Hosts {
		if err := o.network.check([]string{rule}); err != nil {
			p.say("warning", "the skill declares the host "+plain(rule)+", which programs may not reach here: --net-allow or network.allow lets them")
			continue
		}
		hosts = append(hosts, rule)
	}
	kept, err := o.given.keptFor(session.Local)
	if err != nil {
		return err
	}
	for _, name := range m.Secrets {
		if err := o.given.check(name, kept[name]); err != nil {
			p.say("warning", "the skill declares the secret "+plain(name)+": "+fault.Of(err).Message)
			continue
		}
		secrets = append(secrets, name)
	}
	wish, err := o.network.first.narrowed(&hosts)
	if err != nil {
		return err
	}
	far, err := o.given.unreached(session.Local, secrets, wish)
	for _, text := range far {
		p.say("warning", text)
	}
	f.network, f.secrets = &hosts, &secrets
	return err
}

// unreached warns of secrets of these names, in their order, whose hosts programs do not
// reach. Of those that are not kept nothing is said.
func (g *sessionSecrets) unreached(owner session.Owner, names []string, reach egress.Policy) ([]string, error) {
	entries, err := g.store.List()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		for _, e := range entries {
			if e.Owner != string(owner) || e.Name != name {
				continue
			}
			far := slices.DeleteFunc(goalsOf(e.Hosts), func(host string) bool { return host == "" || reach.Names(host) })
			if len(far) == len(e.Hosts) {
				all = append(all, fmt.Sprintf("the secret %s is for %s, which programs may not reach: --net-allow or network.allow lets them", name, plain(shortList(far))))
			}
		}
	}
	return all, nil
}

// goalsOf are the hosts of a secret; "": many.
func goalsOf(rules []string) (all []string) {
	for _, rule := range rules {
		all = append(all, ruleHost(strings.TrimSuffix(strings.TrimPrefix(rule, "http://"), "!private")))
	}
	return all
}
