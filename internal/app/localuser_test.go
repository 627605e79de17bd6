package app

import (
	"sync"
	"testing"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

func TestTheLocalUserComesInOnceTheTokenIsOpen(t *testing.T) {
	dir := t.TempDir()
	token, _, err := auth.LocalToken(dir)
	if err != nil {
		t.Fatal(err)
	}
	l := &LocalUser{Dir: dir}
	if _, err := l.Verify(t.Context(), token); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("before Open the token gives %v, want a fault of kind %s", err, fault.Unavailable)
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { // the race detector sees whether the order matters
		if p, err := l.Verify(t.Context(), token); err == nil && p.ID != auth.Local {
			t.Errorf("while Open runs the token is of %q, want %q", p.ID, auth.Local)
		}
	})
	made, err := l.Open()
	if err != nil {
		t.Fatal(err)
	}
	if made != "" {
		t.Error("Open gives a token that was there before")
	}
	p, err := l.Verify(t.Context(), token)
	if err != nil {
		t.Fatalf("after Open: %v", err)
	}
	if p.ID != auth.Local {
		t.Errorf("the token is of %q, want %q", p.ID, auth.Local)
	}
	if _, err := l.Verify(t.Context(), token+"x"); err == nil {
		t.Error("another token is let in")
	}
}
