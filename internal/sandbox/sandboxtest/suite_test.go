package sandboxtest_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
)

func TestTheFakePassesTheSuite(t *testing.T) {
	for name, forced := range map[string]sandbox.State{"restoring": sandbox.Restored, "starting afresh": sandbox.Fresh} {
		t.Run(name, func(t *testing.T) {
			sandboxtest.Run(t, sandboxtest.Suite{
				New: func(*testing.T, string) sandbox.Backend {
					return sandboxtest.NewFake(sandboxtest.FakeConfig{
						Forced:   forced,
						Runtimes: []sandbox.Runtime{{Name: "tiny", Languages: []string{"tiny"}, Version: "1", Description: "a tiny language"}},
					})
				},
				Programs: map[string]sandboxtest.Programs{"tiny": sandboxtest.Tiny()},
			})
		})
	}
}

func TestTheFakeWithMachinesPassesTheSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Suite{
		New: func(*testing.T, string) sandbox.Backend {
			return sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{
				Runtimes: []sandbox.Runtime{{Name: "tiny", Languages: []string{"tiny"}, Version: "1", Description: "a tiny language"}},
			})
		},
		Machine:  true,
		Programs: map[string]sandboxtest.Programs{"tiny": sandboxtest.Tiny()},
	})
}

func TestTheFakeThatSavesMachinesPassesTheSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Suite{
		New: func(*testing.T, string) sandbox.Backend {
			return sandboxtest.NewFakeKeeper(sandboxtest.FakeConfig{
				Runtimes: []sandbox.Runtime{{Name: "tiny", Languages: []string{"tiny"}, Version: "1", Description: "a tiny language"}},
			})
		},
		Machine:  true,
		Programs: map[string]sandboxtest.Programs{"tiny": sandboxtest.Tiny()},
	})
}

func TestTheFakeSpeaksALittleOfEachLanguage(t *testing.T) {
	fake := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	defer fake.Close()
	for _, c := range []struct{ name, runtime, code, want string }{
		{"a Python assignment and expression", "python", "x = 42\nx * 2", "84"},
		{"a sum", "python", "sum([1, 2, 3])", "6"},
		{"precedence and parentheses", "python", "(1 + 2) * -3", "-9"},
		{"strings", "python", "'a' + \"b\"", "'ab'"},
		{"a JavaScript constant", "javascript", "const x = 42;\nx + 1;", "43"},
		{"a JavaScript function", "javascript", "function f(n) { return n * 2 }\nf(4)", "8"},
		{"a comment", "javascript", "// nothing", ""},
		{"a list", "python", "[1, 'two', [3]]", "[1, 'two', [3]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, err := fake.Start(t.Context(), sandbox.Spec{Runtime: c.runtime})
			if err != nil {
				t.Fatal(err)
			}
			exit, err := in.Run(t.Context(), sandbox.Command{Code: c.code})
			if err != nil || exit.Result != c.want || exit.Error != nil {
				t.Errorf("result %q, error %+v, %v", exit.Result, exit.Error, err)
			}
			in.Close()
		})
	}
	if n := fake.Live(); n != 0 {
		t.Errorf("%d instances live", n)
	}
}

func TestAVanishedInstanceIsGone(t *testing.T) {
	fake := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	defer fake.Close()
	in, err := fake.Start(t.Context(), sandbox.Spec{Runtime: "python"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = in.Run(context.Background(), sandbox.Command{Code: "vanish"}); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
	<-in.Done()
}

func TestTheFakeKeepsEveryKindOfValue(t *testing.T) {
	fake := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	defer fake.Close()
	in, err := fake.Start(t.Context(), sandbox.Spec{Runtime: "python"})
	if err != nil {
		t.Fatal(err)
	}
	const code = "n = print()\nl = [1, 'two', [print()]]\ndef f(x): return x * 2\ns = 'text'"
	if _, err := in.Run(t.Context(), sandbox.Command{Code: code}); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	kept, err := in.(sandbox.Snapshotter).Snapshot(t.Context(), &layer, sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := fake.Start(t.Context(), sandbox.Spec{Runtime: "python", Resume: &sandbox.Resume{
		State: kept.State, Layers: []func() (io.ReadCloser, error){func() (io.ReadCloser, error) { return io.NopCloser(&layer), nil }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := again.Run(t.Context(), sandbox.Command{Code: "[n, l, f(2), s]"})
	if want := "[None, [1, 'two', [None]], 4, 'text']"; err != nil || exit.Result != want {
		t.Errorf("it is %s, %v", exit.Result, err)
	}
}
