//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// spec is one for any of the backend's runtimes.
func specFor(t testing.TB, b *Backend) sandbox.Spec {
	t.Helper()
	return sandbox.Spec{Owner: "alice", Runtime: b.Probe(t.Context()).Runtimes[0].Name}
}

func start(t testing.TB, b *Backend, spec sandbox.Spec) *instance {
	t.Helper()
	in, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in.(*instance)
}

func TestInstancesOfOneBoxShareAMachine(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	alone, other := start(t, b, spec), start(t, b, spec)
	if alone.machine == other.machine {
		t.Error("without a box they share one")
	}
	spec.Box = "one"
	first, second := start(t, b, spec), start(t, b, spec)
	if first.machine != second.machine {
		t.Error("they do not")
	}
	spec.Owner = "bob"
	if foreign := start(t, b, spec); foreign.machine == first.machine {
		t.Error("another owner is in the same machine")
	}
	box := first.machine.box
	first.Close()
	select {
	case <-box.done:
		t.Error("the machine ended with the first of two")
	default:
	}
	if _, err := second.Run(t.Context(), sandbox.Command{Code: "1"}); err != nil {
		t.Error(err)
	}
	second.Close()
	select {
	case <-box.done:
	default:
		t.Error("the machine did not end with the last")
	}
}

func TestABoxIsWhatItsFirstInstanceAskedFor(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Box = "one"
	start(t, b, spec)
	for name, change := range map[string]func(*sandbox.Spec){
		"folders": func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Guest: "/mine", Host: folderFor(t, "w")}} },
		"memory":  func(s *sandbox.Spec) { s.Limits.MemoryBytes = 100 << 20 },
		"image":   func(s *sandbox.Spec) { s.Image = "other" },
	} {
		t.Run("with other "+name, func(t *testing.T) {
			spec := spec
			change(&spec)
			if _, err := b.Start(t.Context(), spec); fault.KindOf(err) != fault.Conflict {
				t.Error(err)
			}
		})
	}
}

func TestManyStartAtOnceInOneBox(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Box = "one"
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			in, err := b.Start(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			defer in.Close()
			if _, err := in.Run(t.Context(), sandbox.Command{Code: "1"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(b.machines) != 0 || len(b.all) != 0 {
		t.Errorf("%d machines are left, %d of them named", len(b.all), len(b.machines))
	}
}

func TestWhatALinuxMachineCannotDoIsRefused(t *testing.T) {
	b := newBackend(t)
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		kind   fault.Kind
	}{
		"fuel":              {func(s *sandbox.Spec) { s.Limits.Metered = true }, fault.Unsupported},
		"a state":           {func(s *sandbox.Spec) { s.Resume = &sandbox.Resume{} }, fault.Unsupported},
		"an unknown image":  {func(s *sandbox.Spec) { s.Image = "nobody/knows" }, fault.NotFound},
		"a mount upon root": {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Guest: "/", Host: t.TempDir()}} }, fault.Invalid},
		"a mount upon proc": {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Guest: "/proc", Host: t.TempDir()}} }, fault.Invalid},
		"a path with dots":  {func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{{Guest: "/a/../b", Host: t.TempDir()}} }, fault.Invalid},
		"two at one place": {func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{{Guest: "/a", Aliases: []string{"/a"}, Host: t.TempDir()}}
		}, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			spec := specFor(t, b)
			c.change(&spec)
			if _, err := b.Start(t.Context(), spec); fault.KindOf(err) != c.kind {
				t.Errorf("%q: %v", fault.KindOf(err), err)
			}
		})
	}
}

func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	gaveUp := errors.New("gave up")
	for delay := range 12 {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Duration(delay)*10*time.Millisecond, func() { cancel(gaveUp) })
		if in, err := b.Start(ctx, spec); err == nil {
			in.Close()
		} else if !errors.Is(err, gaveUp) {
			t.Error(err)
		}
	}
	if len(b.all) != 0 {
		t.Errorf("%d machines are left", len(b.all))
	}
}

func TestAMachineThatDiesTakesItsInterpretersWithIt(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Box = "one"
	for name, part := range map[string]func(*box) *part{
		"the sentry": func(b *box) *part { return b.sentry },
		"the gofer":  func(b *box) *part { return b.gofer },
	} {
		t.Run("when "+name+" is killed", func(t *testing.T) {
			in := start(t, b, spec)
			if err := part(in.machine.box).cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-in.Done()
			if _, err := in.Run(t.Context(), sandbox.Command{Code: "1"}); fault.KindOf(err) != fault.Unavailable {
				t.Error(err)
			}
			<-in.machine.box.done
			again := start(t, b, spec)
			if _, err := again.Run(t.Context(), sandbox.Command{Code: "1"}); err != nil {
				t.Errorf("the next one does not work: %v", err)
			}
			again.Close()
			in.Close()
		})
	}
}

func TestClosingTheBackendEndsWhatBootsAndWhatRuns(t *testing.T) {
	b := openBackend(t, Config{})
	spec := specFor(t, b)
	runs := start(t, b, spec)
	begun := make(chan struct{})
	var boots sync.WaitGroup
	boots.Go(func() {
		close(begun)
		if in, err := b.Start(t.Context(), spec); err == nil {
			<-in.Done()
			in.Close()
		}
	})
	<-begun
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	<-runs.Done()
	boots.Wait()
	if _, err := b.Start(t.Context(), spec); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
}
