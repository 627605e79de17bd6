package pool_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pool"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

// bench is a pool of fake machines, and what a session would know.
type bench struct {
	*pool.Pool
	t        *testing.T
	dir      string
	machines *sandboxtest.FakeMachines

	mu     sync.Mutex // guards what follows
	memory map[string]int64
	most   int64 // of it
	tries  int   // to boot one
	fails  error // what they give
}

// pooled runs a test with a pool in which time passes only while everyone waits.
// Nothing of it is left when it has ended.
func pooled(t *testing.T, most int, test func(t *testing.T, b *bench)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, dir: dir, machines: sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "machines"}), memory: map[string]int64{}, most: 1 << 30}
		defer b.machines.Close()
		b.Pool = pool.New(pool.Config{
			Most: most, Dir: filepath.Join(dir, "pool"), Log: slog.New(slog.DiscardHandler),
			Runtime: b.runtime, Start: b.start, End: sandbox.Instance.Close, Grow: b.grow, Set: b.set,
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { b.Run(ctx) })
		test(t, b)
		stop()
		running.Wait()
		if n := b.machines.Live(); n != 0 {
			t.Errorf("b.machines.Live(): got %v, want 0", n)
		} else if len(b.memory) != 0 {
			t.Errorf("b.memory: got %v, want none", b.memory)
		}
		if left := b.slots(); len(left) != 0 {
			t.Errorf("there is %v", left)
		}
		if b.Take(b.want("python")) != nil {
			t.Error("a pool that has ended gives slots")
		}
	})
}

func (b *bench) runtime(ctx context.Context, backend sandbox.Backend, language string) (sandbox.Runtime, error) {
	for _, r := range backend.Probe(ctx).Runtimes {
		for _, l := range r.Languages {
			if language == "" || l == language {
				return r, nil
			}
		}
	}
	return sandbox.Runtime{}, fault.New(fault.Unsupported, "it does not run %s", language)
}

func (b *bench) start(ctx context.Context, backend sandbox.Backend, spec sandbox.Spec) (sandbox.Instance, error) {
	b.mu.Lock()
	b.tries++
	fails := b.fails
	b.mu.Unlock()
	if fails != nil {
		return nil, fails
	}
	return backend.Start(ctx, spec)
}

func (b *bench) grow(box string, bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := bytes
	for _, has := range b.memory {
		sum += has
	}
	if sum > b.most {
		return false
	}
	b.memory[box] = bytes
	return true
}

func (b *bench) set(box string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory[box] = bytes; bytes == 0 {
		delete(b.memory, box)
	}
}

// failing says what starts give.
func (b *bench) failing(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = err
}

// tried is how many starts there were.
func (b *bench) tried() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tries
}

// want is what a session of a language wants.
func (b *bench) want(language string) pool.Want {
	home := filepath.Join(b.dir, "home")
	return pool.Want{Backend: b.machines, Language: language, Spec: sandbox.Spec{
		Owner: "alice", Box: "s", Dir: "/workspace", Limits: sandbox.Limits{MemoryBytes: 1 << 20},
		Mounts: []sandbox.Mount{{Guest: "/workspace", Host: filepath.Join(home, "workspace"), DiskBytes: 1 << 20}, {Guest: "/tmp", Host: filepath.Join(home, "tmp"), DiskBytes: 1 << 20}},
	}}
}

// adopt makes a slot's machine the one of a box.
func (b *bench) adopt(sl *pool.Slot, box string, grow bool) (sandbox.Instance, error) {
	b.t.Helper()
	home := filepath.Join(b.dir, box)
	if err := os.Mkdir(home, 0o700); err != nil {
		b.t.Fatal(err)
	}
	spec := b.want("").Spec
	spec.Box, spec.Runtime = box, sl.Runtime()
	for n, name := range []string{"workspace", "tmp"} {
		spec.Mounts[n].Host = filepath.Join(home, name)
		if err := sl.Move(name, spec.Mounts[n].Host); err != nil {
			b.t.Fatal(err)
		}
	}
	return sl.Adopt(b.t.Context(), spec, func(int64) bool { return grow })
}

// ask asks for slots as sessions do that are gone again.
func (b *bench) ask(w pool.Want, times int) (got int) {
	for range times {
		if sl := b.Take(w); sl != nil {
			got++
			sl.Discard()
		}
	}
	return got
}

func (b *bench) slots() []string {
	all, err := filepath.Glob(filepath.Join(b.dir, "pool", "*", "*", "workspace"))
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// wantReady checks how many machines are ready when so much time has passed.
func (b *bench) wantReady(after time.Duration, want int) {
	b.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got, _, _ := b.Counts(); got != want {
		b.t.Errorf("b.Counts(): got %v, want %v", got, want)
	} else if len(b.slots()) != want {
		b.t.Errorf("len(b.slots()): got %d, want %d: %v", len(b.slots()), want, b.slots())
	}
}

func TestASlotIsOneBoxsAtMost(t *testing.T) {
	pooled(t, 2, func(t *testing.T, b *bench) {
		b.wantReady(time.Second, 0)
		b.Expect(b.want("python"))
		b.wantReady(time.Second, 1)
		sl := b.Take(b.want("python"))
		if sl == nil {
			t.Fatal("sl: got nil, want one")
		}
		if b.Take(b.want("python")) != nil {
			t.Fatal("a second one: got one, want none")
		}
		in, err := b.adopt(sl, "mine", true)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if n := b.machines.Memory("alice", "mine"); n != 1<<20 {
			t.Errorf("its machine has %d bytes", n)
		}
		if _, hits, misses := b.Counts(); hits != 1 {
			t.Errorf("hits: got %v, want 1", hits)
		} else if misses != 1 {
			t.Errorf("misses: got %v, want 1", misses)
		}
		b.wantReady(time.Second, 2)
	})
}

func TestAPoolFollowsTheDemand(t *testing.T) {
	pooled(t, 3, func(t *testing.T, b *bench) {
		w := b.want("")
		b.Expect(w)
		b.wantReady(time.Second, 1)
		if got := b.ask(w, 8); got != 1 {
			t.Errorf("a burst got %d", got)
		}
		b.wantReady(time.Second, 3)
		b.wantReady(9*time.Minute, 3)
		b.wantReady(2*time.Minute, 1) // there was no request lately
		b.wantReady(18*time.Minute, 1)
		b.wantReady(2*time.Minute, 0) // there are no requests any more
		booted := b.tried()
		b.wantReady(2*time.Hour, 0)
		if n := b.tried(); n != booted {
			t.Errorf("%d more were booted", n-booted)
		}
		b.ask(w, 1)
		b.wantReady(time.Second, 1)
		special := w
		special.Special, special.Spec.Image = true, "some"
		b.ask(special, 1) // once is not often
		b.wantReady(time.Second, 1)
		b.ask(special, 1)
		b.wantReady(time.Second, 2)
	})
}

func TestMachinesAreOneKindWhateverTheirLanguage(t *testing.T) {
	pooled(t, 4, func(t *testing.T, b *bench) {
		b.Expect(b.want("")) // which is Python
		b.wantReady(time.Second, 1)
		b.Expect(b.want("python"))
		b.wantReady(time.Second, 1)
		sl := b.Take(b.want("javascript"))
		if sl == nil {
			t.Fatal("who wants another language: sl: got nil, want one")
		}
		if sl.Runtime() != "python" {
			t.Fatalf("who wants another language: sl.Runtime(): got %q, want %q", sl.Runtime(), "python")
		}
		sl.Discard()
		b.wantReady(time.Second, 2) // as one was asked for, and one taken
		other := b.want("python")
		other.Own = "bob"
		if b.Take(other) != nil {
			t.Error("what is somebody's alone is anybody's")
		}
	})
}

func TestWhatDoesNotBootIsTriedAgainLaterAndLater(t *testing.T) {
	pooled(t, 2, func(t *testing.T, b *bench) {
		b.failing(errors.New("no"))
		b.Expect(b.want("python"))
		b.wantReady(10*time.Minute, 0)
		if tries := b.tried(); tries != 4 { // at once, and after one, three and seven minutes
			t.Errorf("it was tried %d times", tries)
		}
		b.failing(nil)
		b.wantReady(4*time.Minute, 0)
		b.wantReady(2*time.Minute, 1)
	})
}

func TestMemoryThatIsNeededIsGivenUp(t *testing.T) {
	pooled(t, 2, func(t *testing.T, b *bench) {
		if b.GiveUp() {
			t.Error("it gave up what it has not")
		}
		b.Expect(b.want("python"))
		b.wantReady(time.Second, 1)
		if !b.GiveUp() {
			t.Error("giving up what it had: got false, want true")
		}
		if b.GiveUp() {
			t.Error("giving up with nothing left: got true, want false")
		}
		b.wantReady(50*time.Second, 0)
		b.wantReady(20*time.Second, 1)
		sl := b.Take(b.want("python"))
		if in, err := b.adopt(sl, "poor", false); err == nil {
			t.Errorf("it was given without the memory: %v", in)
		}
		b.mu.Lock()
		b.most = 0
		b.mu.Unlock()
		b.wantReady(time.Minute, 0)
	})
}

// A machine that is not what would be booted now goes to no session, and neither do
// those like it.
func TestMachinesLikeOneThatCannotBeUsedAreReplaced(t *testing.T) {
	pooled(t, 3, func(t *testing.T, b *bench) {
		b.ask(b.want("python"), 4)
		b.wantReady(time.Second, 3)
		in, err := b.adopt(b.Take(b.want("python")), "first", true)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		b.wantReady(time.Second, 3)
		booted := b.tried()
		again := b.Take(b.want("python"))
		if err := os.RemoveAll(filepath.Join(b.dir, "first")); err != nil {
			t.Fatal(err)
		}
		if _, err := b.adopt(again, "first", true); fault.KindOf(err) != fault.Conflict {
			t.Errorf("there is such a machine already, and it is %v", err)
		}
		b.wantReady(time.Second, 3)
		if n := b.tried() - booted; n != 3 {
			t.Errorf("%d were booted in their place", n)
		}
	})
}

// What sessions begin goes first, but not for ever.
func TestMachinesAheadWaitForThoseOfSessions(t *testing.T) {
	pooled(t, 1, func(t *testing.T, b *bench) {
		done := b.Starting()
		b.Expect(b.want("python"))
		b.wantReady(4900*time.Millisecond, 0)
		b.wantReady(200*time.Millisecond, 1)
		done()
	})
}

func TestTheNilPoolKeepsNone(t *testing.T) {
	var p *pool.Pool
	p.Starting()()
	if ready, hits, misses := p.Counts(); p.Take(pool.Want{}) != nil {
		t.Error("p.Take(pool.Want{}): got one, want none")
	} else if p.GiveUp() {
		t.Error("p.GiveUp(): got true, want false")
	} else if ready != 0 {
		t.Errorf("ready: got %v, want 0", ready)
	} else if hits != 0 {
		t.Errorf("hits: got %v, want 0", hits)
	} else if misses != 0 {
		t.Errorf("misses: got %v, want 0", misses)
	}
	pooled(t, 1, func(t *testing.T, b *bench) {
		w := b.want("")
		w.Backend = sandboxtest.NewFake(sandboxtest.FakeConfig{})
		b.Expect(w)
		b.wantReady(time.Hour, 0)
	})
}

func TestWhatAProcessThatEndedKeptReadyIsSwept(t *testing.T) {
	dir := t.TempDir()
	if err := pool.Sweep(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"p-dead", "p-making", "p-never"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "1", "workspace"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "p-never"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "p-dead", "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pool.Sweep(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil {
		t.Error(err)
	} else if len(left) != 1 {
		t.Errorf("len(left): got %d, want 1: %v", len(left), left)
	} else if left[0].Name() != "p-making" {
		t.Errorf("left[0].Name(): got %q, want %q", left[0].Name(), "p-making")
	}
}
