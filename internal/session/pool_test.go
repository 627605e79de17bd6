package session_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

const bob session.Owner = "bob"

// ahead is a backend with machines of which a test knows what was started.
type ahead struct {
	*sandboxtest.FakeMachines

	mu        sync.Mutex // guards what follows
	specs     []sandbox.Spec
	instances []sandbox.Instance
	fails     error         // what the next starts give
	takes     time.Duration // how long they take
	other     bool          // no machine can be adopted
}

func (b *ahead) Start(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	b.mu.Lock()
	fails, takes := b.fails, b.takes
	b.mu.Unlock()
	time.Sleep(takes)
	if fails != nil {
		return nil, fails
	}
	in, err := b.FakeMachines.Start(ctx, spec)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.specs, b.instances = append(b.specs, spec), append(b.instances, in)
	return in, err
}

// last is the instance that was started last.
func (b *ahead) last() sandbox.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.instances[len(b.instances)-1]
}

// changed says whether machines are no longer what would be booted now.
func (b *ahead) changed(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.other = yes
}

func (b *ahead) Adopt(ctx context.Context, in sandbox.Instance, spec sandbox.Spec) error {
	b.mu.Lock()
	other := b.other
	b.mu.Unlock()
	if other {
		return fault.New(fault.Conflict, "it is another machine")
	}
	return b.FakeMachines.Adopt(ctx, in, spec)
}

// set changes how starts go.
func (b *ahead) set(fails error, takes time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails, b.takes = fails, takes
}

// started are the specs so far.
func (b *ahead) started() []sandbox.Spec {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.specs)
}

// pooled runs a test with a Manager that boots machines ahead, in which time passes
// only while everyone waits. Nothing of a pool is left when it has ended.
func pooled(t *testing.T, config session.Config, test func(t *testing.T, m *session.Manager, b *ahead)) {
	config.Dir = timeless(t)
	synctest.Test(t, func(t *testing.T) {
		b := &ahead{FakeMachines: sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "machines"})}
		config.Backends = append([]sandbox.Backend{b}, config.Backends...)
		if config.SleepAfter == 0 {
			config.SleepAfter = -1
		}
		m, err := session.New(config)
		if err != nil {
			t.Fatal(err)
		}
		test(t, m, b)
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if n := b.Live(); n != 0 {
			t.Errorf("%d interpreters live on", n)
		}
		if left := slots(t, config.Dir); len(left) != 0 {
			t.Errorf("there is %v", left)
		}
		b.Close()
	})
}

// timeless is a state folder in which no process can be asked about its machines:
// time would wait for whoever asks.
func timeless(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "desks"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// slots are the folders of machines that are booted ahead in a state folder.
func slots(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "pool", "*", "*", "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantReady checks how many machines are ready.
func wantReady(t *testing.T, m *session.Manager, want int) {
	t.Helper()
	synctest.Wait()
	if got := m.Stats().Pooled; got != want {
		t.Errorf("%d machines are ready, want %d", got, want)
	}
}

func settings(t *testing.T, m *session.Manager, owner session.Owner, set session.Settings) session.ID {
	t.Helper()
	i, err := m.Create(t.Context(), owner, "", set)
	if err != nil {
		t.Fatal(err)
	}
	return i.ID
}

func TestANewSessionGetsAMachineThatIsBootedAlready(t *testing.T) {
	pooled(t, session.Config{Pool: 4}, func(t *testing.T, m *session.Manager, b *ahead) {
		wantReady(t, m, 0)
		pass(time.Second)
		wantReady(t, m, 1)
		id := create(t, m, alice, "")
		wantReady(t, m, 0)
		if i, err := m.Info(alice, id); err != nil {
			t.Error(err)
		} else if i.State != session.Idle {
			t.Errorf("i.State: got %v, want %v", i.State, session.Idle)
		}
		if n := b.Memory(string(alice), string(id)); n != 1<<20 {
			t.Errorf("its machine has %d bytes", n)
		}
		prints(t, m, id, "write('/workspace/f', 'text')\nx = 1\nprint(x)", "1")
		command(t, m, id, "echo", "hello")
		d, err := m.Details(t.Context(), alice, id)
		if err != nil {
			t.Error(err)
		} else {
			expect.Equal(t, "len(d.Files)", len(d.Files), 1)
			expect.Equal(t, "len(d.Variables)", len(d.Variables), 1)
		}
		all := b.started()
		if len(all) != 2 {
			t.Errorf("len(all): got %d, want 2: %v", len(all), all)
		} else {
			expect.Equal(t, "all[0].Owner", all[0].Owner, "")
			expect.Equal(t, "all[1].Owner", all[1].Owner, string(alice))
			expect.Equal(t, "all[1].Runtime", all[1].Runtime, sandbox.CommandRuntime)
		}
		s := m.Stats()
		expect.Equal(t, "s.PoolHits", s.PoolHits, 1)
		expect.Equal(t, "s.PoolMisses", s.PoolMisses, 0)
		if s.Memory < 1 {
			t.Errorf("s.Memory: got %v, want at least 1", s.Memory)
		}
		pass(time.Second)
		wantReady(t, m, 1)
	})
}

// No owner gets what another leaves: neither the interpreter nor the machine nor
// the folders of a session.
func TestAMachineIsOneSessionsAtMost(t *testing.T) {
	pooled(t, session.Config{Pool: 2}, func(t *testing.T, m *session.Manager, b *ahead) {
		seen := map[string]bool{}
		for n := range 6 {
			pass(time.Second)
			owner := []session.Owner{alice, bob}[n%2]
			id := create(t, m, owner, "")
			r, err := m.Execute(t.Context(), owner, id, session.Request{Code: "write('mine', 'secret')\nx = 1\nlen(envs())"})
			if err != nil {
				t.Error(err)
			} else if r.Exit.Error != nil {
				t.Errorf("r.Exit.Error: got %+v, want nil", r.Exit.Error)
			} else if len(r.Changes) != 1 {
				t.Errorf("len(r.Changes): got %d, want 1: %v", len(r.Changes), r.Changes)
			} else if r.Changes[0].Change != "added" {
				t.Errorf("r.Changes[0].Change: got %q, want %q", r.Changes[0].Change, "added")
			}
			if err := m.Destroy(t.Context(), owner, id); err != nil {
				t.Fatal(err)
			}
		}
		for _, spec := range b.started() {
			expect.Equal(t, "spec.Owner", spec.Owner, "")
			expect.Equal(t, "seen[spec.Box]", seen[spec.Box], false)
			expect.Equal(t, "seen[spec.Mounts[0].Host]", seen[spec.Mounts[0].Host], false)
			seen[spec.Box], seen[spec.Mounts[0].Host] = true, true
		}
		if s := m.Stats(); s.PoolHits != 6 {
			t.Errorf("counted is %+v", s)
		}
	})
}

func TestAPoolIsOnlyThereWhereItIsWanted(t *testing.T) {
	for name, c := range map[string]struct {
		config session.Config
		set    session.Settings
		want   int // ready after two sessions with the settings
	}{
		"none is configured":             {session.Config{}, session.Settings{}, 0},
		"other memory":                   {session.Config{Pool: 2, MachineMemoryBytes: 64 << 20, MaxMachineMemoryBytes: 1 << 30}, session.Settings{MemoryBytes: 100 << 20}, 2},
		"an image":                       {session.Config{Pool: 2}, session.Settings{Machine: &session.Machine{Image: "some"}}, 2},
		"folders of the host":            {session.Config{Pool: 2}, session.Settings{Machine: &session.Machine{Volumes: []session.Volume{{Host: "/", Guest: "/data"}}}}, 1},
		"fuel, which no machine can":     {session.Config{Pool: 2, Limits: sandbox.RunLimits{Fuel: 1000}}, session.Settings{}, 0},
		"another isolation, as default":  {session.Config{Pool: 2, Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "plain"})}}, session.Settings{Isolation: "plain"}, 1},
		"a language that is the default": {session.Config{Pool: 2}, session.Settings{Language: "python"}, 2},
		"another language":               {session.Config{Pool: 3}, session.Settings{Language: "typescript"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			pooled(t, c.config, func(t *testing.T, m *session.Manager, _ *ahead) {
				pass(time.Second)
				settings(t, m, alice, c.set)
				pass(time.Second)
				settings(t, m, alice, c.set)
				pass(time.Second)
				wantReady(t, m, c.want)
			})
		})
	}
}

// Where another isolation is the default nothing is booted until somebody asks for
// a machine.
func TestNobodyPaysForMachinesThatNobodyUses(t *testing.T) {
	dir := timeless(t)
	synctest.Test(t, func(t *testing.T) {
		b := &ahead{FakeMachines: sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "machines"})}
		m, err := session.New(session.Config{Dir: dir, Pool: 4, Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{}), b}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		defer m.Close()
		create(t, m, alice, "")
		pass(time.Hour)
		if n := len(b.started()); n != 0 {
			t.Errorf("%d were booted", n)
		}
		if _, err := os.Stat(filepath.Join(dir, "pool")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("there is a folder: %v", err)
		}
		settings(t, m, alice, session.Settings{Isolation: "machines"})
		pass(time.Second)
		wantReady(t, m, 1)
	})
}

// The memory of machines that no session has yet is there for sessions.
func TestSessionsGetTheMemoryOfMachinesThatNobodyHas(t *testing.T) {
	config := session.Config{Pool: 2, MemoryBytes: 64 << 20, OwnerMemoryBytes: 128 << 20, TotalMemoryBytes: 129 << 20}
	pooled(t, config, func(t *testing.T, m *session.Manager, b *ahead) {
		pass(time.Second)
		wantReady(t, m, 1)
		id := create(t, m, alice, "")
		pass(time.Second)
		wantReady(t, m, 1) // two MiB are taken, of the session and of the next one
		other := create(t, m, bob, "")
		pass(time.Second)
		wantReady(t, m, 2)
		done := make(chan error, 2)
		for owner, id := range map[session.Owner]session.ID{alice: id, bob: other} {
			go func() { // each may take 64 MiB while it runs
				_, err := m.Execute(t.Context(), owner, id, session.Request{Code: "sleep(5)"})
				done <- err
			}()
		}
		pass(time.Second)
		wantReady(t, m, 1)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		pass(2 * time.Minute)
		wantReady(t, m, 2)
	})
}

// A session's own machine goes first: what is booted ahead waits until no session
// boots one, but not for ever.
func TestMachinesAheadWaitForThoseOfSessions(t *testing.T) {
	pooled(t, session.Config{Pool: 1}, func(t *testing.T, m *session.Manager, b *ahead) {
		id := create(t, m, alice, "")
		b.set(nil, 2*time.Second)
		go func() {
			if _, err := m.Execute(t.Context(), alice, id, session.Request{Code: "1"}); err != nil {
				t.Error(err)
			}
		}()
		pass(time.Second)
		if n := len(b.started()); n != 0 {
			t.Fatalf("%d were started", n)
		}
		pass(1500 * time.Millisecond)
		wantReady(t, m, 0)
		if all := b.started(); len(all) != 1 {
			t.Errorf("len(all): got %d, want 1: %v", len(all), all)
		} else if all[0].Owner != string(alice) {
			t.Errorf("all[0].Owner: got %q, want %q", all[0].Owner, string(alice))
		}
		pass(5 * time.Second)
		wantReady(t, m, 1)
	})
}
