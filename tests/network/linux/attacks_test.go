//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/egress/proxy"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux"
	"paddock/internal/sandbox/linux/proxyenv"
)

// tools are what attempts use: refused(f) says how f is refused, through(line) what the
// proxy answers to a first line, tunnel(host, text) what it answers to what is said in a
// tunnel.
const tools = `
import errno, os, re, socket, ssl, struct, subprocess, urllib.request, urllib.error
def refused(f):
    try: r = f()
    except OSError as e: return getattr(e, 'errno', None) and errno.errorcode.get(e.errno) or type(e).__name__
    except BaseException as e: return type(e).__name__
    return 'done ' + repr(r)
def none(*fs):
    for n, f in enumerate(fs):
        r = refused(f)
        if r.startswith('done'): print(n, r)
def dial():
    c = socket.create_connection(('127.0.0.1', 3128), 30)
    c.settimeout(30)
    return c
def rest(c):
    all = b''
    try:
        while d := c.recv(65536): all += d
    except OSError: pass
    return all.decode('latin1')
def through(text):
    c = dial()
    c.sendall(text.encode())
    c.shutdown(socket.SHUT_WR)
    return rest(c)
def status(text):
    m = re.match(r'HTTP/1.1 (\d+)', text)
    return m and m[1]
def head(c):
    text = b''
    while b'\r\n\r\n' not in text and (d := c.recv(1)): text += d
    return text.decode('latin1')
def tunnel(host, text):
    c = dial()
    c.sendall(f'CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n'.encode())
    first = status(head(c))
    if first != '200': return first
    c.sendall(text)
    c.shutdown(socket.SHUT_WR)
    return status(rest(c))
`

// attempt is one program in Python that tries something, by its number in the list of
// attacks, and what it prints.
type attempt struct{ name, code, want string }

var attempts = []attempt{
	// A machine with a way out has no other: all of it as in one without.
	{"31 connections", "none(*[lambda a=a: socket.create_connection(a, 2) for a in (('1.1.1.1', 53), ('1.1.1.1', 443), ('127.0.0.1', MINE), ('127.0.0.1', SECURE), ('::1', SECURE), ('10.0.0.1', 80), ('169.254.169.254', 80), ('localhost', 22))])", ""},
	{"31 names", "none(*[lambda h=h: socket.getaddrinfo(h, 80) for h in ('example.com', 'elsewhere.example', 'metadata.google.internal', 'paddock.local')], lambda: socket.socket(2, 2).sendto(b'\\0' * 12, ('8.8.8.8', 53)), lambda: socket.socket(2, 2).sendto(b'x', ('224.0.0.251', 5353)), lambda: socket.socket(10, 2).sendto(b'x', ('2001:4860:4860::8888', 53)))", ""},
	{"31 other sockets", "none(lambda: socket.socket(2, socket.SOCK_RAW, 1), lambda: socket.socket(2, 2, 1).sendto(b'\\x08\\0\\0\\0\\0\\0\\0\\0', ('1.1.1.1', 0)), lambda: socket.socket(17, socket.SOCK_RAW, 3), lambda: socket.socket(40, 1), lambda: socket.socket(38, 5), lambda: socket.socket(1, 1).connect('/run/docker.sock'), lambda: socket.socket(1, 1).connect('\\0/tmp/.X11-unix/X0'), lambda: socket.socket(1, 1).connect('HOSTSOCKET'))", ""},
	{"31 routes by netlink", "s = socket.socket(16, 3, 0)\nrta = struct.pack('HH4s', 8, 1, socket.inet_aton('8.8.8.8'))\nmsg = struct.pack('IHHII', 16 + 12 + 8, 24, 0x405, 1, 0) + struct.pack('BBBBBBBBI', 2, 32, 0, 0, 254, 3, 0, 1, 0) + rta\ns.send(msg)\nprint(struct.unpack('i', s.recv(4096)[16:20])[0] < 0, os.listdir('/sys/class/net') if os.path.exists('/sys/class/net') else 'none')", "~True"},
	// Only HTTP gets out, also to hosts that are allowed.
	{"39 what is not HTTP", "print([tunnel('ALLOWED', t) for t in (b'SSH-2.0-OpenSSH_9.2\\r\\n', b'EHLO me\\r\\nMAIL FROM:<a@b>\\r\\n', b'\\0\\0\\0\\x08\\x04\\xd2\\x16\\x2f', b'USER anonymous\\r\\n', b'\\x16garbage', b'*1\\r\\n$4\\r\\nPING\\r\\n')])", "~"},
	{"39 as a proxy of other kinds", "print([status(through(t)) for t in ('\\5\\1\\0', '\\4\\1\\0P\\1\\1\\1\\1\\0', 'CONNECT ALLOWED HTTP/1.1\\r\\n', 'GET gopher://ALLOWED/ HTTP/1.1\\r\\nHost: ALLOWED\\r\\n\\r\\n', 'GET file:///etc/passwd HTTP/1.1\\r\\nHost: ALLOWED\\r\\n\\r\\n')])", "~"},
	// Neither the host's loopback, nor what else listens there, nor names for it.
	{"41 services of this machine", "print([status(through(f'GET http://{h}/ HTTP/1.1\\r\\nHost: {h}\\r\\n\\r\\n')) for h in ('127.0.0.1:MINE', 'localhost:MINE', '[::1]:MINE', '2130706433:MINE', '0:MINE', '127.1:MINE', '[::ffff:127.0.0.1]:MINE', 'example.com:MINE', 'elsewhere.example:SECURE', '169.254.169.254', 'metadata.google.internal', 'host.docker.internal:2375')])", "['403', '403', '403', '400', '400', '400', '403', '403', '403', '403', '403', '403']"},
	{"41 by CONNECT", "print([tunnel(h, b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n') for h in ('127.0.0.1:MINE', 'localhost:22', '[::1]:MINE', 'example.com:MINE', 'elsewhere.example:SECURE', '169.254.169.254:80', '127.0.0.1:3128')])", "['403', '403', '403', '403', '403', '403', '403']"},
	{"42 the port of the way out", `
kept = []
for family, host in ((2, '127.0.0.1'), (2, '0.0.0.0'), (10, '::')):
    for option in (None, socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        s = socket.socket(family)
        if option: s.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == 10: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try: s.bind((host, 3128)); s.listen(); kept.append((host, s))
        except OSError: pass
print([h for h, s in kept if h == '127.0.0.1'], {urllib.request.urlopen('http://PLAIN/text').read() for _ in range(10)})`, "[] {b'GET for PLAIN'}"},
	{"49 the authority's key", "print(sorted(os.listdir('/network')), open('/network/ca.pem').read().count('BEGIN'), 'PRIVATE' in open('/network/ca.pem').read())\nnone(lambda: open('/network/ca.pem', 'a'), lambda: os.remove('/network/ca.pem'), lambda: open('/network/x', 'w'), lambda: open('/dev/paddock/node.cjs', 'a'), lambda: os.remove('/dev/paddock/node.cjs'), lambda: os.rename('/network/ca.pem', '/network/y'))", "['apt.conf', 'ca.pem', 'wgetrc'] 1 False"},
}

func TestNothingButHTTPToAllowedHostsGetsOut(t *testing.T) {
	w := newFixture(t, linux.Config{})
	m := w.machine(t, w.proxy(t))
	in := m.start(t, "python")
	run(t, in, tools)
	host := hostSocket(t)
	fill := strings.NewReplacer("ALLOWED", site+":"+w.plainPort, "SECURE", w.securePort, "MINE", w.mine, "PLAIN", site+":"+w.plainPort, "HOSTSOCKET", host)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			got, want := run(t, in, fill.Replace(a.code)), fill.Replace(a.want)
			if part, isPart := strings.CutPrefix(want, "~"); isPart {
				if !strings.Contains(got, part) {
					t.Errorf("it printed %q, want %q in it", got, part)
				}
			} else if got != want {
				t.Errorf("it printed %q, want %q", got, want)
			}
			if strings.Contains(got, "'200'") {
				t.Errorf("it got out: %s", got)
			}
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Decision == proxy.Allowed && (r.Host != site || fmt.Sprint(r.Port) != w.plainPort) {
			t.Errorf("it reached %s:%d", r.Host, r.Port)
		}
	}
}

// hostSocket is a socket of this machine that anybody may connect to.
func hostSocket(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return path
}

// What is denied says so to the program, and rules that change count at once.
func TestWhatIsRefusedIsSaidAndRulesChangeUnderWay(t *testing.T) {
	w := newFixture(t, linux.Config{})
	d := w.proxy(t)
	m := w.machine(t, d)
	in := m.start(t, "bash")
	if got := run(t, in, "curl -sS https://elsewhere.example/ 2>&1; true"); !strings.Contains(got, "403") {
		t.Errorf("curl says %q", got)
	}
	if got := run(t, in, "curl -sS http://elsewhere.example/"); !strings.Contains(got, "elsewhere.example") {
		t.Errorf(`curl: got %q, want "elsewhere.example" in it`, got)
	} else if !strings.Contains(got, "paddock") {
		t.Errorf(`curl: got %q, want "paddock" in it`, got)
	}
	allowed := d.Policy()
	d.SetPolicy(allowed.Narrow(allowed)) // the same rules, again
	if got := run(t, in, m.fill("curl -sS {HTTPS}/text")); got != m.fill("GET for {HOST}") {
		t.Errorf("it printed %q", got)
	}
	for runtime, code := range map[string]string{
		"python":     "import socket; socket.getaddrinfo('example.com', 80)",
		"javascript": "await require('dns').promises.lookup('example.com')",
	} {
		exit, err := m.start(t, runtime).Run(t.Context(), sandbox.Command{Code: code})
		switch {
		case err != nil:
			t.Errorf("%s: the hint is: %v", runtime, err)
		case exit.Error == nil:
			t.Errorf("%s: the hint is: exit.Error is nil, want a value", runtime)
		case !strings.Contains(exit.Error.Hint, "HTTP_PROXY"):
			t.Errorf(`%s: the hint is: exit.Error.Hint = %q, want "HTTP_PROXY" in it`,
				runtime, exit.Error.Hint)
		}
	}
	if len(d.Denials()) == 0 {
		t.Error("the log does not say what was refused")
	}
}

// A machine is booted ahead upon folders that are empty then.
func TestAMachineGetsOutWhoseFolderIsFilledLater(t *testing.T) {
	w := newFixture(t, linux.Config{})
	d := w.proxy(t)
	m := w.machine(t, d)
	if err := os.Remove(filepath.Join(m.network, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	python, node := m.start(t, "python"), m.start(t, "javascript")
	if err := proxyenv.Fill(m.network, d.CA()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, python, m.fill("import urllib.request; print(urllib.request.urlopen('{HTTPS}/text').read().decode())")); got != m.fill("GET for {HOST}") {
		t.Errorf("Python printed %q", got)
	}
	if got := run(t, node, m.fill("console.log(await (await fetch('{HTTPS}/text')).text())")); got != m.fill("GET for {HOST}") {
		t.Errorf("Node printed %q", got)
	}
	printed, err := node.(sandbox.ProcessManager).Printed(t.Context(), 0)
	if err != nil {
		t.Errorf("Node complains: got error %v, want none", err)
	} else if len(printed.Data) > 0 {
		t.Errorf("Node complains: got %q, want none", printed.Data)
	}
}

// A machine that was saved goes on with another proxy. Where its authority is another one,
// what reads the certificate for each connection gets out, and so does Node; where it has
// the same key also who has read it once.
func TestASavedMachineGetsOutThroughItsNewProxy(t *testing.T) {
	for name, seed := range map[string][]byte{"of another authority": nil, "of the same one": bytes.Repeat([]byte("seed"), 8)} {
		t.Run(name, func(t *testing.T) { testNewProxy(t, seed) })
	}
}

func testNewProxy(t *testing.T, seed []byte) {
	w := newFixture(t, linux.Config{})
	w.seed = seed
	first := w.proxy(t)
	m := w.machine(t, first)
	code := map[string]string{
		"python":     "import urllib.request; print(urllib.request.urlopen('{HTTPS}/text').read().decode())",
		"javascript": "console.log(await (await fetch('{HTTPS}/text')).text()); console.log(await new Promise((done, failed) => require('https').get('{HTTPS}/text', (r) => r.setEncoding('utf8').on('data', done)).on('error', failed)))",
		"bash":       "curl -sS {HTTPS}/text",
	}
	check := func(all map[string]sandbox.Instance) {
		t.Helper()
		for runtime, in := range all {
			if got := run(t, in, m.fill(code[runtime])); !strings.HasPrefix(got, m.fill("GET for {HOST}")) {
				t.Errorf("%s printed %q", runtime, got)
			}
		}
	}
	all := map[string]sandbox.Instance{}
	for runtime := range code {
		all[runtime] = m.start(t, runtime)
	}
	check(all)
	const once = "urllib.request.urlopen('{HTTPS}/text', context=once).read().decode()"
	run(t, all["python"], m.fill("import ssl; once = ssl.create_default_context(); "+once))
	m.moveOn(t, all, first)
	for runtime := range code {
		all[runtime] = m.start(t, runtime)
		if !all[runtime].(sandbox.RestoredInstance).WasRestored() {
			t.Errorf("%s is a fresh one", runtime)
		}
	}
	check(all)
	if seed != nil {
		if got := run(t, all["python"], m.fill("print("+once+")")); got != m.fill("GET for {HOST}") {
			t.Errorf("who has read the certificate once gets %q", got)
		}
	}
}

// Node keeps its connections: those of before are not used again.
func TestNodeGetsOutEachTimeItsMachineWasSaved(t *testing.T) {
	w := newFixture(t, linux.Config{})
	d := w.proxy(t)
	m := w.machine(t, d)
	node := m.start(t, "javascript")
	for range 4 {
		if got := run(t, node, m.fill("console.log(await (await fetch('{HTTPS}/text')).text())")); got != m.fill("GET for {HOST}") {
			t.Errorf("it printed %q", got)
		}
		d = m.moveOn(t, map[string]sandbox.Instance{"javascript": node}, d)
		node = m.start(t, "javascript")
	}
}

// moveOn saves the machine, and has what is started next go on where it was, with another
// proxy.
func (m *machine) moveOn(t *testing.T, all map[string]sandbox.Instance, old *proxy.Proxy) *proxy.Proxy {
	t.Helper()
	var data bytes.Buffer
	s, err := m.backend.SaveMachine(t.Context(), m.spec.Owner, m.spec.Box, 1<<30, &data, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range all {
		in.Close()
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	d := m.proxy(t)
	if err := proxyenv.Fill(m.network, d.CA()); err != nil {
		t.Fatal(err)
	}
	m.spec.Proxy = d.ServeProxy
	m.spec.Machine = &sandbox.MachineState{State: s.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }}
	return d
}
