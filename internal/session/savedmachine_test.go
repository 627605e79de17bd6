package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// keepers makes a Manager whose sessions have machines that are saved, upon a folder
// that others may have had.
func keepers(t *testing.T, config session.Config) (*session.Manager, *sandboxtest.FakeKeeper) {
	t.Helper()
	if config.Dir == "" {
		config.Dir = t.TempDir()
	}
	b := sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{Name: "machines"})
	config.Backends = []sandbox.Backend{b}
	m, err := session.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := b.Live(); n != 0 {
			t.Errorf("%d interpreters live on", n)
		}
		b.Close()
	})
	return m, b
}

func inLanguage(t *testing.T, m *session.Manager, id session.ID, language, code string) session.Result {
	t.Helper()
	r, err := m.Execute(t.Context(), alice, id, session.Request{Code: code, Language: language})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAMachineSleepsWithAllThatIsInIt(t *testing.T) {
	dir := t.TempDir()
	m, b := keepers(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 41\nwrite('f', 'text')")
	inLanguage(t, m, id, "javascript", "let y = 7")
	command(t, m, id, "spawn", "server")
	for range 2 {
		before, err := m.Checkpoints(alice, id)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Sleep(alice, id); err != nil {
			t.Fatal(err)
		}
		if b.Live() != 0 {
			t.Errorf("%d interpreters live while it sleeps", b.Live())
		}
		if after, err := m.Checkpoints(alice, id); err != nil {
			t.Error(err)
		} else if len(after) != len(before) { // a rest is not a step
			t.Errorf("checkpoints: got %d, want %d", len(after), len(before))
		}
		d, err := m.Details(t.Context(), alice, id)
		if err != nil {
			t.Fatalf("asleep: got error %v, want none", err)
		}
		if len(d.Variables) != 2 {
			t.Errorf("asleep: len(d.Variables): got %d, want 2: %v", len(d.Variables), d.Variables)
		}
		r := prints(t, m, id, "print(x, read('f'))", "41 text")
		if says(t, r.Notice, "", "fresh", "gone", "stopped"); r.Notice != "" {
			t.Errorf("the notice is %q", r.Notice)
		}
		if r := inLanguage(t, m, id, "javascript", "y"); r.Exit.Result != "7" {
			t.Errorf("the other one: r.Exit.Result: got %q, want %q", r.Exit.Result, "7")
		} else if r.Notice != "" {
			t.Errorf("the other one: r.Notice: got %q, want none", r.Notice)
		}
		if list, err := m.Processes(t.Context(), alice, id); err != nil {
			t.Errorf("in the background: got error %v, want none", err)
		} else if len(list) != 1 {
			t.Errorf("in the background: len(list): got %d, want 1: %v", len(list), list)
		} else if list[0].Command != "server" {
			t.Errorf("in the background: list[0].Command: got %q, want %q", list[0].Command, "server")
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := keepers(t, session.Config{Dir: dir})
	if r := prints(t, again, id, "print(x)", "41"); r.Notice != "" {
		t.Errorf("in another process the notice is %q", r.Notice)
	}
}

func TestACheckpointThatWasAskedForHasTheMachine(t *testing.T) {
	m, _ := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'one')")
	c, err := m.Checkpoint(t.Context(), alice, id, "mine")
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "c.Memory", c.Memory, true)
	expect.Equal(t, "c.Notice", c.Notice, "")
	expect.Equal(t, "len(c.Variables)", len(c.Variables), 1)
	if t.Failed() {
		t.FailNow()
	}
	execute(t, m, id, "x = 2\nwrite('f', 'two')")
	inLanguage(t, m, id, "javascript", "let later = 1")
	for range 2 {
		r, err := m.Restore(t.Context(), alice, id, "mine")
		if err != nil {
			t.Fatal(err)
		}
		says(t, r.Notice, "", "python")
		prints(t, m, id, "print(x, read('f'))", "1 one")
	}
	// A run that changed no file is a step all the same.
	execute(t, m, id, "x = 3")
	if _, err := m.Undo(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if r := prints(t, m, id, "print(x)", "1"); strings.Contains(r.Notice, "fresh") {
		t.Errorf("the notice is %q", r.Notice)
	}
	// Of a checkpoint without it only files come back.
	execute(t, m, id, "x = 4")
	execute(t, m, id, "x = 5\nwrite('f', 'five')")
	r, err := m.Undo(t.Context(), alice, id)
	if err != nil {
		t.Fatal(err)
	}
	says(t, r.Notice, "Variables are gone (python)")
	says(t, execute(t, m, id, "x").Notice, "fresh python")
}

func TestAForkBeginsWithTheMachine(t *testing.T) {
	m, _ := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 41")
	forks, err := m.Fork(t.Context(), alice, id, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{execute(t, m, id, "random()").Exit.Result: true}
	for _, f := range forks {
		if r := prints(t, m, f.ID, "print(x)", "41"); r.Notice != "" {
			t.Errorf("a fork is told %q", r.Notice)
		}
		drawn[execute(t, m, f.ID, "random()").Exit.Result] = true
	}
	if len(drawn) != 3 {
		t.Errorf("they drew %v", drawn)
	}
	execute(t, m, forks[0].ID, "x = 1")
	prints(t, m, forks[1].ID, "print(x)", "41")
	prints(t, m, id, "print(x)", "41")
}

func TestAKilledServersMachineIsThereIfNothingRanSince(t *testing.T) {
	for name, ran := range map[string]bool{"nothing ran since": false, "something ran since": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m, _ := keepers(t, session.Config{Dir: dir})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 1")
			if _, err := m.Checkpoint(t.Context(), alice, id, "mine"); err != nil {
				t.Fatal(err)
			}
			if ran {
				execute(t, m, id, "x = 2")
			}
			again, _ := keepers(t, session.Config{Dir: withoutDesks(t, dir)})
			r := execute(t, again, id, "x")
			if there := r.Exit.Result == "1"; there == ran {
				t.Errorf(`r.Exit.Result == "1": got %v, want another`, there)
			} else if strings.Contains(r.Notice, "fresh python") != ran {
				t.Errorf(`strings.Contains(r.Notice, "fresh python"): got %v, want %v`,
					strings.Contains(r.Notice, "fresh python"), ran)
			}
		})
	}
}

func TestAMachineThatCannotBeSavedIsToldOf(t *testing.T) {
	m, b := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	b.Refuse = func() error { return fault.New(fault.Exhausted, "it is too large") }
	c, err := m.Checkpoint(t.Context(), alice, id, "")
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "c.Memory", c.Memory, false)
	expect.Part(t, "c.Notice", c.Notice, "too large")
	b.Refuse = func() error { return errors.New("anything") }
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, m, id, "x"); r.Exit.Error == nil {
		t.Error("r.Exit.Error: got nil, want one")
	} else if !strings.Contains(r.Notice, "fresh python") {
		t.Errorf("r.Notice: got %q, want %q in it", r.Notice, "fresh python")
	}
	b.Refuse = nil
	execute(t, m, id, "x = 2")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	prints(t, m, id, "print(x)", "2")
}

func TestAMachineThatCannotBeGoneOnWithIsReplacedAndTheModelTold(t *testing.T) {
	m, b := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	b.Forget = func() error { return fault.New(fault.Unsupported, "the image is another one now") }
	r := prints(t, m, id, "print(read('f'))", "text")
	says(t, r.Notice, "fresh python", "the image is another one")
}

func TestASavedMachineStaysBehindWhereTheSessionIsCarriedAway(t *testing.T) {
	m, _ := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := m.Export(t.Context(), alice, id, &archive); err != nil {
		t.Fatal(err)
	}
	i, notice, err := m.Import(t.Context(), "bob", "", &archive)
	if err != nil {
		t.Fatal(err)
	}
	says(t, notice, "no variables")
	if r, err := m.Execute(t.Context(), "bob", i.ID, session.Request{Code: "read('f')"}); err != nil {
		t.Errorf("its file: got error %v, want none", err)
	} else if r.Exit.Result != "'text'" {
		t.Errorf("its file: r.Exit.Result: got %q, want %q", r.Exit.Result, "'text'")
	}
	if r, err := m.Execute(t.Context(), "bob", i.ID, session.Request{Code: "x"}); err != nil {
		t.Errorf("its variable: got error %v, want none", err)
	} else if r.Exit.Error == nil {
		t.Error("its variable: r.Exit.Error: got nil, want one")
	}
	prints(t, m, id, "print(x)", "1")
}

func TestWhatASavedMachineTookIsCollectedWhenItIsNeededNoMore(t *testing.T) {
	dir := t.TempDir()
	m, _ := keepers(t, session.Config{Dir: dir})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	blobs := func() int {
		settle(t, m)
		if _, err := m.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "??", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := blobs()
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	if asleep := blobs(); asleep != before+1 {
		t.Errorf("asleep it has %d blobs, and had %d", asleep, before)
	}
	prints(t, m, id, "print(x)", "1")
	if after := blobs(); after > before {
		t.Errorf("after the next call there are %d blobs, and were %d", after, before)
	}
}

func TestASavedMachineThatIsDamagedOrGoneIsReplacedAndTheModelTold(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"gone":    os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("something else"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m, _ := keepers(t, session.Config{Dir: dir})
			id := create(t, m, alice, "")
			execute(t, m, id, "x = 1\nwrite('f', 'text')")
			blobs := func() []string {
				settle(t, m)
				all, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "??", "*"))
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			before := blobs()
			if err := m.Sleep(alice, id); err != nil {
				t.Fatal(err)
			}
			for _, path := range blobs() {
				if slices.Contains(before, path) {
					continue
				}
				if err := harm(path); err != nil {
					t.Fatal(err)
				}
			}
			r := prints(t, m, id, "print(read('f'))", "text")
			says(t, r.Notice, "fresh python", "cannot be gone on with")
			if r := execute(t, m, id, "x"); r.Exit.Error == nil {
				t.Error("then: r.Exit.Error: got nil, want one")
			} else if r.Notice != "" {
				t.Errorf("then: r.Notice: got %q, want none", r.Notice)
			}
		})
	}
}

func TestAMachineThatDoesNotFitOnTheOwnersDiskIsNotSaved(t *testing.T) {
	m, _ := keepers(t, session.Config{DiskBytes: 256 << 10, OwnerDiskBytes: 512 << 10})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1")
	c, err := m.Checkpoint(t.Context(), alice, id, "")
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "c.Memory", c.Memory, false)
	expect.Part(t, "c.Notice", c.Notice, "disk")
}

func TestAStoppedMachineIsBootedAfresh(t *testing.T) {
	m, _ := keepers(t, session.Config{})
	id := create(t, m, alice, "")
	execute(t, m, id, "x = 1\nwrite('f', 'text')")
	if _, err := m.Checkpoint(t.Context(), alice, id, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := m.Halt(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if err := m.Boot(t.Context(), alice, id); err != nil {
		t.Fatal(err)
	}
	if r := execute(t, m, id, "x"); r.Exit.Error == nil {
		t.Error("r.Exit.Error: got nil, want one")
	} else if r.Notice != "" {
		t.Errorf("r.Notice: got %q, want none", r.Notice)
	}
}
