package network

import (
	"context"
	"testing"

	"paddock/internal/egress/streams"
)

// A connection stays open from one run to the next, in which the answers that the first
// one waited for last are asked for again.
func TestConnectionsLastFromRunToRun(t *testing.T) {
	p := open(t, allowed)
	in := p.interpreter(t, "python")
	for _, code := range []string{
		`
import asyncio, http.client, httpx, os, urllib.parse
client, base = httpx.AsyncClient(timeout=30), os.environ["SECURE"]
assert (await client.get(base + "/first")).text == "GET first"
kept = http.client.HTTPSConnection(urllib.parse.urlsplit(base).netloc)
kept.request("GET", "/first")
assert kept.getresponse().read() == b"GET first"
where = urllib.parse.urlsplit(base)
r, w = await asyncio.open_connection(where.hostname, where.port, ssl=True)
request = b"GET /%s HTTP/1.1\r\nHost: " + where.netloc.encode() + b"\r\n\r\n"
w.write(request % b"one")
assert (await r.readuntil(b"GET one")).startswith(b"HTTP/1.1 200")
first = kept.sock
`, `
assert (await client.get(base + "/second")).text == "GET second"
kept.request("GET", "/second")
assert kept.getresponse().read() == b"GET second" and kept.sock is first
w.write(request % b"two")
assert (await r.readuntil(b"GET two")).startswith(b"HTTP/1.1 200")
`,
	} {
		if printed, exit := p.execute(t.Context(), t, in, code); exit.Code != 0 {
			t.Fatalf("%+v\n%s", exit.Error, printed)
		}
	}
}

// Streams are not in checkpoints: a program that goes on elsewhere learns that they were
// reset, and opens new ones.
func TestStreamsAreResetWhereASessionGoesOnInAnotherProcess(t *testing.T) {
	p := open(t, allowed)
	in := p.interpreter(t, "python")
	run := func(code string) {
		t.Helper()
		if printed, exit := p.execute(t.Context(), t, in, code); exit.Code != 0 {
			t.Fatalf("%+v\n%s", exit.Error, printed)
		}
	}
	run(`
import asyncio, os, socket, urllib.parse, requests
where = urllib.parse.urlsplit(os.environ["PLAIN"])
s = socket.create_connection((where.hostname, where.port))
s.sendall(b"GET /path HTTP/1.1\r\nHost: " + where.netloc.encode() + b"\r\n\r\n")
assert s.recv(9) == b"HTTP/1.1 "
r, w = await asyncio.open_connection(where.hostname, where.port)
session = requests.Session()
assert session.get(os.environ["SECURE"] + "/path").text == "GET path"
`)
	if err := p.table.Close(); err != nil {
		t.Error(err)
	}
	p.table = streams.New(streams.Config{Proxy: p.proxy})
	run(`
s.recv(1000)  # what was there already
for f in (lambda: s.recv(1), lambda: s.send(b"x")):
    try:
        f()
    except ConnectionResetError:
        pass
    else:
        raise AssertionError("the connection is still there")
try:
    await r.read()
except ConnectionResetError:
    pass
assert session.get(os.environ["SECURE"] + "/path").text == "GET path"
s.close()
w.close()
`)
}

func TestWhatAnInterruptEnds(t *testing.T) {
	p := open(t, allowed)
	for runtime, code := range map[string]string{
		"python":     `import os, urllib.request; print("begun"); urllib.request.urlopen(os.environ["SECURE"] + "/slow").read()`,
		"javascript": `console.log("begun"); await (await fetch(process.env.SECURE + "/slow")).text();`,
	} {
		in := p.interpreter(t, runtime)
		ctx, cancel := context.WithCancel(t.Context())
		stop := context.AfterFunc(p.answering(t, reads[runtime]), cancel)
		printed, exit := p.execute(ctx, t, in, code)
		stop()
		cancel()
		if exit.Code == 0 {
			t.Errorf("%s: the exit code is 0, want another: %s", runtime, printed)
		} else if printed == "" {
			t.Errorf("%s: it printed nothing, want what failed: %+v", runtime, exit)
		}
		if printed, exit := p.execute(t.Context(), t, in, again[runtime]); exit.Code != 0 {
			t.Errorf("%s: %+v %s", runtime, exit.Error, printed)
		}
	}
}

// reads is how many times a program reads before it waits for what does not come.
var reads = map[string]int{"python": 2, "javascript": 1}

var again = map[string]string{
	"python":     `assert urllib.request.urlopen(os.environ["SECURE"] + "/path").read() == b"GET path"`,
	"javascript": `if (await (await fetch(process.env.SECURE + "/path")).text() !== "GET path") throw new Error("no");`,
}

func TestPipIsThere(t *testing.T) {
	p := open(t, allowed)
	p.run(t, "python", `
import os, ssl, sys, urllib.request
sys.path.insert(0, "/lib/python/pip.zip")
import pip._vendor.requests, pip._vendor.truststore as truststore
assert pip.__file__.startswith("/lib/python/pip.zip/"), pip.__file__
context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
assert urllib.request.urlopen(os.environ["SECURE"] + "/path", context=context).read() == b"GET path"
`)
}
