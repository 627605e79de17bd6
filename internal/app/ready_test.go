package app

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAServerThatCannotWriteIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(state, nil, 0o600); err != nil { // no user can write below it
			t.Fatal(err)
		}
		r := &Ready{state: stateWriter{dir: state}}
		want := []string{"the state folder cannot be written"}
		if got := r.reasons(t.Context()); !slices.Equal(got, want) {
			t.Errorf("the reasons are %q", got)
		}
		if err := os.Remove(state); err != nil {
			t.Fatal(err)
		}
		if got := r.reasons(t.Context()); !slices.Equal(got, want) {
			t.Errorf("it was looked again at once: %q", got)
		}
		time.Sleep(lookFor)
		if got := r.reasons(t.Context()); got != nil {
			t.Errorf("the reasons are %q", got)
		}
		if left, err := os.ReadDir(state); err != nil || len(left) != 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	})
}

func TestTheHeapIsBounded(t *testing.T) {
	limit := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(limit)
	for _, test := range []struct {
		name, environ string
		machine, want int64
	}{
		{"a large machine", "", 64 << 30, (1<<30 + 384<<20)},
		{"a small one", "", 4 << 30, (512<<20 + 384<<20)},
		{"one that is not known", "", 0, (1<<30 + 384<<20)},
		{"who runs it has decided", "1GiB", 64 << 30, limit},
	} {
		t.Setenv("GOMEMLIMIT", test.environ)
		debug.SetMemoryLimit(limit)
		if newMemory(test.machine); debug.SetMemoryLimit(-1) != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, debug.SetMemoryLimit(-1), test.want)
		}
	}
}
