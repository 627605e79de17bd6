package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tunnelTo asks the proxy for a connection, and gives it with nothing read of what is within.
func tunnelTo(t *testing.T, proxy, target string) net.Conn {
	t.Helper()
	conn := dial(t, proxy)
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	head := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatalf("CONNECT %s: got error %v, want none", target, err)
	} else if !strings.HasPrefix(string(head), "HTTP/1.1 200 ") {
		t.Fatalf(`CONNECT %s: head = %q, want it to begin with "HTTP/1.1 200 "`, target, string(head))
	}
	return conn
}

// greeted is TLS within a tunnel, as a client that trusts the session and says that name.
func greeted(d *Proxy, conn net.Conn, name string, protocols ...string) (*tls.Conn, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.CA())
	c := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name, NextProtos: protocols})
	return c, c.Handshake()
}

func statusLine(text string) string {
	line, _, _ := strings.Cut(text, "\r\n")
	return line
}

// Whom TCP, TLS and HTTP name has to be one (attack 37).
func TestAConnectionIsForOneHost(t *testing.T) {
	s := serves(t, true, nil)
	at := "example.com:" + s.port()
	d, got := opened(t, Config{Resolver: names{"example.com": "127.0.0.1", "other.example.com": "127.0.0.1"}}, at+"!private", "other.example.com:*!private")
	proxy := proxied(t, d)
	for _, name := range []string{"other.example.com", "evil.example", "example.com.evil.example"} {
		if _, err := greeted(d, tunnelTo(t, proxy, at), name); err == nil {
			t.Errorf("TLS for %s is spoken on a connection to %s", name, at)
		}
	}
	if _, err := greeted(d, tunnelTo(t, proxy, at), "example.com", "h2"); err == nil {
		t.Error("HTTP/2 alone is spoken, whose requests each name a host")
	}
	for name, text := range map[string]string{
		"another host":       "GET / HTTP/1.1\r\nHost: other.example.com:" + s.port() + "\r\n\r\n",
		"another port":       "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"a whole URL":        "GET https://other.example.com:" + s.port() + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"another scheme":     "GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"a NUL":              "GET / HTTP/1.1\r\nHost: example.com\x00.evil.example\r\n\r\n",
		"a user":             "GET / HTTP/1.1\r\nHost: a@" + at + "\r\n\r\n",
		"two hosts":          "GET / HTTP/1.1\r\nHost: " + at + "\r\nHost: other.example.com\r\n\r\n",
		"no host":            "GET / HTTP/1.1\r\n\r\n",
		"a proxy's tunnel":   "CONNECT other.example.com:443 HTTP/1.1\r\nHost: other.example.com:443\r\n\r\n",
		"all of a server":    "OPTIONS * HTTP/1.1\r\nHost: " + at + "\r\n\r\n",
		"a host of the line": "GET //other.example.com/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
	} {
		c, err := greeted(d, tunnelTo(t, proxy, at), "example.com", "http/1.1")
		if err != nil {
			t.Fatal(err)
		}
		if line := statusLine(raw(t, c, text+"GET / HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n")); !strings.HasPrefix(line, "HTTP/1.1 40") {
			t.Errorf("%s: %q", name, line)
		}
		n, _ := strconv.Atoi(s.port())
		if line := statusLine(raw(t, opens(t, d, "example.com", n, true), text+"GET / HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n")); !strings.HasPrefix(line, "HTTP/1.1 40") {
			t.Errorf("%s, on a stream: %q", name, line)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("the server was asked %v", seen)
	}
	causes := map[string]int{}
	for _, r := range got.wait(t, 3+1+2*11) {
		causes[r.Cause+" "+string(r.Decision)]++
	}
	if causes["mismatch denied"] < 3+2*5 {
		t.Errorf(`the records are for: causes["mismatch denied"] = %d, want at least %d`,
			causes["mismatch denied"], 3+2*5)
	} else if causes["tls allowed"] != 1 {
		t.Errorf(`the records are for: causes["tls allowed"] = %d, want 1`, causes["tls allowed"])
	}
}

func TestWhatAProxyIsNotAskedFor(t *testing.T) {
	s := serves(t, false, nil)
	d, _ := opened(t, Config{}, "127.0.0.1:"+s.port()+"!private", "example.com")
	proxy := proxied(t, d)
	at := "127.0.0.1:" + s.port()
	for name, c := range map[string]struct{ text, status string }{
		"a path":                 {"GET / HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "400"},
		"no port":                {"CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", "400"},
		"another port":           {"CONNECT example.com:22 HTTP/1.1\r\nHost: example.com:22\r\n\r\n", "403"},
		"mail":                   {"CONNECT example.com:25 HTTP/1.1\r\nHost: example.com:25\r\n\r\n", "403"},
		"a body":                 {"CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\nContent-Length: 5\r\n\r\nGET /", "400"},
		"a chunked body":         {"CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"a user to connect to":   {"CONNECT good.example@evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
		"a path to connect to":   {"CONNECT /_goRPC_ HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "400"},
		"a user":                 {"GET http://example.com@" + at + "/ HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
		"a URL without a host":   {"GET http:/x HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "400"},
		"an opaque URL":          {"GET http:evil HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "400"},
		"a file":                 {"GET file:///etc/passwd HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "400"},
		"ftp":                    {"GET ftp://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "403"},
		"gopher":                 {"GET gopher://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "403"},
		"TRACE":                  {"TRACE http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\n\r\n", "403"},
		"a WebSocket":            {"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n", "403"},
		"a switch":               {"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at + "\r\nConnection: keep-alive, upgrade\r\n\r\n", "403"},
		"HTTP/2 without TLS":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		"an unknown version":     {"GET http://" + at + "/ HTTP/3.0\r\nHost: " + at + "\r\n\r\n", "505"},
		"no version":             {"GET http://" + at + "/\r\n\r\n", "400"},
		"a space in a name":      {"GET http://" + at + "/ HTTP/1.1\r\nHost : " + at + "\r\n\r\n", "400"},
		"a folded header":        {"GET http://" + at + "/ HTTP/1.1\r\n Host: " + at + "\r\n\r\n", "400"},
		"a bare CR":              {"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", "400"},
		"a NUL in a header":      {"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n", "400"},
		"a header without end":   {"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", "431"},
		"headers without end":    {"GET http://" + at + "/ HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 40<<10) + "\r\n", "431"},
		"an unheard-of encoding": {"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
		"an odd encoding":        {"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400"},
		"two lengths":            {"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		"a length with a sign":   {"POST http://" + at + "/ HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", "400"},
	} {
		got := raw(t, dial(t, proxy), c.text+"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 "+c.status) {
			t.Errorf("%s: %q", name, got)
		}
		if strings.Contains(got, "HTTP/1.1 200") {
			t.Errorf("%s: something was answered: %q", name, got)
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("the server was asked %v", seen)
	}
}

// However its length is written, what the server reads is what was decided about: the
// bytes that follow are the next request, which is decided for itself (attack 38).
func TestNoRequestHidesInAnother(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(b))
		if len(r.Trailer) > 0 {
			t.Errorf("the server was told of a trailer: %v", r.Trailer)
		}
	})
	at := "127.0.0.1:" + s.port()
	d, _ := opened(t, Config{}, at+"/open/*!private")
	proxy := proxied(t, d)
	hidden := "GET http://" + at + "/admin HTTP/1.1\r\nHost: " + at + "\r\n\r\n"
	for name, text := range map[string]string{
		"CL and TE":         "POST http://" + at + "/open/1 HTTP/1.1\r\nHost: " + at + "\r\nContent-Length: " + strconv.Itoa(len(hidden)+5) + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"TE and CL":         "POST http://" + at + "/open/2 HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + hidden,
		"two TE":            "POST http://" + at + "/open/3 HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"chunk extensions":  "POST http://" + at + "/open/4 HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\n\r\n0;a=\"\r\n\r\n" + hidden,
		"a bare LF":         "POST http://" + at + "/open/5 HTTP/1.1\nHost: " + at + "\nContent-Length: 0\n\n" + hidden,
		"a GET with a body": "GET http://" + at + "/open/6 HTTP/1.1\r\nHost: " + at + "\r\nContent-Length: 0\r\n\r\n" + hidden,
		"a chunk too long":  "POST http://" + at + "/open/7 HTTP/1.1\r\nHost: " + at + "\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nGET http://x/\r\n0\r\n\r\n" + hidden,
		"a named length":    "POST http://" + at + "/open/8 HTTP/1.1\r\nHost: " + at + "\r\nConnection: close, Content-Length\r\nContent-Length: 3\r\n\r\nabc" + hidden,
		"a request trailer": "POST http://" + at + "/open/9 HTTP/1.1\r\nHost: " + at + "\r\nTrailer: X-Secret\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Secret: placeholder\r\n\r\n" + hidden,
		"an expectation":    "POST http://" + at + "/open/10 HTTP/1.1\r\nHost: " + at + "\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc" + hidden,
	} {
		if got := raw(t, dial(t, proxy), text+"GET http://"+at+"/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, seen := range s.asked() {
		if !strings.Contains(seen, " /open/") {
			t.Errorf("the server was asked %s", seen)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, b := range bodies {
		if strings.Contains(b, "/admin") && !strings.HasPrefix(b, "GET http://"+at+"/admin") {
			t.Errorf("a body is %q", b)
		}
	}
	if len(s.asked()) < 5 {
		t.Errorf("only %v came through", s.asked())
	}
}

// What the host gets has no header that is the connection's, and none that says where
// it comes from.
func TestHeadersOfTheConnectionStayHere(t *testing.T) {
	var got http.Header
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set(deniedHeader, "host: no")
		w.Header().Set("Set-Cookie", "a=b")
	})
	at := "127.0.0.1:" + s.port()
	d, _ := opened(t, Config{}, at+"!private")
	text := raw(t, dial(t, proxied(t, d)), "GET http://"+at+"/?a=1;b=%zz&c HTTP/1.1\r\nHost: "+at+"\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\nX-Mine: 1\r\nX-Gone: 1\r\nKeep-Alive: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nX-Forwarded-For: 127.0.0.1\r\nForwarded: for=1\r\nConnection: close, X-Gone, Upgrade, HTTP2-Settings\r\n\r\n")
	names := []string{}
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	if fmt.Sprint(names) != "[X-Mine]" {
		t.Errorf("the host got %v", got)
	}
	if seen := s.asked(); len(seen) != 1 {
		t.Errorf("the host was asked: len(seen) = %d, want 1: %q", len(seen), seen)
	} else if seen[0] != "GET "+at+" /?a=1;b=%zz&c" {
		t.Errorf("the host was asked: seen[0] = %q, want %q", seen[0], "GET "+at+" /?a=1;b=%zz&c")
	}
	switch {
	case strings.Contains(text, "X-Hop"):
		t.Errorf(`the program: text = %q, want no "X-Hop" in it`, text)
	case strings.Contains(text, "Alt-Svc"):
		t.Errorf(`the program: text = %q, want no "Alt-Svc" in it`, text)
	case strings.Contains(text, deniedHeader):
		t.Errorf("the program: text = %q, want no %q in it", text, deniedHeader)
	case !strings.Contains(text, "Set-Cookie: a=b"):
		t.Errorf(`the program: text = %q, want "Set-Cookie: a=b" in it`, text)
	}
}

// Other protocols, at the ports of allowed hosts (attack 39).
func TestWhatIsNoHTTPIsNotLetOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	d, got := opened(t, Config{}, at+"!private")
	proxy := proxied(t, d)
	texts := []string{
		"SSH-2.0-OpenSSH_9.6\r\n", "EHLO evil.example\r\nMAIL FROM:<a@b>\r\n", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "*1\r\n$4\r\nPING\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x13BitTorrent protocol", "{\"json\":1}\n", "USER anonymous\r\n", "\x80\x2e\x01\x03\x01", "\x15\x03\x01\x00\x02\x02\x28",
	}
	for k, text := range texts {
		answer := raw(t, tunnelTo(t, proxy, at), text)
		if !strings.HasPrefix(answer, "HTTP/1.1 40") && !strings.HasPrefix(answer, "HTTP/1.1 505") {
			t.Errorf("%q is answered %q", text, answer)
		}
		switch r := got.wait(t, k+1)[k]; {
		case r.Decision != Denied:
			t.Errorf("%q: the record: r.Decision = %v, want %v: %+v", text, r.Decision, Denied, r)
		case r.Cause != "protocol":
			t.Errorf(`%q: the record: r.Cause = %q, want "protocol"`, text, r.Cause)
		case r.Host != "127.0.0.1":
			t.Errorf(`%q: the record: r.Host = %q, want "127.0.0.1"`, text, r.Host)
		}
	}
	c, err := greeted(d, tunnelTo(t, proxy, at), "127.0.0.1", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	if text := raw(t, c, "* OK IMAP4rev1\r\n"); !strings.HasPrefix(text, "HTTP/1.1 400") {
		t.Errorf("within TLS: %q", text)
	}
	n, _ := strconv.Atoi(at[strings.LastIndexByte(at, ':')+1:])
	if text := raw(t, opens(t, d, "127.0.0.1", n, true), "SSH-2.0-x\r\n"); !strings.HasPrefix(text, "HTTP/1.1 400") {
		t.Errorf("a stream: %q", text)
	}
	if list := got.wait(t, len(texts)+2); list[len(texts)+1].Cause != "protocol" {
		t.Errorf(`a stream's record: list[len(texts)+1].Cause = %q, want "protocol": %+v`,
			list[len(texts)+1].Cause, list[len(texts)+1])
	} else if list[len(texts)+1].Decision != Denied {
		t.Errorf("a stream's record: list[len(texts)+1].Decision = %q, want %q: %+v",
			list[len(texts)+1].Decision, Denied, list[len(texts)+1])
	}
	_ = l.(*net.TCPListener).SetDeadline(now())
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the host was connected to")
	}
}

// Addresses of this host, of its network and of clouds, in all their forms (34, 35, 41);
// and names that look like allowed ones (36).
func TestHostsInDisguiseAreNotReached(t *testing.T) {
	s := serves(t, false, nil)
	d, _ := opened(t, Config{Resolver: names{"localhost": "127.0.0.1", "localhost.localdomain": "127.0.0.1"}}, "*:*", "good.com")
	proxy := proxied(t, d)
	for _, host := range []string{
		"127.0.0.1", "localhost", "localhost.localdomain", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1", "0", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "[2001:0:5ef5:79fb::1]", "[fe80::1%25eth0]", "169.254.169.254", "[fd00:ec2::254]", "169.254.170.2", "metadata.google.internal", "100.100.100.200", "100.64.0.1",
		"224.0.0.1", "255.255.255.255", "10.0.0.1", "192.168.0.1", "172.16.0.1", "127.0.0.1.", "%31%32%37.0.0.1", "①②⑦.0.0.1", "127。0。0。1",
		"good.com%00.evil.com", "good.com%0d%0a", "good.com\\@evil.com", "good.com..", ".good.com", strings.Repeat("a.", 130) + "com",
	} {
		for _, text := range []string{
			"GET http://" + host + ":" + s.port() + "/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
			"CONNECT " + host + ":" + s.port() + " HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: " + host + ":" + s.port() + "\r\nConnection: close\r\n\r\n",
		} {
			got := raw(t, dial(t, proxy), text)
			if !strings.HasPrefix(strings.TrimPrefix(got, "HTTP/1.1 200 Connection established\r\n\r\n"), "HTTP/1.1 4") && !strings.Contains(got, "HTTP/1.1 502") {
				t.Errorf("%s: %q", text, got)
			}
		}
	}
	if seen := s.asked(); len(seen) > 0 {
		t.Errorf("the server was asked %v", seen)
	}
}
