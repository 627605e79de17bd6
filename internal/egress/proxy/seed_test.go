package proxy

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"paddock/internal/fault"
)

// What a program has once read of a session's authority is good for its next proxy, and for
// no other session's.
func TestProxiesOfOneSeedAreTrustedAlike(t *testing.T) {
	seed := bytes.Repeat([]byte("s"), minSeed)
	first, err := newAuthority(seed)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(first.cert)
	for name, c := range map[string]struct {
		seed []byte
		good bool
	}{
		"the same": {seed, true}, "another": {bytes.Repeat([]byte("t"), minSeed), false}, "none": {nil, false},
	} {
		next, err := newAuthority(c.seed)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := next.certificate("example.com")
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(leaf.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: trusted, DNSName: "example.com"}); (err == nil) != c.good {
			t.Errorf("with %s seed: %v", name, err)
		}
		switch block, rest := pem.Decode(next.pem); {
		case block == nil:
			t.Errorf("with %s seed it is not one certificate: no PEM block, want one", name)
		case len(rest) > 0:
			t.Errorf("with %s seed it is not one certificate: rest = %v, want none", name, rest)
		case bytes.Contains(next.pem, []byte("PRIVATE")):
			t.Errorf(`with %s seed it is not one certificate: next.pem = %q, want no "PRIVATE" in it`,
				name, next.pem)
		}
	}
	if _, err := New(Config{Seed: []byte("short")}); fault.KindOf(err) != fault.Internal {
		t.Errorf("a seed that can be guessed is taken: %v", err)
	}
}
