package helper_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

func jobOf(name string, run func(in []byte, out io.Writer) error) helper.Job {
	return helper.Job{Name: name, Doing: "doing " + name, Memory: 256 << 20, Run: func(_ context.Context, in io.Reader, out io.Writer) error {
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return run(b, out)
	}}
}

var (
	upper = jobOf("upper", func(in []byte, out io.Writer) error {
		_, err := out.Write(bytes.ToUpper(in))
		return err
	})
	refuses = jobOf("refuses", func([]byte, io.Writer) error {
		return fault.New(fault.Invalid, "the picture has %d legs", 5).WithHint("draw four")
	})
	fails     = jobOf("fails", func([]byte, io.Writer) error { return errors.New("host detail") })
	panics    = jobOf("panics", func([]byte, io.Writer) error { panic("no") })
	overflows = jobOf("overflows", func(in []byte, _ io.Writer) error {
		os.Stderr.WriteString(strings.Repeat("x", depth(len(in))%2))
		return nil
	})
	hoards = jobOf("hoards", func([]byte, io.Writer) error {
		var all [][]byte
		for {
			all = append(all, bytes.Repeat([]byte{1}, 16<<20))
			if len(all) > 1000 {
				return nil
			}
		}
	})
	floods = jobOf("floods", func(_ []byte, out io.Writer) error {
		for {
			if _, err := out.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
	})
	hangs = helper.Job{Name: "hangs", Time: 300 * time.Millisecond, Run: func(context.Context, io.Reader, io.Writer) error {
		for i := 0; ; i++ {
			runtime.Gosched()
		}
	}}
	waits = helper.Job{Name: "waits", Time: 10 * time.Minute, Run: func(_ context.Context, in io.Reader, _ io.Writer) error {
		_, err := io.Copy(io.Discard, in)
		return err
	}}
	reads = jobOf("reads", func(in []byte, out io.Writer) error {
		b, err := os.ReadFile(string(in))
		if err != nil {
			return fault.New(fault.Denied, "%v", err)
		}
		_, err = out.Write(b)
		return err
	})
	escapes = jobOf("escapes", func(in []byte, out io.Writer) error {
		if c, err := net.Dial("tcp", string(in)); err == nil {
			c.Close()
			io.WriteString(out, "connected ")
		}
		if err := exec.Command("/bin/true").Run(); err == nil {
			io.WriteString(out, "started a program ")
		}
		if err := os.WriteFile(filepath.Join(os.TempDir(), "escaped"), nil, 0o600); err == nil {
			io.WriteString(out, "wrote a file ")
		}
		for _, v := range os.Environ() {
			if name, _, _ := strings.Cut(v, "="); name == "PADDOCK_TEST_SECRET" {
				io.WriteString(out, "has the environment ")
			}
		}
		return nil
	})
	jobs = []helper.Job{upper, refuses, fails, panics, overflows, hoards, floods, hangs, waits, reads, escapes, does}
)

// depth calls itself for as long as n is positive, so without end in practice.
func depth(n int) int {
	if n < 0 {
		return 0
	}
	return depth(n+1) + 1
}

func TestMain(m *testing.M) {
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, jobs...))
	}
	os.Exit(m.Run())
}

func runner(t *testing.T) *helper.Runner {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return helper.NewRunner(program)
}

func TestAJobGivesItsResult(t *testing.T) {
	for name, r := range map[string]*helper.Runner{"in a process": runner(t), "in this one": nil} {
		out, err := r.Run(t.Context(), upper, helper.Call{Owner: "ann", In: strings.NewReader("hello\nyou")})
		if err != nil || string(out) != "HELLO\nYOU" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

func TestWhatEndsAHelperCostsOneCall(t *testing.T) {
	r := runner(t)
	for _, c := range []struct {
		job  helper.Job
		want fault.Kind
		text string
	}{
		{refuses, fault.Invalid, "the picture has 5 legs"},
		{fails, fault.Internal, "doing fails did not work"},
		{panics, fault.Unsupported, "doing panics needed more memory than 256 MiB, or crashed"},
		{overflows, fault.Unsupported, "doing overflows needed more memory than 256 MiB, or crashed"},
		{hoards, fault.Unsupported, "doing hoards needed more memory than 256 MiB, or crashed"},
		{floods, fault.Exhausted, "doing floods gave more than 16 MiB"},
		{hangs, fault.Exhausted, "hangs took longer than 300ms"},
	} {
		_, err := r.Run(t.Context(), c.job, helper.Call{Owner: "ann", In: strings.NewReader("")})
		if f := fault.Of(err); f == nil || f.Kind != c.want || f.Message != c.text {
			t.Errorf("%s: %v (%v)", c.job.Name, err, fault.CauseOf(err))
		}
	}
	if out, err := r.Run(t.Context(), upper, helper.Call{Owner: "ann", In: strings.NewReader("a")}); err != nil || string(out) != "A" {
		t.Errorf("the next call: %q, %v", out, err)
	}
}

func TestAHelperEndsWithItsCall(t *testing.T) {
	r := runner(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, writer := io.Pipe()
	defer writer.Close()
	go func() {
		_, _ = writer.Write([]byte("x")) // the helper has begun
		cancel()
		writer.Close()
	}()
	if _, err := r.Run(ctx, waits, helper.Call{Owner: "ann", In: in}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCallsOfOneOwnerWaitForEachOther(t *testing.T) {
	r := runner(t)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var ins []*io.PipeWriter
	for range 2 {
		in, writer := io.Pipe()
		ins = append(ins, writer)
		waiting.Go(func() { _, _ = r.Run(ctx, waits, helper.Call{Owner: "ann", In: in}) })
		if _, err := writer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	third, stop := context.WithCancel(t.Context())
	stop()
	if _, err := r.Run(third, upper, helper.Call{Owner: "ann", In: strings.NewReader("a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("a third helper of one owner: %v", err)
	}
	if out, err := r.Run(t.Context(), upper, helper.Call{Owner: "bob", In: strings.NewReader("b")}); err != nil || string(out) != "B" {
		t.Errorf("another owner's: %q, %v", out, err)
	}
	cancel()
	for _, w := range ins {
		w.Close()
	}
	waiting.Wait()
}

func TestAHelperReachesNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the walls are Linux's")
	}
	t.Setenv("PADDOCK_TEST_SECRET", "hidden")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	r := runner(t)
	out, err := r.Run(t.Context(), escapes, helper.Call{Owner: "ann", In: strings.NewReader(listener.Addr().String())})
	if err != nil || len(out) > 0 {
		t.Errorf("%s %v", out, err)
	}
	allowed, denied := t.TempDir(), t.TempDir()
	for _, dir := range []string{allowed, denied} {
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir string) (string, error) {
		out, err := r.Run(t.Context(), reads, helper.Call{Owner: "ann", Readable: []string{allowed}, In: strings.NewReader(filepath.Join(dir, "file"))})
		return string(out), err
	}
	if text, err := read(allowed); err != nil || text != "text" {
		t.Errorf("a folder that the call names: %q, %v", text, err)
	}
	if text, err := read(denied); fault.KindOf(err) != fault.Denied || text != "" {
		t.Errorf("another folder: %q, %v", text, err)
	}
}

func BenchmarkRun(b *testing.B) {
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	r := helper.NewRunner(program)
	b.Run("in a process", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Run(b.Context(), upper, helper.Call{In: strings.NewReader("a")}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in a process that is kept", func(b *testing.B) {
		defer r.Close()
		for b.Loop() {
			if _, err := r.Run(b.Context(), does, helper.Call{In: strings.NewReader("process")}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("baseline: starting true", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
