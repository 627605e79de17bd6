package proxy

import (
	"container/list"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"paddock/internal/fault"
)

const (
	// minSeed is how long a seed is at least, in bytes.
	minSeed = 32
	// maxLeaves is how many certificates are kept; one is made in a tenth of a millisecond.
	maxLeaves = 256
	// caLife and leafLife are how long certificates are good for. The authority's ends with
	// its session; clients refuse leaves of more than 398 days.
	caLife, leafLife = 10 * 365 * 24 * time.Hour, 30 * 24 * time.Hour
	// early is how long before now they begin: a sandbox's clock may be behind.
	early = 24 * time.Hour
)

// authority makes certificates for hosts, for one session. It is for any number of
// goroutines.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of all certificates

	mu     sync.Mutex
	order  *list.List // of *leaf, the last used first
	leaves map[string]*list.Element
}

// leaf is a certificate that was made.
type leaf struct {
	host string
	cert *tls.Certificate
	end  time.Time
}

// newAuthority makes one whose key is made of a seed, or is a new one where that is empty.
func newAuthority(seed []byte) (*authority, error) {
	key, err := authorityKey(seed)
	if err != nil {
		return nil, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(-early)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "paddock session", Organization: []string{"paddock"}},
		NotBefore: begin, NotAfter: begin.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key, leaf: leafKey,
		order: list.New(), leaves: map[string]*list.Element{},
	}, nil
}

// authorityKey is the same for the same seed. Certificates of two authorities with one
// key are good for whoever trusts either: their names, too, are the same.
func authorityKey(seed []byte) (*ecdsa.PrivateKey, error) {
	if len(seed) == 0 {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if len(seed) < minSeed {
		return nil, fault.New(fault.Internal, "the seed of a session's authority has %d bytes, of %d that it needs", len(seed), minSeed)
	}
	for n := range 8 { // of 2^32 numbers one is none of the curve's
		number, err := hkdf.Key(sha256.New, seed, nil, "paddock session authority "+strconv.Itoa(n), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), number); err == nil {
			return key, nil
		}
	}
	return nil, fault.New(fault.Internal, "the seed of a session's authority makes no key")
}

// newSerial makes a number that no other certificate has.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	return n.Add(n, big.NewInt(1)), nil
}

// certificate gives a certificate for a canonical host.
func (a *authority) certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.leaves[host]; e != nil {
		if l := e.Value.(*leaf); time.Until(l.end) > early {
			a.order.MoveToFront(e)
			return l.cert, nil
		}
		a.order.Remove(e)
	}
	l, err := a.makeLeaf(host)
	if err != nil {
		return nil, err
	}
	a.leaves[host] = a.order.PushFront(l)
	if a.order.Len() > maxLeaves {
		oldest := a.order.Remove(a.order.Back()).(*leaf)
		delete(a.leaves, oldest.host)
	}
	return l.cert, nil
}

func (a *authority) makeLeaf(host string) (*leaf, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	begin := time.Now().Add(-early)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "paddock", Organization: []string{"paddock"}},
		NotBefore: begin, NotAfter: begin.Add(leafLife), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &leaf{host, &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: a.leaf}, template.NotAfter}, nil
}
