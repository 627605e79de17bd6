// Package natsserver runs a NATS server with the only settings by which what it has
// acknowledged is kept: on disk, synced before each acknowledgement.
package natsserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"paddock/internal/fault"
)

// Config is what differs between the servers of a cluster.
type Config struct {
	Name    string   // of this server, unlike any other of the cluster; it must be given
	Dir     string   // keeps the data; it must be given
	Listen  string   // IP:PORT for nodes
	Cluster string   // IP:PORT for the other servers; empty: a server alone
	Routes  []string // IP:PORT of the other servers
	// MaxBytes is how much the server keeps at most. It must be more than 0.
	MaxBytes int64
	// TLS is for nodes and servers alike. Nil: both addresses must be loopback.
	TLS *tls.Config
	Log *slog.Logger // nil: nothing is logged
}

// lameDuck is how long nodes have to leave a server that stops.
const lameDuck = 2 * time.Second

// Server is a running server. Its methods may be called from any goroutine, and twice.
type Server struct {
	nats *server.Server
}

// Start starts a server, which accepts nodes when it returns. The cluster may still
// have no leader: who writes tries again.
func Start(cfg Config) (*Server, error) {
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	if err := quicken(); err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("preparing the NATS server: %w", err)
	}
	if cfg.Log != nil {
		s.SetLoggerV2(logger{cfg.Log}, false, false, false)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fault.New(fault.Unavailable, "the NATS server %q does not start", cfg.Name).
			WithHint("its log says why; another process may have its ports")
	}
	return &Server{nats: s}, nil
}

// URL is where nodes reach it.
func (s *Server) URL() string { return s.nats.ClientURL() }

// Leads reports whether this server leads the stream.
func (s *Server) Leads(stream string) bool {
	return s.nats.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, stream)
}

// Close stops it at once, and waits until it has stopped.
func (s *Server) Close() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// Leave gives what this server leads to others, sends its nodes there, and stops it.
func (s *Server) Leave() {
	s.nats.LameDuckShutdown()
	s.nats.WaitForShutdown()
}

// options has no setting that a caller could make unsafe.
func (c Config) options() (*server.Options, error) {
	o := &server.Options{
		ServerName:          c.Name,
		JetStream:           true,
		StoreDir:            c.Dir,
		SyncAlways:          true,
		JetStreamMaxStore:   c.MaxBytes,
		NoSigs:              true,
		NoLog:               c.Log == nil,
		LameDuckDuration:    lameDuck,
		LameDuckGracePeriod: lameDuck / 4,
	}
	var errs []error
	if c.Name == "" || c.Dir == "" {
		errs = append(errs, fault.New(fault.Invalid, "a NATS server needs a name and a folder"))
	}
	if c.MaxBytes <= 0 {
		errs = append(errs, fault.New(fault.Invalid, "a NATS server needs a limit of what it keeps, not %d bytes", c.MaxBytes))
	}
	host, port, err := c.address(c.Listen)
	errs = append(errs, err)
	o.Host, o.Port = host, port
	if c.TLS != nil {
		o.TLSConfig, o.TLSTimeout = c.TLS.Clone(), 5
	}
	if c.Cluster == "" {
		return o, errors.Join(errs...)
	}
	host, port, err = c.address(c.Cluster)
	errs = append(errs, err)
	o.Cluster = server.ClusterOpts{Name: "paddock", Host: host, Port: port}
	if c.TLS != nil {
		o.Cluster.TLSConfig, o.Cluster.TLSTimeout = c.TLS.Clone(), 5
	}
	for _, r := range c.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r})
	}
	return o, errors.Join(errs...)
}

// address takes an address apart. Without TLS it must be loopback. Port 0 is a free one.
func (c Config) address(addr string) (host string, port int, err error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return "", 0, fault.New(fault.Invalid, "%q is not an address", addr).
			WithHint("write IP:PORT, such as 10.0.0.1:4222").WithCause(err)
	}
	if c.TLS == nil && !ap.Addr().IsLoopback() {
		return "", 0, fault.New(fault.Denied, "%s is not a loopback address, and there is no certificate", addr).
			WithHint("give the server a certificate, or listen at 127.0.0.1")
	}
	host, p, err := net.SplitHostPort(ap.String())
	if err != nil {
		return "", 0, err
	}
	if port, err = strconv.Atoi(p); port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, err
}

// logger passes what the server logs on to slog.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(format string, v ...any) { l.log.Info(fmt.Sprintf(format, v...)) }
func (l logger) Warnf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l logger) Fatalf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l logger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l logger) Debugf(string, ...any)           {}
func (l logger) Tracef(string, ...any)           {}
