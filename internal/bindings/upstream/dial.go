package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"paddock/internal/secret/redact"
)

// Era is which of the protocol's ways a server speaks.
type Era string

// The eras.
const (
	Modern    Era = "modern"     // 2026-07-28: no sessions
	Legacy    Era = "legacy"     // what was before
	LegacySSE Era = "legacy-sse" // the same over two HTTP endpoints
)

// Eras remembers which era a server speaks, by a key that tells nothing else. It may
// forget, and may be wrong: then it costs time. It is used by many goroutines.
type Eras interface {
	Era(key string) Era // "": not known
	Remember(key string, era Era)
}

// NewEras gives Eras that last as long as the process.
func NewEras() Eras { return &memory{known: map[string]Era{}} }

type memory struct {
	mu    sync.Mutex // guards what follows
	known map[string]Era
}

// Era gives what was remembered.
func (m *memory) Era(key string) Era {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[key]
}

// Remember keeps it.
func (m *memory) Remember(key string, era Era) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known[key] = era
}

// Options are what a connection is made with. The zero value reaches no network, and
// gives programs an empty environment.
type Options struct {
	// Transport sends the requests; nil: servers with a URL are refused. It decides
	// which addresses may be reached, and is shared: it should keep more idle
	// connections per host than Go's default of two.
	Transport http.RoundTripper
	// Tokens gives the server's bearer tokens; nil: none are sent.
	Tokens TokenSource
	// Hide is taken out of all that a program says, messages and standard error; nil:
	// nothing is. Of servers with a URL the Transport does so.
	Hide *redact.Redactor
	// Environ is paddock's own environment ("NAME=value"), of which programs get PATH,
	// HOME, LANG and TMPDIR; nil: nothing.
	Environ []string
	// Eras remembers eras; nil: each time is the first.
	Eras Eras
	// Changed is told that the server's list of tools may have changed: it says so, or
	// an error does. It is called from goroutines that read, must not wait, and may be
	// called often; nil: nobody is.
	Changed func()
	// Log gets what is worth an operator's look, and no contents; nil: nowhere.
	Log *slog.Logger
	// Name and Version are what the server is told about who calls; empty: paddock, 0.
	Name, Version string
}

const (
	// probeCommand is how long a program may be silent when it is asked for the modern
	// era, before it is started again for the legacy one: the slowest of the reference
	// servers has answered within 0.6 s, and some that are older never do.
	probeCommand = 3 * time.Second
	// probeHTTP is the same for a URL, where nothing has to be started again.
	probeHTTP = 10 * time.Second
	// handshake bounds it all: a program may have to be fetched before it starts.
	handshake = 60 * time.Second
)

// Dial connects to a server and agrees with it upon a revision of the protocol. ctx
// bounds that alone, and so does a minute. The connection is the caller's to close. An
// error is an *Error, or a fault where the definition itself is wrong; nothing is left
// behind.
func Dial(ctx context.Context, s Server, o Options) (*Conn, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Eras == nil {
		o.Eras = NewEras()
	}
	c := newConn(s, o)
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	d := &dialing{conn: c, options: o}
	if err := d.connect(ctx); err != nil {
		c.end(errClosed)
		p := *asProblem(err, true)
		p.sent = false // whatever was sent to make a connection, no call was
		return nil, report(s, "", d.drop(), &p)
	}
	o.Eras.Remember(s.Place(), c.era)
	if c.changes {
		c.tasks.Go(c.watch)
	}
	return c, nil
}

func newConn(s Server, o Options) *Conn {
	c := &Conn{server: s, log: o.Log, client: identity{"paddock", "0"}, progress: map[int64]func(Progress){}}
	if o.Name != "" {
		c.client.Name = o.Name
	}
	if o.Version != "" {
		c.client.Version = o.Version
	}
	c.list.turn, c.list.changed = make(chan struct{}, 1), o.Changed
	c.life, c.end = context.WithCancelCause(context.Background())
	return c
}

// dialing is a connection that is being made.
type dialing struct {
	conn    *Conn
	options Options
}

// connect finds the era: the remembered one is tried first.
func (d *dialing) connect(ctx context.Context) error {
	c := d.conn
	if c.server.Transport == TransportSSE {
		return d.as(ctx, LegacySSE)
	}
	era := d.options.Eras.Era(c.server.Place())
	if era != "" && (era != LegacySSE || c.server.Transport != TransportHTTP) {
		err := d.as(ctx, era)
		if err == nil || !isWrongGeneration(err) || ctx.Err() != nil {
			return err
		}
		c.log.Info("a server speaks another era of the protocol than before", "server", c.server.Name)
	}
	err := d.probe(ctx)
	if err == nil || c.server.URL == "" || c.server.Transport == TransportHTTP || !isWrongGeneration(err) || ctx.Err() != nil {
		return err
	}
	if d.as(ctx, LegacySSE) == nil {
		return nil
	}
	return err // what Streamable HTTP said is what most servers would be known by
}

// isWrongGeneration tells whether a handshake ended as it may when the era is the wrong one.
func isWrongGeneration(err error) bool {
	switch asProblem(err, true).reason {
	case Refused, Malformed, Closed, SessionGone, TimedOut:
		return true
	}
	return false
}

// as connects in one era.
func (d *dialing) as(ctx context.Context, era Era) error {
	if err := d.open(ctx, era); err != nil {
		return err
	}
	if era == Modern {
		return d.discover(ctx)
	}
	return d.initialize(ctx)
}

// probe asks for the modern era and goes back to the legacy one: on the same link
// where the server answered, else on a new one.
func (d *dialing) probe(ctx context.Context) error {
	if err := d.open(ctx, Modern); err != nil {
		return err
	}
	timeout := probeHTTP
	if d.conn.server.Command != "" {
		timeout = probeCommand
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	err := d.discover(limited)
	cancel()
	if err == nil || ctx.Err() != nil || !isWrongGeneration(err) {
		return err
	}
	answered := asProblem(err, true).reason == Refused
	if !answered && d.conn.server.Command != "" {
		if err := d.open(ctx, Legacy); err != nil {
			return err
		}
	}
	err = d.initialize(ctx)
	if err != nil && !answered && asProblem(err, true).reason == Refused && ctx.Err() == nil {
		if d.discover(ctx) == nil { // it was only slow
			return nil
		}
	}
	return err
}

// open makes a link, in place of what there was.
func (d *dialing) open(ctx context.Context, era Era) error {
	d.drop()
	c := d.conn
	if c.server.Command != "" {
		p, err := start(c.server, d.options, c.log.With("server", c.server.Name), c.handleNotification)
		if err == nil {
			c.link = p
		}
		return err
	}
	e, err := newEndpoint(c.server, d.options.Transport, d.options.Tokens)
	if err != nil {
		return err
	}
	if era != LegacySSE {
		c.link = newStreamable(e, c.handleNotification)
		return nil
	}
	l, err := openDuplex(ctx, e, c.handleNotification)
	if err == nil {
		c.link = l
		c.era = LegacySSE
	}
	return err
}

// drop closes the link, if there is one, and gives what its program wrote last.
func (d *dialing) drop() (stderr string) {
	if d.conn.link == nil {
		return ""
	}
	p, ok := d.conn.link.(*process)
	if ok {
		p.useless.Store(true)
	}
	_ = d.conn.link.close()
	if ok {
		stderr = p.stderr()
	}
	d.conn.link = nil
	return stderr
}

// capabilities are what is asked of a server's.
type capabilities struct {
	Tools *struct {
		ListChanged bool `json:"listChanged"`
	} `json:"tools"`
}

// about is what a server says about itself.
type about struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// discover begins the modern era.
func (d *dialing) discover(ctx context.Context) error {
	c := d.conn
	c.era = Modern
	c.link.settle(modern)
	ask := func() (json.RawMessage, error) {
		return c.request(ctx, outgoing{id: c.ids.Add(1), method: "server/discover"}, nil, map[string]any{})
	}
	data, err := ask()
	if stillSpeaks(err) {
		data, err = ask()
	}
	if err != nil {
		return err
	}
	var r struct {
		Versions     []string     `json:"supportedVersions"`
		Capabilities capabilities `json:"capabilities"`
		Instructions string       `json:"instructions"`
		Meta         struct {
			Server about `json:"io.modelcontextprotocol/serverInfo"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return malformed(err, "what it tells about itself cannot be read")
	}
	if !slices.Contains(r.Versions, modern) {
		p := malformed(nil, "it does not speak the revision %s", modern)
		p.reason = Refused
		return p
	}
	d.settled(Modern, modern, r.Meta.Server, r.Instructions, r.Capabilities)
	return nil
}

// stillSpeaks tells whether a server that refused the revision names it among those
// that it speaks.
func stillSpeaks(err error) bool {
	var data struct {
		Supported []string `json:"supported"`
	}
	p := asProblem(err, true)
	return err != nil && p.code == codeVersion && json.Unmarshal(p.data, &data) == nil && slices.Contains(data.Supported, modern)
}

// initialize begins the legacy era.
func (d *dialing) initialize(ctx context.Context) error {
	c := d.conn
	era := Legacy
	if c.era == LegacySSE {
		era = LegacySSE
	}
	c.era = era
	c.link.settle("")
	data, err := c.request(ctx, outgoing{id: c.ids.Add(1), method: "initialize"}, nil, map[string]any{
		"protocolVersion": legacy[0], "capabilities": struct{}{}, "clientInfo": c.client,
	})
	if err != nil {
		return err
	}
	var r struct {
		Version      string       `json:"protocolVersion"`
		Capabilities capabilities `json:"capabilities"`
		Server       about        `json:"serverInfo"`
		Instructions string       `json:"instructions"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return malformed(err, "what it tells about itself cannot be read")
	}
	if !slices.Contains(legacy, r.Version) {
		return malformed(nil, "it speaks the revision %q, which is not known", saying(r.Version, 50))
	}
	c.link.settle(r.Version)
	if err := c.link.notify(ctx, "notifications/initialized", nil); err != nil {
		return fmt.Errorf("saying that the connection is made: %w", err)
	}
	d.settled(era, r.Version, r.Server, r.Instructions, r.Capabilities)
	return nil
}

func (d *dialing) settled(era Era, version string, server about, instructions string, can capabilities) {
	c := d.conn
	c.era = era
	c.info = Info{Name: server.Name, Title: server.Title, Version: server.Version, Instructions: instructions, Protocol: version, Era: era}
	c.changes = can.Tools != nil && can.Tools.ListChanged
}
