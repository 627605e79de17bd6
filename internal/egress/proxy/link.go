package proxy

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/fault"
)

// origin is where a request is meant for.
type origin struct {
	scheme string // "http" or "https"; "" while it is not known
	host   string // canonical
	port   int
}

// link is one connection of the program's: as it came, or what is within it after
// CONNECT. The HTTP server reads its requests.
type link struct {
	net.Conn
	proxy *Proxy
	// raw is what the program's side was given; closing it ends everything on it.
	raw net.Conn
	// origin is whom the requests are meant for; nil: each says so, as to a proxy.
	origin *origin
	// tunnel tells that it is within another one.
	tunnel bool
	// refused, where there is one, is the answer to everything.
	refused error

	requests atomic.Int64
	read     atomic.Int64
	began    time.Time
	once     sync.Once
	ended    chan struct{} // closed when its last request has been answered
}

// programs is the address that all programs have.
type programs struct{}

func (programs) Network() string { return "paddock" }
func (programs) String() string  { return "program" }

func (l *link) RemoteAddr() net.Addr { return programs{} }
func (l *link) LocalAddr() net.Addr  { return programs{} }

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.read.Add(int64(n))
	return n, err
}

// abort ends a link and whatever it is within, at once.
func (l *link) abort() { l.raw.Close() }

// finish says that nothing works for the link any more.
func (l *link) finish() { l.once.Do(func() { close(l.ended) }) }

// buffered is a connection of which something has been read already.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// single is a listener with one connection, at whose end it ends.
type single struct {
	link *link
	once sync.Once
}

func (s *single) Accept() (net.Conn, error) {
	var first net.Conn
	s.once.Do(func() { first = s.link })
	if first != nil {
		return first, nil
	}
	<-s.link.ended
	return nil, net.ErrClosed
}

func (s *single) Close() error   { return nil }
func (s *single) Addr() net.Addr { return programs{} }

// linkKey is where a request's context has its link.
type linkKey struct{}

func (p *Proxy) newServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:                      http.HandlerFunc(p.serve),
		Protocols:                    &protocols,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            p.config.Budgets.Header,
		IdleTimeout:                  p.config.Budgets.Kept,
		MaxHeaderBytes:               p.config.Budgets.HeaderBytes,
		ErrorLog:                     noLog, // it would repeat what programs send
		BaseContext:                  func(net.Listener) context.Context { return p.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, linkKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				c.(*link).finish()
			}
		},
	}
}

// ServeProxy serves a connection of a program that speaks to a proxy, and returns when it
// has been closed, which it is when ctx ends at the latest. It has to keep deadlines, as
// those of [net.Pipe] do.
func (p *Proxy) ServeProxy(ctx context.Context, conn net.Conn) { p.accept(ctx, conn, nil) }

// ServeOrigin serves a connection of a program that speaks to a host, as ServeProxy
// does. The host is in any way of writing it; tls says that it is spoken to over TLS,
// which is the proxy's part: the program's is plain HTTP/1.1.
func (p *Proxy) ServeOrigin(ctx context.Context, conn net.Conn, host string, port int, tls bool) {
	at, err := originFrom(host, port, tls)
	p.accept(ctx, conn, at, err)
}

// accept serves a connection, unless there are too many; refused are errors that are all
// that it is told.
func (p *Proxy) accept(ctx context.Context, conn net.Conn, at *origin, refused ...error) {
	defer conn.Close()
	l := &link{Conn: conn, raw: conn, proxy: p, origin: at, began: now(), ended: make(chan struct{})}
	for _, err := range refused {
		l.refused = err
	}
	n, most := p.waiting.Add(1), int64(p.config.Budgets.Connections)
	defer p.waiting.Add(-1)
	if most >= 0 && n > most {
		l.refused = fault.New(fault.Exhausted, "there are %d connections to the network open already", most).
			WithHint("close some, or open fewer at once")
		if n > 2*most+16 {
			return // not even an answer
		}
	}
	defer context.AfterFunc(ctx, l.abort)()
	p.run(l)
}

// run serves a link to its end.
func (p *Proxy) run(l *link) {
	p.mu.Lock()
	if p.closed || l.tunnel && p.stillReached(p.route.policy, l) != nil {
		p.mu.Unlock()
		l.abort()
		return
	}
	p.working.Add(1)
	p.links[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
		p.working.Done()
	}()
	_ = p.server.Serve(&single{link: l}) // always net.ErrClosed
	p.recordSilence(l)
}
