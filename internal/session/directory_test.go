package session

import (
	"errors"
	"testing"
)

// newEntry makes what a directory takes as a session that is being opened.
func newEntry(k key) func() *session {
	return func() *session { return &session{key: k, turns: newTurns(k.id, func() {})} }
}

func wantAdded(t *testing.T, d *directory, k key, want bool) *session {
	t.Helper()
	_, added, err := d.add(k, newEntry(k))
	if err != nil {
		t.Errorf("adding %v: got error %v, want none", k, err)
	}
	if got := added != nil; got != want {
		t.Errorf("%v was added: got %v, want %v", k, got, want)
	}
	return added
}

func TestADirectoryHasEachSessionOnce(t *testing.T) {
	d := newDirectory(2, 3)
	k := key{"alice", "a"}
	first := wantAdded(t, d, k, true)
	there, added, err := d.add(k, newEntry(k))
	if err != nil {
		t.Errorf("adding it again: got error %v, want none", err)
	}
	if there != first {
		t.Errorf("the session that is there: got %p, want %p", there, first)
	}
	if added != nil {
		t.Error("another one was added under its key")
	}
	if !d.holds(first) {
		t.Error("holds the session: got false, want true")
	}
	d.remove(first)
	if d.get(k) != nil {
		t.Error("it is there after its removal")
	}
}

func TestADirectoryIsBounded(t *testing.T) {
	d := newDirectory(2, 3)
	wantAdded(t, d, key{"alice", "a"}, true)
	wantAdded(t, d, key{"alice", "b"}, true)
	wantAdded(t, d, key{"alice", "c"}, false) // of one owner
	wantAdded(t, d, key{"bob", "a"}, true)
	last := key{"carol", "a"}
	wantAdded(t, d, last, false) // of all
	if mine, all := d.count("alice"); mine != 2 {
		t.Errorf("sessions of alice: got %d, want 2", mine)
	} else if all != 3 {
		t.Errorf("sessions of all: got %d, want 3", all)
	}
	d.remove(d.get(key{"bob", "a"}))
	wantAdded(t, d, last, true)
}

func TestSessionsThatAreBeingOpenedAreNotOpen(t *testing.T) {
	d := newDirectory(2, 3)
	s := wantAdded(t, d, key{"alice", "a"}, true)
	if n := len(d.open("alice")); n != 0 {
		t.Errorf("open while one is being opened: got %d, want 0", n)
	}
	s.turns.open(false)
	if n := len(d.open("alice")); n != 1 {
		t.Errorf("open afterwards: got %d, want 1", n)
	}
	if n := len(d.open("bob")); n != 0 {
		t.Errorf("open of another owner: got %d, want 0", n)
	}
}

func TestAClosedDirectoryTakesNoSessions(t *testing.T) {
	d := newDirectory(2, 3)
	k := key{"alice", "a"}
	wantAdded(t, d, k, true)
	if n := len(d.close()); n != 1 {
		t.Errorf("sessions when it closes: got %d, want 1", n)
	}
	if _, _, err := d.add(k, newEntry(k)); !errors.Is(err, errShutdown) {
		t.Errorf("adding: got error %v, want %v", err, errShutdown)
	}
	if _, err := d.lookup(k); !errors.Is(err, errShutdown) {
		t.Errorf("looking it up: got error %v, want %v", err, errShutdown)
	}
	if d.unlessClosed(func() { t.Error("called although it is closed") }) {
		t.Error("unless closed: got true, want false")
	}
}
