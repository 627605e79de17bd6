package network

import (
	"strings"
	"sync"
	"testing"

	"paddock/internal/egress/egresstest"
	"paddock/internal/egress/proxy"
)

// records collects what a proxy tells.
type records struct {
	mu   sync.Mutex
	list []proxy.Record
}

func (r *records) add(one proxy.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, one)
}

// causes are how often each thing was refused.
func (r *records) causes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[string]int{}
	for _, one := range r.list {
		if one.Decision != proxy.Allowed {
			n[one.Cause]++
		}
	}
	return n
}

// tried makes programs of the same attempts in both languages: of each target of a list,
// what can be reached is printed.
var tried = map[string]string{
	"python": `
import os, socket, urllib.request
for target in os.environ["TARGETS"].split("\n"):
    try:
        print("reached", target, urllib.request.urlopen(target, timeout=30).status)
    except Exception:
        pass # whatever it is, it was not reached
    try:
        host, _, port = target.removeprefix("http://").split("/")[0].rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        print("connected to", target)
    except Exception:
        pass
print("all were tried")
`,
	"javascript": `
for (const target of process.env.TARGETS.split("\n")) {
  try {
    const r = await fetch(target);
    if (r.ok) console.log("reached", target, r.status);
  } catch {}
}
console.log("all were tried");
`,
}

// Names that lead elsewhere the second time, or to two places, and addresses and names in
// disguise (33 to 36, 41): an operator who allows the whole Internet allows nothing of
// this host, its network and its cloud.
func TestProgramsReachNothingInside(t *testing.T) {
	inner := egresstest.Start(t)
	at := ":" + inner.Port()
	dns, resolver := egresstest.StartDNS(t, map[string][]string{
		"turns.example":    {"192.0.2.1", "127.0.0.1"},
		"two.example":      {"93.184.215.14 127.0.0.1"},
		"alias.example":    {"internal.example 127.0.0.1"},
		"mapped.example":   {"::ffff:127.0.0.1"},
		"nat64.example":    {"64:ff9b::7f00:1"},
		"metadata.example": {"169.254.169.254"},
		"localhost":        {"127.0.0.1"},
	})
	var targets []string
	for _, host := range strings.Fields(`turns.example turns.example two.example alias.example mapped.example nat64.example metadata.example
		127.0.0.1 localhost LOCALHOST. 2130706433 0177.0.0.1 0x7f.0.0.1 0x7f000001 127.1 0 0.0.0.0 [::] [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [64:ff9b::7f00:1] [2002:7f00:1::1]
		169.254.169.254 [fd00:ec2::254] 169.254.170.2 metadata.google.internal 100.100.100.200 100.64.0.1 224.0.0.1 255.255.255.255 10.0.0.1 192.168.0.1
		①②⑦.0.0.1 127。0。0。1 evil.example%00.good.example good.example@127.0.0.1 good.example\@127.0.0.1 198.18.0.1 198.18.0.2`) {
		targets = append(targets, "http://"+host+at+"/")
	}
	p := open(t, allowed)
	p.env["TARGETS"] = strings.Join(targets, "\n")
	for language, code := range tried {
		t.Run(language, func(t *testing.T) {
			var told records
			p.leads(t, proxy.Config{Resolver: resolver, Record: told.add}, "*:*", "*.example:*")
			if out := strings.TrimSpace(p.run(t, language, code)); out != "all were tried" {
				t.Errorf("it prints %s", out)
			}
			if n := told.causes(); n["address"] < 8 {
				t.Errorf("it was refused for %v", n)
			}
		})
	}
	if asked := inner.Asked(); len(asked) > 0 {
		t.Errorf("what is inside was asked %v", asked)
	}
	for _, question := range dns.Questions() {
		if strings.Contains(question, "127") {
			t.Errorf(`DNS was asked for: question = %q, want no "127" in it`, question)
		} else if strings.Contains(question, "%") {
			t.Errorf("DNS was asked for: question = %q, want no %q in it", question, "%")
		}
	}
}

// A server that leads programs elsewhere, with what they say who they are, to what they
// may not reach and to what they may (32).
func TestRedirectsOfAHostileServer(t *testing.T) {
	hostile, other, inner := egresstest.Start(t), egresstest.Start(t), egresstest.Start(t)
	p := open(t, allowed)
	p.leads(t, proxy.Config{Resolver: names{}}, "example.com:"+hostile.Port()+"!private", "sub.example.com:"+other.Port()+"!private", "example.com:"+other.Port()+"!private")
	p.env["HOSTILE"], p.env["OTHER"], p.env["INNER"] = hostile.Port(), other.Port(), inner.Port()
	for language, code := range map[string]string{
		"python": `
import os, urllib.error, urllib.parse, urllib.request
import requests
hostile, other, inner = (os.environ[n] for n in ("HOSTILE", "OTHER", "INNER"))
base = f"http://example.com:{hostile}"
for to in f"http://127.0.0.1:{inner}/", f"http://localhost:{inner}/", f"http://example.com:{inner}/", "http://169.254.169.254/", "file:///etc/passwd", "gopher://127.0.0.1:70/", "data:text/plain,x", "http://[::1]/", f"http://a:b@2130706433:{inner}/":
    for way in "/to?", "/to/307?":
        url = base + way + urllib.parse.quote(to, safe="")
        for get in lambda: urllib.request.urlopen(url).status, lambda: requests.get(url, timeout=30).status_code:
            try:
                status = get()
            except (OSError, ValueError, requests.RequestException):
                continue
            if status not in (400, 403): print("reached", to, status)
try:
    requests.get(base + "/loop", timeout=30)
    print("it went round")
except requests.TooManyRedirects: pass
for to in f"http://sub.example.com:{other}/echo", f"http://example.com:{other}/echo":
    said = requests.get(base + "/to?" + urllib.parse.quote(to, safe=""), headers={"Authorization": "Bearer me"}, timeout=30).text
    assert said.startswith("GET /echo"), said
`,
		"javascript": `
const { HOSTILE: hostile, OTHER: other, INNER: inner } = process.env, base = "http://example.com:" + hostile;
for (const to of ["http://127.0.0.1:" + inner, "http://localhost:" + inner, "http://example.com:" + inner, "http://169.254.169.254/", "file:///etc/passwd", "gopher://127.0.0.1:70/", "data:text/plain,x", "http://[::1]/", "http://a:b@2130706433:" + inner])
  for (const way of ["/to?", "/to/307?"])
    for (const init of [{}, { method: "POST", body: "secret" }]) {
      try {
        const r = await fetch(base + way + encodeURIComponent(to), init);
        if (r.ok) console.log("reached", to);
      } catch (e) {}
    }
try {
  console.log("it went round", (await fetch(base + "/loop")).status);
} catch (e) {}
for (const to of ["http://sub.example.com:" + other + "/echo", "http://example.com:" + other + "/echo"]) {
  const r = await fetch(base + "/to?" + encodeURIComponent(to), { headers: { Authorization: "Bearer me", Cookie: "me=1", "X-Mine": "1" } });
  const said = await r.text();
  if (!said.startsWith("GET /echo") || !said.includes("X-Mine: 1") || /me/.test(said.split("\r\n").slice(2).join())) console.log("told", said);
}
`,
	} {
		t.Run(language, func(t *testing.T) {
			if out := strings.TrimSpace(p.run(t, language, code)); out != "" {
				t.Errorf("it prints %s", out)
			}
		})
	}
	if asked := inner.Asked(); len(asked) > 0 {
		t.Errorf("what is inside was asked %v", asked)
	}
}

// Answers without an end, in the body and before it: they end at the session's budget, or
// at the bound of a header, and cost no memory (14, 40).
func TestAnswersWithoutAnEndEnd(t *testing.T) {
	p, host := open(t, allowed), egresstest.Start(t)
	p.env["HOST"] = "http://example.com:" + host.Port()
	for language, code := range map[string]string{
		"python": `
import http.client, os, urllib.error, urllib.request
host = os.environ["HOST"]
try:
    urllib.request.urlopen(host + "/header", timeout=60)
except urllib.error.HTTPError as e:
    assert e.code == 502 and "unreachable" in e.headers["X-Paddock-Failed"], (e.code, e.headers)
r = urllib.request.urlopen(host + "/drip", timeout=60)
assert r.read(3) == b"..."
r.close()
read = 0
try:
    r = urllib.request.urlopen(host + "/endless", timeout=60)
    while piece := r.read(1 << 16): read += len(piece)
    print("it ended")
except (OSError, http.client.IncompleteRead): pass
assert 1 << 20 < read <= 4 << 20, read
try:
    print("goes on", urllib.request.urlopen(host + "/", timeout=60).status)
except OSError as e:
    assert "network budget" in str(e), e
`,
		"javascript": `
const host = process.env.HOST;
const odd = await fetch(host + "/header");
if (odd.status !== 502) console.log("a header without an end", odd.status);
const reader = (await fetch(host + "/drip")).body.getReader();
await reader.read();
await reader.cancel();
let read = 0;
try {
  for await (const piece of (await fetch(host + "/endless")).body) read += piece.length;
  console.log("it ended");
} catch (e) {}
if (read < 1 << 20 || read > 4 << 20) console.log("it read", read);
try {
  console.log("goes on", (await fetch(host + "/")).status);
} catch (e) {
  if (!e.message.includes("network budget")) throw e;
}
`,
	} {
		t.Run(language, func(t *testing.T) {
			var told records
			p.leads(t, proxy.Config{Resolver: names{}, Budgets: proxy.Budgets{Received: 4 << 20}, Record: told.add}, "example.com:"+host.Port()+"!private")
			if out := strings.TrimSpace(p.run(t, language, code)); out != "" {
				t.Errorf("it prints %s", out)
			}
			if n := told.causes(); n["budget"] < 2 {
				t.Errorf("it was refused for %v", n)
			}
			if u := p.proxy.Usage(); u.Received < 4<<20 || u.Received > 4<<20+256<<10 {
				t.Errorf("%d bytes came in, want from %d to %d", u.Received, 4<<20, 4<<20+256<<10)
			}
		})
	}
}

// What a program sends to a host that it may ask is let out, for that is what it may do:
// it ends at the budget, and each request is in the record with its size, also those in
// whose query or name something leaves (40).
func TestWhatLeavesIsBoundedAndRecorded(t *testing.T) {
	p, host := open(t, allowed), egresstest.Start(t)
	p.env["PORT"] = host.Port()
	var told records
	p.leads(t, proxy.Config{Resolver: names{}, Budgets: proxy.Budgets{Sent: 1 << 20}, Record: told.add}, "example.com:"+host.Port()+"!private")
	p.run(t, "python", `
import os, urllib.error, urllib.request
port, sent = os.environ["PORT"], 0
try:
    for n in range(100):
        urllib.request.urlopen(f"http://example.com:{port}/?{'q' * 20000}", data=b"b" * 30000, timeout=60)
        sent += 50000
except OSError:
    pass # as a refusal, or a connection that ends
assert 900_000 < sent <= 1 << 20, sent
`)
	told.mu.Lock()
	defer told.mu.Unlock()
	var sent int64
	for _, r := range told.list {
		if sent += r.Sent; r.Decision == proxy.Allowed && (r.Sent < 50_000 || r.Rule == "" || r.Host != "example.com" || r.Path == "") {
			t.Errorf("the record is %+v", r)
		}
	}
	if u := p.proxy.Usage(); sent < u.Sent {
		t.Errorf("sent = %d, want at least %d", sent, u.Sent)
	} else if u.Sent > 1<<20+256<<10 {
		t.Errorf("u.Sent = %d, want at most %d", u.Sent, 1<<20+256<<10)
	}
}

// A socket of a guest is HTTP to one host: another name in Host or TLS, requests within
// requests and other protocols are not let out (37 to 39).
func TestASocketIsForOneHostAndHTTP(t *testing.T) {
	p, host, inner := open(t, allowed), egresstest.Start(t), egresstest.Start(t)
	var told records
	p.leads(t, proxy.Config{Resolver: names{}, Record: told.add}, "example.com:"+host.Port()+"/open/*!private", "other.example.com:*!private", "example.com:443!private")
	p.env["PORT"], p.env["INNER"] = host.Port(), inner.Port()
	out := p.run(t, "python", `
import os, socket, ssl
port, inner = int(os.environ["PORT"]), os.environ["INNER"]
me = b"example.com:%d" % port
def say(text):
    s = socket.create_connection(("example.com", port), timeout=60)
    s.sendall(text + b"GET /last HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % me)
    said = b""
    try:
        while piece := s.recv(65536): said += piece
    except OSError: pass
    return said.decode("latin1")
assert "200 OK" in say(b"GET /open/1 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % me)
for name in b"other.example.com", b"evil.example", b"127.0.0.1:" + inner.encode(), b"example.com\0.evil.example", b"a@" + me, me + b"\r\nHost: evil.example", b"example.com":
    said = say(b"GET /open/2 HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % name)
    if " 40" not in said.split("\r\n")[0]: print("the host", name, "is answered", said)
hidden = b"GET /hidden HTTP/1.1\r\nHost: %s\r\n\r\n" % me
for head in b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n0\r\n\r\n" % (len(hidden) + 5), b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0;a=\"\r\n\r\n", b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"Content-Length: 1\r\nContent-Length: 90\r\n\r\nx", b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n":
    said = say(b"POST /open/3 HTTP/1.1\r\nHost: %s\r\n" % me + head + hidden)
    if said.count("hello from") > 1: print("within", head, "hides", said)
for text in b"SSH-2.0-OpenSSH_9.2\r\n", b"EHLO me\r\nMAIL FROM:<a@b>\r\n", b"\x16\x03\x01\0\x05\x01\0\0\x01\0", b"*1\r\n$4\r\nPING\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT evil.example:22 HTTP/1.1\r\nHost: evil.example:22\r\n\r\n", b"TRACE /open/1 HTTP/1.1\r\nHost: %s\r\n\r\n" % me:
    said = say(text)
    if said and " 4" not in said.split("\r\n")[0] and " 505 " not in said.split("\r\n")[0]: print(text, "is answered", said)
try:
    s = socket.create_connection(("example.com", 443), timeout=60)
    ssl.create_default_context().wrap_socket(s, server_hostname="other.example.com")
    print("TLS for another name")
except OSError: pass
`)
	if strings.TrimSpace(out) != "" {
		t.Errorf("it prints %s", out)
	}
	for _, asked := range host.Asked() {
		if !strings.Contains(asked, " /open/") {
			t.Errorf("the host was asked %s", asked)
		}
	}
	if asked := inner.Asked(); len(asked) > 0 {
		t.Errorf("what is inside was asked %v", asked)
	}
	switch n := told.causes(); {
	case n["mismatch"] < 3:
		t.Errorf(`it was refused for: n["mismatch"] = %v, want at least 3: %v`, n["mismatch"], n)
	case n["protocol"] < 4:
		t.Errorf(`it was refused for: n["protocol"] = %v, want at least 4: %v`, n["protocol"], n)
	case n["request"] < 2:
		t.Errorf(`it was refused for: n["request"] = %v, want at least 2: %v`, n["request"], n)
	case n["method"] != 2:
		t.Errorf(`it was refused for: n["method"] = %v, want 2: %v`, n["method"], n)
	}
}
