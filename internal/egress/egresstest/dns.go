package egresstest

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// NameServer is a DNS server on loopback. Each time that a name's addresses are asked for
// it gives the next of its lists; a list's first word may be the name that it is an alias of.
// It is for any number of goroutines.
type NameServer struct {
	mu    sync.Mutex
	lists map[string][]string
	asked []string
}

// StartDNS starts one for as long as the test runs, and gives a resolver that asks the server, and no other.
func StartDNS(t testing.TB, lists map[string][]string) (*NameServer, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &NameServer{lists: lists}
	done := make(chan struct{})
	go func() {
		defer close(done)
		packet := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := s.answer(packet[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return s, &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// Questions are what it was asked for.
func (s *NameServer) Questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *NameServer) answer(packet []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(packet)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: head.ID, Response: true, Authoritative: true, RecursionAvailable: true})
	b.EnableCompression()
	_ = b.StartQuestions()
	_ = b.Question(q)
	_ = b.StartAnswers()
	name := q.Name
	for _, word := range s.next(strings.TrimSuffix(q.Name.String(), "."), q.Type) {
		h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 0}
		addr, err := netip.ParseAddr(word)
		switch {
		case err != nil:
			alias := dnsmessage.MustNewName(word + ".")
			_ = b.CNAMEResource(h, dnsmessage.CNAMEResource{CNAME: alias})
			name = alias
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			_ = b.AResource(h, dnsmessage.AResource{A: addr.As4()})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			_ = b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	reply, _ := b.Finish()
	return reply
}

// next is what a name is now: it becomes another one after both kinds of address have
// been asked for.
func (s *NameServer) next(name string, kind dnsmessage.Type) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, kind.String()+" "+name)
	lists := s.lists[name]
	if len(lists) == 0 {
		return nil
	}
	words := strings.Fields(lists[0])
	n := 0
	for _, a := range s.asked {
		if strings.HasSuffix(a, " "+name) {
			n++
		}
	}
	if n%2 == 0 && len(lists) > 1 {
		s.lists[name] = lists[1:]
	}
	return words
}
