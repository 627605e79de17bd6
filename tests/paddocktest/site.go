package paddocktest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// Site starts a server of this host that programs of machines reach, too, over TLS with a
// certificate of its own if it is to be secure. It ends with the test.
func Site(t testing.TB, secure bool, handler http.Handler) *httptest.Server {
	t.Helper()
	at := "127.0.0.1"
	if runtime.GOOS == "linux" { // programs of machines have 127.0.0.1 for themselves
		at = "127.0.0.2"
	}
	l, err := net.Listen("tcp4", at+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener, s.Config.ErrorLog = l, log.New(io.Discard, "", 0) // who only looks says nothing
	if secure {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{selfSigned(t, at)}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// selfSigned is a certificate for an address.
func selfSigned(t testing.TB, address string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(address)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
