package egress

import (
	"net/netip"
	"strings"
	"testing"

	"paddock/internal/fault"
)

var operator = Rights{Private: true}

func parse(t *testing.T, rights Rights, rules ...string) Policy {
	t.Helper()
	p, err := Parse(rules, rights)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAHostHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"example.com":                  "example.com",
		"EXAMPLE.Com.":                 "example.com",
		"my_service":                   "my_service",
		"Größe.example":                "xn--gre-6ka8i.example",
		"xn--gre-6ka8i.example":        "xn--gre-6ka8i.example",
		"ｅｘａｍｐｌｅ。com":                  "example.com",
		"192.0.2.1":                    "192.0.2.1",
		"::1":                          "::1",
		"[2001:DB8:0::1]":              "2001:db8::1",
		"::ffff:127.0.0.1":             "127.0.0.1",
		"[::ffff:7f00:1]":              "127.0.0.1",
		strings.Repeat("a", 63) + ".b": strings.Repeat("a", 63) + ".b",
	} {
		if got, err := Host(text); err != nil {
			t.Errorf("%q: got error %v, want none", text, err)
		} else if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestWhatCouldBeReadInTwoWaysIsNoHost(t *testing.T) {
	for _, text := range []string{
		"", ".", "..", "a..b", ".a", " a", "a ", "a\tb", "a\nb", "a\r\nHost: b", "evil\x00.good.com", "evil.com\x00",
		"good.com@evil.com", "evil.com/good.com", `evil.com\good.com`, "evil.com?good.com", "evil.com#good.com", "a%2eb", "a%00b", "a:80", "a:b",
		"2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1", "127.0.1", "0", "00.0.0.0", "127.0.0.1.", "127.0.0.01", "1.2.3.4.5", "1.2.3.256", "a.0x", "a.0xff",
		"１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1",
		"fe80::1%eth0", "[fe80::1%eth0]", "[::1", "::1]", "[]", "[a]", "[127.0.0.1]", "[[::1]]", "[::1]x", "v1.x]", ":::", "1::2::3",
		"\xff.com", "a\u202e.com", "a\u0000.com", "a\u200b\u202e.com", "xn--\u00ad", "xn--zzzzzz--.com",
		strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "toolong", strings.Repeat("a", 3000),
	} {
		if got, err := Host(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

func TestTheZeroPolicyAllowsNothing(t *testing.T) {
	var none Policy
	empty := parse(t, Rights{All: true, Private: true})
	for _, p := range []Policy{none, empty, none.Narrow(parse(t, Rights{All: true}, "*")), parse(t, Rights{All: true}, "*").Narrow(none)} {
		for _, host := range []string{"example.com", "127.0.0.1", "8.8.8.8", "", "*", ".", "localhost"} {
			if p.Allows(host, 443) {
				t.Errorf("%q is allowed", host)
			}
		}
		if !p.Empty() {
			t.Error("it is not empty")
		}
	}
}

func TestWhatRulesAllow(t *testing.T) {
	for _, c := range []struct{ rules, yes, no string }{
		{"good.com", "good.com:443 GOOD.com.:80 ｇｏｏｄ.com:80", "good.com:8080 evil-good.com:443 a.good.com:443 good.com.evil.com:443 good.co:443 xgood.com:443 com:443"},
		{"good.com:8443", "good.com:8443", "good.com:443 good.com:80 good.com:844"},
		{"good.com:*", "good.com:1 good.com:65535", "evil.com:1 good.com:0 good.com:65536"},
		{".good.com", "a.good.com:443 b.a.good.com:80", "good.com:443 evil-good.com:443 evilgood.com:443 good.com.evil.com:443 a.good.com:22"},
		{".good.com good.com:8443", "a.good.com:443 good.com:8443", "good.com:443"},
		{"größe.example", "xn--gre-6ka8i.example:443 GRÖßE.example:443", "grosse.example:443"},
		{"8.8.8.8 [2606:4700::1]:8443", "8.8.8.8:443 2606:4700:0::1:8443", "8.8.8.9:443 2606:4700::1:443"},
		{"2606:4700::1", "2606:4700::1:443", "2606:4700::2:443"},
		{".8.8", "", "8.8.8.8:443"},
	} {
		var p Policy
		if c.yes == "" {
			if _, err := Parse(strings.Fields(c.rules), operator); err == nil {
				t.Errorf("%s is a rule", c.rules)
			}
		} else {
			p = parse(t, Rights{}, strings.Fields(c.rules)...)
		}
		for want, list := range map[bool]string{true: c.yes, false: c.no} {
			for _, text := range strings.Fields(list) {
				at := strings.LastIndexByte(text, ':')
				if got := p.Allows(text[:at], atoi(text[at+1:])); got != want {
					t.Errorf("with %s, %s is allowed: %v (%v)", c.rules, text, got, p.Check(text[:at], atoi(text[at+1:])))
				}
			}
		}
	}
}

func atoi(s string) int {
	n := 0
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

func TestWhoMayWriteWhichRules(t *testing.T) {
	all := Rights{All: true, Private: true}
	for _, c := range []struct {
		rule   string
		rights Rights
		kind   fault.Kind
	}{
		{"*", Rights{}, fault.Denied},
		{"*", operator, fault.Denied},
		{"*", Rights{All: true}, ""},
		{"*:443", Rights{All: true}, ""},
		{"*!private", all, fault.Invalid},
		{".com", Rights{}, fault.Denied},
		{".co.uk", operator, fault.Denied},
		{".com", all, ""},
		{".example.com!private", all, fault.Invalid},
		{".internal", Rights{}, ""},
		{"10.0.0.1!private", Rights{}, fault.Denied},
		{"10.0.0.1!private", operator, ""},
		{"127.0.0.1:3401!private", operator, ""},
		{"[::1]:80!private", operator, ""},
		{"localhost:3401!private", operator, ""},
		{"10.0.0.1!Private", operator, fault.Invalid},
		{"https://example.com", operator, fault.Invalid},
		{"example.com/path", operator, fault.Invalid},
		{"GET example.com", operator, fault.Invalid},
		{"example.com:", operator, fault.Invalid},
		{"example.com:0", operator, fault.Invalid},
		{"example.com:080", operator, fault.Invalid},
		{"example.com:65536", operator, fault.Invalid},
		{"example.com:+80", operator, fault.Invalid},
		{"user@example.com", operator, fault.Invalid},
		{"ex*mple.com", operator, fault.Invalid},
		{"*.example.com", operator, ""},
		{"**", all, fault.Invalid},
		{".", all, fault.Invalid},
		{"..com", all, fault.Invalid},
		{".127.0.0.1", all, fault.Invalid},
		{"", all, fault.Invalid},
		{"!private", all, fault.Invalid},
		{"2130706433", all, fault.Invalid},
		{strings.Repeat("a", 400), all, fault.Invalid},
	} {
		if _, err := Parse([]string{c.rule}, c.rights); fault.KindOf(err) != c.kind {
			t.Errorf("%q with %+v gives %v", c.rule, c.rights, err)
		}
	}
	_, err := Parse([]string{"good.com", "https://a", "*"}, Rights{})
	switch {
	case err == nil:
		t.Error("not all mistakes are told: no error, want one")
	case !strings.Contains(err.Error(), "https://a"):
		t.Errorf(`not all mistakes are told: err = %q, want "https://a" in it`, err.Error())
	case !strings.Contains(err.Error(), `"*"`):
		t.Errorf("not all mistakes are told: err = %q, want %q in it", err.Error(), `"*"`)
	}
	if _, err := Parse(make([]string, maxRules+1), all); fault.KindOf(err) != fault.Invalid {
		t.Error("there is no bound")
	}
}

func TestAModelsWishNarrowsAndNeverWidens(t *testing.T) {
	p := parse(t, operator, ".good.com", "127.0.0.1:3401!private", "other.com")
	for wish, want := range map[string]string{
		"a.good.com":            "a.good.com",
		"evil.com":              "",
		"127.0.0.1:3401":        "127.0.0.1:3401",
		"a.good.com,other.com":  "a.good.com other.com",
		"b.good.com:8443":       "",
		".a.good.com":           "x.a.good.com",
		"127.0.0.1:3402,10.0.1": "",
	} {
		asked, _ := Parse(strings.Split(wish, ","), Rights{}) // what is not a rule allows nothing
		narrow := p.Narrow(asked)
		for _, target := range []string{"a.good.com", "x.a.good.com", "evil.com", "127.0.0.1:3401", "127.0.0.1:3402", "other.com", "b.good.com:8443"} {
			host, port, _ := strings.Cut(target, ":")
			if port == "" {
				port = "443"
			}
			if got := narrow.Allows(host, atoi(port)); got != strings.Contains(" "+want+" ", " "+target+" ") {
				t.Errorf("with the wish %s, %s is allowed: %v", wish, target, got)
			}
		}
	}
	if parse(t, Rights{}, "good.com").Narrow(p).CheckAddr("127.0.0.1", netip.MustParseAddr("127.0.0.1"), 3401) == nil {
		t.Error("a wish permits what is private")
	}
}

func TestWhichAddressesArePublic(t *testing.T) {
	for want, list := range map[bool]string{
		true: `8.8.8.8 1.1.1.1 192.0.0.9 172.15.255.255 172.32.0.0 100.63.255.255 100.128.0.0 198.17.255.255 198.20.0.0 223.255.255.255 168.63.129.15
			2606:4700:4700::1111 2001:4860:4860::8888 2003::1 64:ff9b::808:808 ::ffff:8.8.8.8`,
		false: `0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.255 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255
			192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
			:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::808:808 100::1 2001::1 2001:0:5ef5:79fb::1 2001:2::1 2001:db8::1
			2002:7f00:1::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fd20:ce::254 fe80::1 fe80::1%eth0 2606:4700::1%eth0 fec0::1 ff02::1`,
	} {
		for _, text := range strings.Fields(list) {
			if got := Public(netip.MustParseAddr(text)); got != want {
				t.Errorf("%s is public: %v", text, got)
			}
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

func TestAPermissionForPrivateAddressesIsForItsHostAlone(t *testing.T) {
	p := parse(t, operator, "127.0.0.1:3401!private", "intranet.example!private", "public.example", "169.254.169.254!private", "fd00:ec2::254!private")
	for _, c := range []struct {
		host, addr string
		port       int
		want       bool
	}{
		{"127.0.0.1", "127.0.0.1", 3401, true},
		{"::ffff:127.0.0.1", "::ffff:127.0.0.1", 3401, true},
		{"127.0.0.1", "127.0.0.1", 3402, false},
		{"127.0.0.2", "127.0.0.2", 3401, false},
		{"localhost", "127.0.0.1", 3401, false},
		{"intranet.example", "10.1.2.3", 443, true},
		{"intranet.example", "64:ff9b::a01:203", 443, true},
		{"intranet.example", "8.8.8.8", 443, true},
		{"intranet.example", "169.254.169.254", 443, false},
		{"intranet.example", "::ffff:169.254.169.254", 443, false},
		{"intranet.example", "64:ff9b::a9fe:a9fe", 443, false},
		{"intranet.example", "100.100.100.200", 80, false},
		{"intranet.example", "fd00:ec2::254", 80, false},
		{"intranet.example", "fe80::1%eth0", 443, false},
		{"public.example", "8.8.8.8", 443, true},
		{"public.example", "10.1.2.3", 443, false},
		{"public.example", "127.0.0.1", 443, false},
		{"169.254.169.254", "169.254.169.254", 80, true},
		{"fd00:ec2::254", "fd00:ec2::254", 80, true},
	} {
		if err := p.CheckAddr(c.host, netip.MustParseAddr(c.addr), c.port); (err == nil) != c.want {
			t.Errorf("%s at %s:%d gives %v", c.host, c.addr, c.port, err)
		}
	}
	for err, want := range map[error]string{
		p.CheckAddr("127.0.0.2", netip.MustParseAddr("127.0.0.2"), 80):      "127.0.0.2 is a loopback address",
		p.CheckAddr("public.example", netip.MustParseAddr("10.0.0.1"), 443): "public.example leads to 10.0.0.1, a private address",
		p.Check("127.0.0.2", 80): "as 127.0.0.2:80!private", p.Check("8.8.8.8", 80): "as 8.8.8.8:80", p.Check("no.example", 80): "as no.example:80",
	} {
		if f := fault.Of(err); f.Message != want && !strings.HasSuffix(f.Hint, want) {
			t.Errorf("it says %s (%s), not %s", f.Message, f.Hint, want)
		}
	}
	if p.CheckAddr("public.example", netip.Addr{}, 443) == nil {
		t.Error("no address may be dialled")
	}
}

// Whatever is a host is its own spelling, and never an address in disguise.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"example.com", "127.1", "0x7f.1", "[::1]", "fe80::1%eth0", "a\x00b", "１２７.０.０.１", "größe", "xn--a", "a.", "[::ffff:1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := Host(text)
		if err != nil {
			return
		}
		if again, err := Host(host); err != nil {
			t.Errorf("%q: got error %v, want none", text, err)
		} else if again != host {
			t.Errorf("%q: again = %q, want %q", text, again, host)
		}
		for _, c := range []byte(host) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' && c != ':' {
				t.Errorf("%q is %q", text, host)
			}
		}
		addr, err := netip.ParseAddr(host)
		if err == nil && (addr.String() != host || addr.Is4In6()) {
			t.Errorf("%q is %q, the address %v", text, host, addr)
		}
		if last := host[strings.LastIndexByte(host, '.')+1:]; err != nil && (host == "" || strings.Trim(last, "0123456789") == "") {
			t.Errorf("%q is %q, which others read as an address", text, host)
		}
	})
}

// No rule of a model's allows an address that is not public, whatever it says.
func FuzzRule(f *testing.F) {
	for _, s := range []string{"example.com:443", ".example.com", "*", "10.0.0.1!private", "[::1]:80", "::1", "a:*", ".com", "127.1", "GET example.com/v1/*", "*.example.com/a/*/b"} {
		f.Add(s, "example.com", 443, "GET", "/v1/x")
	}
	f.Fuzz(func(t *testing.T, text, host string, port int, method, path string) {
		p, err := Parse([]string{text}, Rights{Requests: true})
		if err != nil {
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.Denied {
				t.Errorf("%q gives %v", text, err)
			}
			return
		}
		_, errRequest := p.CheckRequest(Request{method, host, port, path})
		reached := p.Reach(host, port) == nil
		switch {
		case p.Allows(host, port) != (reached && p.rules[0].whole()):
			t.Errorf("%q: p.Allows(host, port) = %v, want %v (Check: %v, Reach: %v)", text,
				p.Allows(host, port), reached && p.rules[0].whole(), p.Check(host, port), p.Reach(host, port))
		case errRequest == nil && !reached:
			t.Errorf("%q: CheckRequest allows what Reach refuses: %v", text, p.Reach(host, port))
		case p.Allows(host, port) && errRequest != nil:
			t.Errorf("%q: Allows is true, and CheckRequest refuses: %v", text, errRequest)
		}
		if !reached {
			return
		}
		name, err := Host(host)
		if err != nil {
			t.Fatalf("%q is allowed and no host", host)
		}
		if addr, err := netip.ParseAddr(name); err == nil && !Public(addr) {
			t.Errorf("%q allows %s", text, addr)
		}
		for _, addr := range []string{"127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "64:ff9b::7f00:1"} {
			if p.CheckAddr(name, netip.MustParseAddr(addr), port) == nil {
				t.Errorf("%q lets %s lead to %s", text, name, addr)
			}
		}
	})
}
