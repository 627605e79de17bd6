package web

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestOnlyOwnNamesAreAnsweredTo(t *testing.T) {
	s := start(t, Config{AllowedHosts: []string{"other.test:8080", "any.test", "[2001:db8::7]:80"}, PublicURL: "https://Public.test"})
	for host, want := range map[string]int{
		"127.0.0.1:PORT":         200,
		"localhost:PORT":         200,
		"LocalHost:PORT":         200,
		"[::1]:PORT":             200,
		"[0:0:0:0:0:0:0:1]:PORT": 200,
		"public.test:443":        200,
		"other.test:8080":        200,
		"any.test":               200,
		"any.test:1":             200,
		"[2001:db8::7]":          200,

		"evil.test":                 403,
		"evil.test:PORT":            403,
		"localhost":                 403, // another port: 80
		"localhost:1":               403,
		"localhost:PORT1":           403,
		"localhost.:PORT":           403,
		"localhost.evil.test:PORT":  403,
		"evil-localhost:PORT":       403,
		"127.0.0.1.evil.test:PORT":  403,
		"127.1:PORT":                403,
		"2130706433:PORT":           403,
		"[::ffff:127.0.0.1]:PORT":   200, // the same address
		"[::1%25lo]:PORT":           403,
		"::1:PORT":                  403,
		"0.0.0.0:PORT":              403,
		"other.test":                403,
		"other.test:PORT":           403,
		"evil@localhost:PORT":       403,
		"localhost:PORT@evil":       403,
		"localhost:0PORT:":          403,
		"":                          403,
		"public.test":               403, // http's port; it is called by https
		"xn--lcalhost-5xf.test":     403,
		"localhost:PORT, evil.test": 400, // net/http's own refusal, or ours
	} {
		t.Run(host, func(t *testing.T) {
			got := s.raw(t, "GET /healthz HTTP/1.1\nHost: "+host+"\n\n")
			if got.status != want && (want < 400 || got.status/100 != 4) {
				t.Errorf("the status is %d, want %d: %s", got.status, want, got.body)
			}
		})
	}
	t.Run("two Host headers", func(t *testing.T) {
		if got := s.raw(t, "GET /healthz HTTP/1.1\nHost: localhost:PORT\nHost: evil.test\n\n"); got.status != 400 {
			t.Errorf("the status is %d", got.status)
		}
	})
	t.Run("what a proxy would say, from somebody else", func(t *testing.T) {
		if got := s.raw(t, "GET /healthz HTTP/1.1\nHost: evil.test\nX-Forwarded-Host: localhost:PORT\nForwarded: host=localhost:PORT\n\n"); got.status != 403 {
			t.Errorf("the status is %d", got.status)
		}
	})
	t.Run("an absolute target counts, not the header", func(t *testing.T) {
		if got := s.raw(t, "GET http://evil.test/healthz HTTP/1.1\nHost: localhost:PORT\n\n"); got.status != 403 {
			t.Errorf("the status is %d", got.status)
		}
	})
}

func TestTheAddressThatAConnectionCameInAtIsAName(t *testing.T) {
	s := start(t, Config{Host: "0.0.0.0", AllowPlain: true})
	_, port, _ := net.SplitHostPort(s.at)
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || ip.IP.To4() == nil {
			continue
		}
		c, err := net.Dial("tcp", net.JoinHostPort(ip.IP.String(), port))
		if err != nil {
			t.Logf("%v cannot be called: %v", ip.IP, err)
			continue
		}
		defer c.Close()
		if got := exchange(t, c, fmt.Sprintf("GET /healthz HTTP/1.1\nHost: %s:%s\nConnection: close\n\n", ip.IP, port)); got.status != 200 {
			t.Errorf("at %v the status is %d", ip.IP, got.status)
		}
	}
	if got := s.raw(t, "GET /healthz HTTP/1.1\nHost: 192.0.2.9:PORT\n\n"); got.status != 403 {
		t.Errorf("with a foreign address the status is %d", got.status)
	}
}

func TestOnlyPagesOfKnownOriginsMayCall(t *testing.T) {
	few := start(t, Config{Origins: []string{"https://Page.test", "http://localhost:6274", "vscode-webview://abc"}})
	all := start(t, Config{Origins: []string{"*"}})
	for _, test := range []struct {
		headers  string
		few, all int
	}{
		{"", 200, 200},
		{"Origin: http://127.0.0.1:PORT", 200, 200},
		{"Origin: https://page.test", 200, 200},
		{"Origin: https://page.test:443", 200, 200},
		{"Origin: http://localhost:6274", 200, 200},
		{"Origin: vscode-webview://abc", 200, 403},
		{"Origin: null", 403, 403},
		{"Origin: file://", 403, 403},
		{"Origin: file:///etc/passwd", 403, 403},
		{"Origin:", 403, 403},
		{"Origin: http://evil.test", 403, 200},
		{"Origin: https://127.0.0.1:PORT", 403, 200},
		{"Origin: http://127.0.0.1:1", 403, 200},
		{"Origin: http://127.0.0.1", 403, 200},
		{"Origin: http://localhost:PORT", 403, 200}, // another origin than the Host's
		{"Origin: http://[::1]:PORT", 403, 200},
		{"Origin: http://page.test", 403, 200},
		{"Origin: https://page.test.evil.test", 403, 200},
		{"Origin: https://page.test/", 403, 403},
		{"Origin: https://user@page.test", 403, 403},
		{"Origin: page.test", 403, 403},
		{"Origin: https://page.test https://evil.test", 403, 403},
		{"Origin: https://page.test\nOrigin: https://page.test", 403, 403},
		{"Origin: http://evil.test\nX-Forwarded-Host: evil.test", 403, 200},
		{"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors", 403, 403},
		{"Sec-Fetch-Site: same-site\nSec-Fetch-Mode: no-cors", 403, 403},
		{"Sec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate", 200, 200}, // somebody follows a link
		{"Sec-Fetch-Site: same-origin\nSec-Fetch-Mode: cors", 200, 200},
		{"Sec-Fetch-Site: none\nSec-Fetch-Mode: navigate", 200, 200},
	} {
		t.Run(test.headers, func(t *testing.T) {
			request := "GET /healthz HTTP/1.1\nHost: 127.0.0.1:PORT\n" + test.headers + "\n\n"
			if test.headers == "" {
				request = "GET /healthz HTTP/1.1\nHost: 127.0.0.1:PORT\n\n"
			}
			if got := few.raw(t, request); got.status != test.few {
				t.Errorf("with a list the status is %d, want %d: %s", got.status, test.few, got.body)
			}
			if got := all.raw(t, request); got.status != test.all {
				t.Errorf("with * the status is %d, want %d: %s", got.status, test.all, got.body)
			}
		})
	}
}

func TestWhatABrowserIsTold(t *testing.T) {
	s := start(t, Config{Origins: []string{"https://page.test"}})
	preflight := "OPTIONS /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: %s\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: authorization,content-type,last-event-id,mcp-param-session,mcp-protocol-version,traceparent\n\n"
	got := s.raw(t, fmt.Sprintf(preflight, "https://page.test"))
	switch {
	case got.status != 204:
		t.Errorf("a preflight: got.status = %v, want 204: %+v", got.status, got)
	case got.header.Get("Access-Control-Allow-Origin") != "https://page.test":
		t.Errorf(`a preflight: header Access-Control-Allow-Origin = %q, want "https://page.test"`,
			got.header.Get("Access-Control-Allow-Origin"))
	case !strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "mcp-param-session"):
		t.Errorf(`a preflight: header Access-Control-Allow-Headers = %q, want "mcp-param-session" in it`,
			got.header.Get("Access-Control-Allow-Headers"))
	case got.header.Get("Access-Control-Allow-Credentials") != "":
		t.Errorf(`a preflight: header Access-Control-Allow-Credentials = %q, want ""`,
			got.header.Get("Access-Control-Allow-Credentials"))
	}
	got = s.raw(t, fmt.Sprintf(preflight, "https://evil.test"))
	if got.status != 403 {
		t.Errorf("that of another origin: got.status = %d, want 403: %+v", got.status, got)
	} else if got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf(`that of another origin: header Access-Control-Allow-Origin = %q, want "": %+v`,
			got.header.Get("Access-Control-Allow-Origin"), got)
	}
	for name, request := range map[string]string{
		"a call":               post("Origin: https://page.test\n", "{}"),
		"one without a token":  "POST /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: https://page.test\nContent-Type: application/json\nContent-Length: 0\n\n",
		"one that was refused": "POST /mcp HTTP/1.1\nHost: 127.0.0.1:PORT\nOrigin: https://page.test\nContent-Type: text/plain\nContent-Length: 0\n\n",
	} {
		got := s.raw(t, request)
		switch h := got.header.Get("Access-Control-Expose-Headers"); {
		case got.header.Get("Access-Control-Allow-Origin") != "https://page.test":
			t.Errorf(`%s: header Access-Control-Allow-Origin = %q, want "https://page.test"`,
				name, got.header.Get("Access-Control-Allow-Origin"))
		case !strings.Contains(h, "Mcp-Session-Id"):
			t.Errorf(`%s: h = %q, want "Mcp-Session-Id" in it`, name, h)
		case !strings.Contains(strings.ToLower(h), "www-authenticate"):
			t.Errorf(`%s: strings.ToLower(h) = %q, want "www-authenticate" in it`, name, strings.ToLower(h))
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost:1", "[::1]:80", "127.0.0.1", "a:b:c", "[", "]:1", "%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, port, ok := splitHost(s)
		if !ok {
			return
		}
		again := bracketed(name)
		if port != "" {
			again += ":" + port
		}
		switch n, p, ok := splitHost(again); {
		case !ok:
			t.Errorf("ok = false, want true; %q is %q and %q, which is %q and %q again (%v)",
				s, name, port, n, p, ok)
		case n != name:
			t.Errorf("n = %v, want %v; %q is %q and %q, which is %q and %q again (%v)",
				n, name, s, name, port, n, p, ok)
		case p != port:
			t.Errorf("p = %v, want %v; %q is %q and %q, which is %q and %q again (%v)",
				p, port, s, name, port, n, p, ok)
		}
		if strings.ContainsAny(name, " /@\\\x00\r\n") {
			t.Errorf("%q has the name %q", s, name)
		}
	})
}
