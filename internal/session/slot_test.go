package session_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

// A session of another language has the machine, and its own interpreter starts in it.
func TestAMachineServesWhoWantsAnotherLanguage(t *testing.T) {
	pooled(t, session.Config{Pool: 1}, func(t *testing.T, m *session.Manager, b *ahead) {
		pass(time.Second)
		id := settings(t, m, alice, session.Settings{Language: "javascript"})
		if r, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1 + 1"}); err != nil {
			t.Error(err)
		} else if r.Exit.Result != "2" {
			t.Errorf("r.Exit.Result: got %q, want %q", r.Exit.Result, "2")
		}
		all := b.started()
		if len(all) != 2 {
			t.Errorf("len(all): got %d, want 2: %v", len(all), all)
		} else {
			expect.Equal(t, "all[1].Runtime", all[1].Runtime, "javascript")
			expect.Equal(t, "b.Memory(string(alice), string(id))", b.Memory(string(alice), string(id)), 2<<20)
		}
		if err := m.Destroy(t.Context(), alice, id); err != nil {
			t.Error(err)
		} else if b.Memory(string(alice), string(id)) != 0 {
			t.Errorf("b.Memory(string(alice), string(id)): got %v, want 0", b.Memory(string(alice), string(id)))
		}
	})
}

func TestAMachineThatDiedIsNobodys(t *testing.T) {
	pooled(t, session.Config{Pool: 1}, func(t *testing.T, m *session.Manager, b *ahead) {
		pass(time.Second)
		b.last().Close()
		id := create(t, m, alice, "")
		prints(t, m, id, "print(1)", "1")
		if s := m.Stats(); s.PoolHits != 0 {
			t.Errorf("s.PoolHits: got %v, want 0", s.PoolHits)
		} else if s.PoolMisses != 1 {
			t.Errorf("s.PoolMisses: got %v, want 1", s.PoolMisses)
		}
		pass(time.Second)
		wantReady(t, m, 1)
		// And one that dies when it is a session's already, before anything ran.
		other := create(t, m, alice, "")
		b.last().Close()
		if r := prints(t, m, other, "print(2)", "2"); r.Notice != "" {
			t.Errorf("the notice is %q", r.Notice)
		}
	})
}

// A machine that is not what would be booted now, as its image has changed, goes
// to no session, and neither do those like it.
func TestMachinesOfYesterdaysImageAreReplaced(t *testing.T) {
	pooled(t, session.Config{Pool: 3}, func(t *testing.T, m *session.Manager, b *ahead) {
		for range 4 {
			create(t, m, alice, "")
		}
		pass(time.Second)
		wantReady(t, m, 3)
		b.changed(true)
		id := create(t, m, alice, "")
		b.changed(false)
		wantReady(t, m, 0)
		prints(t, m, id, "print(1)", "1")
		if n := b.Memory(string(alice), string(id)); n != 1<<20 {
			t.Errorf("its machine has %d bytes", n)
		}
		pass(time.Second)
		wantReady(t, m, 3)
	})
}

func TestForksAndImportsGetAMachineThatIsBootedAlready(t *testing.T) {
	pooled(t, session.Config{Pool: 1}, func(t *testing.T, m *session.Manager, b *ahead) {
		id := create(t, m, alice, "")
		execute(t, m, id, "x = 1\nwrite('f', 'text')")
		var packed bytes.Buffer
		if err := m.Export(t.Context(), alice, id, &packed); err != nil {
			t.Fatal(err)
		}
		for name, another := range map[string]func() (session.ID, error){
			"a fork": func() (session.ID, error) {
				all, err := m.Fork(t.Context(), alice, id, "", 1)
				if err != nil {
					return "", err
				}
				return all[0].ID, nil
			},
			"an import": func() (session.ID, error) {
				i, _, err := m.Import(t.Context(), alice, "", &packed)
				return i.ID, err
			},
		} {
			pass(time.Second)
			booted := len(b.started())
			other, err := another()
			if err != nil {
				t.Fatal(name, err)
			}
			prints(t, m, other, "print(read('f'))", "text")
			if all := b.started(); len(all) != booted {
				t.Errorf("for %s: len(all): got %d, want %d: %v", name, len(all), booted, all)
			} else if b.Memory(string(alice), string(other)) == 0 {
				t.Errorf("for %s: b.Memory(string(alice), string(other)): got 0, want more", name)
			}
		}
	})
}

func TestASessionThatIsResetGetsAMachineThatIsBootedAlready(t *testing.T) {
	pooled(t, session.Config{Pool: 1}, func(t *testing.T, m *session.Manager, b *ahead) {
		id := create(t, m, alice, "")
		tree, done, err := m.Files(alice, id) // who has its files open has them then
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		execute(t, m, id, "x = 1\nwrite('f', 'old')")
		pass(time.Second)
		booted := len(b.started())
		if n, err := m.Reset(t.Context(), alice, id); err != nil {
			t.Fatal(err)
		} else if n != 1 {
			t.Fatalf("m.Reset(t.Context(), alice, id): got %v, want 1", n)
		}
		if _, err := tree.Put("g", strings.NewReader("new"), 3); err != nil {
			t.Fatal(err)
		}
		if r := prints(t, m, id, "write('h', 'more')\nprint(read('g'))", "new"); r.Notice != "" {
			t.Errorf("the notice is %q", r.Notice)
		}
		if all := b.started(); len(all) != booted {
			t.Errorf("there were started %+v", all[booted:])
		}
		if files, _, err := tree.List(t.Context(), ""); err != nil {
			t.Error(err)
		} else if len(files) != 2 {
			t.Errorf("len(files): got %d, want 2: %v", len(files), files)
		}
		if _, err := m.Restore(t.Context(), alice, id, "2"); err != nil {
			t.Fatal(err)
		}
		prints(t, m, id, "print(read('f'))", "old")
	})
}

// A session in which nothing ran has nothing to lose: it falls asleep, is reset and is
// changed as if it had no machine.
func TestAnUnusedMachineGoesWithoutAWord(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, m *session.Manager, id session.ID) error{
		"asleep": func(ctx context.Context, m *session.Manager, id session.ID) error { return m.Sleep(alice, id) },
		"reset": func(ctx context.Context, m *session.Manager, id session.ID) error {
			_, err := m.Reset(ctx, alice, id)
			return err
		},
		"stopped": func(ctx context.Context, m *session.Manager, id session.ID) error {
			return cmp.Or(m.Halt(ctx, alice, id), m.Boot(ctx, alice, id))
		},
		"changed": func(ctx context.Context, m *session.Manager, id session.ID) error {
			_, err := m.Configure(ctx, alice, id, session.Settings{MemoryBytes: 99 << 20})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pooled(t, session.Config{Pool: 1, MachineMemoryBytes: 64 << 20, MaxMachineMemoryBytes: 1 << 30}, func(t *testing.T, m *session.Manager, b *ahead) {
				pass(time.Second)
				booted := b.last()
				id := create(t, m, alice, "")
				if err := end(t.Context(), m, id); err != nil {
					t.Fatal(err)
				}
				select {
				case <-booted.Done():
				default:
					t.Error("its machine lives")
				}
				if r := prints(t, m, id, "print(1)", "1"); r.Notice != "" {
					t.Errorf("the notice is %q", r.Notice)
				}
			})
		})
	}
}

func TestASessionsMachineLivesNoLongerThanItMay(t *testing.T) {
	pooled(t, session.Config{Pool: 1, MaxLifetime: time.Hour}, func(t *testing.T, m *session.Manager, b *ahead) {
		pass(time.Second)
		booted := b.last()
		create(t, m, alice, "")
		pass(50 * time.Minute)
		select {
		case <-booted.Done():
			t.Error("it ended before")
		default:
		}
		pass(12 * time.Minute)
		select {
		case <-booted.Done():
		default:
			t.Error("it lives")
		}
	})
}

// Whoever makes sessions with variables of its own finds no machine that somebody
// else's gave reason to boot: how long it takes tells nothing about theirs.
func TestMachinesWithVariablesAreTheirOwners(t *testing.T) {
	pooled(t, session.Config{Pool: 4}, func(t *testing.T, m *session.Manager, b *ahead) {
		set := session.Settings{Machine: &session.Machine{Env: map[string]string{"KEY": "value"}}}
		for range 3 {
			settings(t, m, alice, set)
			pass(time.Second)
		}
		hits := m.Stats().PoolHits
		if hits == 0 {
			t.Error("alice got none")
		}
		settings(t, m, bob, set)
		if n := m.Stats().PoolHits; n != hits {
			t.Error("bob got one")
		}
		id := settings(t, m, alice, set)
		prints(t, m, id, "print(env('KEY'))", "value")
		if n := m.Stats().PoolHits; n != hits+1 {
			t.Error("alice got none any more")
		}
	})
}

func TestManySessionsAtOnceEachHaveAMachine(t *testing.T) {
	b := &ahead{FakeMachines: sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{})}
	m, err := session.New(session.Config{Dir: t.TempDir(), Pool: 8, MaxPerOwner: 64, Backends: []sandbox.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer m.Close()
	var all sync.WaitGroup
	for range 4 {
		for range 12 {
			all.Go(func() {
				i, err := m.Create(t.Context(), alice, "", session.Settings{})
				if err != nil {
					t.Error(err)
					return
				}
				r, err := m.Execute(t.Context(), alice, i.ID, session.Request{Code: "write('own', '" + string(i.ID) + "')\nread('own')"})
				if err != nil {
					t.Error(err)
				} else {
					expect.Equal(t, "r.Exit.Result", r.Exit.Result, "'"+string(i.ID)+"'")
					expect.Equal(t, "len(r.Changes)", len(r.Changes), 1)
				}
				if err := m.Destroy(t.Context(), alice, i.ID); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		waitFor(t, func() bool { return m.Stats().Pooled > 0 })
	}
}

func TestWhatAKilledProcessKeptReadyIsSwept(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{"pool/p-dead/1/workspace", "pool/p-making"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pool/p-dead/lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *session.Manager {
		b := sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{})
		m, err := session.New(session.Config{Dir: dir, Pool: 1, Backends: []sandbox.Backend{b}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close(); b.Close() })
		waitFor(t, func() bool { return m.Stats().Pooled == 1 })
		return m
	}
	m, other := open(), open()
	if _, err := m.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pool/p-dead")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pool/p-making")); err != nil {
		t.Errorf("what is in the making is not: %v", err)
	}
	for _, m := range []*session.Manager{m, other} {
		create(t, m, alice, "")
		if s := m.Stats(); s.PoolHits != 1 {
			t.Errorf("a living one's was swept: %+v", s)
		}
	}
}

// What is kept of a machine is what the session has in it, and not the interpreter of
// another language that was there before.
func TestAnInterpreterThatNobodyUsedIsNotKept(t *testing.T) {
	b := sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{})
	m, err := session.New(session.Config{Dir: t.TempDir(), Pool: 1, Backends: []sandbox.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer m.Close()
	waitFor(t, func() bool { return m.Stats().Pooled == 1 })
	id := settings(t, m, alice, session.Settings{Language: "javascript"})
	run := func(code, want string) {
		t.Helper()
		if r, err := m.Execute(t.Context(), alice, id, session.Request{Code: code}); err != nil {
			t.Errorf("%s: got error %v, want none", code, err)
		} else {
			expect.Equal(t, fmt.Sprintf("%s: r.Exit.Result", code), r.Exit.Result, want)
			expect.Equal(t, fmt.Sprintf("%s: r.Notice", code), r.Notice, "")
		}
	}
	run("x = 41", "")
	if n := b.Memory(string(alice), string(id)); n != 2<<20 {
		t.Errorf("the machine has %d bytes", n)
	}
	if err := m.Sleep(alice, id); err != nil {
		t.Fatal(err)
	}
	run("x + 1", "42")
	if n := b.Memory(string(alice), string(id)); n != 1<<20 {
		t.Errorf("the machine has %d bytes then", n)
	}
}
