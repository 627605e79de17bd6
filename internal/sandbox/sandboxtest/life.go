package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

func (k *kit) testLife(t *testing.T) {
	t.Run("an instance starts, runs and closes, also twice and from many goroutines", func(t *testing.T) {
		in := k.start(t, k.spec(""))
		works(t, in, k.Print("hello"), "hello")
		select {
		case <-in.Done():
			t.Error("it says that it is gone before it is")
		default:
		}
		var closers sync.WaitGroup
		for range 4 {
			closers.Go(func() {
				if err := in.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		await(t, "the end of the instance", in.Done())
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("after it has closed everything is a fault", func(t *testing.T) {
		in := k.start(t, k.beside())
		in.Close()
		_, err := in.Run(t.Context(), code(k.Print("x")))
		wantFault(t, err, fault.Unavailable)
		_, err = in.Inspect(t.Context())
		wantFault(t, err, fault.Unavailable)
	})
	for _, c := range []struct{ name, src string }{{"a loop", k.Loop}, {"a program that catches everything", k.Stubborn}, {"a sleeping program", k.Sleep}} {
		t.Run("closing stops "+c.name, func(t *testing.T) {
			in := k.start(t, k.beside())
			ended := background(t.Context(), t, in, k.Print("on")+"\n"+c.src, sandbox.RunLimits{})
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			wantFault(t, await(t, "the end of the run", ended).err, fault.Unavailable)
			await(t, "the end of the instance", in.Done())
		})
	}
	k.testStart(t)
}

func (k *kit) testStart(t *testing.T) {
	t.Run("a start whose context has ended gives no instance", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if in, err := k.backend.Start(ctx, k.spec("")); err == nil {
			// A backend that was faster than it had to be: the instance works.
			in.Close()
		} else if !errors.Is(err, context.Canceled) && fault.KindOf(err) != fault.Unavailable {
			t.Error(err)
		}
	})
	t.Run("the end of the start's context leaves the instance alone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, err := k.backend.Start(ctx, k.spec(""))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		cancel()
		works(t, in, k.Print("still here"), "still here")
	})
	t.Run("a spec is copied", func(t *testing.T) {
		spec := k.spec(k.folder(t))
		spec.Env = map[string]string{"A": "1"}
		in := k.start(t, spec)
		spec.Env["A"] = "2"
		spec.Mounts[0] = sandbox.Mount{}
		works(t, in, k.Env("A"), "1")
		works(t, in, k.Write("f", "x"), "")
	})
}

func (k *kit) testConcurrency(t *testing.T) {
	t.Run("twenty instances at once keep apart", func(t *testing.T) {
		var all sync.WaitGroup
		for n := range 20 {
			in := k.start(t, k.spec(""))
			all.Go(func() {
				for range 5 {
					works(t, in, k.Set("mine", n), "")
					works(t, in, k.Show("mine"), fmt.Sprint(n))
				}
			})
		}
		all.Wait()
	})
	t.Run("a second run or an inspection during a run is a conflict", func(t *testing.T) {
		in := k.start(t, k.beside())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := background(ctx, t, in, k.Print("on")+"\n"+k.Sleep, sandbox.RunLimits{})
		_, err := in.Run(t.Context(), code(k.Print("x")))
		wantFault(t, err, fault.Conflict)
		_, err = in.Inspect(t.Context())
		wantFault(t, err, fault.Conflict)
		cancel()
		if r := await(t, "the end of the run", ended); r.err != nil || r.exit.Cause != sandbox.Cancelled {
			t.Errorf("the first run ended as %+v, %v", r.exit, r.err)
		}
		works(t, in, k.Print("free"), "free")
	})
	t.Run("a busy instance does not hold up another", func(t *testing.T) {
		busy, free := k.start(t, k.beside()), k.start(t, k.beside())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := background(ctx, t, busy, k.Print("on")+"\n"+k.Loop, sandbox.RunLimits{})
		works(t, free, k.Print("free"), "free")
		cancel()
		await(t, "the end of the run", ended)
	})
	t.Run("an inspection tells variables and imports", func(t *testing.T) {
		in := k.start(t, k.beside())
		works(t, in, k.Set("answer", 42), "")
		works(t, in, k.Import, "")
		found, err := in.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(found.Variables, func(v sandbox.Variable) bool { return v.Name == "answer" })
		if at < 0 {
			t.Fatalf("answer is not among the variables %+v", found.Variables)
		}
		if v := found.Variables[at]; v.Type == "" || v.Preview != "42" {
			t.Errorf("the variable is %+v, want a type and the preview 42", v)
		}
		if len(found.Imports) == 0 && strings.HasPrefix(k.Import, "import") {
			t.Errorf("there are no imports")
		}
		if found.Memory <= 0 {
			t.Errorf("it has %d bytes of memory", found.Memory)
		}
		works(t, in, k.Show("answer"), "42")
	})
}
