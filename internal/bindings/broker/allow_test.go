package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

func allow(t testing.TB, entries ...string) Allowlist {
	t.Helper()
	a, err := ParseAllowlist(entries)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestWhatSessionsMayBind(t *testing.T) {
	a := allow(t, "mcp.example.com", ".good.example", "api.example.com:8443", "10.1.2.3:3401!private", "intranet!private", "deepwiki", "localhost")
	for _, c := range []struct {
		name, url string
		kind      fault.Kind
	}{
		{"x", "https://mcp.example.com/mcp", ""},
		{"x", "http://MCP.Example.COM./mcp", ""},
		{"x", "https://mcp.example.com:444/mcp", fault.Denied},
		{"x", "https://a.b.good.example/mcp", ""},
		{"x", "https://good.example/mcp", fault.Denied},
		{"x", "https://evilgood.example/mcp", fault.Denied},
		{"x", "https://mcp.example.com.evil.example/mcp", fault.Denied},
		{"x", "https://api.example.com:8443/mcp", ""},
		{"x", "https://api.example.com/mcp", fault.Denied},
		{"x", "http://10.1.2.3:3401/mcp", ""},
		{"x", "http://10.1.2.3:3402/mcp", fault.Denied},
		{"x", "http://10.1.2.4:3401/mcp", fault.Denied},
		{"x", "http://intranet/mcp", ""},
		{"deepwiki", "https://anything.example/mcp", ""},
		{"deepwiki", "https://anything.example:9999/mcp", ""},
		{"deepwiki", "http://127.0.0.1:5555/mcp", fault.Denied},
		{"deepwiki", "http://[::1]:5555/mcp", fault.Denied},
		{"deepwiki", "http://[::ffff:127.0.0.1]/mcp", fault.Denied},
		{"deepwiki", "http://[64:ff9b::7f00:1]/mcp", fault.Denied},
		{"deepwiki", "http://169.254.169.254/latest", fault.Denied},
		{"DeepWiki", "https://anything.example/mcp", fault.Denied},
		{"localhost", "https://anything.example/mcp", fault.Denied},
		{"x", "http://2130706433/mcp", fault.Invalid},
		{"x", "http://0177.0.0.1/mcp", fault.Invalid},
		{"x", "http://0x7f.1/mcp", fault.Invalid},
		{"x", "http://127.1/mcp", fault.Invalid},
		{"x", "http://[fe80::1%25eth0]/mcp", fault.Invalid},
		{"x", "https://mcp.example.com%00.evil.example/mcp", fault.Invalid},
		{"x", "https://good@evil.example/mcp", fault.Denied},
		{"x", `https://mcp.example.com\.evil.example/mcp`, fault.Invalid},
		{"x", "https://mcp.example.com\t/mcp", fault.Invalid},
		{"x", "file:///etc/passwd", fault.Invalid},
		{"x", "gopher://mcp.example.com/", fault.Invalid},
		{"x", "https:///mcp", fault.Invalid},
		{"x", "", fault.Invalid},
	} {
		if err := a.Check(c.name, c.url); fault.KindOf(err) != c.kind {
			t.Errorf("%s at %q: %v, want %q", c.name, c.url, err, c.kind)
		}
	}
}

func TestAnEmptyAllowlistAllowsNothing(t *testing.T) {
	for _, none := range []Allowlist{{}, allow(t)} {
		for _, url := range []string{"https://mcp.example.com/mcp", "http://127.0.0.1/mcp"} {
			err := none.Check("deepwiki", url)
			switch f := fault.Of(err); {
			case f == nil:
				t.Errorf("an empty list allows %s, want a refusal", url)
			case f.Kind != fault.Denied:
				t.Errorf("an empty list at %s: f.Kind = %q, want %q", url, f.Kind, fault.Denied)
			case !strings.Contains(f.Hint, "PADDOCK_MCP_ALLOWLIST"):
				t.Errorf(`an empty list at %s: f.Hint = %q, want "PADDOCK_MCP_ALLOWLIST" in it`, url, f.Hint)
			}
		}
	}
}

func TestARefusalSaysWhatToAllow(t *testing.T) {
	a := allow(t, "mcp.example.com")
	if f := fault.Of(a.Check("x", "https://other.example:444/mcp?key=hidden")); !strings.Contains(f.Hint, "PADDOCK_MCP_ALLOWLIST=other.example:444 ") {
		t.Errorf(`f.Hint = %q, want "PADDOCK_MCP_ALLOWLIST=other.example:444 " in it`, f.Hint)
	} else if strings.Contains(f.Message+f.Hint, "hidden") {
		t.Errorf(`it says %q, %q, want no "hidden" in it`, f.Message, f.Hint)
	}
	if f := fault.Of(a.Check("x", "http://127.0.0.1:99/mcp")); !strings.Contains(f.Hint, "127.0.0.1:99!private") {
		t.Errorf("it says %q, %q", f.Message, f.Hint)
	}
}

func TestMistakesOfAnAllowlistAreTold(t *testing.T) {
	switch _, err := ParseAllowlist([]string{"https://a", "good.example", "a b.c"}); {
	case err == nil:
		t.Error("mistakes: got no error, want one")
	case !strings.Contains(err.Error(), "https://a"):
		t.Errorf(`mistakes: got error %q, want "https://a" in it`, err.Error())
	case !strings.Contains(err.Error(), "a b.c"):
		t.Errorf(`mistakes: got error %q, want "a b.c" in it`, err.Error())
	}
}

func TestAStarAllowsThePublicInternet(t *testing.T) {
	a := allow(t, "*")
	if err := a.Check("x", "https://mcp.example.com/mcp"); err != nil {
		t.Errorf("a public host: got error %v, want none", err)
	}
	if a.Check("x", "http://127.0.0.1/mcp") == nil {
		t.Error("this machine: got no error, want one")
	}
}

func TestWhoNamesThisMachineMeansIt(t *testing.T) {
	for _, c := range []struct {
		entry, url string
		kind       fault.Kind
	}{
		{"localhost", "http://localhost:8000/mcp", ""},
		{"localhost", "http://localhost/mcp", ""},
		{"localhost", "http://127.0.0.1:8000/mcp", fault.Denied},
		{"localhost:8000", "http://localhost:8000/mcp", ""},
		{"localhost:8000", "http://localhost:8001/mcp", fault.Denied},
		{"localhost:*", "http://localhost:8001/mcp", ""},
		{"tools.localhost", "http://tools.localhost:8000/mcp", ""},
		{"127.0.0.1", "http://127.0.0.1:8000/mcp", ""},
		{"[::1]", "http://[::1]:8000/mcp", ""},
		{"::1", "http://[::1]:8000/mcp", ""},
		{"[::1]:8000", "http://[::1]:8000/mcp", ""},
		{"10.1.2.3:8000", "http://10.1.2.3:8000/mcp", ""},
		{"10.1.2.3:8000", "http://10.1.2.3/mcp", fault.Denied},
		{"10.1.2.3", "http://10.1.2.3/mcp", fault.Denied},
		{"10.1.2.3:*", "http://10.1.2.3:8000/mcp", fault.Denied},
		{"intranet:8000", "http://intranet:8000/mcp", ""},
		{"10.1.2.3!private", "http://10.1.2.3/mcp", ""},
	} {
		if err := allow(t, c.entry).Check("x", c.url); fault.KindOf(err) != c.kind {
			t.Errorf("%s for %s: %v", c.entry, c.url, err)
		}
	}
	for host, leads := range map[string]string{"localhost": "127.0.0.1", "intranet:8000": "10.1.2.3"} {
		a := allow(t, host)
		name, _, _ := strings.Cut(host, ":")
		if err := a.hosts.CheckAddr(name, netip.MustParseAddr(leads), 8000); err != nil {
			t.Errorf("%s may not lead to %s: %v", host, leads, err)
		}
		if err := a.hosts.CheckAddr(name, netip.MustParseAddr("169.254.169.254"), 8000); err == nil {
			t.Errorf("%s may lead to where clouds keep credentials", host)
		}
	}
	if err := allow(t, "api.example.com:8443").hosts.CheckAddr("api.example.com", netip.MustParseAddr("127.0.0.1"), 8443); err == nil {
		t.Error("a public name may lead to this machine")
	}
}

// TestWhatAHintProposesIsAccepted takes the entry from each hint.
func TestWhatAHintProposesIsAccepted(t *testing.T) {
	entry := regexp.MustCompile(`PADDOCK_MCP_ALLOWLIST=(\S+)|: (\S+) in PADDOCK_MCP_ALLOWLIST`)
	for _, url := range []string{"http://localhost:8000/mcp", "http://localhost/mcp", "http://127.0.0.1:99/mcp", "http://[::1]/mcp", "http://10.1.2.3/mcp",
		"http://10.1.2.3:80/mcp", "http://intranet/mcp", "http://intranet:8000/mcp", "https://mcp.example.com/mcp", "https://mcp.example.com:444/mcp"} {
		f := fault.Of(Allowlist{}.Check("x", url))
		m := entry.FindStringSubmatch(f.Hint)
		if m == nil {
			t.Fatalf("%s: no entry in %q", url, f.Hint)
		}
		if err := allow(t, m[1]+m[2]).Check("x", url); err != nil {
			t.Errorf("%s: %s is refused again: %v", url, m[1]+m[2], err)
		}
	}
}

func TestWhatIsNotAllowedIsNotReached(t *testing.T) {
	var reached []string
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached = append(reached, r.URL.Path) }))
	defer evil.Close()
	trap := httptest.NewServer(http.RedirectHandler(evil.URL+"/trap", http.StatusTemporaryRedirect))
	defer trap.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(evil.URL, "http://"), ":")
	_, trapPort, _ := strings.Cut(strings.TrimPrefix(trap.URL, "http://"), ":")
	b := open(t, Config{Bindable: allow(t, "party", "*:*", "127.0.0.1:"+trapPort+"!private")})
	const secret = "s3cr3t-of-a-header"
	for name, c := range map[string]struct {
		d    upstream.Server
		says string
	}{
		"an address that is not public": {upstream.Server{Name: "party", URL: evil.URL + "/mcp"}, "not on the public Internet"},
		"a name that leads to one":      {upstream.Server{Name: "x", URL: "http://localhost:" + port + "/mcp"}, ""},
		"a redirect to one":             {upstream.Server{Name: "x", URL: trap.URL + "/mcp"}, ""},
		"a program":                     {upstream.Server{Name: "party", Command: "node"}, "start no programs"},
		"a program and a URL":           {upstream.Server{Name: "party", Command: "node", URL: "https://mcp.example.com/mcp"}, "start no programs"},
		"a header that cannot be sent":  {upstream.Server{Name: "party", URL: "https://mcp.example.com/mcp", Headers: map[string]string{"A": "b\n" + secret}}, "cannot be sent"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.d.Headers == nil && c.d.Command == "" {
				c.d.Headers = map[string]string{"Authorization": "Bearer " + secret}
			}
			_, err := b.Bind(t.Context(), alice, Definition{Server: c.d})
			if err == nil {
				t.Fatal("it is bound")
			}
			f := fault.Of(err)
			said := fmt.Sprintf("%s; %s; %v; %+v", f.Message, f.Hint, fault.CauseOf(err), err)
			switch {
			case strings.Contains(said, secret):
				t.Errorf("said = %q, want no %q in it", said, secret)
			case !strings.Contains(said, c.says):
				t.Errorf("said = %q, want %q in it", said, c.says)
			case f.Kind == fault.Internal:
				t.Errorf("f.Kind = %q, want another", f.Kind)
			}
			t.Log(said)
		})
	}
	if len(reached) > 0 {
		t.Errorf("it reached %q, want none", reached)
	}
	if names := b.Names(alice); len(names) > 0 {
		t.Errorf("the session has the servers %q, want none", names)
	}
}

func TestASessionHasTheServersThatWereChosen(t *testing.T) {
	c := serve(t)
	chosen := map[Session]*[]string{{"alice", "none"}: {}, {"alice", "one"}: {"b"}}
	var failure error
	b := open(t, Config{
		Servers: []Definition{c.definition("a"), c.definition("b")},
		Chosen:  func(s Session) (*[]string, error) { return chosen[s], failure },
	})
	for id, want := range map[string][]string{"all": {"a", "b"}, "one": {"b"}, "none": nil} {
		if got := b.Names(Session{"alice", id}); !slices.Equal(got, want) {
			t.Errorf("the session %s has %q", id, got)
		}
	}
	if got := ask(t, b, Run{Session: Session{"alice", "one"}, Execution: "x"}, 1, "a", "echo", `{"text":"a"}`); !strings.Contains(got, "not_found") {
		t.Errorf("it calls what it does not have: %s", got)
	}
	if _, err := b.Bind(t.Context(), Session{"alice", "none"}, c.definition("mine")); err != nil {
		t.Fatal(err)
	}
	if got := b.Names(Session{"alice", "none"}); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("what it bound itself is %q", got)
	}
	if failure = fault.New(fault.Internal, "no one knows"); len(b.Names(Session{"alice", "all"})) > 0 {
		t.Error("a session of which nothing is known has servers")
	}
}
