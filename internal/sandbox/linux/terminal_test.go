//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// screen is what one who is attached to a terminal sees.
type screen struct {
	sandbox.TerminalStream
	t testing.TB

	mu     sync.Mutex
	change sync.Cond
	seen   bytes.Buffer
	err    error // why nothing more comes
}

// attach attaches to a terminal, and reads until the test is over.
func attach(t testing.TB, host sandbox.TerminalHost, id uint32, from int64) *screen {
	t.Helper()
	stream, err := host.AttachTerminal(t.Context(), id, from)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{TerminalStream: stream, t: t}
	s.change.L = &s.mu
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4<<10)
		for {
			n, err := s.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.err = err
			s.change.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.Close()
		<-done
	})
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		s.t.Fatal(err)
	}
}

// until waits until something is seen, and gives what was seen up to there, which is
// forgotten then.
func (s *screen) until(text string) string {
	s.t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = errors.New("it took more than a minute")
		s.change.Broadcast()
	})
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.seen.String(), text) {
		if s.err != nil {
			s.t.Fatalf("%q does not come, but %q, and then %v", text, s.seen.String(), s.err)
		}
		s.change.Wait()
	}
	before, _, _ := strings.Cut(s.seen.String(), text)
	s.seen.Next(len(before) + len(text))
	return before + text
}

// end waits for the end, and gives what was seen until then.
func (s *screen) end() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil {
		s.change.Wait()
	}
	return s.seen.String(), s.err
}

// shellAt is bash with a prompt of its own, and without files of the machine's.
func shellAt(size sandbox.TerminalSize) sandbox.TerminalSpec {
	return sandbox.TerminalSpec{Command: []string{"bash", "--norc", "--noprofile"}, Env: map[string]string{"PS1": "here> "}, Size: size}
}

func TestAShellHasATerminal(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = sandbox.CommandRuntime, "shell"
	in := start(t, b, spec)
	one, err := in.OpenTerminal(t.Context(), shellAt(sandbox.TerminalSize{Rows: 30, Cols: 100}))
	if err != nil {
		t.Fatal(err)
	}
	s := attach(t, in, one.ID, 0)
	s.until("here> ")
	for _, step := range []struct {
		name, types, sees string
		prompts           bool // then: what is typed before is for the program that runs
	}{
		{"it is a terminal", "test -t 0 && test -t 1 && tty\n", "/dev/pts/", true},
		{"its kind is set", "echo =$TERM=\n", "=xterm-256color=", true},
		{"its size is what was asked for", "stty size\n", "30 100", true},
		// A Ctrl-C that comes while bash is about to start a program is lost, on any Linux: so
		// the program itself says that it runs.
		{"Ctrl-C stops what runs", "sh -c 'echo go\"\"ing; exec sleep 1111'\n", "going", false},
		{"", "\x03", "^C", true},
		{"and gives the prompt", "echo sta''tus $?\n", "status 130", true},
		{"Ctrl-Z leaves it to the shell", "echo re''ady; cat -u\n", "ready", false},
		{"", "x\n", "x\r\nx", false},
		{"", "\x1a", "Stopped", true},
		{"a program that wants the keys themselves gets them", "stty raw -echo; echo re''ady; head -c 2 | od -An -tx1; stty sane; echo th''ere\n", "ready", false},
		{"", "\x03\x1a", "03 1a", false},
		{"", "", "there", true},
		{"and what was stopped comes back", "fg\n", "cat -u", false},
		{"", "again\n", "again\r\nagain", false},
		{"Ctrl-D ends its input", "\x04", "here> ", false},
		{"", "echo en''ded $?\n", "ended 0", true},
		{"what works in the background is a job", "sleep 1112 &\n", "[1] ", true},
		{"", "kill %1; wait; jobs; echo no''ne\n", "none", true},
		{"keys move in the line", "echo right\x1b[D\x1b[D\x1b[D\x1b[D\x1b[Dn\n", "nright", true},
	} {
		if step.name != "" {
			t.Log(step.name)
		}
		s.types(step.types)
		s.until(step.sees)
		if step.prompts {
			s.until("here> ")
		}
	}
	s.types("trap 'echo new $(stty size)' WINCH; echo trap''ped\n")
	s.until("trapped")
	s.until("here> ")
	if err := in.ResizeTerminal(t.Context(), one.ID, sandbox.TerminalSize{Rows: 12, Cols: 34}); err != nil {
		t.Fatal(err)
	}
	s.types("\n")
	s.until("new 12 34")
	s.types("exit 3\n")
	if _, err := s.end(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	list, err := in.Terminals(t.Context())
	if err != nil || len(list) != 1 || !list[0].Ended || list[0].ExitCode != 3 {
		t.Errorf("then there are %+v, %v", list, err)
	}
	if err := in.ResizeTerminal(t.Context(), one.ID, sandbox.TerminalSize{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("resizing it: %v", err)
	}
}

func TestATerminalGoesOnWhenNobodyIsAttached(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = sandbox.CommandRuntime, "shell"
	in := start(t, b, spec)
	one, err := in.OpenTerminal(t.Context(), shellAt(sandbox.TerminalSize{}))
	if err != nil {
		t.Fatal(err)
	}
	first := attach(t, in, one.ID, 0)
	first.until("here> ")
	first.types("kept=there; echo mark''er; sleep 0.2; echo mean''while\n")
	first.until("marker")
	first.Close()
	second := attach(t, in, one.ID, 0)
	second.until("marker")
	second.until("meanwhile")
	third := attach(t, in, one.ID, 0)
	third.types("echo bo''th $kept\n")
	second.until("both there")
	third.until("both there")
	list, err := in.Terminals(t.Context())
	if err != nil || len(list) != 1 || list[0].Attached != 2 || list[0].Ended {
		t.Errorf("there are %+v, %v", list, err)
	}
	later := attach(t, in, one.ID, list[0].Printed)
	if later.From() != list[0].Printed {
		t.Errorf("it begins at %d and not at %d", later.From(), list[0].Printed)
	}
	for _, s := range []*screen{second, third, later} {
		s.Close()
	}
	// What is too much to be kept leaves the newest of it.
	fourth := attach(t, in, one.ID, 0)
	fourth.types("stty -echo; seq 1 200000 | tail -c 1000000; echo las''t\n")
	fourth.until("200000\r\nlast")
	fourth.Close()
	kept := attach(t, in, one.ID, 0)
	if text := kept.until("200000\r\nlast"); len(text) > sandbox.TerminalScrollback || len(text) < sandbox.TerminalScrollback/2 || kept.From() == 0 {
		t.Errorf("%d bytes are kept, from %d on", len(text), kept.From())
	}
	if err := in.Signal(t.Context(), one.PID, "KILL"); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.end(); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	if list, err := in.Terminals(t.Context()); err != nil || len(list) != 1 || list[0].ExitCode != 137 {
		t.Errorf("then there are %+v, %v", list, err)
	}
}

func TestWhatIsWrongWithATerminalIsSaid(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = sandbox.CommandRuntime, "shell"
	in := start(t, b, spec)
	for name, wrong := range map[string]struct {
		spec sandbox.TerminalSpec
		kind fault.Kind
	}{
		"no program":       {sandbox.TerminalSpec{}, fault.Invalid},
		"one that is not":  {sandbox.TerminalSpec{Command: []string{"no-such-program"}}, fault.Unsupported},
		"too large":        {sandbox.TerminalSpec{Command: []string{"bash"}, Size: sandbox.TerminalSize{Rows: 65535, Cols: 1}}, fault.Invalid},
		"no such folder":   {sandbox.TerminalSpec{Command: []string{"bash"}, Dir: "/nowhere"}, fault.Invalid},
		"not to be run at": {sandbox.TerminalSpec{Command: []string{"/etc"}}, fault.Unavailable},
	} {
		if _, err := in.OpenTerminal(t.Context(), wrong.spec); fault.KindOf(err) != wrong.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := in.AttachTerminal(t.Context(), 7, 0); fault.KindOf(err) != fault.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	for range sandbox.MaxTerminals {
		if _, err := in.OpenTerminal(t.Context(), sandbox.TerminalSpec{Command: []string{"cat"}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.OpenTerminal(t.Context(), sandbox.TerminalSpec{Command: []string{"cat"}}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one too many: %v", err)
	}
}

// A run that is stopped by force takes what it started with it, and no terminal.
func TestARunThatIsStoppedLeavesTerminalsAlone(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = sandbox.CommandRuntime, "shell"
	in := start(t, b, spec)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := in.Run(ctx, sandbox.Command{Code: "bash", Args: []string{"-c", "trap '' INT; while :; do sleep 0.1; done"}})
		done <- err
	}()
	one, err := in.OpenTerminal(t.Context(), shellAt(sandbox.TerminalSize{}))
	if err != nil {
		t.Fatal(err)
	}
	s := attach(t, in, one.ID, 0)
	s.until("here> ")
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.types("echo still he''re\n")
	s.until("still here")
}
