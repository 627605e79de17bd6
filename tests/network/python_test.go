package network

import (
	"strings"
	"testing"
)

// allowed is the rule by which an operator lets programs reach the tests' servers.
const allowed = "example.com:*!private"

// pythonsOwnModules are programs that use modules of the standard library, by what they use.
var pythonsOwnModules = map[string]string{
	"urllib.request": `
import json, os, urllib.request
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    with urllib.request.urlopen(base + "/json?q=1", timeout=30) as r:
        assert r.status == 200 and r.headers["Content-Type"] == "application/json", r.headers
        said = json.load(r)
    assert said["query"] == "q=1" and said["agent"].startswith("Python-urllib/"), said
    with urllib.request.urlopen(base + "/redirect") as r:
        assert r.url.endswith("/json?redirected"), r.url
    r = urllib.request.urlopen(urllib.request.Request(base + "/echo", data=b"a" * 300_000, method="PUT", headers={"Content-Type": "text/x"}))
    assert r.read() == b"a" * 300_000 and r.headers["X-Method"] == "PUT" and r.headers["content-type"] == "text/x"
    assert len(urllib.request.urlopen(base + "/large").read()) == 4 << 20
`,
	"http.client": `
import http.client, os, socket, urllib.parse
for kind, base in (http.client.HTTPSConnection, os.environ["SECURE"]), (http.client.HTTPConnection, os.environ["PLAIN"]):
    c = kind(urllib.parse.urlsplit(base).netloc, timeout=30)
    for n in range(3):
        c.request("GET", f"/path{n}", headers={"Accept": "*/*"})
        r = c.getresponse()
        assert (r.status, r.read()) == (200, b"GET path%d" % n)
        if n == 0: first = c.sock
    assert c.sock is first, "the connection was not kept"
    c.request("POST", "/count", body=(b"x" * 1000 for _ in range(50)), encode_chunked=True)
    assert c.getresponse().read() == b"50000"
    c.request("GET", "/stream")
    r = c.getresponse()
    assert [line for line in r] == [b"line %d\n" % k for k in range(5)]
    c.request("GET", "/cut")
    try:
        c.getresponse().read()
    except http.client.IncompleteRead as e:
        assert e.partial == b"only this", e
    else:
        raise AssertionError("a body that was cut short was whole")
    c.close()
`,
	"timeouts": `
import os, socket, time, urllib.request
begin = time.monotonic()
r = urllib.request.urlopen(os.environ["SECURE"] + "/slow", timeout=0.3)
try:
    r.read()
except socket.timeout as e:
    assert e.args == ("timed out",), e.args
else:
    raise AssertionError("it ended")
assert 0.25 < time.monotonic() - begin < 30
`,
	"errors": `
import os, socket, ssl, urllib.error, urllib.request
def reason(url):
    try:
        urllib.request.urlopen(url, timeout=30)
    except urllib.error.URLError as e:
        return e.reason
    raise AssertionError(url)
e = reason(os.environ["UNTRUSTED"])
assert isinstance(e, ssl.SSLCertVerificationError) and "certificate verify failed" in str(e), repr(e)
e = reason(os.environ["NOBODY"])
assert isinstance(e, ConnectionRefusedError), repr(e)
e = reason("https://gone.example.com/")
assert isinstance(e, socket.gaierror) and e.errno == socket.EAI_NONAME, repr(e)
e = reason("https://evil.example/")
assert isinstance(e, socket.gaierror) and "not among the hosts that may be reached" in str(e), repr(e)
e = reason("http://" + "203.0.113.9/")
assert isinstance(e, PermissionError) and "not among" in str(e), repr(e)
try:
    urllib.request.urlopen(os.environ["SECURE"] + "/missing")
except urllib.error.HTTPError as e:
    assert e.code == 404 and e.read() == b"there is nothing\n"
weak = ssl.create_default_context()
weak.check_hostname, weak.verify_mode = False, ssl.CERT_NONE
try:
    urllib.request.urlopen(os.environ["UNTRUSTED"], context=weak)
except urllib.error.URLError as e:
    assert isinstance(e.reason, ssl.SSLCertVerificationError), e
else:
    raise AssertionError("a program weakened what is verified")
`,
	"sockets": `
import errno, os, select, socket, ssl, urllib.parse
where = urllib.parse.urlsplit(os.environ["SECURE"])
address = (where.hostname, where.port)
s = socket.create_connection(address, timeout=30)
t = ssl.create_default_context().wrap_socket(s, server_hostname=where.hostname)
assert t.getpeercert()["subjectAltName"] == (("DNS", "example.com"),), t.getpeercert()
assert not select.select([t], [], [], 0)[0] and select.select([], [t], [], 0)[1]
t.sendall(b"GET /path HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % where.netloc.encode())
assert select.select([t], [], [], 30)[0] == [t]
with t.makefile("rb") as f:
    assert f.readline() == b"HTTP/1.1 200 OK\r\n"
    assert f.read().endswith(b"\r\n\r\nGET path")
t.close()
try:
    t.send(b"x")
except OSError as e:
    assert e.errno == errno.EBADF, e
for kind in socket.SOCK_DGRAM, 3:
    try:
        socket.socket(type=kind)
    except OSError as e:
        assert "only TCP" in str(e), e
s = socket.socket()
for method, args in (s.bind, [("", 8080)]), (s.listen, []), (s.accept, []):
    try:
        method(*args)
    except OSError as e:
        assert "has no ports" in str(e), e
    else:
        raise AssertionError(method)
`,
}

func TestPythonsOwnModulesReachWhatIsAllowed(t *testing.T) {
	p := open(t, allowed, "gone.example.com:*!private")
	for name, code := range pythonsOwnModules {
		t.Run(name, func(t *testing.T) { p.run(t, "python", code) })
	}
}

func TestPythonsAsyncConnections(t *testing.T) {
	p := open(t, allowed)
	for name, code := range map[string]string{
		"streams": `
import asyncio, os, ssl, urllib.parse
async def get(base, path):
    where = urllib.parse.urlsplit(base)
    r, w = await asyncio.open_connection(where.hostname, where.port, ssl=where.scheme == "https" or None)
    w.write(b"GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (path, where.netloc.encode()))
    await w.drain()
    head = await r.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    body = await r.read()
    w.close()
    await w.wait_closed()
    return body
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    assert await get(base, b"path") == b"GET path"
    all = await asyncio.gather(*(get(base, b"p%d" % n) for n in range(20)))
    assert all == [b"GET p%d" % n for n in range(20)], all
async def slow():
    return await get(os.environ["SECURE"], b"slow")
try:
    await asyncio.wait_for(slow(), 0.3)
except TimeoutError:
    pass
else:
    raise AssertionError("it ended")
try:
    await get(os.environ["UNTRUSTED"], b"")
except ssl.SSLCertVerificationError as e:
    pass
else:
    raise AssertionError("it was trusted")
try:
    await get(os.environ["NOBODY"], b"")
except ConnectionRefusedError:
    pass
async def main():
    assert await get(os.environ["SECURE"], b"path") == b"GET path"
    assert len(await get(os.environ["PLAIN"], b"large")) > 4 << 20
`,
		"in a loop of the program's own": `
import asyncio, os, urllib.parse
async def main():
    where = urllib.parse.urlsplit(os.environ["SECURE"])
    r, w = await asyncio.open_connection(where.hostname, where.port, ssl=True)
    w.write(b"POST /count HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n" % where.netloc.encode())
    for _ in range(100):
        w.write(b"x" * 10_000)
        await w.drain()
    assert (await r.read()).endswith(b"1000000")
    w.close()
asyncio.run(main())
`,
	} {
		t.Run(name, func(t *testing.T) { p.run(t, "python", code) })
	}
}

func TestOtherPeoplesClients(t *testing.T) {
	p := open(t, allowed)
	for name, code := range map[string]string{
		"requests":     clientOfRequests,
		"pip's own":    "import pip._vendor.requests, sys\nsys.modules['requests'] = pip._vendor.requests\n" + clientOfRequests,
		"urllib3":      clientOfUrllib3,
		"httpx":        clientOfHttpx,
		"httpx, async": clientOfHttpxAsync,
	} {
		t.Run(name, func(t *testing.T) { p.run(t, "python", code) })
	}
}

const clientOfRequests = `
import os, requests
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    r = requests.get(base + "/json", params={"q": "1"}, headers={"Accept": "application/json"}, timeout=30)
    assert r.ok and r.json()["query"] == "q=1" and r.json()["accept"] == "application/json", r.text
    r = requests.post(base + "/echo", json={"a": [1, 2]})
    assert r.json() == {"a": [1, 2]} and r.headers["content-type"] == "application/json"
    with requests.Session() as s:
        s.get(base + "/cookies")
        assert s.cookies.get_dict() == {"a": "1", "b": "2"}
        assert s.get(base + "/cookies").text == "a=1; b=2"
        r = s.get(base + "/redirect")
        assert [h.status_code for h in r.history] == [302] and r.json()["query"] == "redirected"
        with s.get(base + "/stream", stream=True) as r:
            assert list(r.iter_lines()) == [b"line %d" % k for k in range(5)]
        with s.get(base + "/large", stream=True) as r:
            assert sum(map(len, r.iter_content(10_000))) == 4 << 20
    r = requests.post(base + "/echo", files={"f": ("a.txt", b"content")})
    assert b'filename="a.txt"' in r.content and b"content" in r.content
assert requests.get(os.environ["SECURE"] + "/missing").status_code == 404
def fails(kind, *args, **kwargs):
    try:
        requests.get(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError(args)
assert "CERTIFICATE_VERIFY_FAILED" in fails(requests.exceptions.SSLError, os.environ["UNTRUSTED"])
assert "CERTIFICATE_VERIFY_FAILED" in fails(requests.exceptions.SSLError, os.environ["UNTRUSTED"], verify=False)
fails(requests.exceptions.ConnectionError, os.environ["NOBODY"])
assert "not among the hosts" in fails(requests.exceptions.ConnectionError, "https://evil.example/")
try:
    requests.get(os.environ["SECURE"] + "/slow", timeout=0.3)
except (requests.exceptions.ReadTimeout, requests.exceptions.ConnectionError) as e:
    assert "timed out" in str(e), e
`

const clientOfUrllib3 = `
import os, urllib3
http = urllib3.PoolManager()
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    for n in range(3):
        r = http.request("GET", base + f"/path{n}", timeout=30)
        assert (r.status, r.data) == (200, b"GET path%d" % n)
    pool = http.connection_from_url(base)
    assert pool.num_connections == 1, pool.num_connections
    r = http.request("GET", base + "/large", preload_content=False)
    assert sum(map(len, r.stream(65536))) == 4 << 20
    r.release_conn()
try:
    http.request("GET", os.environ["UNTRUSTED"], retries=False)
except urllib3.exceptions.SSLError as e:
    assert "CERTIFICATE_VERIFY_FAILED" in str(e)
try:
    http.request("GET", os.environ["NOBODY"], retries=False)
except urllib3.exceptions.NewConnectionError as e:
    assert "refused" in str(e), e
try:
    http.request("GET", "https://evil.example", retries=False)
except urllib3.exceptions.NameResolutionError as e:
    assert "not among the hosts" in str(e), e
`

const clientOfHttpx = `
import os, httpx
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    with httpx.Client(timeout=30) as c:
        r = c.get(base + "/json", params={"q": "1"})
        assert r.status_code == 200 and r.json()["query"] == "q=1" and r.http_version == "HTTP/1.1"
        assert c.post(base + "/echo", content=b"x" * 200_000).content == b"x" * 200_000
        assert c.get(base + "/redirect", follow_redirects=True).json()["query"] == "redirected"
        with c.stream("GET", base + "/stream") as r:
            assert list(r.iter_lines()) == [f"line {k}" for k in range(5)]
def fails(kind, url, **kwargs):
    try:
        httpx.get(url, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError(url)
assert "CERTIFICATE_VERIFY_FAILED" in fails(httpx.ConnectError, os.environ["UNTRUSTED"])
assert "CERTIFICATE_VERIFY_FAILED" in fails(httpx.ConnectError, os.environ["UNTRUSTED"], verify=False)
assert "refused" in fails(httpx.ConnectError, os.environ["NOBODY"])
assert "not among the hosts" in fails(httpx.ConnectError, "https://evil.example/")
fails(httpx.ReadTimeout, os.environ["SECURE"] + "/slow", timeout=0.3)
`

const clientOfHttpxAsync = `
import asyncio, os, httpx
for base in os.environ["SECURE"], os.environ["PLAIN"]:
    async with httpx.AsyncClient(timeout=30) as c:
        r = await c.get(base + "/json", params={"q": "1"})
        assert r.status_code == 200 and r.json()["query"] == "q=1"
        all = await asyncio.gather(*(c.get(base + f"/p{n}") for n in range(20)))
        assert [r.text for r in all] == [f"GET p{n}" for n in range(20)]
        assert (await c.post(base + "/echo", content=b"x" * 200_000)).content == b"x" * 200_000
        async with c.stream("GET", base + "/stream") as r:
            assert [line async for line in r.aiter_lines()] == [f"line {k}" for k in range(5)]
async with httpx.AsyncClient() as c:
    for kind, url, text in (
        (httpx.ConnectError, os.environ["UNTRUSTED"], "CERTIFICATE_VERIFY_FAILED"), (httpx.ConnectError, os.environ["NOBODY"], ""),
        (httpx.ConnectError, "https://evil.example/", "not among the hosts"), (httpx.ReadTimeout, os.environ["SECURE"] + "/slow", ""),
    ):
        try:
            await c.get(url, timeout=2)
        except kind as e:
            assert text in str(e), e
        else:
            raise AssertionError(url)
`

func TestWithoutANetworkProgramsAreToldWhoMayAllowIt(t *testing.T) {
	p := open(t)
	said := p.run(t, "python", `
import socket, urllib.request, asyncio
for f in (lambda: socket.create_connection(("example.com", 443)), lambda: urllib.request.urlopen("http://example.com/"), lambda: socket.create_connection(("203.0.113.9", 80))):
    try:
        f()
    except OSError as e:
        print(type(e).__name__, e)
try:
    await asyncio.open_connection("example.com", 80)
except OSError as e:
    print(type(e).__name__, e)
`)
	if n := strings.Count(said, "this session has no network: a person allows hosts"); n != 4 {
		t.Errorf("it was told %d times:\n%s", n, said)
	}
	said = p.run(t, "javascript", `await fetch("https://example.com/").catch((e) => console.log(e.name, e.message, e.cause.code));`)
	if !strings.Contains(said, "TypeError fetch failed: this session has no network: a person allows hosts") {
		t.Errorf("JavaScript was told: said = %q, want %q in it",
			said, "TypeError fetch failed: this session has no network: a person allows hosts")
	} else if !strings.Contains(said, "ENETUNREACH") {
		t.Errorf(`JavaScript was told: said = %q, want "ENETUNREACH" in it`, said)
	}
}
