package proxy

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"testing"
)

// hidden is a list of one configuration for an encrypted ClientHello (RFC 9849), for what
// hides behind that name.
func hidden(t *testing.T, behind string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	config := append([]byte{1, 0, 0x20}, long(key.PublicKey().Bytes())...) // number, X25519
	config = append(config, long([]byte{0, 1, 0, 1})...)                   // HKDF-SHA256, AES-128-GCM
	config = append(config, 0, byte(len(behind)))
	config = append(append(config, behind...), 0, 0)
	return long(append([]byte{0xfe, 0x0d}, long(config)...))
}

// A name that is encrypted is not let out behind one that is allowed: the proxy is the end
// of TLS, and has no key for it (attack 37).
func TestAHiddenNameIsNotLetOut(t *testing.T) {
	s := serves(t, true, nil)
	at := "example.com:" + s.port()
	d, got := opened(t, Config{}, at+"!private")
	proxy := proxied(t, d)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.CA())
	for behind, name := range map[string]string{"example.com": "evil.example", "evil.example": "example.com"} {
		c := tls.Client(tunnelTo(t, proxy, at), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: hidden(t, behind)})
		err := c.Handshake()
		var rejected *tls.ECHRejectionError
		if err == nil {
			t.Errorf("%s behind %s: got no error, want one", name, behind)
		} else if got, want := errors.As(err, &rejected), behind == "example.com"; got != want {
			t.Errorf("%s behind %s: rejected: got %v, want %v: %v", name, behind, got, want, err)
		}
	}
	causes := map[string]int{}
	for _, r := range got.wait(t, 2) {
		causes[r.Cause]++
	}
	// The program goes, once it sees that its name was not read.
	if want := map[string]int{"mismatch": 1, "gone": 1}; causes["mismatch"] != 1 || causes["gone"] != 1 {
		t.Errorf("the records are for %v, want %v", causes, want)
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("the server was asked %v", seen)
	}
}
