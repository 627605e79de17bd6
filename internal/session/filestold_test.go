package session_test

import (
	"slices"
	"sync"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

// listening are machines that note of which of them files have changed.
type listening struct {
	*sandboxtest.FakeMachines
	mu   sync.Mutex // guards what follows
	told []string
}

func (b *listening) FilesChanged(owner, box string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, owner+" "+box)
}

// taken gives what was told since the last time.
func (b *listening) taken() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer func() { b.told = nil }()
	return b.told
}

func TestAMachineIsToldOfEachChangeOfItsFiles(t *testing.T) {
	var specs []sandbox.Spec
	b := &listening{FakeMachines: sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{
		Name: "machines", OnStart: func(s sandbox.Spec) error { specs = append(specs, s); return nil },
	})}
	m := sessiontest.Open(t, session.Config{}, b)
	i, err := m.Create(t.Context(), alice, "", session.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	command(t, m, i.ID, "echo", "hello")
	told := 0
	for _, mount := range specs[0].Mounts {
		if want := mount.Guest == "/workspace" || mount.Guest == "/tmp"; mount.Told != want {
			t.Errorf("whether changes of %s are told is %v", mount.Guest, mount.Told)
		} else if want {
			told++
		}
	}
	if told != 2 {
		t.Errorf("changes of %d folders are told", told)
	}
	tree, done, err := m.Files(alice, i.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	b.taken()
	if _, err := tree.Write("f", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if all := b.taken(); !slices.Contains(all, string(alice)+" "+string(i.ID)) {
		t.Errorf("of a write was told %q", all)
	}
	if err := tree.RemoveFile("f", nil); err != nil {
		t.Fatal(err)
	}
	if all := b.taken(); !slices.Contains(all, string(alice)+" "+string(i.ID)) {
		t.Errorf("of a removal was told %q", all)
	}
}
