package sandboxtest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// grace is what the suite gives programs to end after an interrupt.
const grace = 200 * time.Millisecond

// gentle is the grace of programs that end by themselves when they are interrupted: what
// they need of it is the machine's, and they are not to be stopped by force.
const gentle = timeout

// timed runs a program under a wall limit, after some lines, and checks that it ends soon
// after. On a busy machine the limit may come before the program does: then it is run
// again under another.
func (k *kit) timed(t *testing.T, in sandbox.Instance, before, src string, mercy time.Duration) output {
	t.Helper()
	for wall := 300 * time.Millisecond; ; wall *= 2 {
		begun := make(signal, 1)
		o := k.under(t, in, sandbox.Command{Code: lines(before, k.Print("on"), src), Stdout: begun, Limits: sandbox.RunLimits{Grace: mercy}}, wall)
		if len(begun) > 0 || o.Cause != sandbox.TimedOut || o.State != sandbox.Kept || wall > timeout {
			return o
		}
	}
}

// under runs a program under a wall limit, and checks that it ends soon after.
func (k *kit) under(t *testing.T, in sandbox.Instance, cmd sandbox.Command, wall time.Duration) output {
	t.Helper()
	began := time.Now() // before the limit begins
	ctx, cancel := context.WithTimeout(t.Context(), wall)
	defer cancel()
	o := runIn(ctx, t, in, cmd)
	if took := time.Since(began); took < wall || took > wall+grace+timeout/6 {
		t.Errorf("it took %v under a limit of %v", took, wall)
	}
	return o
}

// testCancelled cancels a program that has printed something.
func (k *kit) testCancelled(t *testing.T, in sandbox.Instance, src string, stdin io.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	printed, ended := make(signal, 1), make(chan result, 1)
	go func() {
		exit, err := in.Run(ctx, sandbox.Command{Code: src, Stdin: stdin, Stdout: printed, Limits: sandbox.RunLimits{Grace: grace}})
		ended <- result{exit, err}
	}()
	await(t, "the first output", printed)
	cancel()
	r := await(t, "the end of the run", ended)
	if r.err != nil {
		t.Errorf("running it: %v", r.err)
	}
	output{Exit: r.exit}.wantFailure(t, sandbox.Cancelled)
	works(t, in, k.Print("goes on"), "goes on")
}

func (k *kit) testLimits(t *testing.T) {
	for _, c := range []struct {
		name, src string
		mercy     time.Duration
		kept      bool
	}{
		{"an endless loop", k.Loop, gentle, true},
		{"a sleeping program", k.Sleep, gentle, true},
		{"a program that catches everything", k.Stubborn, grace, false},
	} {
		t.Run(c.name+" ends at its deadline", func(t *testing.T) {
			in := k.start(t, k.beside())
			works(t, in, k.Set("before", 1), "")
			o := k.timed(t, in, k.Set("during", 2), c.src, c.mercy)
			o.wantFailure(t, sandbox.TimedOut)
			if o.Error == nil {
				t.Error("it has no error")
			}
			if !c.kept {
				return
			}
			o.wantState(t, sandbox.Kept)
			works(t, in, k.Show("before"), "1")
			works(t, in, k.Show("during"), "2")
		})
		t.Run(c.name+" ends when it is cancelled", func(t *testing.T) {
			k.testCancelled(t, k.start(t, k.beside()), lines(k.Print("on"), c.src), nil)
		})
	}
	t.Run("a run whose context has already ended stops", func(t *testing.T) {
		in := k.start(t, k.beside())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if o := runIn(ctx, t, in, sandbox.Command{Code: k.Loop, Limits: sandbox.RunLimits{Grace: grace}}); o.Cause != sandbox.Cancelled {
			t.Errorf("it ended as %+v", o.Exit)
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
	k.testBudgets(t)
	k.testDiskLimit(t)
	k.testOutputLimits(t)
}

func (k *kit) testBudgets(t *testing.T) {
	t.Run("a program that uses up its fuel stops and keeps its state", func(t *testing.T) {
		spec := k.spec("")
		spec.Limits.Metered = true
		if k.suite.Machine {
			_, err := k.backend.Start(t.Context(), spec)
			wantFault(t, err, fault.Unsupported)
			return
		}
		in := k.start(t, spec)
		o := run(t, in, sandbox.Command{Code: lines(k.Set("x", 1), k.Loop), Limits: sandbox.RunLimits{Fuel: 5_000_000, Grace: gentle}})
		o.wantFailure(t, sandbox.OutOfFuel)
		if o.Usage.Fuel < 5_000_000 {
			t.Errorf("it used %d of fuel, want 5,000,000 or more", o.Usage.Fuel)
		}
		if o.Usage.FuelLimit != 5_000_000 {
			t.Errorf("its limit of fuel is %d, want 5,000,000", o.Usage.FuelLimit)
		}
		works(t, in, k.Show("x"), "1")
	})
	t.Run("fuel is refused where it is not counted", func(t *testing.T) {
		in := k.start(t, k.beside())
		if exit, err := in.Run(t.Context(), sandbox.Command{Code: k.Print("ran"), Limits: sandbox.RunLimits{Fuel: 5_000_000}}); fault.KindOf(err) != fault.Unsupported {
			t.Errorf("it ended as %+v, %v", exit, err)
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
	t.Run("a result names its engine", func(t *testing.T) {
		o := run(t, k.start(t, k.beside()), code(k.Print("on")))
		if want := k.backend.Probe(t.Context()).Engine; o.Engine != want || o.Engine == "" {
			t.Errorf("its engine is %q, want %q", o.Engine, want)
		}
	})
	t.Run("a program that uses up its memory stops and keeps its state", func(t *testing.T) {
		if k.Alloc == nil {
			t.Skip("the language takes no memory to speak of")
		}
		spec := k.spec("")
		spec.Limits.MemoryBytes = 96 << 20
		in := k.start(t, spec)
		works(t, in, k.Set("x", 1), "")
		o := run(t, in, code(k.Alloc(256<<20)))
		o.wantFailure(t, sandbox.OutOfMemory)
		if o.Error == nil {
			t.Error("it has no error")
		}
		if k.suite.Machine && o.State == sandbox.Fresh {
			fails(t, in, k.Show("x"))
			return
		}
		if o.Usage.Memory > spec.Limits.MemoryBytes {
			t.Errorf("it took %d bytes", o.Usage.Memory)
		}
		works(t, in, k.Show("x"), "1")
	})
}

func (k *kit) testDiskLimit(t *testing.T) {
	t.Run("a program that fills the disk stops at its limit", func(t *testing.T) {
		dir := k.folder(t)
		spec := k.spec(dir)
		spec.Mounts[0].DiskBytes = 1 << 20
		in := k.start(t, spec)
		o := run(t, in, code(k.Fill("full")))
		o.wantFailure(t, sandbox.OutOfSpace)
		info, err := os.Stat(filepath.Join(dir, "full"))
		if err != nil {
			t.Fatal(err)
		}
		if n := info.Size(); n == 0 || n > 1<<20 {
			t.Errorf("the file has %d bytes, want 1 to %d", n, 1<<20)
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
	t.Run("a limit of zero allows no growth", func(t *testing.T) {
		spec := k.spec(k.folder(t))
		spec.Mounts[0].DiskBytes = 0
		o := run(t, k.start(t, spec), code(k.Write("f", "x")))
		o.wantFailure(t, sandbox.OutOfSpace)
	})
}

// wantCut checks what of a program's output is said to be cut.
func (o output) wantCut(t *testing.T, stdout, stderr bool) {
	t.Helper()
	if o.StdoutTruncated != stdout {
		t.Errorf("stdout is cut: %v, want %v", o.StdoutTruncated, stdout)
	}
	if o.StderrTruncated != stderr {
		t.Errorf("stderr is cut: %v, want %v", o.StderrTruncated, stderr)
	}
}

func (k *kit) testOutputLimits(t *testing.T) {
	in := k.start(t, k.beside())
	long := strings.Repeat("0123456789", 20)
	t.Run("output beyond the limit is cut and flagged", func(t *testing.T) {
		o := run(t, in, sandbox.Command{
			Code:   lines(k.PrintErr("short"), k.Print(long), k.Print(long)),
			Limits: sandbox.RunLimits{StdoutBytes: 300, StderrBytes: 300},
		})
		if want := (long + "\n" + long + "\n")[:300]; o.stdout != want {
			t.Errorf("stdout is %q, want %q", o.stdout, want)
		}
		if !o.StdoutTruncated { // its stderr may have an error that is cut as well
			t.Error("stdout is not said to be cut")
		}
		// It is told to stop, and may have come to its end by then.
		if o.Cause != sandbox.Exited {
			o.wantEnd(t, sandbox.OutputExceeded)
		}
		if !strings.HasPrefix(o.stderr, "short\n") {
			t.Errorf("stderr is %q, want short at first", o.stderr)
		}
	})
	t.Run("output up to the limit is whole and not flagged", func(t *testing.T) {
		o := run(t, in, sandbox.Command{Code: k.Print(long), Limits: sandbox.RunLimits{StdoutBytes: 201}})
		if want := long + "\n"; o.stdout != want {
			t.Errorf("stdout is %q, want %q", o.stdout, want)
		}
		o.wantCut(t, false, false)
	})
	t.Run("stderr is cut as well", func(t *testing.T) {
		o := run(t, in, sandbox.Command{Code: k.PrintErr(long), Limits: sandbox.RunLimits{StderrBytes: 10}})
		if want := long[:10]; o.stderr != want {
			t.Errorf("stderr is %q, want %q", o.stderr, want)
		}
		o.wantCut(t, false, true)
	})
	t.Run("more output than the limit stops the program", func(t *testing.T) {
		o := run(t, in, sandbox.Command{Code: lines(k.Set("x", 1), k.Flood), Limits: sandbox.RunLimits{StdoutBytes: 10_000, Grace: grace}})
		o.wantEnd(t, sandbox.OutputExceeded)
		if len(o.stdout) != 10_000 {
			t.Errorf("stdout has %d bytes, want 10,000", len(o.stdout))
		}
		if !o.StdoutTruncated {
			t.Error("stdout is not said to be cut")
		}
		works(t, in, k.Print("goes on"), "goes on")
	})
}
