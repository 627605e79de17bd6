package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writePair puts a certificate of that name, and its key, into a folder, with a time
// of change of its own.
func writePair(t *testing.T, dir, name string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		putFile(t, path, string(pem.EncodeToMemory(block)), serial)
	}
	return cert, key
}

func putFile(t *testing.T, path, text string, at int64) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Unix(at, 0)); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateIsReadAgainWhenItsFilesChange(t *testing.T) {
	dir, log := t.TempDir(), &lines{}
	cert, key := writePair(t, dir, "first", 1)
	synctest.Test(t, func(t *testing.T) {
		s := create(t, Config{CertFile: cert, KeyFile: key, Log: log.logger()})
		expect := func(want string) {
			t.Helper()
			got, err := s.cert.get(nil)
			if err != nil {
				t.Errorf("got error %v, want none", err)
			} else if got.Leaf.Subject.CommonName != want {
				t.Errorf("got.Leaf.Subject.CommonName = %q, want %q: %v", got.Leaf.Subject.CommonName, want, got)
			}
		}
		expect("first")
		writePair(t, dir, "second", 2)
		expect("first") // it was looked at just now
		time.Sleep(checkEvery)
		expect("second")
		putFile(t, cert, "half of it", 3)
		for range 3 {
			time.Sleep(checkEvery)
			expect("second")
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkEvery)
		expect("second")
		writePair(t, dir, "third", 4)
		time.Sleep(checkEvery)
		expect("third")
	})
	if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
		t.Errorf("two broken states were logged %d times:\n%s", n, log)
	}
	if strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("the log shows the key: %s", log)
	}
}

func TestACertificateThatCannotBeReadIsSaid(t *testing.T) {
	dir := t.TempDir()
	_, key := writePair(t, dir, "a", 1)
	_, err := New(complete(Config{CertFile: filepath.Join(dir, "none.pem"), KeyFile: key}))
	if err == nil {
		t.Error("got no error, want one")
	} else if !strings.Contains(err.Error(), "none.pem") {
		t.Errorf(`got error %q, want "none.pem" in it`, err.Error())
	}
}

func TestHTTPSInBothVersions(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "a", 1)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	k := &works{}
	k.inside()
	const piece = time.Second // which is much, also on a busy machine
	s := start(t, Config{CertFile: cert, KeyFile: key, MCP: k, WriteTimeout: piece, BodyTimeout: piece})
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", version), func(t *testing.T) { callsOverTLS(t, s, k, roots, version, piece) })
	}
	if c, err := tls.Dial("tcp", s.at, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS11}); err == nil {
		c.Close()
		t.Error("TLS 1.1 was spoken")
	}
	c, err := net.Dial("tcp", s.at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", s.at)
	if content, _ := io.ReadAll(c); !strings.HasPrefix(string(content), "HTTP/1.0 400") {
		t.Errorf("plain HTTP gives %q", content)
	}
}

// callsOverTLS makes a short call, one that takes longer than a piece of its body may, and
// one that its client leaves.
func callsOverTLS(t *testing.T, s *server, k *works, roots *x509.CertPool, version int, piece time.Duration) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: version == 2}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	do := func(ctx context.Context, method, path, body string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		return client.Do(r)
	}
	res, err := do(t.Context(), "PUT", "/v1/a", "abc")
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(res.Body)
	res.Body.Close()
	switch {
	case err != nil:
		t.Error(err)
	case res.ProtoMajor != version:
		t.Errorf("res.ProtoMajor = %v, want %v: %s", res.ProtoMajor, version, content)
	case string(content) != "ann: abc":
		t.Errorf(`content = %q, want "ann: abc"`, string(content))
	}
	// A call that takes longer than a piece of it may.
	res, err = do(t.Context(), "POST", "/mcp", "{}")
	if err != nil {
		t.Fatal(err)
	}
	<-k.begun
	time.Sleep(piece + piece/5)
	k.done <- struct{}{}
	content, err = io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		t.Errorf("a long call: got error %v, want none", err)
	} else if string(content) != "begun done" {
		t.Errorf(`a long call gives %q, want "begun done"`, content)
	}
	if err := <-k.ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	// One that the client leaves is cancelled.
	ctx, cancel := context.WithCancel(t.Context())
	res, err = do(ctx, "POST", "/mcp", "{}")
	if err != nil {
		t.Fatal(err)
	}
	<-k.begun
	cancel()
	res.Body.Close()
	if err := <-k.ended; err == nil {
		t.Error("no client waits for it, and it was done")
	}
}
