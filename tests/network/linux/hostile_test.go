//go:build linux && (amd64 || arm64)

package linux

import (
	"strings"
	"testing"

	"paddock/internal/egress"
	"paddock/internal/egress/egresstest"
	"paddock/internal/egress/proxy"
	"paddock/internal/sandbox/linux"
)

// leads makes a proxy of another kind.
func (w *fixture) leads(t *testing.T, c proxy.Config, rules ...string) *proxy.Proxy {
	t.Helper()
	var err error
	if c.Policy, err = egress.Parse(rules, egress.Rights{All: true, Private: true, Requests: true}); err != nil {
		t.Fatal(err)
	}
	c.TLS, c.Record = w.trusted, w.record
	d, err := proxy.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// causes are how often each thing was refused.
func (w *fixture) causes() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for _, r := range w.records {
		if r.Decision != proxy.Allowed {
			n[r.Cause]++
		}
	}
	return n
}

// hostile are attempts of programs in Python, by their numbers, against hosts that rebind,
// redirect and never end, through the proxy that they are told of. What gets through is
// printed.
var hostile = []attempt{
	{"33 to 36 names and addresses that lead inside", `
for host in HOSTS.split():
    for scheme in 'http', 'https':
        try:
            r = urllib.request.urlopen(f'{scheme}://{host}:INNER/', timeout=30)
            print('reached', host, r.status)
        except (OSError, ValueError): pass
    said = tunnel(f'{host}:INNER', f'GET / HTTP/1.1\r\nHost: {host}:INNER\r\nConnection: close\r\n\r\n'.encode())
    if said not in ('400', '403', '502', None): print('a tunnel to', host, said)`, ""},
	{"32 redirects", `
import urllib.parse
for to in 'http://127.0.0.1:INNER/', 'http://localhost:INNER/', 'http://example.com:INNER/', 'https://example.com:INNER/', 'http://169.254.169.254/', 'file:///etc/passwd', 'gopher://127.0.0.1:70/', 'http://[::1]:INNER/', 'http://a:b@2130706433:INNER/':
    for way in '/to?', '/to/307?':
        url = 'http://example.com:HOST' + way + urllib.parse.quote(to, safe='')
        try: print('urllib reached', to, urllib.request.urlopen(url, timeout=30).status)
        except (OSError, ValueError): pass
        c = subprocess.run(['curl', '-sSfL', '--max-time', '30', '-d', 'secret', '-H', 'Authorization: Bearer me', url], capture_output=True)
        if c.returncode == 0: print('curl reached', to, c.stdout)`, ""},
	{"38 requests within requests", `
me = 'example.com:HOST'
def say(connect, text):
    c = dial()
    if connect:
        c.sendall(f'CONNECT {me} HTTP/1.1\r\nHost: {me}\r\n\r\n'.encode())
        head(c)
    c.sendall(f'{text}GET /last HTTP/1.1\r\nHost: {me}\r\nConnection: close\r\n\r\n'.encode())
    return rest(c)
for start in f'Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n', 'Content-Length: 0\r\n\r\n', 'Transfer-Encoding: chunked\r\n\r\n0;a="\r\n\r\n', 'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n', 'Content-Length: 1\r\nContent-Length: 90\r\n\r\nx':
    for connect, base in (False, 'http://' + me), (True, ''):
        said = say(connect, f'POST {base}/open HTTP/1.1\r\nHost: {me}\r\n{start}GET {base}/hidden HTTP/1.1\r\nHost: {me}\r\n\r\n')
        if said.count('hello from') > 1 or not said.startswith('HTTP/1.1 '): print(start, 'hides', said)
for name in 'other.example', 'evil.example', '127.0.0.1:INNER', 'example.com:INNER', 'a@' + me:
    said = tunnel(me, f'GET /open HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n'.encode())
    if said not in ('400', '403'): print('in a tunnel the host', name, 'is answered', said)`, ""},
	{"14 and 40 answers without an end", `
import http.client
try: print('a header without an end', urllib.request.urlopen('http://example.com:HOST/header', timeout=60).status)
except urllib.error.HTTPError as e:
    if e.code != 502: print(e.code)
read = 0
try:
    r = urllib.request.urlopen('http://example.com:HOST/endless', timeout=60)
    while piece := r.read(1 << 16): read += len(piece)
except (OSError, http.client.IncompleteRead): pass
print(1 << 20 < read <= 4 << 20)
try: print('it goes on', urllib.request.urlopen('http://example.com:HOST/', timeout=60).status)
except urllib.error.HTTPError as e: print(e.code, 'network budget' in e.headers['X-Paddock-Denied'])`, "True\n403 True"},
}

func TestHostileHosts(t *testing.T) {
	w := newFixture(t, linux.Config{})
	host, inner := egresstest.Start(t), egresstest.Start(t)
	_, resolver := egresstest.StartDNS(t, map[string][]string{
		"example.com":      {"127.0.0.1"},
		"turns.example":    {"192.0.2.1", "127.0.0.1"},
		"two.example":      {"93.184.215.14 127.0.0.1"},
		"alias.example":    {"internal.example 127.0.0.1"},
		"mapped.example":   {"::ffff:127.0.0.1"},
		"nat64.example":    {"64:ff9b::7f00:1"},
		"metadata.example": {"169.254.169.254"},
		"localhost":        {"127.0.0.1"},
	})
	d := w.leads(t, proxy.Config{Resolver: resolver, Budgets: proxy.Budgets{Received: 4 << 20}},
		"*.example:*", "*:"+inner.Port(), "example.com:"+host.Port()+"/open!private", "example.com:"+host.Port()+"/to!private", "example.com:"+host.Port()+"/to/307!private",
		"GET example.com:"+host.Port()+"/header!private", "GET example.com:"+host.Port()+"/endless!private", "GET example.com:"+host.Port()+"/!private")
	in := w.machine(t, d).start(t, "python")
	run(t, in, tools)
	fill := strings.NewReplacer("HOSTS", `"""turns.example turns.example two.example alias.example mapped.example nat64.example metadata.example example.com localhost.
		2130706433 0177.0.0.1 0x7f.0.0.1 0x7f000001 127.1 0 0.0.0.0 [::] [::ffff:127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::1] 169.254.169.254 [fd00:ec2::254] metadata.google.internal
		100.100.100.200 10.0.0.1 evil.example%00.good.example good.example@127.0.0.1"""`, "HOST", host.Port(), "INNER", inner.Port())
	for _, a := range hostile {
		t.Run(a.name, func(t *testing.T) {
			if got := run(t, in, fill.Replace(a.code)); got != a.want {
				t.Errorf("it printed %s", got)
			}
		})
	}
	if asked := inner.Asked(); len(asked) > 0 {
		t.Errorf("what is inside was asked %v", asked)
	}
	for _, asked := range host.Asked() {
		if strings.Contains(asked, "hidden") {
			t.Errorf("the host was asked %s", asked)
		}
	}
	switch n := w.causes(); {
	case n["address"] < 20:
		t.Errorf(`it was refused for: n["address"] = %v, want at least 20: %v`, n["address"], n)
	case n["mismatch"] < 4:
		t.Errorf(`it was refused for: n["mismatch"] = %v, want at least 4: %v`, n["mismatch"], n)
	case n["budget"] < 2:
		t.Errorf(`it was refused for: n["budget"] = %v, want at least 2: %v`, n["budget"], n)
	case n["protocol"] < 2:
		t.Errorf(`it was refused for: n["protocol"] = %v, want at least 2: %v`, n["protocol"], n)
	case n["request"] < 8:
		t.Errorf(`it was refused for: n["request"] = %v, want at least 8: %v`, n["request"], n)
	}
}
