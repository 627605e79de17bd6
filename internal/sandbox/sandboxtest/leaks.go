package sandboxtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// owners is how many tenants the lives belong to.
const owners = 3

// usage is what an instance must not leave behind.
type usage struct{ goroutines, descriptors, children int }

// used counts. What cannot be counted on this system is 0.
func used() usage {
	u := usage{goroutines: runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.descriptors = len(fds)
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, p := range processes {
		stat, err := os.ReadFile(p)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The second field, in parentheses, may hold anything; the parent's id
		// is the second after it.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(os.Getpid()) {
			u.children++
		}
	}
	return u
}

func (u usage) more(than usage) bool {
	return u.goroutines > than.goroutines || u.descriptors > than.descriptors || u.children > than.children
}

// settles waits until no more is used than at first: what has been told to end
// may take a moment.
func settles(t *testing.T, first usage) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(timeout)
	for now := used(); now.more(first); now = used() {
		select {
		case <-tick.C:
		case <-deadline:
			stacks := make([]byte, 1<<20)
			t.Fatalf("before %+v, now %+v\n%s", first, now, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func (k *kit) testLeaks(t *testing.T) {
	t.Run("thirty lives leave nothing behind", func(t *testing.T) {
		temp := t.TempDir()
		t.Setenv("TMPDIR", temp)
		beginning := used()
		own := &kit{harness: newHarness(t, k.suite), Programs: k.Programs, runtime: k.runtime}
		dir := own.folder(t)
		for n := range owners { // what is made once for each owner is made now
			own.round(t, dir, n)
		}
		warm := used()
		for n := range 30 {
			own.round(t, dir, n)
		}
		settles(t, warm)
		if err := own.backend.Close(); err != nil {
			t.Error(err)
		}
		settles(t, beginning)
		for _, left := range []string{temp, dir} {
			if names, err := os.ReadDir(left); err != nil || len(names) != 0 {
				t.Errorf("left %v, %v", names, err)
			}
		}
	})
}

// round is one life, which ends in one of several ways.
func (k *kit) round(t *testing.T, dir string, n int) {
	t.Helper()
	spec := k.spec(dir)
	spec.Owner = "owner" + strconv.Itoa(n%owners)
	in, err := k.backend.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	works(t, in, k.Print("hello"), "hello")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	src := []string{k.Loop, k.Sleep, k.Stubborn}[n%3]
	ended := background(ctx, t, in, lines(k.Print("on"), src), sandbox.RunLimits{Grace: 10 * time.Millisecond})
	if n%2 == 0 {
		cancel()
		if r := await(t, "the end of the run", ended); r.err != nil || r.exit.Cause != sandbox.Cancelled {
			t.Errorf("it ended as %+v, %v", r.exit, r.err)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if n%2 == 1 {
		await(t, "the end of the run", ended)
	}
}
