package sandboxtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox"
)

// suspended runs a program that makes n calls at once, to none of which it gets an
// answer, and suspends it then.
func (k *kit) suspended(t *testing.T, in sandbox.Instance, n int) output {
	t.Helper()
	var all sync.WaitGroup
	all.Add(n)
	suspend := make(chan struct{})
	go func() {
		all.Wait()
		close(suspend)
	}()
	o := run(t, in, sandbox.Command{
		Code: lines(k.Print("before"), k.CallMany("approve", n)), Suspend: suspend,
		Call: func(ctx context.Context, c sandbox.Call) []byte {
			all.Done()
			<-ctx.Done()
			return nil
		},
	})
	if o.Cause != sandbox.Waiting {
		t.Fatalf("it %v, want %v (code %d, error %+v)", o.Cause, sandbox.Waiting, o.Code, o.Error)
	}
	if o.State != sandbox.Kept {
		t.Errorf("its state is %v, want %v", o.State, sandbox.Kept)
	}
	if o.Code != 0 || o.Error != nil {
		t.Errorf("it has the code %d and the error %+v, want neither", o.Code, o.Error)
	}
	if len(o.Open) != n || o.Calls != n {
		t.Fatalf("it waits for %d of %d calls, want %d of %[3]d", len(o.Open), o.Calls, n)
	}
	for at, one := range o.Open {
		if one.Number != at+1 {
			t.Errorf("the open call at %d has the number %d, want %d", at, one.Number, at+1)
		}
		if want := fmt.Sprintf(`"%d"`, at); !strings.Contains(string(one.Body), want) {
			t.Errorf("the open call at %d is %.200q, want %s in it", at, one.Body, want)
		}
		if one.Answer != nil {
			t.Errorf("the open call at %d is answered: %q", at, one.Answer)
		}
	}
	if got := strings.TrimSpace(o.stdout); got != "before" {
		t.Errorf("it printed %q, want %q", got, "before")
	}
	return o
}

// goesOn continues a program and checks what it prints.
func (k *kit) goesOn(t *testing.T, in sandbox.Instance, from output, want string) {
	t.Helper()
	o := run(t, in, sandbox.Command{
		Continue: &sandbox.Continuation{Calls: from.Calls, Open: from.Open},
		Call:     answers(t, func(_ context.Context, number int, a asked) string { return fmt.Sprint(number * 10) }),
	})
	if o.Cause != sandbox.Exited || o.Error != nil {
		t.Errorf("it %v with the error %+v, want %v without one", o.Cause, o.Error, sandbox.Exited)
	}
	if got := strings.TrimSpace(o.stdout); got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
}

// isGivenUp checks that a program which waited cannot be continued.
func (k *kit) isGivenUp(t *testing.T, in sandbox.Instance, from output) {
	t.Helper()
	o := run(t, in, sandbox.Command{Continue: &sandbox.Continuation{Calls: from.Calls, Open: from.Open}})
	if o.Error == nil || !strings.Contains(o.Error.Message, "no program that waits") {
		t.Errorf("it %v, error %+v", o.Cause, o.Error)
	}
}

// testSavedWaiting saves a machine with a program in it that waits.
func (k machineKit) testSavedWaiting(t *testing.T) {
	spec := k.boxed(t)
	in := k.start(t, spec)
	works(t, in, k.Set("kept", 42), "")
	o := k.suspended(t, in, 3)
	state := k.save(t, spec)
	k.goesOn(t, in, o, "60") // the saved one waits all the same
	in.Close()
	for range 2 {
		again := k.again(t, spec, state)
		if _, err := again.Inspect(t.Context()); err != nil {
			t.Errorf("inspecting it: %v", err)
		}
		k.goesOn(t, again, o, "60")
		works(t, again, k.Show("kept"), "42")
		again.Close()
	}
	state.Reseed = true
	again := k.again(t, spec, state)
	k.isGivenUp(t, again, o)
	works(t, again, k.Show("kept"), "42")
}

func (k *kit) testSuspending(t *testing.T) {
	if k.CallMany == nil {
		t.Skip("the language cannot wait for several calls")
	}
	t.Run("a program that waits for calls is left as it is, and goes on", func(t *testing.T) {
		in := k.start(t, k.beside())
		works(t, in, k.Set("kept", 42), "")
		o := k.suspended(t, in, 3)
		if _, err := in.Inspect(t.Context()); err != nil {
			t.Errorf("inspecting it: %v", err)
		}
		k.goesOn(t, in, o, "60")
		works(t, in, k.Show("kept"), "42")
	})
	t.Run("it goes on in another instance", k.withSnapshots(func(k snapshotKit, t *testing.T) {
		in, l := k.keeper(t), &line{}
		works(t, in, k.Set("kept", 42), "")
		o := k.suspended(t, in, 3)
		l.snapshot(t, in, sandbox.SnapshotOptions{})
		in.Close()
		for range 2 { // as often as somebody likes: each is a copy
			other := k.resumed(t, l)
			k.goesOn(t, other, o, "60")
			works(t, other, k.Show("kept"), "42")
		}
	}))
	t.Run("it goes on in another machine", k.withMachines(machineKit.testSavedWaiting))
	t.Run("answers that came meanwhile are given, and it may wait again", func(t *testing.T) {
		in := k.start(t, k.beside())
		o := k.suspended(t, in, 3)
		o.Open[1].Answer = []byte(`{"value":"7"}`)
		suspend, asked := make(chan struct{}), make(chan int, 2)
		go func() {
			<-asked
			<-asked
			close(suspend)
		}()
		o = run(t, in, sandbox.Command{
			Continue: &sandbox.Continuation{Calls: o.Calls, Open: o.Open}, Suspend: suspend,
			Call: func(ctx context.Context, c sandbox.Call) []byte {
				asked <- c.Number
				<-ctx.Done()
				return nil
			},
		})
		if o.Cause != sandbox.Waiting || len(o.Open) != 2 || o.Open[0].Number != 1 || o.Open[1].Number != 3 {
			t.Fatalf("it %v, and waits for %+v", o.Cause, o.Open)
		}
		k.goesOn(t, in, o, "47")
	})
	t.Run("another program gives it up", func(t *testing.T) {
		in := k.start(t, k.beside())
		o := k.suspended(t, in, 2)
		works(t, in, k.Print("another"), "another")
		k.isGivenUp(t, in, o)
		works(t, in, k.Print("lives"), "lives")
	})
	t.Run("a program that computes is not left", func(t *testing.T) {
		in := k.start(t, k.beside())
		suspend := make(chan struct{})
		close(suspend)
		o := run(t, in, sandbox.Command{Code: k.Value, Suspend: suspend})
		if o.Cause != sandbox.Exited || o.Result != k.ValueResult {
			t.Errorf("it %v with %q", o.Cause, o.Result)
		}
	})
}
