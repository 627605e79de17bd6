package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"paddock/internal/fault"
)

// afterwards is how long requests have that were cancelled, to end.
const afterwards = 5 * time.Second

// Run listens, tells started the endpoint's URL (nil: nobody), and serves until
// ctx ends. Then streams are told to end, other requests have Config.Grace,
// and what runs still is cancelled. It returns when no handler runs any more:
// nil when all of them could finish. It can be called once.
func (s *Server) Run(ctx context.Context, started func(url string)) error {
	l, err := s.listen(ctx)
	if err != nil {
		return err
	}
	if started != nil {
		started(s.url(l.Addr().(*net.TCPAddr).Port))
	}
	return s.serve(ctx, l)
}

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	server := s.server(base)
	defer s.checks.wait(afterwards)
	var telling sync.WaitGroup
	defer telling.Wait()
	defer cancel(nil)
	telling.Go(func() { s.tellFailures(base) })
	failed := make(chan error, 1)
	go func() {
		if s.cert != nil {
			failed <- server.ServeTLS(l, "", "")
		} else {
			failed <- server.Serve(l)
		}
	}()
	select {
	case err := <-failed:
		s.beginDrain()
		cancel(errEnding)
		_ = server.Close()
		s.running.wait(afterwards)
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	err := s.end(server, cancel)
	<-failed
	return err
}

func (s *Server) server(base context.Context) *http.Server {
	c := s.config
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: c.HeaderTimeout,
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    c.MaxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 128, SendPingTimeout: c.IdleTimeout, PingTimeout: c.HeaderTimeout, WriteByteTimeout: c.WriteTimeout},
		BaseContext:       func(net.Listener) context.Context { return base },
		// What strangers' connections come to, such as a failed handshake.
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState: s.silent.watch,
	}
	if s.cert != nil {
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.cert.get}
	}
	return server
}

// end drains the server.
func (s *Server) end(server *http.Server, cancel context.CancelCauseFunc) error {
	s.log.Info("the server ends", "running", s.running.count(), "grace", s.config.Grace)
	s.beginDrain()
	defer time.AfterFunc(firstWord, s.silent.close).Stop()
	soon := min(s.config.Grace, time.Second)
	err := shutdown(server, soon)
	if s.running.wait(s.config.Grace - soon) {
		if err != nil && shutdown(server, afterwards) != nil {
			_ = server.Close() // on what is open there is no whole request
		}
		return nil
	}
	cut := s.running.count()
	cancel(errEnding)
	if err = shutdown(server, afterwards); err != nil {
		err = server.Close()
	}
	if !s.running.wait(afterwards) {
		err = errors.Join(err, fmt.Errorf("%d handlers still run", s.running.count()))
	}
	return fault.New(fault.Unavailable, "%d requests were cut off after %v", cut, s.config.Grace).WithCause(err).
		WithHint("transport_http.shutdown_grace_seconds gives them longer")
}

// shutdown takes no new connection and waits so long for the others to end.
func shutdown(server *http.Server, most time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return server.Shutdown(ctx)
}

func (s *Server) beginDrain() {
	s.drain()
	if s.config.OnDrain != nil {
		s.config.OnDrain()
	}
}

// url is the endpoint's for a person on this machine.
func (s *Server) url(port int) string {
	if s.config.PublicURL != "" {
		return s.config.PublicURL + s.config.Path
	}
	scheme, host := "http", s.config.Host
	if s.cert != nil {
		scheme = "https"
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)) + s.config.Path
}

// firstWord is how long a connection without any request yet may hold up the
// end: http.Server.Shutdown alone would wait for five seconds.
const firstWord = 250 * time.Millisecond

// silent are the connections on which nothing has come yet. Clients open some
// ahead of time.
type silent struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded
}

func (l *silent) watch(c net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state != http.StateNew {
		delete(l.conns, c)
		return
	}
	if l.conns == nil {
		l.conns = map[net.Conn]struct{}{}
	}
	l.conns[c] = struct{}{}
}

func (l *silent) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close() // nothing was said on it
	}
}

// running counts the requests that are under way.
type running struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is zero again; nil: nobody waits
}

func (c *running) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *running) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

func (c *running) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait reports whether nothing runs any more within so long. One may wait at a time.
func (c *running) wait(most time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-time.After(most):
		return false
	}
}
