package session_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/blob"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// renaming calls one thing before the marker of a group of forks gets its name.
type renaming struct {
	blob.Files
	call func()
}

func (r *renaming) Rename(from, to string) error {
	if call := r.call; call != nil && filepath.Base(filepath.Dir(to)) == ".groups" {
		r.call = nil
		call()
	}
	return r.Files.Rename(from, to)
}

// A collection, whenever it comes, takes nothing away from forks in the making.
func TestACollectionLeavesForksInTheMakingAlone(t *testing.T) {
	files := &renaming{Files: blob.OS}
	m := manager(t, session.Config{Files: files}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	collected := false
	files.call = func() {
		collected = true
		// It removes what belongs to nobody, and then waits for the fork to end.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _ = m.Collect(ctx)
	}
	forks, err := m.Fork(t.Context(), alice, id, "", 2)
	if err != nil || !collected {
		t.Fatalf("%v; collected: %v", err, collected)
	}
	for _, one := range forks {
		prints(t, m, one.ID, "print(x)", "1")
	}
}
