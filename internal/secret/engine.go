package secret

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/secret/redact"
)

// Engine does what a session's proxy asks of secrets. What the session was given, and what
// that is worth, is looked at again for each request. It is for any number of goroutines.
//
// An Engine of a session that was given nothing refuses what looks like a placeholder.
type Engine struct {
	store   *Store
	session string
	among   *[]string

	mu    sync.Mutex // guards what follows
	last  *content
	given *grantRecord
	state *state
	tried time.Time      // when that was made
	older []retiredValue // values that were in use and have been replaced or removed, or were for other hosts
}

// retiredValue is a value that hosts may still have, and which those are.
type retiredValue struct {
	value   []byte
	instead string
	rules   []string // the secret's hosts, as its owner wrote them
	hosts   hosts
}

// sessionSecret is a secret that a session has.
type sessionSecret struct {
	name, id    string
	placeholder string
	gone        bool     // it was removed
	taken       bool     // sessions may not have it here any more
	err         error    // why it cannot be had; nil: it can
	rules       []string // its hosts, as its owner wrote them
	hosts       hosts
	places      places
	value       []byte
}

// state is what an Engine works with. It does not change.
type state struct {
	all      []*sessionSecret
	older    []retiredValue
	by       map[string]*sessionSecret // by placeholder
	redactor *redact.Redactor
}

// Engine gives the engine of a session, which may be given secrets before or later.
func (s *Store) Engine(session string) *Engine { return &Engine{store: s, session: session} }

// RestrictTo has the engine put in no other secrets than those of these names, whatever the
// session was given. It is called before the engine is used, and gives that.
func (e *Engine) RestrictTo(names []string) *Engine {
	names = slices.Clone(names)
	e.among = &names
	return e
}

// retryInterval is how long a value that cannot be read is not asked for again.
const retryInterval = time.Second

// nothing is what is kept of a session's that was given nothing.
var nothing = &content{Version: version}

// current gives what counts now.
func (e *Engine) current() (*state, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, _, err := e.store.grantOf(context.Background(), e.session)
	if err != nil {
		return nil, err
	}
	c := nothing
	if len(g.Secrets) > 0 { // else what is kept, or cannot be read, is nothing to it
		if c, err = e.store.content(); err != nil {
			return nil, err
		}
	}
	if e.state != nil && c == e.last && equal(g, e.given) && (e.state.unread() == nil || time.Since(e.tried) < retryInterval) {
		return e.state, nil
	}
	next := &state{by: map[string]*sessionSecret{}}
	for _, b := range g.Secrets {
		one := e.bindLocked(c.byID(b.ID), b)
		next.all = append(next.all, one)
		for _, p := range append([]string{b.Placeholder}, b.Older...) {
			next.by[p] = one
		}
	}
	e.retireLocked(next)
	next.older = slices.Clone(e.older)
	next.redactor = redact.New(e.textsLocked(next))
	e.last, e.given, e.state, e.tried = c, g, next, time.Now()
	return next, nil
}

// equal tells whether a session has what it had.
func equal(a, b *grantRecord) bool {
	return a.Session == b.Session && a.Owner == b.Owner && slices.EqualFunc(a.Secrets, b.Secrets, func(x, y binding) bool {
		return x.Name == y.Name && x.ID == y.ID && x.Placeholder == y.Placeholder && slices.Equal(x.Older, y.Older)
	})
}

// bindLocked makes what the engine has of a secret; a nil k: it was removed.
func (e *Engine) bindLocked(k *kept, b binding) *sessionSecret {
	one := &sessionSecret{name: b.Name, id: b.ID, placeholder: b.Placeholder, gone: k == nil}
	one.taken = e.among != nil && !slices.Contains(*e.among, b.Name)
	if k == nil {
		return one
	}
	one.rules = k.Hosts
	if one.hosts, one.err = parseHosts(k.Hosts); one.err == nil {
		one.places, one.err = parsePlaces(k.Places)
	}
	if one.err == nil {
		var v Value
		v, one.err = e.store.value(k)
		one.value = v.text
	}
	return one
}

// retireLocked remembers values that the next state no longer has, or has for other
// hosts, as far as there is room: the latest of them.
func (e *Engine) retireLocked(next *state) {
	if e.state == nil {
		return
	}
	for _, b := range e.state.all {
		if b.value == nil || slices.ContainsFunc(next.all, func(n *sessionSecret) bool { return bytes.Equal(n.value, b.value) && slices.Equal(n.rules, b.rules) }) {
			continue
		}
		e.older = slices.DeleteFunc(e.older, func(o retiredValue) bool { return bytes.Equal(o.value, b.value) && slices.Equal(o.rules, b.rules) })
		e.older = append(e.older, retiredValue{b.value, b.placeholder, b.rules, b.hosts})
	}
	size := 0
	for i := len(e.older) - 1; i >= 0; i-- {
		if size += len(e.older[i].value); size > maxBytes {
			e.older = slices.Clone(e.older[i+1:])
			return
		}
	}
}

// textsLocked is what no answer may have.
func (e *Engine) textsLocked(s *state) []redact.Text {
	var all []redact.Text
	for _, b := range s.all {
		all = append(all, redact.Text{Value: b.value, Instead: b.placeholder})
	}
	for _, o := range e.older {
		all = append(all, redact.Text{Value: o.value, Instead: o.instead})
	}
	return all
}

// unread says why a value is not known that answers may hold; nil: all are. It may be
// known the next time: a keyring is unlocked, say.
func (s *state) unread() error {
	for _, b := range s.all {
		if b.err != nil {
			return b.err
		}
	}
	return nil
}

// Redactor takes the session's values out of texts, as they are now. Where one of them
// cannot be read it is an error.
func (e *Engine) Redactor() (*redact.Redactor, error) {
	s, err := e.current()
	if err != nil {
		return nil, err
	}
	return s.redactor, s.unread()
}

// Request puts values in for placeholders, where the request may have them. What may not
// go is a fault.Denied, and nothing of the request is to be sent then. A body that is
// streamed, or larger than a MiB, is looked at while it is read: its reader fails where a
// placeholder begins.
func (e *Engine) Request(r *http.Request) error {
	s, err := e.current()
	if err != nil {
		return err
	}
	o, err := newOutgoing(e, s, r)
	if err != nil {
		return err
	}
	for _, step := range []func() error{o.target, o.query, o.headers, o.body} {
		if err := step(); err != nil {
			return err
		}
	}
	e.store.note(o.used)
	return nil
}

// The denials.

func errForeignPlaceholder() error {
	return fault.New(fault.Denied, "the request holds a placeholder that this session was not given").
		WithHint("a placeholder is good in one session alone: use the variable's value as it is in this one")
}

func errMalformedPlaceholder(where string) error {
	return fault.New(fault.Denied, "a secret's placeholder is in %s, where none may be, or in another form than its own", where).
		WithHint("put the variable's value as it is into the place where the secret may stand, which is a header if nothing else was said")
}

func (b *sessionSecret) errRemoved() error {
	return fault.New(fault.Denied, "the secret %s was removed", b.name).WithHint("the operator can set it again and give it to the session")
}

func (b *sessionSecret) errNotAllowed() error {
	return fault.New(fault.Denied, "the secret %s is not among those that sessions may have here now", b.name).
		WithHint("the operator can allow it, in the configuration's secrets.allow or by --secret")
}

func (b *sessionSecret) errHost(scheme, at string) error {
	if scheme == "http" && b.hosts.secure.Names(at) {
		return fault.New(fault.Denied, "the secret %s does not go to %s without TLS", b.name, at).WithHint("use https")
	}
	return fault.New(fault.Denied, "the secret %s may not go to %s", b.name, at).
		WithHint("the operator can allow it, where the secret is set: paddock secret set %s --host", b.name)
}

func (b *sessionSecret) errPlace(where, place string) error {
	return fault.New(fault.Denied, "the secret %s is not allowed in %s", b.name, where).
		WithHint("the operator can allow it, where the secret is set: paddock secret set %s --in %s", b.name, place)
}
