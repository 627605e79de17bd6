package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// However an address is written, it is the same one, or none; and what the standard
// library knows as an address of this host or its networks is not public, nor when it is
// within another one.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "8.8.8.8", "0.0.0.0", "::1", "fe80::1", "fd00:ec2::254", "64:ff9b::7f00:1", "2606:4700::1111", "ff02::1"} {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		addr, ok := netip.AddrFromSlice(bytes)
		if !ok {
			return
		}
		inside := func(a netip.Addr) bool {
			return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || !a.IsGlobalUnicast()
		}
		if inside(addr.Unmap()) && Public(addr) {
			t.Errorf("%s is public", addr)
		}
		want := addr.Unmap().String()
		spellings := []string{addr.String(), "[" + addr.StringExpanded() + "]", strings.ToUpper(addr.StringExpanded())}
		if addr = addr.Unmap(); addr.Is4() {
			b := addr.As4()
			long := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
			spellings = []string{want, fmt.Sprintf("::ffff:%s", want), fmt.Sprintf("[::ffff:%x:%x]", long>>16, long&0xffff)}
			for _, odd := range []string{fmt.Sprint(long), fmt.Sprintf("0x%x", long), fmt.Sprintf("0%o.%d.%d.%d", b[0], b[1], b[2], b[3]), fmt.Sprintf("%d.%d", b[0], long&0xffffff), want + ".", "[" + want + "]"} {
				if host, err := Host(odd); err == nil {
					t.Errorf("%s is the host %s", odd, host)
				}
			}
			within := netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: b[0], b[1], b[2], b[3]})
			if Public(within) != Public(addr) {
				t.Errorf("%s is public: %v, and %s: %v", within, Public(within), addr, Public(addr))
			}
		}
		for _, text := range spellings {
			if host, err := Host(text); err != nil {
				t.Errorf("%s: got error %v, want none", text, err)
			} else if host != want {
				t.Errorf("%s: host = %q, want %q", text, host, want)
			}
		}
	})
}

// Whatever a model asks for, its session may ask for nothing that the operator's rules do
// not allow, and is led to no other address.
func FuzzNarrow(f *testing.F) {
	for _, line := range []string{"example.com", "*", "*.example.com:*, 127.0.0.1:3401", "GET example.com/v1/*", "POST example.com/*", "10.0.0.1!private", "example.com:*/v1/../x", "GET, example.com"} {
		f.Add("GET example.com/v1/* *.example.org 127.0.0.1:3401!private", line, "GET", "example.com", 443, "/v1/x", "127.0.0.1")
		f.Add("*", line, "PUT", "127.0.0.1", 3401, "/", "8.8.8.8")
	}
	f.Fuzz(func(t *testing.T, rules, wish, method, host string, port int, path, led string) {
		p, err := Parse(Split(rules), Rights{All: true, Private: true, Requests: true})
		if err != nil {
			return
		}
		w, err := Parse(Split(wish), Rights{Requests: true})
		if err != nil {
			return
		}
		r, n := Request{method, host, port, path}, p.Narrow(w)
		grant, errNarrow := n.CheckRequest(r)
		all, err := p.CheckRequest(r)
		if errNarrow == nil && (err != nil || grant.Path != all.Path && grant.Path == path || all.Part && !grant.Part) {
			t.Errorf("%q narrowed by %q allows %+v: %+v, and before %+v, %v", rules, wish, r, grant, all, err)
		}
		if errNarrow == nil && n.Reach(host, port) != nil {
			t.Errorf("%q narrowed by %q: reaching %s gives %v, want none as Narrow says", rules, wish, host, n.Reach(host, port))
		}
		if w.Empty() && errNarrow == nil {
			t.Errorf("%q narrowed by the empty %q: got no error, want one", rules, wish)
		}
		if addr, err := netip.ParseAddr(led); err == nil && n.CheckAddr(host, addr, port) == nil && p.CheckAddr(host, addr, port) != nil {
			t.Errorf("%q narrowed by %q leads %s to %s", rules, wish, host, addr)
		}
	})
}
