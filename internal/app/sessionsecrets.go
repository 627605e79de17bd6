package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"paddock/internal/audit"
	"paddock/internal/egress"
	"paddock/internal/fault"
	"paddock/internal/secret"
	"paddock/internal/session"
	"paddock/internal/skill"
	"paddock/internal/textsafe"
)

// sessionSecrets is how sessions have secrets: those that the operator names, of those that are
// kept for their owners. A session may be made with fewer, and never has more.
type sessionSecrets struct {
	sessions *session.Manager
	store    *secret.Store
	allow    []string      // names
	policy   egress.Policy // what programs reach
	warn     func(msg string, args ...any)
	audit    *audit.Log

	jobs sync.WaitGroup
	stop context.CancelFunc

	mu      sync.Mutex // guards what follows
	engines map[sessionKey]*secret.Engine
}

// allowSecret says in refusals where a person allows a secret.
const allowSecret = "in the configuration's secrets.allow, by --secret or PADDOCK_SECRETS_ALLOW"

// newSessionSecrets makes it, where programs reach what policy allows.
func (b *base) newSessionSecrets(sessions *session.Manager, policy egress.Policy) *sessionSecrets {
	return &sessionSecrets{
		sessions: sessions, store: b.Secrets(), allow: b.Config.Secrets.Allow, policy: policy, warn: b.Log.Warn, audit: b.Audit,
		stop: func() {}, engines: map[sessionKey]*secret.Engine{},
	}
}

// keyOf is what the store knows a session by. Sessions of two owners may have one ID,
// which has no slash in it.
func keyOf(owner session.Owner, id session.ID) string { return string(owner) + "/" + string(id) }

// Choose implements [session.Secrets].
func (g *sessionSecrets) Choose(owner session.Owner, wish *[]string) ([]string, error) {
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

// Give implements [session.Secrets]. It records the names: what cannot be recorded is not
// given. A session of the same name may have ended without a word; its secrets are forgotten.
func (g *sessionSecrets) Give(owner session.Owner, id session.ID, names []string, parent session.ID) error {
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
	err := g.audit.Write(context.Background(), r)
	if err != nil {
		err = errors.Join(err, g.store.Forget(gift.Session))
	}
	return err
}

// Variables implements [session.Secrets].
func (g *sessionSecrets) Variables(owner session.Owner, id session.ID) (map[string]string, error) {
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

// Record implements [session.Observer].
func (g *sessionSecrets) Record(context.Context, session.Event) error { return nil }

// Removed implements [session.Observer].
func (g *sessionSecrets) Removed(owner session.Owner, id session.ID) {
	if err := g.store.Forget(keyOf(owner, id)); err != nil {
		g.warn("which secrets a session had is not forgotten", "session", id, "cause", fault.CauseOf(err))
	}
}

// release lets go of a session's engine: this process has the session no more.
func (g *sessionSecrets) release(owner session.Owner, id session.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.engines, sessionKey{owner, id})
}

// Clean implements [session.Secrets].
func (g *sessionSecrets) Clean(owner session.Owner, id session.ID, text []byte) ([]byte, error) {
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
			g.warn("what was given to sessions that have ended is not forgotten", "cause", fault.CauseOf(err))
		}
	})
}

func (g *sessionSecrets) tellLacking() {
	if len(g.allow) == 0 {
		return
	}
	kept, err := g.keptFor(session.Local)
	if err != nil {
		g.warn("the secrets cannot be read", "cause", fault.CauseOf(err))
		return
	}
	for _, name := range g.allow {
		if !kept[name] {
			g.warn("sessions do not have a secret yet, as it is not kept for the local user: paddock secret set", "name", name)
		}
	}
	far, _ := g.unreached(session.Local, g.allow, g.policy) // what could be read just now
	for _, text := range far {
		g.warn(text)
	}
}

// Close ends what works in the background.
func (g *sessionSecrets) Close() error {
	g.stop()
	g.jobs.Wait()
	return nil
}

// Unreachable warns of those of these secrets of the local user whose hosts programs do not
// reach.
func (a *App) Unreachable(names []string) (warnings []string, err error) {
	return a.secrets.unreached(session.Local, names, a.secrets.policy)
}

// Grants are what a session is made with.
type Grants struct{ Hosts, Secrets []string }

// Declared gives what a skill declares of what sessions of the local user may have. The
// warnings tell what is missing of it.
func (a *App) Declared(m skill.Manifest) (g Grants, warnings []string, err error) {
	g = Grants{Hosts: []string{}, Secrets: []string{}}
	for _, rule := range m.Hosts {
		if err := a.network.Check([]string{rule}); err != nil {
			warnings = append(warnings, "the skill declares the host "+textsafe.Escape(rule)+", which programs may not reach here: --net-allow or network.allow lets them")
			continue
		}
		g.Hosts = append(g.Hosts, rule)
	}
	kept, err := a.secrets.keptFor(session.Local)
	if err != nil {
		return g, warnings, err
	}
	for _, name := range m.Secrets {
		if err := a.secrets.check(name, kept[name]); err != nil {
			warnings = append(warnings, "the skill declares the secret "+textsafe.Escape(name)+": "+fault.Of(err).Message)
			continue
		}
		g.Secrets = append(g.Secrets, name)
	}
	reach, err := a.network.first.narrowed(&g.Hosts)
	if err != nil {
		return g, warnings, err
	}
	far, err := a.secrets.unreached(session.Local, g.Secrets, reach)
	return g, append(warnings, far...), err
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
				all = append(all, fmt.Sprintf("the secret %s is for %s, which programs may not reach: --net-allow or network.allow lets them", textsafe.Escape(name), textsafe.Escape(shortList(far))))
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
