package session_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
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
		// It removes what belongs to no session, and then waits for the fork to end.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, _ = m.Collect(ctx)
	}
	forks, err := m.Fork(t.Context(), alice, id, "", 2)
	if err != nil {
		t.Fatalf("forking: got error %v, want none", err)
	}
	if !collected {
		t.Fatal("nothing was collected while the forks were made")
	}
	for _, one := range forks {
		prints(t, m, one.ID, "print(x)", "1")
	}
}

// halfway fails when the marker of a group has its name already, and looks whether
// that is still there when the first of the forks goes.
// The log of commits writes files in goroutines of its own.
type halfway struct {
	blob.Files
	mu     sync.Mutex
	marker string
	there  error // what looking for the marker gave
	looked bool
}

func (h *halfway) Rename(from, to string) error {
	err := h.Files.Rename(from, to)
	if filepath.Base(filepath.Dir(to)) == ".groups" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.marker = to
	}
	return err
}

func (h *halfway) SyncDir(name string) error {
	h.mu.Lock()
	marker := h.marker
	h.mu.Unlock()
	if marker != "" && name == filepath.Dir(marker) {
		return syscall.EIO
	}
	return h.Files.SyncDir(name)
}

func (h *halfway) Remove(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.marker != "" && !h.looked && filepath.Base(name) == "session.json" {
		h.looked = true
		_, h.there = os.Lstat(h.marker)
	}
	return h.Files.Remove(name)
}

// Killed between the first and the last that goes, a process must not leave some.
func TestForksThatCouldNotBeMadeGoTogether(t *testing.T) {
	files := &halfway{Files: blob.OS}
	m := manager(t, session.Config{Files: files}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	if _, err := m.Fork(t.Context(), alice, id, "", 3); err == nil {
		t.Error("forking: got no error, want one")
	} else if strings.Contains(err.Error(), "there is no session") {
		t.Errorf("forking: got error %v, want one that does not speak of the forks", err)
	}
	files.mu.Lock()
	defer files.mu.Unlock()
	if !files.looked {
		t.Error("no fork was removed")
	}
	if !os.IsNotExist(files.there) {
		t.Errorf("the marker when the first fork is removed: got error %v, want that it does not exist", files.there)
	}
	wantSessions(t, m, alice, 1)
}

// wantSessions checks how many sessions an owner has.
func wantSessions(t *testing.T, m *session.Manager, owner session.Owner, want int) {
	t.Helper()
	all, err := m.List(owner)
	if err != nil {
		t.Errorf("listing the sessions of %s: got error %v, want none", owner, err)
	}
	if len(all) != want {
		t.Errorf("sessions of %s: got %d, want %d: %+v", owner, len(all), want, all)
	}
}
