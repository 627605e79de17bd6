package session_test

import (
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

func TestWhatIsPutAtTheEndOfARunBelongsToIt(t *testing.T) {
	for name, config := range map[string]session.Config{"kept before the answer": {}, "kept later": {AsyncCheckpoint: true}} {
		t.Run(name, func(t *testing.T) {
			m := manager(t, config, sandboxtest.FakeConfig{})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 1")
			var path string
			r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "x = 2\nprint('said')", Ended: func(res session.Result, put session.PutFunc) {
				var err error
				if path, err = put("stdout.txt", []byte(res.Stdout)); err != nil {
					t.Error(err)
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			if path != session.Shown+"/2-stdout.txt" {
				t.Fatalf("path: got %q, want %q", path, session.Shown+"/2-stdout.txt")
			}
			if len(r.Changes) != 1 {
				t.Fatalf("len(r.Changes): got %d, want 1: %v", len(r.Changes), r.Changes)
			}
			if r.Changes[0].Path != path {
				t.Fatalf("r.Changes[0].Path: got %v, want %v", r.Changes[0].Path, path)
			}
			if r := execute(t, m, id, "print(read('"+path+"'))"); !strings.HasPrefix(r.Stdout, "said\n") {
				t.Errorf("the file has %q", r.Stdout)
			}
			checkpoints, err := m.Checkpoints(alice, id)
			if err != nil {
				t.Fatal(err)
			}
			if len(checkpoints) < 3 || len(checkpoints[2].Files) != 1 {
				t.Fatalf("the file is not in its run's checkpoint: %v", checkpoints)
			}
			for _, later := range checkpoints[3:] { // of what changed nothing
				if len(later.Files) > 0 {
					t.Errorf("the file is the next execution's: %v", checkpoints)
				}
			}
		})
	}
}

func TestWhatIsPutCountsTowardsTheDiskLimit(t *testing.T) {
	m := manager(t, session.Config{DiskBytes: 1 << 20}, sandboxtest.FakeConfig{})
	id := create(t, m, alice, "")
	_, err := m.Execute(t.Context(), alice, id, session.Request{Code: "x = 1", Ended: func(_ session.Result, put session.PutFunc) {
		_, err := put("1.bin", []byte(strings.Repeat("x", 2<<20)))
		wantKind(t, err, fault.Exhausted)
	}})
	if err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "print(x)", "1")
}
