package proxy

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"paddock/internal/egress/egresstest"
)

// LookupNetIP implements egress.Resolver.
func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if text, ok := n[host]; ok {
		return []netip.Addr{netip.MustParseAddr(text)}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// A real name server that says something else the second time; two addresses, of which
// one is private; names that stand for others. Nothing is dialled but what was looked at.
func TestARebindingNameIsNotReached(t *testing.T) {
	inner := serves(t, false, nil)
	dns, resolver := egresstest.StartDNS(t, map[string][]string{
		"turns.example":    {"192.0.2.1", "127.0.0.1"}, // the first is not a public one either: a test dials nothing else
		"two.example":      {"93.184.215.14 127.0.0.1"},
		"both.example":     {"127.0.0.1 93.184.215.14"},
		"alias.example":    {"internal.example 127.0.0.1"},
		"v6.example":       {"::1"},
		"mapped.example":   {"::ffff:127.0.0.1"},
		"nat64.example":    {"64:ff9b::7f00:1"},
		"metadata.example": {"169.254.169.254"},
		"ten.example":      {"10.0.0.1"},
		"named.example":    {"127.0.0.1", "169.254.169.254", "127.0.0.1"},
	})
	d, got := opened(t, Config{Resolver: resolver}, "*.example:*", "named.example:*!private")
	c := program(t, d)
	hosts := []string{"turns", "turns", "two", "both", "alias", "v6", "mapped", "nat64", "metadata", "ten"}
	for _, host := range hosts {
		if a := ask(t, c, "GET", "http://"+host+".example:"+inner.port()+"/"); a.status != 403 {
			t.Errorf("%s: a.status = %d, want 403: %+v", host, a.status, a)
		} else if !strings.HasPrefix(a.header.Get(deniedHeader), "address: ") {
			t.Errorf(`%s: header X-Paddock-Denied = %q, want it to begin with "address: "`,
				host, a.header.Get(deniedHeader))
		}
	}
	if len(inner.asked()) > 0 {
		t.Errorf("what is inside was asked %v", inner.asked())
	}
	for _, want := range []int{200, 200} { // the second finds the connection of the first: one look, one dial
		if a := ask(t, c, "GET", "http://named.example:"+inner.port()+"/"); a.status != want {
			t.Errorf("a host that an operator named: %+v", a)
		}
	}
	d.SetPolicy(rules(t, "named.example:*!private")) // and with it its connections are gone
	if a := ask(t, c, "GET", "http://named.example:"+inner.port()+"/"); a.status != 403 {
		t.Errorf("it leads to metadata now: %+v", a)
	}
	for _, r := range got.wait(t, len(hosts)+3) {
		if r.Host != "named.example" && (r.Decision != Denied || r.Cause != "address") {
			t.Errorf("the record is %+v", r)
		}
	}
	for _, asked := range dns.Questions() {
		if !strings.HasSuffix(asked, ".example") {
			t.Errorf("DNS was asked for %s", asked)
		}
	}
}

// A program cannot ask DNS for what it may not reach: nothing is looked up.
func TestNothingIsLookedUpThatMayNotBeReached(t *testing.T) {
	dns, resolver := egresstest.StartDNS(t, map[string][]string{"secret-data.evil.example": {"127.0.0.1"}})
	d, _ := opened(t, Config{Resolver: resolver}, "good.example")
	c := program(t, d)
	_ = ask(t, c, "GET", "http://secret-data.evil.example/")
	_ = ask(t, c, "GET", "https://secret-data.evil.example/")
	if a := ask(t, c, "GET", "http://good.example/"); a.status != 502 {
		t.Errorf("a name that is not there: a.status = %d, want 502: %+v", a.status, a)
	} else if !strings.HasPrefix(a.header.Get(failedHeader), "dns: good.example is not known to DNS") {
		t.Errorf(`a name that is not there: header X-Paddock-Failed = %q, want it to begin with "dns: good.example is not known to DNS"`,
			a.header.Get(failedHeader))
	}
	switch asked := dns.Questions(); {
	case slices.ContainsFunc(asked, func(q string) bool { return !strings.HasSuffix(q, " good.example") }):
		t.Errorf("DNS was asked for %v, want questions for good.example only", asked)
	case d.Knows("secret-data.evil.example"):
		t.Errorf(`d.Knows("secret-data.evil.example") = true, want false; DNS was asked for %v`, asked)
	case !d.Knows("GOOD.example."):
		t.Errorf(`d.Knows("GOOD.example.") = false, want true; DNS was asked for %v`, asked)
	}
}
