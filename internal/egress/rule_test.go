package egress

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestRulesWithMethodsAndPaths(t *testing.T) {
	for _, c := range []struct{ rules, yes, no string }{
		{"GET a.com", "GET / , HEAD /x , GET //x", "POST / , get / , OPTIONS / , DELETE /x"},
		{"POST a.com", "POST /x", "GET / , HEAD /"},
		{"a.com/v1/users", "GET /v1/users , PUT /v1/%75sers", "GET /v1/users/ , GET /v1/users/1 , GET /v1 , GET /V1/users , GET /v1/users%20"},
		{"a.com/v1/*", "GET /v1/ , GET /v1/a/b/c , GET /v1/a%20b , GET /v1/a:b@c!d", "GET /v1 , GET /v10 , GET / , GET /v1/../x , GET /v1/%2e%2e/x , GET /v1/a/.. , GET /v1/./a , GET /v1//a , GET //v1/a"},
		{"a.com/v1*", "GET /v1 , GET /v10 , GET /v1/x", "GET /v , GET /x/v1"},
		{"a.com/*", "GET / , GET /v1/../x , GET //", ""}, // is the host
		{"GET a.com/repos/*/*/issues", "GET /repos/a/b/issues", "GET /repos/a/issues , GET /repos/a/b/c/issues , GET /repos//b/issues , GET /repos/a/b/issues/1"},
		{"GET a.com/repos/*/issues/*", "GET /repos/a/issues/ , GET /repos/a/issues/1/x", "GET /repos/a/issues , GET /repos/a/b/issues/1"},
		{"a.com/", "GET / , GET ", "GET /x , GET //"},
		{"a.com/gr%C3%b6%c3%9fe", "GET /gr%c3%b6%C3%9Fe", "GET /gr%f6%dfe"},
		{"a.com/x GET a.com/y", "POST /x , GET /y", "POST /y"},
		{"a.com/x a.com", "POST /x/../y", ""}, // the host alone says more
		{"*.com.example/x", "", "GET /x"},
		{"a.com/x%2Ay a.com/x~y", "GET /x%2ay , GET /x%7Ey", "GET /xzy"},
		{"a.com/v1/*", "GET /v1/x;a=b , GET /v1/a...b , GET /v1/.well-known", "GET /v1/..;/x , GET /v1/..;a=b/x , GET /v1/.;/x , GET /v1/;/x , GET /v1/... , GET /v1/%20../x , GET /v1/..%20/x , GET /v1/a%2Fb , GET /v1/a%5Cb , GET /v1/a\\b , GET /v1/%2525 , GET /v1/%00 , GET /v1/%0a , GET /v1/%7f , GET /v1/%c0%ae , GET /v1/%ff , GET /v1/% , GET /v1/%4 , GET /v1/%zz , GET v1/x , GET * , GET /v1/ä"},
	} {
		p := parse(t, Rights{Requests: true}, Split(c.rules)...)
		for want, list := range map[bool]string{true: c.yes, false: c.no} {
			for _, text := range strings.Split(list, " , ") {
				method, path, ok := strings.Cut(text, " ")
				if !ok {
					continue
				}
				grant, err := p.CheckRequest(Request{Method: method, Host: "A.com.", Port: 443, Path: path})
				if got := err == nil; got != want {
					t.Errorf("with %s, %s is allowed: got %v, want %v: %v", c.rules, text, got, want, err)
				} else if err != nil && fault.KindOf(err) != fault.Denied {
					t.Errorf("with %s, %s: got an error of the kind %q, want %q: %v",
						c.rules, text, fault.KindOf(err), fault.Denied, err)
				}
				if err == nil && (grant.Rule == "" || grant.Path == "" || !slices.Contains(Split(c.rules), grant.Rule)) {
					t.Errorf("with %s, %s is granted as %+v", c.rules, text, grant)
				}
			}
		}
	}
}

func TestWhatIsNoRuleForRequests(t *testing.T) {
	for _, text := range []string{
		"GET", "POST", "get", "Post", "10.0.0.0/8", "192.0.2.1/32!private", "2001:db8::/32", "get a.com", "GET  a.com", " a.com", "GET a.com ", "GET\ta.com", "GET POST a.com", "GET|POST a.com", "CONNECT a.com", "TRACE a.com", "G3T a.com", "GET POST",
		"a.com/v1?x=1", "a.com/v1#x", "a.com/a*b", "a.com/*a", "a.com/a*/b", "a.com/**", "a.com/x/../y", "a.com/./y", "a.com//y", "a.com/a%2fb", "a.com/a%5cb", "a.com/%", "a.com/%00", "a.com/ä", `a.com\x`,
		"https://a.com/v1", "http:/a.com", "a.com/x!private:80", "GET /x", "/x", "GET *.com/x", "*a.com", "a.*.com", "*.", "*.*", "*.127.0.0.1", "..a.com", "*..a.com",
		"a.com/" + strings.Repeat("a", 700),
	} {
		if p, err := Parse([]string{text}, Rights{Private: true, Requests: true}); err == nil {
			t.Errorf("%q is a rule: %+v", text, p)
		}
	}
	for _, text := range []string{"GET a.com:8443/v1/*", "M-SEARCH a.com", "GET *.a.com/x", "*.a.com:*", "GET 10.0.0.1:80/x!private", "[::1]:80/x!private", "GET ::1!private", "2001:db8::1/x!private", "192.0.2.1:80/24", "GET 192.0.2.1/24"} {
		if _, err := Parse([]string{text}, Rights{Private: true, Requests: true}); err != nil {
			t.Errorf("%q is none: %v", text, err)
		}
	}
}

func TestOneLineOfRules(t *testing.T) {
	for line, want := range map[string][]string{
		"":                              nil,
		" , ":                           nil,
		"a.com b.com,c.com":             {"a.com", "b.com", "c.com"},
		"GET a.com/v1/*, *.b.com":       {"GET a.com/v1/*", "*.b.com"},
		"GET  a.com\n\tPOST,a.com/x":    {"GET a.com", "POST a.com/x"},
		"a.com GET":                     {"a.com", "GET"}, // which is refused
		"GET,POST a.com HEAD PUT":       {"GET", "POST a.com", "HEAD", "PUT"},
		"10.0.0.1:80!private M-GET a.b": {"10.0.0.1:80!private", "M-GET a.b"},
	} {
		if got := Split(line); !slices.Equal(got, want) {
			t.Errorf("%q is %q", line, got)
		}
	}
}

// Where hosts are decided about, rules for some requests count for none; where
// connections are, for all.
func TestRulesForRequestsAreNotRulesForHosts(t *testing.T) {
	p := parse(t, Rights{Private: true, Requests: true}, "GET a.com/v1/*", "b.com", "10.0.0.1/x!private", "*.c.com:8443/x")
	for _, c := range []struct {
		host         string
		port         int
		whole, reach bool
	}{
		{"a.com", 443, false, true}, {"a.com", 8443, false, false}, {"b.com", 80, true, true}, {"10.0.0.1", 80, false, true}, {"10.0.0.2", 80, false, false}, {"x.c.com", 8443, false, true}, {"c.com", 8443, false, false},
	} {
		if got := p.Allows(c.host, c.port); got != c.whole {
			t.Errorf("%s at %d is allowed whole: got %v, want %v", c.host, c.port, got, c.whole)
		}
		if err := p.Reach(c.host, c.port); (err == nil) != c.reach {
			t.Errorf("%s at %d may be reached: got %v, want %v: %v", c.host, c.port, err == nil, c.reach, err)
		}
	}
	for host, want := range map[string]bool{"a.com": true, "A.COM.": true, "x.c.com": true, "c.com": false, "d.com": false, "a b": false, "10.0.0.1": true} {
		if p.Names(host) != want {
			t.Errorf("%s may be known: %v", host, !want)
		}
	}
	if (Policy{}).Names("a.com") {
		t.Error("a name is known where nothing is allowed: the zero Policy names it")
	}
	if p.Narrow(Policy{}).Names("a.com") {
		t.Error("a name is known where nothing is allowed: a Policy narrowed to nothing names it")
	}
}

func TestAWishNarrowsRequests(t *testing.T) {
	host, part := parse(t, Rights{Requests: true}, "a.com"), parse(t, Rights{Requests: true}, "GET a.com/v1/*", "a.com/v1/x")
	ask := func(p Policy, method, path string) string {
		g, err := p.CheckRequest(Request{method, "a.com", 443, path})
		if err != nil {
			return "no"
		}
		return fmt.Sprint(g.Rule, " ", g.Part)
	}
	for name, p := range map[string]Policy{"by a model": host.Narrow(part), "by an operator": part.Narrow(host)} {
		rule := map[string]string{"by a model": "a.com", "by an operator": "GET a.com/v1/*"}[name]
		if got := ask(p, "GET", "/v1/y"); got != rule+" true" {
			t.Errorf("%s: %s", name, got)
		}
		switch {
		case ask(p, "POST", "/v1/y") != "no":
			t.Errorf(`%s: it is not both: ask(p, "POST", "/v1/y") = %q, want "no"`,
				name, ask(p, "POST", "/v1/y"))
		case ask(p, "GET", "/v2") != "no":
			t.Errorf(`%s: it is not both: ask(p, "GET", "/v2") = %q, want "no"`,
				name, ask(p, "GET", "/v2"))
		case ask(p, "GET", "/v1/../x") != "no":
			t.Errorf(`%s: it is not both: ask(p, "GET", "/v1/../x") = %q, want "no"`,
				name, ask(p, "GET", "/v1/../x"))
		case ask(p, "POST", "/v1/x") == "no":
			t.Errorf(`%s: it is not both: ask(p, "POST", "/v1/x") = %q, want other than "no"`,
				name, ask(p, "POST", "/v1/x"))
		}
	}
	if ask(host, "POST", "/v1/../x") != "a.com false" {
		t.Error("a whole host is not")
	}
}

// A path has one spelling, of which its own spelling is itself, and in which nothing that
// servers read in two ways is left.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", "/", "/a/b", "/%61", "/%2e%2e/", "/a%2fb", "//", "/..;/x", "/%c0%ae", "/a%20", "*", "/\\"} {
		f.Add(s, "/v1/*")
	}
	f.Fuzz(func(t *testing.T, text, pattern string) {
		path, err := canonicalPath(text)
		if err != nil {
			return
		}
		if again, err := canonicalPath(path); err != nil {
			t.Errorf("%q: got error %v, want none", text, err)
		} else if again != path {
			t.Errorf("%q: again = %q, want %q", text, again, path)
		}
		for _, bad := range []string{"//", "/./", "/../", "\\", "%2F", "%5C", "%00", "%25", "%2E"} {
			if strings.Contains(path+"/", bad) && !strings.HasSuffix(path, "/") {
				t.Errorf("%q is %q", text, path)
			}
		}
		segments, err := parsePattern(pattern)
		if err != nil {
			return
		}
		if prefix, star := strings.CutSuffix(pattern, "*"); star && !strings.ContainsAny(prefix, "*%") && matchPath(segments, path) != strings.HasPrefix(path, prefix) {
			t.Errorf("%q and %q: %v", pattern, path, matchPath(segments, path))
		}
		if !strings.ContainsAny(pattern, "*%") && matchPath(segments, path) != (path == pattern || path == "/" && pattern == "") {
			t.Errorf("%q and %q: %v", pattern, path, matchPath(segments, path))
		}
	})
}
