package crash

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// Attack 64: a process is killed while its worker is paused in the midst of a
// program. Whoever takes the session over has its files alone: while the worker
// lives, nobody does.
func TestAPausedWorkerWritesNothingAfterATakeover(t *testing.T) {
	t.Parallel()
	sandboxtest.Require(t, "linux", runtime.GOOS == "linux", "workers are found in /proc")
	p := newPlace(t, "")
	c, other := p.start(), p.start()
	defer other.kill()
	c.must(t, "create_session", map[string]any{"session_id": "one"})
	c.must(t, "execute_code", execution("one", "python", "x = 1; open('whose', 'w').write('ours')"))
	c.begin("execute_code", execution("one", "python", "i = 0\nwhile True:\n    open('whose', 'w').write('stale')\n    open(f's{i % 100}', 'w').write('stale')\n    i += 1"))
	whose := filepath.Join(p.state, "owners", "local", "one", "workspace", "whose")
	for text := ""; text != "stale"; { // until it runs
		data, err := os.ReadFile(whose)
		if err != nil {
			t.Fatal(err)
		}
		text = string(data)
	}
	workers := children(c.cmd.Process.Pid)
	for _, pid := range workers {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	c.kill()
	<-other.ready
	call := func() *answer {
		got, err := other.call("execute_code", execution("one", "python", "import os; print(x, sorted(os.listdir('/workspace')), open('whose').read())"))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := call()
	if f := got.failed(); f != nil && (f.Code != "conflict" || f.Hint == "") {
		t.Errorf("it was refused with %+v", *f)
	}
	for _, pid := range workers {
		if got.failed() == nil && lives(pid) {
			t.Errorf("it was taken over, and its worker %d lives and may write to it", pid)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	for late := time.Now().Add(mostWait); time.Now().Before(late); {
		if got = call(); got.failed() == nil {
			break
		}
	}
	for _, pid := range workers {
		if lives(pid) {
			t.Errorf("the worker %d has outlived its server and its session", pid)
		}
	}
	if got.Stdout != "1 ['whose'] ours\n" {
		t.Errorf("the session is %q; %+v", got.Stdout, got.failed())
	}
}

// lives tells whether a process is there and no zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}
