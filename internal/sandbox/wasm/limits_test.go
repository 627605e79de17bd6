package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// timeout bounds what should take a fraction of a second; the machine may be
// loaded.
const timeout = 2 * time.Minute

// into is how long a program is let into what never ends before it is
// stopped: what comes of it does not depend on that.
const into = 20 * time.Millisecond

// speech is how a language says what the tests of both need.
type speech struct {
	runtime           string
	set, show, during string // two variables; both on a line; the second is changed
	on                string // prints that the program has begun
	interrupted       string // the type of the error that an interrupt is
}

var speeches = []speech{
	{"python", "before = 1; during = 1", "print(before, during)", "during = 2", "print('on')", "KeyboardInterrupt"},
	{"javascript", "globalThis.before = 1; globalThis.during = 1; undefined", "console.log(before, during)", "globalThis.during = 2;", "console.log('on');", "Interrupted"},
}

func TestLimitsEndEveryProgram(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for _, s := range speeches {
		dir := folder(t, owners, "o/"+s.runtime)
		witness := startIn(t, b, s.runtime, dir)
		prints(t, witness, s.set, "")
		for _, p := range endlessPrograms[s.runtime] {
			for _, cause := range []sandbox.Cause{sandbox.TimedOut, sandbox.Cancelled} {
				t.Run(fmt.Sprintf("%s, %s, %v", s.runtime, p.name, cause), func(t *testing.T) {
					p.run(t, startIn(t, b, s.runtime, dir), s, cause)
					prints(t, witness, s.show, "1 1")
				})
			}
		}
	}
}

// TestLimitsOfWhatAnExitLeavesBehind has a program end itself while promises
// of its own go on for ever: they do not go on in the next one.
func TestLimitsOfWhatAnExitLeavesBehind(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	const exit = "; for (let i = 0; i < 9; i++) await null; process.exit(3)"
	for name, code := range map[string]string{
		"promises within promises": "const on = () => { n++; return Promise.resolve().then(on) }; on()" + exit,
		"many promises":            "const on = () => { n++; Promise.reject().catch(on).finally(on) }; on()" + exit,
		"ticks":                    "const on = () => { n++; process.nextTick(on) }; on(); process.nextTick(() => process.exit(3))",
		"an interval":              "setInterval(() => { n++ }, 0)" + exit,
	} {
		t.Run(name, func(t *testing.T) {
			in := startIn(t, b, "javascript", folder(t, owners, "o/w"))
			prints(t, in, "globalThis.n = 0; undefined", "")
			if _, exit := outputOf(t, in, sandbox.Command{Code: code}); exit.Cause != sandbox.Exited || exit.Code != 3 || exit.Error != nil {
				t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
			}
			prints(t, in, "globalThis.before = n; await new Promise((r) => setTimeout(r, 10)); console.log(n - before)", "0")
		})
	}
}

// TestLimitsOfMemoryAndDepth runs into the walls that a program ends at by
// itself: it is told of them as its language does, and nothing is lost.
func TestLimitsOfMemoryAndDepth(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for _, s := range speeches {
		dir := folder(t, owners, "o/"+s.runtime)
		witness := startIn(t, b, s.runtime, dir)
		prints(t, witness, s.set, "")
		for _, p := range walls[s.runtime] {
			t.Run(s.runtime+", "+p.name, func(t *testing.T) {
				in, err := b.Start(t.Context(), sandbox.Spec{Owner: "o", Runtime: s.runtime, Mounts: workspace(dir), Limits: sandbox.Limits{MemoryBytes: 64 << 20}})
				if err != nil {
					t.Fatal(err)
				}
				defer in.Close()
				prints(t, in, s.set, "")
				want, left := sandbox.Kept, "1 2"
				if p.full {
					want, left = sandbox.Restored, "1 1"
				}
				_, exit := outputOf(t, in, sandbox.Command{Code: s.during + "\n" + p.code})
				if exit.Cause != p.cause || exit.State != want || exit.Code != 1 || exit.Error == nil || exit.Error.Type != p.fails {
					t.Errorf("it ended as %+v, error %.300s", exit, fmt.Sprintf("%+v", exit.Error))
				}
				prints(t, in, s.show, left)
				prints(t, witness, s.show, "1 1")
			})
		}
	}
}

func TestLimitsOfOutput(t *testing.T) {
	const most = 200
	owners := t.TempDir()
	b := newBackend(t, owners)
	for _, s := range speeches {
		dir := folder(t, owners, "o/"+s.runtime)
		for _, p := range floods[s.runtime] {
			t.Run(s.runtime+", "+p.name, func(t *testing.T) {
				in := startIn(t, b, s.runtime, dir)
				prints(t, in, s.set, "")
				var stderr bytes.Buffer
				out, exit := outputOf(t, in, sandbox.Command{Code: s.during + "\n" + p.code, Stderr: &stderr, Limits: sandbox.RunLimits{
					StdoutBytes: most, StderrBytes: most, Grace: timeout,
				}})
				if exit.Cause != sandbox.OutputExceeded || exit.State != sandbox.Kept || exit.Code == 0 {
					t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
				}
				if len(out) > most || stderr.Len() > most || exit.StdoutTruncated != (len(out) == most) || exit.StderrTruncated != (stderr.Len() == most) {
					t.Errorf("%d bytes on stdout, %d on stderr; it ended as %+v", len(out), stderr.Len(), exit)
				}
				prints(t, in, s.show, "1 2")
			})
		}
		t.Run(s.runtime+", a reader that takes nothing holds the program up, and nobody else", func(t *testing.T) {
			testSlowReader(t, startIn(t, b, s.runtime, dir), startIn(t, b, s.runtime, dir), s)
		})
	}
}

// testSlowReader has a program print without a limit to somebody who stops
// reading: what is under way stays bounded, and an interrupt ends it.
func testSlowReader(t *testing.T, in, other sandbox.Instance, s speech) {
	t.Helper()
	prints(t, in, s.set, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached, release := make(chan struct{}), make(chan struct{})
	taken := 0
	stdout := writerFunc(func(p []byte) (int, error) {
		if taken == 0 {
			close(reached)
			<-release
		}
		taken += len(p)
		return len(p), nil
	})
	flood := floods[s.runtime][2].code
	answer := goRun(ctx, in, sandbox.Command{Code: s.during + "\n" + flood, Stdout: stdout, Limits: sandbox.RunLimits{Grace: time.Millisecond}})
	await(t, "the first output", reached)
	prints(t, other, s.set, "")
	cancel()
	close(release)
	r := await(t, "the end of the program", answer)
	if r.err != nil || r.exit.Cause != sandbox.Cancelled {
		t.Errorf("it ended as %+v, %v", r.exit, r.err)
	}
	left := map[sandbox.State]string{sandbox.Kept: "1 2", sandbox.Restored: "1 1"}[r.exit.State]
	prints(t, in, s.show, left)
}

// TestLimitsOfInput reads what is not there.
func TestLimitsOfInput(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	python := startIn(t, b, "python", folder(t, owners, "o/python"))
	javascript := startIn(t, b, "javascript", folder(t, owners, "o/javascript"))
	t.Run("without input a program finds its end at once", func(t *testing.T) {
		_, exit := outputOf(t, python, sandbox.Command{Code: "input()"})
		if exit.Cause != sandbox.Exited || exit.State != sandbox.Kept || exit.Error == nil || exit.Error.Type != "EOFError" || exit.Error.Hint == "" {
			t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
		}
		prints(t, python, "import sys; print(len(sys.stdin.read()))", "0")
		prints(t, javascript, "console.log(require('fs').readFileSync(0).length)", "0")
		prints(t, javascript, "let n = 0; for await (const l of require('readline').createInterface(process.stdin)) n++; console.log(n)", "0")
	})
	for name, c := range map[string]struct {
		in         sandbox.Instance
		wait, read string
	}{
		"python":     {python, "print(1)\ninput()", "import sys; print(sys.stdin.read())"},
		"javascript": {javascript, "console.log(1); require('fs').readFileSync(0)", "console.log(require('fs').readFileSync(0, 'utf8'))"},
	} {
		t.Run(name+": input that comes too late reaches no other program", func(t *testing.T) {
			late, writer := io.Pipe()
			defer writer.Close()
			exit := stopAtOutput(t, c.in, sandbox.Command{Code: c.wait, Stdin: late}, sandbox.Cancelled)
			if exit.Cause != sandbox.Cancelled || exit.State != sandbox.Kept {
				t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
			}
			if _, err := io.WriteString(writer, "late\n"); err != nil {
				t.Error(err)
			}
			out, exit := outputOf(t, c.in, sandbox.Command{Code: c.read, Stdin: strings.NewReader("mine")})
			if out != "mine\n" || exit.Cause != sandbox.Exited {
				t.Errorf("the next one reads %q; it ended as %+v, error %+v", out, exit, exit.Error)
			}
		})
	}
}

// TestLimitsLeaveTheProcessesResponsive has more programs spin than there are
// processors. The server's collector needs a moment at which all of its
// goroutines stand still, and so does the worker's, which has to run when
// other interpreters of the same worker are given megabytes to do.
func TestLimitsLeaveTheProcessesResponsive(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	dir := folder(t, owners, "o/w")
	large := "\n#" + strings.Repeat("x", 500_000)
	for name, c := range map[string]struct{ runtime, code string }{
		"Python's own loop":            {"python", "print(1)\nwhile True: pass"},
		"a loop in Python's C code":    {"python", "import itertools; any(itertools.chain(map(print, [1]), itertools.repeat(0)))"},
		"Python's regular expressions": {"python", "import re; print(1); re.match('(a+)+$', 'a'*200 + 'b')"},
		"JavaScript's own loop":        {"javascript", "console.log(1); for (;;);"},
		"JavaScript's integers":        {"javascript", "console.log(1); String(7n ** 370000n)"},
	} {
		t.Run(name, func(t *testing.T) {
			other := startIn(t, b, "python", dir)
			prints(t, other, "kept = 1", "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var spinning []<-chan ending
			for range runtime.GOMAXPROCS(0) + 1 {
				printed := make(chan struct{}, 1)
				in := startIn(t, b, c.runtime, dir)
				spinning = append(spinning, goRun(ctx, in, sandbox.Command{Code: c.code, Stdout: signal(printed)}))
				await(t, "its output", printed)
			}
			for range 20 {
				runtime.GC()
				prints(t, other, "print(kept)"+large, "1")
			}
			prints(t, startIn(t, b, "python", dir), "print('fresh')", "fresh")
			prints(t, startIn(t, b, "javascript", dir), "console.log('fresh')", "fresh")
			cancel()
			for _, answer := range spinning {
				if r := await(t, "the end of a program", answer); r.err != nil || r.exit.Cause != sandbox.Cancelled {
					t.Errorf("it ended as %+v, %v", r.exit, r.err)
				}
			}
		})
	}
}

// run ends the program by cause and looks at what is left.
func (p endless) run(t *testing.T, in sandbox.Instance, s speech, cause sandbox.Cause) {
	t.Helper()
	prints(t, in, s.set, "")
	cmd := sandbox.Command{Code: strings.Join([]string{s.during, s.on, p.code}, "\n"), Limits: sandbox.RunLimits{Grace: timeout}}
	want, left, says := sandbox.Kept, "1 2", s.interrupted
	if p.stubborn {
		cmd.Code = s.during + "\n" + p.code
		cmd.Limits.Grace, want, left, says = 10*time.Millisecond, sandbox.Restored, "1 1", "Stopped"
	}
	if p.waits {
		never, writer := io.Pipe()
		defer writer.Close()
		cmd.Stdin = never
	}
	exit := stopAtOutput(t, in, cmd, cause)
	if p.either && exit.State == sandbox.Kept {
		want, left, says = sandbox.Kept, "1 2", s.interrupted
	}
	if exit.Cause != cause || exit.State != want || exit.Code == 0 || exit.Error == nil || exit.Error.Type != says {
		t.Errorf("it ended as %+v, error %+v; its state should be %v", exit, exit.Error, want)
	}
	prints(t, in, s.show, left)
}

// stopAtOutput runs a program and ends it by cause once it has printed
// something.
func stopAtOutput(t *testing.T, in sandbox.Instance, cmd sandbox.Command, cause sandbox.Cause) sandbox.Exit {
	t.Helper()
	ended := stoppable{t.Context(), make(chan struct{}), map[sandbox.Cause]error{
		sandbox.TimedOut: context.DeadlineExceeded, sandbox.Cancelled: context.Canceled,
	}[cause]}
	printed := make(chan struct{}, 1)
	cmd.Stdout = signal(printed)
	answer := goRun(ended, in, cmd)
	select {
	case <-printed:
	case r := <-answer:
		t.Fatalf("it ended at once: %+v, error %+v, %v", r.exit, r.exit.Error, r.err)
	case <-time.After(timeout):
		t.Fatal("the program printed nothing")
	}
	time.Sleep(into)
	close(ended.done)
	r := await(t, "the end of the program", answer)
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.exit
}

// stoppable is a context that ends when its channel is closed, as if it were
// cancelled or its deadline passed.
type stoppable struct {
	context.Context
	done chan struct{}
	why  error
}

func (s stoppable) Done() <-chan struct{} { return s.done }

func (s stoppable) Err() error {
	select {
	case <-s.done:
		return s.why
	default:
		return nil
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// signal is a writer that tells when something has been printed.
func signal(printed chan<- struct{}) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		select {
		case printed <- struct{}{}:
		default:
		}
		return len(p), nil
	})
}

// ending is what Run gave.
type ending struct {
	exit sandbox.Exit
	err  error
}

func goRun(ctx context.Context, in sandbox.Instance, cmd sandbox.Command) <-chan ending {
	answer := make(chan ending, 1)
	go func() {
		exit, err := in.Run(ctx, cmd)
		answer <- ending{exit, err}
	}()
	return answer
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(timeout):
		t.Fatalf("%s did not come", what)
	}
	return v
}

// prints checks that a program ends well and what it prints.
func prints(t *testing.T, in sandbox.Instance, code, want string) {
	t.Helper()
	out, exit := outputOf(t, in, sandbox.Command{Code: code})
	if got := strings.TrimSpace(out); got != want || exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("%s\nprints %q, not %q; it ended as %+v, error %+v", code, got, want, exit, exit.Error)
	}
}

func outputOf(t *testing.T, in sandbox.Instance, cmd sandbox.Command) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out bytes.Buffer
	cmd.Stdout = &out
	exit, err := in.Run(ctx, cmd)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("%s\n%v", cmd.Code, err)
	}
	return out.String(), exit
}

// An inspection that was given up, behind the saving of a large state, takes
// nothing from the run after it.
func TestLimitsHoldBehindAnInspectionThatWasGivenUp(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	in, other := startIn(t, b, "python", folder(t, owners, "o/w")), startIn(t, b, "python", folder(t, owners, "o/x"))
	prints(t, other, "kept = 1", "")
	for range 5 {
		prints(t, in, "b = None; b = bytearray(80 << 20); b[::4096] = b'1' * len(b[::4096])", "")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := in.Inspect(ctx); err == nil {
			t.Error("an inspection that was given up gave something")
		}
		if exit := stopAtOutput(t, in, sandbox.Command{Code: "print(1)\nwhile True: pass"}, sandbox.TimedOut); exit.State != sandbox.Kept {
			t.Errorf("%+v", exit)
		}
	}
	prints(t, other, "print(kept)", "1")
}

func TestLimitsOfMemoryThatNoInterpreterFitsInto(t *testing.T) {
	owners := t.TempDir()
	b := newBackend(t, owners)
	for _, s := range speeches {
		_, err := b.Start(t.Context(), sandbox.Spec{Owner: "o", Runtime: s.runtime, Limits: sandbox.Limits{MemoryBytes: 1 << 20}})
		if f := fault.Of(err); f.Kind != fault.Invalid || f.Hint == "" {
			t.Errorf("%s: %+v", s.runtime, f)
		}
	}
}
