package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestAConnectionThatWasOpenedAheadIsTaken(t *testing.T) {
	var conns atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	port := server.Listener.Addr().(*net.TCPAddr).Port
	policy, err := Parse([]string{"127.0.0.1:*!private"}, Rights{All: true, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	transport := NewTransport(policy, Options{TLS: &tls.Config{RootCAs: roots}})
	defer transport.CloseIdleConnections()
	end, err := transport.Ahead(t.Context(), "https", "127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	end() // nothing: it was taken
	if conns.Load() != 1 {
		t.Errorf("conns = %d, want 1", conns.Load())
	} else if string(body) != "HTTP/2.0" {
		t.Errorf(`body = %q, want "HTTP/2.0"`, string(body))
	}

	end, err = transport.Ahead(t.Context(), "https", "127.0.0.1", port)
	if err != nil {
		t.Fatal(err)
	}
	end()
	end()
	if transport.early.take("https "+server.Listener.Addr().String()) != nil {
		t.Error("a connection that no request wants is kept")
	}
}

func TestAheadSaysWhyThereIsNoConnection(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	policy, err := Parse([]string{"127.0.0.1:*!private"}, Rights{All: true, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	transport := NewTransport(policy, Options{TLS: &tls.Config{RootCAs: x509.NewCertPool()}})
	defer transport.CloseIdleConnections()
	ahead := func(host string, a net.Addr) error {
		_, err := transport.Ahead(t.Context(), "https", host, a.(*net.TCPAddr).Port)
		return err
	}
	var certificate *tls.CertificateVerificationError
	if err := ahead("127.0.0.1", server.Listener.Addr()); !errors.As(err, &certificate) {
		t.Errorf("a certificate that is not trusted: %v", err)
	}
	if err := ahead("127.0.0.1", free.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port at which no program listens: %v", err)
	}
	if err := ahead("127.0.0.2", free.Addr()); err == nil {
		t.Error("an address that is not allowed: got no error, want one")
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an address that is not allowed: got error %v, want it not to be %v", err, syscall.ECONNREFUSED)
	}
}
