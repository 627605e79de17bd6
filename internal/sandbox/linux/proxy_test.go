//go:build linux && (amd64 || arm64)

package linux

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// greets answers each line with its name and the line, until there are no more.
func greets(name string) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintln(conn, name, lines.Text())
		}
	}
}

// dials are the programs' functions for the proxy: ask(c, text) sends a line and gives
// the answer.
const dials = `
import socket
def dial():
    c = socket.create_connection(('127.0.0.1', 3128), 30)
    c.settimeout(30)
    return c
def ask(c, text):
    c.sendall(text.encode() + b'\n')
    return c.makefile().readline().strip()
`

func proxied(t testing.TB, serve func(context.Context, net.Conn)) sandbox.Spec {
	spec := keptSpec(t, "python")
	spec.Proxy = serve
	return spec
}

func TestProgramsOfABoxFindTheirProxy(t *testing.T) {
	b := newBackend(t)
	in := start(t, b, proxied(t, greets("hello")))
	says(t, in, dials)
	if got := says(t, in, "c = dial(); d = dial(); ask(c, 'one'), ask(d, 'two'), ask(c, 'three')"); got != "('hello one', 'hello two', 'hello three')" {
		t.Errorf("it is told %s", got)
	}
	if got := says(t, in, "c.shutdown(socket.SHUT_WR); c.recv(10)"); got != "b''" {
		t.Errorf("at its end it gets %s", got)
	}
	spec := keptSpec(t, "python")
	spec.Box = "without"
	without := start(t, b, spec)
	says(t, without, dials)
	if got := says(t, without, "try: dial()\nexcept OSError as e: print(type(e).__name__)"); got != "ConnectionRefusedError" {
		t.Errorf("without a proxy: %s", got)
	}
	spec.Proxy = greets("other")
	if _, err := b.Start(t.Context(), spec); fault.KindOf(err) != fault.Conflict {
		t.Errorf("a box without a network is given one: %v", err)
	}
}

// What is under way is bounded, and neither end is waited for by anybody else.
func TestAConnectionToTheProxyCarriesMuchBothWays(t *testing.T) {
	const size = 20 << 20
	sums := make(chan [32]byte, 1)
	in := start(t, newBackend(t), proxied(t, func(_ context.Context, conn net.Conn) {
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Error(err)
		}
		sums <- sha256.Sum256(all)
		_, _ = conn.Write(bytes.Repeat([]byte("answer"), size/6))
	}))
	says(t, in, dials)
	want := sha256.Sum256(bytes.Repeat([]byte("asking"), size/6))
	if got := says(t, in, fmt.Sprintf("c = dial(); c.sendall(b'asking' * (%d // 6)); c.shutdown(socket.SHUT_WR); n = 0\nwhile d := c.recv(1 << 16): n += len(d)\nn", size)); got != fmt.Sprint(size/6*6) {
		t.Errorf("%s bytes came back", got)
	}
	if <-sums != want {
		t.Error("something else arrived")
	}
}

// An answer that comes before all of the question was read is not lost.
func TestAnAnswerArrivesThoughNotAllWasRead(t *testing.T) {
	in := start(t, newBackend(t), proxied(t, func(_ context.Context, conn net.Conn) {
		_, _ = conn.Read(make([]byte, 10))
		_, _ = conn.Write(bytes.Repeat([]byte("no"), 50_000))
	}))
	says(t, in, dials)
	got := says(t, in, `
import threading
c = dial()
def send():
    try: c.sendall(b'x' * 3000000)
    except OSError: pass
threading.Thread(target=send).start()
import time; time.sleep(0.3)
n = 0
while d := c.recv(1 << 16): n += len(d)
n`)
	if got != "100000" {
		t.Errorf("%s bytes arrived", got)
	}
}

func TestTheProxysConnectionsKeepDeadlinesAndEndWithTheBox(t *testing.T) {
	type end struct{ read, cut error }
	ends := make(chan end, 1)
	in := start(t, newBackend(t), proxied(t, func(ctx context.Context, conn net.Conn) {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := conn.Read(make([]byte, 1))
		_ = conn.SetReadDeadline(time.Time{})
		_, _ = conn.Write([]byte("x"))
		_, cut := conn.Read(make([]byte, 1))
		<-ctx.Done()
		ends <- end{err, cut}
	}))
	says(t, in, dials)
	if got := says(t, in, "c = dial(); c.recv(1)"); got != "b'x'" {
		t.Errorf("it got %s", got)
	}
	in.Close()
	if e := <-ends; !errors.Is(e.read, os.ErrDeadlineExceeded) || e.cut == nil {
		t.Errorf("%+v", e)
	}
}

// No more than so many are served at once; the others wait, and are served then.
func TestManyConnectionsToTheProxyWaitForEachOther(t *testing.T) {
	var now, most atomic.Int64
	in := start(t, newBackend(t), proxied(t, func(_ context.Context, conn net.Conn) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		_, _ = io.Copy(conn, conn)
		now.Add(-1)
	}))
	says(t, in, dials)
	if got := says(t, in, `
import threading
done = []
def one(n):
    c = dial(); done.append(ask(c, str(n))); c.close()
all = [threading.Thread(target=one, args=(n,)) for n in range(200)]
for t in all: t.start()
for t in all: t.join()
sorted(map(int, done)) == list(range(200))`); got != "True" {
		t.Errorf("it says %s", got)
	}
	if most.Load() > sandbox.MaxProxied {
		t.Errorf("%d were served at once", most.Load())
	}
}

// Attack 42: whatever a program does at the port of the proxy, it is not it, and nobody
// gets out through it from outside.
func TestNobodyElseListensAtTheProxysPort(t *testing.T) {
	b := newBackend(t)
	in := start(t, b, proxied(t, greets("hello")))
	says(t, in, dials)
	got := says(t, in, `
def take(family, host, *options):
    s = socket.socket(family)
    for o in options: s.setsockopt(socket.SOL_SOCKET, o, 1)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        s.bind((host, 3128)); s.listen()
        kept.append(s)
        return f'took {host}'
    except OSError: return 'no'
kept = []
reuse, share = socket.SO_REUSEADDR, socket.SO_REUSEPORT
[take(socket.AF_INET, h, *o) for h in ('127.0.0.1', '0.0.0.0') for o in ((), (reuse,), (share,), (reuse, share))] + [take(socket.AF_INET6, '::', *o) for o in ((), (reuse, share))]`)
	if strings.Contains(got, "took 127") {
		t.Errorf("a program listens there: %s", got)
	}
	// Whoever has all other addresses does not have this one.
	if got := says(t, in, "{ask(dial(), 'still') for _ in range(20)}"); got != "{'hello still'}" {
		t.Errorf("it is told %s", got)
	}
	if _, err := b.Dial(t.Context(), "alice", "one", sandbox.ProxyPort); fault.KindOf(err) != fault.Denied {
		t.Errorf("whoever connects from outside is led out: %v", err)
	}
}

func TestASavedBoxHasItsProxyAndNoConnections(t *testing.T) {
	b := newBackend(t)
	spec := proxied(t, greets("first"))
	in := start(t, b, spec)
	says(t, in, dials)
	if got := says(t, in, "c = dial(); ask(c, 'a')"); got != "'first a'" {
		t.Fatal(got)
	}
	state := saved(t, b)
	if got := says(t, in, "ask(c, 'b')"); got != "'first b'" {
		t.Errorf("saving it cut the connection: %s", got)
	}
	in.Close()
	const tries = "try: print(repr(ask(c, 'c')))\nexcept OSError as e: print(type(e).__name__)"
	for name, anew := range map[string]bool{"resumed": false, "forked": true} {
		state.Reseed = anew
		spec.Machine, spec.Proxy = state, greets(name)
		again := start(t, b, spec)
		if !again.WasRestored() {
			t.Errorf("%s: it is a fresh one", name)
		}
		if got := says(t, again, tries); got != "ConnectionResetError" && got != "BrokenPipeError" && got != "''" {
			t.Errorf("%s: the connection of before gives %s", name, got)
		}
		if got := says(t, again, "c = dial(); ask(c, 'd'), ask(dial(), 'e')"); got != fmt.Sprintf("('%[1]s d', '%[1]s e')", name) {
			t.Errorf("%s: it is told %s", name, got)
		}
		state = saved(t, b)
		again.Close()
	}
	spec.Proxy, spec.Machine = nil, state
	off := start(t, b, spec)
	if got := says(t, off, "try: dial()\nexcept OSError as e: print(type(e).__name__)"); got != "ConnectionRefusedError" || !off.WasRestored() {
		t.Errorf("without a network: %s", got)
	}
	says(t, off, "mine = socket.create_server(('127.0.0.1', 3128))")
	state = saved(t, b)
	off.Close()
	spec.Proxy, spec.Machine = greets("late"), state
	if _, err := b.Start(t.Context(), spec); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("a program has the port of the proxy: %v", err)
	}
}

func TestADozingBoxReachesItsProxy(t *testing.T) {
	b := dozing(t, 50*time.Millisecond)
	served := make(chan string, 1)
	in := start(t, b, proxied(t, func(_ context.Context, conn net.Conn) {
		line, _ := bufio.NewReader(conn).ReadString('\n')
		served <- line
		fmt.Fprintln(conn, "heard")
	}))
	says(t, in, dials+"import threading\nheard = []\nthreading.Timer(1, lambda: heard.append(ask(dial(), 'late'))).start()")
	eventually(t, "its rest", func() bool { return stopped(in) })
	if got := <-served; got != "late\n" {
		t.Errorf("it says %q", got)
	}
	eventually(t, "the answer", func() bool { return says(t, in, "heard") == "['heard']" })
	eventually(t, "its rest again", func() bool { return stopped(in) })
}

func TestAMachineBootedAheadHasTheProxyOfWhomItWasGivenTo(t *testing.T) {
	b := newBackend(t)
	nobodys := make(chan struct{}, 1)
	spec := sandbox.Spec{Box: "slot", Runtime: "python", Proxy: func(context.Context, net.Conn) { nobodys <- struct{}{} }}
	in := start(t, b, spec)
	if err := b.Suspend(in); err != nil {
		t.Fatal(err)
	}
	spec.Owner, spec.Box = "alice", "one"
	without := spec
	without.Proxy = nil
	if err := b.Adopt(t.Context(), in, without); fault.KindOf(err) != fault.Conflict {
		t.Errorf("one with a network is given to whom has none: %v", err)
	}
	spec.Proxy = greets("alice")
	if err := b.Adopt(t.Context(), in, spec); err != nil {
		t.Fatal(err)
	}
	says(t, in, dials)
	if got := says(t, in, "ask(dial(), 'here')"); got != "'alice here'" || len(nobodys) > 0 {
		t.Errorf("it is told %s", got)
	}
}
