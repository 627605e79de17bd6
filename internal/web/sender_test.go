package web

import (
	"net/http/httptest"
	"testing"
)

func TestOnlyTrustedProxiesAreBelieved(t *testing.T) {
	s := create(t, Config{TrustedProxies: []string{"10.0.0.0/8", "::ffff:192.0.2.1", "2001:db8::/32"}})
	for _, test := range []struct {
		name, remote string
		headers      [][2]string
		client       string
		scheme, host string
		ownID        bool
	}{
		{"no proxy between", "203.0.113.5:1000", nil, "203.0.113.5", "http", "here.test", false},
		{"a stranger's words", "203.0.113.5:1000", [][2]string{{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Proto", "https"}, {"X-Forwarded-Host", "a"}, {"Forwarded", "for=1.1.1.1;host=a"}, {"X-Request-Id", "mine"}}, "203.0.113.5", "http", "here.test", false},
		{"a proxy", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "203.0.113.5"}, {"X-Forwarded-Proto", "https"}, {"X-Forwarded-Host", "public.test"}, {"X-Request-Id", "mine"}}, "203.0.113.5", "https", "public.test", true},
		{"a proxy that says nothing", "10.0.0.1:1000", nil, "10.0.0.1", "http", "here.test", false},
		{"what the client put before", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "127.0.0.1, 203.0.113.5"}}, "203.0.113.5", "http", "here.test", false},
		{"in a header of its own", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-For", "203.0.113.5"}}, "203.0.113.5", "http", "here.test", false},
		{"two proxies", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "198.51.100.7, 203.0.113.5, 10.2.0.1"}}, "203.0.113.5", "http", "here.test", false},
		{"proxies all the way", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "10.3.0.1, 10.2.0.1"}}, "10.3.0.1", "http", "here.test", false},
		{"garbage ends it", "10.0.0.1:1000", [][2]string{{"X-Forwarded-For", "203.0.113.5, <script>, 10.2.0.1"}}, "10.2.0.1", "http", "here.test", false},
		{"a mapped address of a proxy", "[::ffff:192.0.2.1]:1000", [][2]string{{"X-Forwarded-For", "203.0.113.5"}}, "203.0.113.5", "http", "here.test", false},
		{"IPv6 with a port", "[2001:db8::1]:1000", [][2]string{{"X-Forwarded-For", "[2001:4860::1]:99"}}, "2001:4860::1", "http", "here.test", false},
		{"Forwarded", "10.0.0.1:1000", [][2]string{{"Forwarded", `for=127.0.0.1;host=evil.test, For="[2001:4860::1]:80";Proto=HTTPS;Host="public.test"`}}, "2001:4860::1", "https", "public.test", false},
		{"Forwarded beside X-Forwarded-For", "10.0.0.1:1000", [][2]string{{"Forwarded", "for=127.0.0.1;host=evil.test"}, {"X-Forwarded-For", "203.0.113.5"}}, "203.0.113.5", "http", "here.test", false},
		{"a scheme that is none", "10.0.0.1:1000", [][2]string{{"X-Forwarded-Proto", "javascript"}}, "10.0.0.1", "http", "here.test", false},
		{"an id that breaks lines", "10.0.0.1:1000", [][2]string{{"X-Request-Id", "a\r\nb"}}, "10.0.0.1", "http", "here.test", false},
		{"no address at all", "pipe", nil, "invalid IP", "http", "here.test", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "http://here.test/", nil)
			r.RemoteAddr = test.remote
			for _, h := range test.headers {
				r.Header.Add(h[0], h[1])
			}
			from := s.senderOf(r)
			switch {
			case from.client.String() != test.client:
				t.Errorf("from.client.String() = %q, want %q", from.client.String(), test.client)
			case from.scheme != test.scheme:
				t.Errorf("from.scheme = %v, want %v: %v, %s", from.scheme, test.scheme, from.client, from.host)
			case from.host != test.host:
				t.Errorf("from.host = %v, want %v: %v, %s", from.host, test.host, from.client, from.scheme)
			}
			if got := from.id == "mine"; got != test.ownID {
				t.Errorf("the id is the client's own: got %v, want %v: %q", got, test.ownID, from.id)
			}
			if !saneID(from.id) {
				t.Errorf("the id is %q, want a sane one", from.id)
			}
		})
	}
}

func TestPlainHTTPIsForTheProxiesAlone(t *testing.T) {
	s := create(t, Config{Host: "0.0.0.0", TrustedProxies: []string{"10.0.0.1"}, AllowedHosts: []string{"here.test"}})
	for remote, want := range map[string]int{"10.0.0.1:1": 200, "127.0.0.1:1": 200, "10.0.0.2:1": 403, "[2001:db8::1]:1": 403} {
		r := httptest.NewRequest("GET", "http://here.test/healthz", nil)
		r.RemoteAddr = remote
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != want {
			t.Errorf("from %s the status is %d, want %d", remote, w.Code, want)
		}
	}
}
