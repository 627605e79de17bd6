package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// asleep waits until every session is, and gives how many there are.
func (p *place) asleep() int {
	p.t.Helper()
	for late := time.Now().Add(mostWait); ; time.Sleep(100 * time.Millisecond) {
		all, err := p.list()
		if err != nil {
			p.t.Fatal(err)
		}
		awake := 0
		for _, s := range all {
			if s.State != "asleep" {
				awake++
			}
		}
		if awake == 0 {
			return len(all)
		}
		if time.Now().After(late) {
			p.t.Fatalf("%d of %d sessions are awake", awake, len(all))
		}
	}
}

// held is what a process and its workers hold.
func held(t *testing.T, c *process) (descriptors, memory int) {
	t.Helper()
	for _, pid := range append(children(c.cmd.Process.Pid), c.cmd.Process.Pid) {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil && pid != c.cmd.Process.Pid {
			continue // it has ended meanwhile
		}
		if err != nil {
			t.Fatal(err)
		}
		descriptors += len(fds)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil && pid != c.cmd.Process.Pid {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_, rest, anon := bytes.Cut(status, []byte("RssAnon:"))
		if !anon && pid != c.cmd.Process.Pid {
			continue // it is ending, and holds none
		}
		kb, err := strconv.Atoi(strings.Fields(string(rest))[0])
		if err != nil {
			t.Fatal(err)
		}
		memory += kb << 10
	}
	return descriptors, memory
}

// each calls f with 0 to n-1, eight at a time.
func each(n int, f func(k int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 8 {
		all.Go(func() {
			for k := range next {
				f(k)
			}
		})
	}
	for k := range n {
		next <- k
	}
	close(next)
	all.Wait()
}

const sleepy = "[sessions]\nsleep_after_seconds = 1\n"

// Hundreds of sessions sleep, take neither memory nor descriptors meanwhile,
// and each wakes with what it had; also in another process.
func TestHundredsSleepAndWake(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t, "linux", runtime.GOOS == "linux", "what a process holds is read from /proc")
	p := newPlace(t, sleepy)
	n := 300
	if testing.Short() {
		n = 120
	}
	c := p.start()
	one := func(k int) string { return fmt.Sprintf("sleeper%d", k) }
	nap := func(k int) {
		c.must(t, "create_session", map[string]any{"session_id": one(k)})
		c.must(t, "execute_code", execution(one(k), "python", fmt.Sprintf("x = [%d] * 1000; b = bytearray(1 << 20); open('f', 'w').write('%d')", k, k)))
		if k%8 == 0 {
			c.must(t, "execute_code", execution(one(k), "javascript", fmt.Sprintf("globalThis.x = %d", k)))
		}
	}
	first := max(n/3, 50) // more than are awake at once: it takes no more than it has then
	each(first, nap)
	p.asleep()
	fds, memory := held(t, c)
	each(n-first, func(k int) { nap(k + first) })
	began := time.Now()
	if got := p.asleep(); got != n {
		t.Fatalf("there are %d sessions", got)
	}
	t.Logf("all were asleep after %v", time.Since(began).Round(10*time.Millisecond))
	nowFDs, nowMemory := held(t, c)
	for late := time.Now().Add(mostWait); (nowFDs > fds+16 || nowMemory > memory+16<<20) && time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		nowFDs, nowMemory = held(t, c) // what they were in may be ending
	}
	t.Logf("with %d sessions asleep it held %d descriptors and %d MB, with %d %d and %d MB", first, fds, memory>>20, n, nowFDs, nowMemory>>20)
	if nowFDs > fds+16 || nowMemory > memory+16<<20 { // one that is awake has a megabyte at least
		t.Error("sleeping sessions take descriptors or memory")
	}
	wake := func(k int) {
		got := c.must(t, "execute_code", execution(one(k), "python", "print(x == [x[0]] * 1000, x[0], len(b), open('f').read())"))
		if want := fmt.Sprintf("True %d 1048576 %d\n", k, k); got.Stdout != want {
			t.Errorf("%s woke with %q %s; notice %q", one(k), got.Stdout, got.Stderr, got.Notice)
		}
		if k%8 == 0 {
			if got := c.must(t, "execute_code", execution(one(k), "javascript", "console.log(x)")); got.Stdout != fmt.Sprintf("%d\n", k) {
				t.Errorf("%s woke with %q in JavaScript", one(k), got.Stdout)
			}
		}
	}
	began = time.Now()
	each(n, wake)
	t.Logf("%d woke in %v", n, time.Since(began).Round(time.Millisecond))
	c.kill()
	c = p.start()
	defer c.kill()
	each(n, wake)
}

// Attack 65: everybody calls one sleeping session, and it wakes once.
func TestAWakeStorm(t *testing.T) {
	t.Parallel()
	p := newPlace(t, sleepy)
	c := p.start()
	defer c.kill()
	c.must(t, "create_session", map[string]any{"session_id": "one"})
	c.must(t, "execute_code", execution("one", "python", "n = 0"))
	for storm := range 3 {
		p.asleep()
		ran, refused := 0, 0
		var waits []<-chan []byte
		for range 200 {
			waits = append(waits, c.begin("execute_code", execution("one", "python", "n += 1")))
		}
		for _, w := range waits {
			got, err := c.answer(w)
			switch {
			case err != nil:
				t.Fatalf("%v\n%s", err, last(c.said()))
			case got.failed() == nil:
				ran++
			case got.failed().Code == "exhausted" && got.failed().Hint != "":
				refused++
			default:
				t.Errorf("a call was answered with %+v", *got.failed())
			}
		}
		t.Logf("%d ran, %d were refused", ran, refused)
		got := c.must(t, "execute_code", execution("one", "python", fmt.Sprintf("print(n); n = 0; open('storm', 'w').write('%d')", storm)))
		if got.Stdout != fmt.Sprintf("%d\n", ran) || ran == 0 {
			t.Errorf("%d ran, and it says %q; notice %q", ran, got.Stdout, got.Notice)
		}
	}
}

// Attack 65: calls come at the moment when a session falls asleep.
func TestCallsRaceWithTheReaper(t *testing.T) {
	t.Parallel()
	p := newPlace(t, sleepy)
	c := p.start()
	defer c.kill()
	rounds := 5
	if testing.Short() {
		rounds = 2
	}
	var all sync.WaitGroup
	for k := range 16 {
		all.Go(func() {
			id := fmt.Sprintf("racer%d", k)
			c.must(t, "create_session", map[string]any{"session_id": id})
			c.must(t, "execute_code", execution(id, "python", "n = 0"))
			for round := range rounds {
				time.Sleep(time.Second - 10*time.Millisecond + time.Duration(rand.IntN(20_000))*time.Microsecond)
				if k%2 == 0 { // from outside of programs
					c.must(t, "write_file", map[string]any{"session_id": id, "path": "f.txt", "content": strconv.Itoa(round + 1)})
				}
				got := c.must(t, "execute_code", execution(id, "python", "n += 1\nimport os\nprint(n, open('f.txt').read() if os.path.exists('f.txt') else n)"))
				if want := fmt.Sprintf("%d %d\n", round+1, round+1); got.Stdout != want {
					t.Errorf("%s says %q and not %q; notice %q", id, got.Stdout, want, got.Notice)
				}
			}
		})
	}
	all.Wait()
	if left, err := filepath.Glob(filepath.Join(p.state, "blobs", "local", "new", "*")); err != nil || len(left) > 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}
