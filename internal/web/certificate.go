package web

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"

	"paddock/internal/fault"
)

// checkEvery is how often the certificate's files are looked at, at most: a
// renewal may take this long to count, and a flood of handshakes reads nothing.
const checkEvery = time.Second

// certificate is one that is read again when its files change. One that cannot
// be read leaves the old one in force.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex // guards what follows
	current *tls.Certificate
	stamp   stamp // of current's files
	broken  stamp // of files that could not be used, so that it is logged once
	checked time.Time
}

// stamp is what changes with the files.
type stamp struct {
	times [2]time.Time
	sizes [2]int64
}

// readCertificate reads the files of the configuration, if there are any.
func (s *Server) readCertificate() error {
	c := &certificate{certFile: s.config.CertFile, keyFile: s.config.KeyFile, log: s.log}
	switch {
	case c.certFile == "" && c.keyFile == "":
		return nil
	case c.certFile == "" || c.keyFile == "":
		return fault.New(fault.Invalid, "TLS needs a certificate and its key").WithHint("set both transport_http.tls_cert and transport_http.tls_key, or none")
	}
	c.stamp, c.checked = c.look(), time.Now()
	var err error
	if c.current, err = c.load(); err != nil {
		return fault.New(fault.Invalid, "the certificate %s with the key %s cannot be used: %v", c.certFile, c.keyFile, err).WithCause(err).
			WithHint("both are PEM files that belong together and that paddock's user may read")
	}
	s.cert = c
	return nil
}

func (c *certificate) look() stamp {
	var s stamp
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			s.times[i], s.sizes[i] = info.ModTime(), info.Size()
		}
	}
	return s
}

func (c *certificate) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	return &pair, err
}

// get is a [tls.Config]'s GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < checkEvery {
		return c.current, nil
	}
	c.checked = time.Now()
	now := c.look()
	if now == c.stamp {
		return c.current, nil
	}
	renewed, err := c.load()
	switch {
	case err == nil:
		c.current, c.stamp = renewed, now
		c.log.Info("the TLS certificate was renewed", "file", c.certFile)
	case now != c.broken: // half of it may be written; it is tried again
		c.broken = now
		c.log.Error("the new TLS certificate cannot be used; the old one stays", "file", c.certFile, "cause", err)
	}
	return c.current, nil
}
