package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// Bound is whose request it is and which session it has when it names none.
type Bound struct {
	Owner session.Owner
	// Default names the owner's default session, such as the transport's
	// SessionID: requests with the same name share one, made by the first that needs it. Empty: every call that names
	// no session gets one of its own, whose id is in the result.
	Default string
	// Session is the one that the request's address names, in place of the default one:
	// the owner's, made by the first call that needs it. Empty: it names none.
	Session session.ID
}

// Binding decides about a request. Its error is the call's.
type Binding func(context.Context, transport.Caller) (Bound, error)

// stdioKey is under what a request over stdio finds whose it is.
type stdioKey struct{}

func (s *Server) bind(ctx context.Context, from transport.Caller) (Bound, error) {
	if b, ok := ctx.Value(stdioKey{}).(Bound); ok {
		return b, nil
	}
	if s.config.Binding == nil {
		return Bound{}, fault.New(fault.Denied, "the request has no principal")
	}
	b, err := s.config.Binding(ctx, from)
	if id := transport.NamedSession(from); err == nil && id != "" {
		b.Session = id
	}
	return b, err
}

// keeps reports whether calls that name no session share one.
func (b Bound) keeps() bool { return b.Default != "" || b.Session != "" }

// defaultOf gives the session of requests that name none; empty: there is none (yet).
func (s *Server) defaultOf(b Bound) session.ID {
	if b.Session != "" {
		return b.Session
	}
	return s.defaults.get(b)
}

// callerOf is who the SDK says a request is from.
func callerOf(req mcp.Request) (c transport.Caller) {
	if ss, ok := req.GetSession().(*mcp.ServerSession); ok && ss != nil {
		c.SessionID = ss.ID()
	}
	if extra := req.GetExtra(); extra != nil {
		c.Header = extra.Header
	}
	return c
}

// defaults are the default sessions by whose they are.
type defaults struct {
	mu    sync.Mutex // guards slots; taken after a slot's own, never before
	slots map[Bound]*slot
}

// slot is one default session.
type slot struct {
	making sync.Mutex // held while the session is made, so that it is made once
	id     session.ID // guarded by defaults.mu; empty: there is none
	named  bool       // likewise: a client has named it
}

// get gives the default session of b; empty: there is none (yet).
func (d *defaults) get(b Bound) session.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[b]; s != nil {
		return s.id
	}
	return ""
}

// create gives the default session of b, and creates it where there is none.
func (d *defaults) create(b Bound, create func() (session.ID, error)) (session.ID, error) {
	d.mu.Lock()
	s := d.slots[b]
	if s == nil {
		if d.slots == nil {
			d.slots = map[Bound]*slot{}
		}
		s = &slot{}
		d.slots[b] = s
	}
	d.mu.Unlock()
	s.making.Lock()
	defer s.making.Unlock()
	if id := d.get(b); id != "" {
		return id, nil
	}
	id, err := create()
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.id, s.named = id, false
	return id, nil
}

// forget drops the default session of b if it is still id; "" drops any.
func (d *defaults) forget(b Bound, id session.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[b]; s != nil && (id == "" || s.id == id) {
		s.id = ""
	}
}

// named says that a client has named a session, which may be somebody's default.
func (d *defaults) named(owner session.Owner, id session.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for b, s := range d.slots {
		if b.Owner == owner && s.id == id {
			s.named = true
		}
	}
}

// drop forgets b altogether, as nobody will ask for it again, and gives the
// session that it had, unless a client has named that; empty: none.
func (d *defaults) drop(b Bound) (id session.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[b]; s != nil && !s.named {
		id = s.id
	}
	delete(d.slots, b)
	return id
}

// passing are the sessions that a call got because it named none, and that no
// call has named since. The client that passes no session_id on has no use for
// them: they make room for others.
type passing struct {
	mu      sync.Mutex                     // guards byOwner
	byOwner map[session.Owner][]session.ID // the oldest first
}

// mostPassing bounds how many are remembered of an owner.
const mostPassing = 1000

func (p *passing) add(owner session.Owner, id session.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byOwner == nil {
		p.byOwner = map[session.Owner][]session.ID{}
	}
	ids := append(p.byOwner[owner], id)
	p.byOwner[owner] = ids[max(0, len(ids)-mostPassing):]
}

// named says that a client uses a session.
func (p *passing) named(owner session.Owner, id session.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(owner, slices.DeleteFunc(p.byOwner[owner], func(other session.ID) bool { return other == id }))
}

// of gives those of an owner, the oldest first.
func (p *passing) of(owner session.Owner) []session.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.byOwner[owner])
}

// claim forgets one, and reports whether it was not named meanwhile.
func (p *passing) claim(owner session.Owner, id session.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := p.byOwner[owner]
	i := slices.Index(ids, id)
	if i < 0 {
		return false
	}
	p.setLocked(owner, slices.Delete(ids, i, i+1))
	return true
}

func (p *passing) setLocked(owner session.Owner, ids []session.ID) {
	if len(ids) == 0 {
		delete(p.byOwner, owner)
	} else {
		p.byOwner[owner] = ids
	}
}

// Named says that a client uses a session by its id, in whatever way: it never
// makes room for others.
func (s *Server) Named(owner session.Owner, id session.ID) {
	s.passing.named(owner, id)
	s.defaults.named(owner, id)
}

// makeRoom ends one of an owner's passing sessions in which nothing runs, and
// reports whether there was one.
func (s *Server) makeRoom(ctx context.Context, owner session.Owner) bool {
	for _, id := range s.passing.of(owner) {
		info, err := s.config.Sessions.Info(owner, id)
		if err == nil && (info.State == session.Running || info.State == session.Queued || info.Waiting != nil) {
			continue
		}
		if s.passing.claim(owner, id) && err == nil && s.config.Sessions.Destroy(ctx, owner, id) == nil {
			return true
		}
	}
	return false
}

// inSession runs f in the session that a call named, or in its default one,
// which is made with settings when there is none yet. A default session that
// has gone meanwhile is replaced, and the result's notice says so. A call that
// may make a session of the name that it gives calls [call.ensure] before.
func (c *call) inSession(ctx context.Context, given session.ID, settings session.Settings, f func(session.ID) error) error {
	if given != "" {
		c.session = given
		c.server.Named(c.bound.Owner, given)
		return f(given)
	}
	s := c.server
	had := s.defaultOf(c.bound)
	for {
		id, err := c.open(ctx, settings)
		if err != nil {
			return err
		}
		c.session = id
		if !c.bound.keeps() {
			defer s.passing.add(c.bound.Owner, id) // not before: it is in use
		}
		err = f(id)
		if id != had || fault.KindOf(err) != fault.NotFound || !s.gone(c.bound.Owner, id) {
			return err
		}
		s.defaults.forget(c.bound, id)
		had = ""
		if c.bound.Session != "" {
			continue // ensure says what there is to say
		}
		c.notice = "The session of the earlier calls has expired or been destroyed, with its variables and files. This is a new one."
	}
}

// gone reports whether a session does not exist any more; otherwise it was
// something in it that was not found.
func (s *Server) gone(owner session.Owner, id session.ID) bool {
	_, err := s.config.Sessions.Info(owner, id)
	return fault.KindOf(err) == fault.NotFound
}

// open gives the call's default session, or a new one where it has no default.
func (c *call) open(ctx context.Context, settings session.Settings) (session.ID, error) {
	create := func() (session.ID, error) { return c.create(ctx, "", settings) }
	switch {
	case c.bound.Session != "":
		return c.bound.Session, c.ensure(ctx, c.bound.Session, settings)
	case c.bound.Default == "":
		return create()
	}
	return c.server.defaults.create(c.bound, create)
}

// create makes a session; where there is no room for it, one that no client has named
// goes. An empty id: a new one. A session that gets no name has the client's, so that people
// know whose it is.
func (c *call) create(ctx context.Context, id session.ID, settings session.Settings) (session.ID, error) {
	s, owner := c.server, c.bound.Owner
	settings.Name = cmp.Or(settings.Name, c.clientName())
	info, err := s.config.Sessions.Create(ctx, owner, id, settings)
	for full(err) && s.makeRoom(ctx, owner) {
		info, err = s.config.Sessions.Create(ctx, owner, id, settings)
	}
	return info.ID, err
}

// clientName is what the client calls itself; empty: it did not say.
func (c *call) clientName() string {
	if c.Client.Info == nil {
		return ""
	}
	return strings.ToValidUTF8(textsafe.Cut(c.Client.Info.Name, 100), "")
}

// ensure makes the session of a name that a call or its address gives, where the owner has
// none of that name. An id of paddock's own making is never made again: what it stood for
// is gone, and the client has to know. An empty id needs nothing.
func (c *call) ensure(ctx context.Context, id session.ID, settings session.Settings) error {
	if id == "" {
		return nil
	}
	s, owner := c.server, c.bound.Owner
	s.Named(owner, id)
	if _, err := s.config.Sessions.Info(owner, id); fault.KindOf(err) != fault.NotFound || id.IsGenerated() {
		return err
	}
	_, err := c.create(ctx, id, settings)
	if fault.KindOf(err) == fault.Conflict && !s.gone(owner, id) { // another call was faster
		return nil
	}
	c.named = err == nil
	return err
}

// sessionLine is what a result's text says of the session that the call made; "": it
// made none. Many clients show their models the texts alone.
func (c *call) sessionLine() string {
	switch {
	case c.session == "":
		return ""
	case c.named:
		return fmt.Sprintf("session: %s (new: nothing of earlier calls is in it; later calls go on in it)", c.session)
	case c.bound.keeps():
		return ""
	}
	var given struct {
		ID json.RawMessage `json:"session_id"`
	}
	if json.Unmarshal(c.Arguments, &given) == nil && len(given.ID) > 0 {
		return ""
	}
	return fmt.Sprintf("session: %s (pass session_id to go on)", c.session)
}

// andSession adds the line about the session to what the texts say.
func (a *answer) andSession(line string) {
	if line == "" || a.inputs != nil {
		return
	}
	if len(a.texts) == 0 && len(a.shown) == 0 {
		a.texts = []string{string(a.data)}
	}
	a.texts = append(a.texts, line)
}

// full reports whether there is no room for a session until another one goes.
// What waiting helps against, such as too many in use at once, is none of that.
func full(err error) bool {
	f := fault.Of(err)
	return f != nil && f.Kind == fault.Exhausted && f.RetryAfter == 0
}
