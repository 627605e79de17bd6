package sandboxtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/sandbox"
)

func (k *kit) testRun(t *testing.T) {
	in := k.start(t, k.spec(""))
	t.Run("stdout and stderr come apart and each in order", func(t *testing.T) {
		o := run(t, in, code(lines(k.Print("a"), k.PrintErr("x"), k.Print("b"), k.PrintErr("y"))))
		if want := "a\nb\n"; o.stdout != want {
			t.Errorf("stdout is %q, want %q", o.stdout, want)
		}
		if want := "x\ny\n"; o.stderr != want {
			t.Errorf("stderr is %q, want %q", o.stderr, want)
		}
		o.wantEnd(t, sandbox.Exited)
		o.wantState(t, sandbox.Kept)
		if o.Code != 0 {
			t.Errorf("its code is %d, want 0", o.Code)
		}
		if o.Usage.Memory <= 0 {
			t.Errorf("it used %d bytes of memory, want some", o.Usage.Memory)
		}
	})
	t.Run("output without a reader is dropped", func(t *testing.T) {
		exit, err := in.Run(t.Context(), code(lines(k.Print("a"), k.PrintErr("b"))))
		if err != nil || exit.Code != 0 {
			t.Errorf("%+v, %v", exit, err)
		}
	})
	t.Run("the last expression's value is the result", func(t *testing.T) {
		o := run(t, in, code(k.Value))
		if o.Result != k.ValueResult {
			t.Errorf("the result is %q, want %q (error %+v)", o.Result, k.ValueResult, o.Error)
		}
		if o.stdout != "" {
			t.Errorf("it printed %q, want nothing", o.stdout)
		}
	})
	t.Run("a statement has no result", func(t *testing.T) {
		if o := run(t, in, code(k.Print("a"))); o.Result != "" {
			t.Errorf("result %q", o.Result)
		}
	})
	t.Run("an uncaught error has type, message and line", func(t *testing.T) {
		o := fails(t, in, k.Raise)
		o.wantState(t, sandbox.Kept)
		if o.Code != 1 {
			t.Errorf("its code is %d, want 1", o.Code)
		}
		if o.Error == nil {
			t.Fatal("it has no error")
		}
		if o.Error.Type != k.RaiseType {
			t.Errorf("the error's type is %q, want %q", o.Error.Type, k.RaiseType)
		}
		if want := "on purpose"; !strings.Contains(o.Error.Message, want) {
			t.Errorf("the error's message is %q, want %q in it", o.Error.Message, want)
		}
		if o.Error.Line != 3 {
			t.Errorf("the error's line is %d, want 3", o.Error.Line)
		}
		if !strings.Contains(o.stderr, "on purpose") {
			t.Errorf("stderr has no traceback: %q", o.stderr)
		}
	})
	t.Run("what is not of the language is an error of the program", func(t *testing.T) { fails(t, in, k.Malformed) })
	t.Run("an empty program does nothing", func(t *testing.T) { works(t, in, "", "") })
	t.Run("an exit code is the program's own choice", func(t *testing.T) {
		for _, want := range []int{0, 7} {
			o := run(t, in, code(k.Exit(want)))
			o.wantEnd(t, sandbox.Exited)
			if o.Code != want {
				t.Errorf("the code is %d, want %d", o.Code, want)
			}
			if o.Error != nil || o.stdout != "" {
				t.Errorf("exit(%d) has the error %+v and prints %q, want neither", want, o.Error, o.stdout)
			}
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
	t.Run("arguments arrive, and are gone in the next run", func(t *testing.T) {
		o := run(t, in, sandbox.Command{Code: k.Args, Args: []string{"one", "two"}})
		if strings.TrimSpace(o.stdout) != "one two" {
			t.Errorf("printed %q, error %+v", o.stdout, o.Error)
		}
		works(t, in, k.Args, "")
	})
	k.testStreams(t, in)
	k.testFiles(t)
	k.testDisplay(t, in)
	k.testEnvironment(t)
}

func (k *kit) testEnvironment(t *testing.T) {
	t.Run("the environment is the spec's, whole", func(t *testing.T) {
		t.Setenv("PADDOCK_SUITE_SECRET", "of the host")
		spec := k.spec("")
		spec.Env = map[string]string{"GREETING": "hello there", "EMPTY": ""}
		in := k.start(t, spec)
		works(t, in, k.Env("GREETING"), "hello there")
		works(t, in, k.Env("PADDOCK_SUITE_SECRET"), "")
		if !k.suite.Machine {
			works(t, in, k.Envs, "EMPTY GREETING")
			works(t, k.start(t, k.spec("")), k.Envs, "")
			return
		}
		names := strings.Fields(run(t, in, code(k.Envs)).stdout)
		for name, want := range map[string]bool{"EMPTY": true, "PATH": true, "PADDOCK_SUITE_SECRET": false} {
			if got := slices.Contains(names, name); got != want {
				t.Errorf("it has the variable %s: %v, want %v (of %q)", name, got, want, names)
			}
		}
	})
}

// slowReader gives its pieces one Read at a time.
type slowReader struct{ pieces []string }

func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	r.pieces = r.pieces[1:]
	return n, nil
}

func (k *kit) testStreams(t *testing.T, in sandbox.Instance) {
	if k.Stdin != "" {
		t.Run("stdin is read to its end", func(t *testing.T) {
			large := strings.Repeat("a line of input\n", 20_000)
			for _, c := range []struct {
				stdin io.Reader
				want  string
			}{{nil, "end\n"}, {strings.NewReader(""), "end\n"}, {&slowReader{[]string{"one ", "two ", "three "}}, "one two three end\n"}, {strings.NewReader(large), large + "end\n"}} {
				o := run(t, in, sandbox.Command{Code: k.Stdin, Stdin: c.stdin})
				if o.stdout != c.want {
					t.Errorf("printed %d bytes %.60q, want %d bytes, error %+v", len(o.stdout), o.stdout, len(c.want), o.Error)
				}
			}
		})
		t.Run("a program that waits for input can be cancelled", func(t *testing.T) {
			input, feed := io.Pipe()
			defer feed.Close()
			k.testCancelled(t, in, lines(k.Print("on"), k.Stdin), input)
		})
	}
	t.Run("a writer's error stops the program", func(t *testing.T) {
		o := run(t, in, sandbox.Command{Code: k.Flood, Stdout: brokenWriter{}})
		if o.Cause != sandbox.Cancelled {
			t.Errorf("it ended as %+v", o.Exit)
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
	t.Run("output arrives while the program runs", func(t *testing.T) {
		k.testCancelled(t, in, lines(k.Print("on"), k.Sleep), nil)
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("the reader is gone") }

func (k *kit) testDisplay(t *testing.T, in sandbox.Instance) {
	t.Run("what is displayed arrives with its type", func(t *testing.T) {
		if k.Display == nil {
			t.Skip("the language displays nothing")
		}
		var mu sync.Mutex
		var shown []sandbox.Display
		o := run(t, in, sandbox.Command{
			Code: k.Display("a page"), Limits: sandbox.RunLimits{DisplayBytes: 1 << 20},
			Display: func(d sandbox.Display) { mu.Lock(); defer mu.Unlock(); shown = append(shown, d) },
		})
		mu.Lock()
		defer mu.Unlock()
		if len(shown) != 1 || shown[0].MIME != "text/html" || string(shown[0].Data) != "a page" {
			t.Errorf("got %q, error %+v", shown, o.Error)
		}
	})
}

func (k *kit) testFiles(t *testing.T) {
	dir := k.folder(t)
	in := k.start(t, k.spec(dir))
	t.Run("a file of the host is read by the guest, by every name of the folder", func(t *testing.T) {
		k.put(t, filepath.Join(dir, "host.txt"), "from the host")
		for _, p := range []string{"host.txt", "./host.txt", "/workspace/host.txt", "/app/host.txt"} {
			works(t, in, k.Read(p), "from the host")
		}
	})
	t.Run("a file of the guest is on the host", func(t *testing.T) {
		works(t, in, k.Write("guest.txt", "from the guest"), "")
		if got, err := os.ReadFile(filepath.Join(dir, "guest.txt")); err != nil || string(got) != "from the guest" {
			t.Errorf("got %q, %v", got, err)
		}
		works(t, in, k.Write("/app/host.txt", "changed"), "")
		if got, err := os.ReadFile(filepath.Join(dir, "host.txt")); err != nil || !bytes.Equal(got, []byte("changed")) {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("a file that is not there is an error of the program", func(t *testing.T) { fails(t, in, k.Read("absent.txt")) })
	t.Run("a read-only mount is not written", func(t *testing.T) {
		spec := k.spec(dir)
		spec.Mounts[0].ReadOnly = true
		in := k.start(t, spec)
		works(t, in, k.Read("guest.txt"), "from the guest")
		fails(t, in, k.Write("guest.txt", "overwritten"))
		fails(t, in, k.Write("new.txt", "new"))
		if got, err := os.ReadFile(filepath.Join(dir, "guest.txt")); err != nil || string(got) != "from the guest" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("two mounts show two folders", func(t *testing.T) {
		other := k.folder(t)
		spec := k.spec(dir)
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Guest: "/tmp", Host: other, DiskBytes: 1 << 20})
		in := k.start(t, spec)
		works(t, in, lines(k.Write("/tmp/same.txt", "in tmp"), k.Write("same.txt", "in workspace")), "")
		works(t, in, k.Read("/tmp/same.txt"), "in tmp")
		works(t, in, k.Read("/workspace/same.txt"), "in workspace")
		if _, err := os.Stat(filepath.Join(other, "same.txt")); err != nil {
			t.Error(err)
		}
	})
}

func lines(snippets ...string) string { return strings.Join(snippets, "\n") }
