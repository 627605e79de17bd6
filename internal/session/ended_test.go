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
			if err != nil || path != session.Shown+"/2-stdout.txt" || len(r.Changes) != 1 || r.Changes[0].Path != path {
				t.Fatalf("it is in %q; the changes are %v, %v", path, r.Changes, err)
			}
			if r := execute(t, m, id, "print(read('"+path+"'))"); !strings.HasPrefix(r.Stdout, "said\n") {
				t.Errorf("the file has %q", r.Stdout)
			}
			checkpoints, err := m.Checkpoints(alice, id)
			if err != nil || len(checkpoints) != 3 {
				t.Errorf("there are %d checkpoints, %v", len(checkpoints), err)
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
