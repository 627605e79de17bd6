//go:build linux && (amd64 || arm64)

package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"paddock/internal/approval"
	"paddock/internal/sandbox/sandboxtest"
)

// atTerminal is somebody at a terminal in which paddock runs: the built one, which
// PADDOCK_BIN names.
type atTerminal struct {
	*os.File
	t   *testing.T
	cmd *exec.Cmd

	mu     sync.Mutex
	change sync.Cond
	seen   bytes.Buffer
	over   bool
	late   bool
}

// drawing is what moves the cursor and sets colours.
var drawing = regexp.MustCompile("\x1b\\[[0-9;?>]*[ ]?[A-Za-z]")

func startAtTerminal(t *testing.T, state string, args ...string) *atTerminal {
	t.Helper()
	bin := os.Getenv("PADDOCK_BIN")
	sandboxtest.Require(t, "linux", bin != "", "PADDOCK_BIN names no paddock")
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "PADDOCK_STATE_DIR="+state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t),
		"XDG_CONFIG_HOME="+filepath.Join(state, "config"), "TERM=xterm-256color", "INPUTRC=/dev/null")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	a := &atTerminal{File: f, t: t, cmd: cmd}
	a.change.L = &a.mu
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4<<10)
		for {
			n, err := f.Read(buf)
			a.mu.Lock()
			a.seen.Write(buf[:n])
			text := drawing.ReplaceAll(bytes.Clone(a.seen.Bytes()), nil)
			a.seen.Reset()
			a.seen.Write(text)
			a.over = err != nil
			a.change.Broadcast()
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, as a rule
		f.Close()
		<-done
	})
	return a
}

func (a *atTerminal) types(text string) {
	a.t.Helper()
	if _, err := io.WriteString(a, text); err != nil {
		a.t.Fatal(err)
	}
}

// until waits until something is seen, and forgets what was seen up to there.
func (a *atTerminal) until(pattern string) string {
	a.t.Helper()
	re := regexp.MustCompile(pattern)
	timer := time.AfterFunc(2*time.Minute, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.late = true
		a.change.Broadcast()
	})
	defer timer.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		if at := re.FindIndex(a.seen.Bytes()); at != nil {
			return string(a.seen.Next(at[1]))
		}
		if a.over || a.late {
			a.t.Fatalf("%q does not come, but %q (ended: %v)", pattern, a.seen.String(), a.over)
		}
		a.change.Wait()
	}
}

// ends waits for the end, checks the exit code, and gives what was seen last.
func (a *atTerminal) ends(code int) string {
	a.t.Helper()
	_ = a.cmd.Wait() // the code tells
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.over {
		a.change.Wait()
	}
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("it ended with %d and not %d, after %q", got, code, a.seen.String())
	}
	return a.seen.String()
}

func TestAShellAtATerminal(t *testing.T) {
	state := t.TempDir()
	a := startAtTerminal(t, state, "shell")
	a.until(`\$ `)
	for _, step := range [][2]string{
		{"stty size; echo =$TERM=\r", `30 100\r\n(.|\n)*=xterm-256color=(.|\n)*\$ `},
		{"sh -c 'echo go\"\"ing; exec sleep 1111'\r", `going`}, // bash loses a Ctrl-C that comes before it has begun
		{"\x03", `\$ `},
		{"echo sta''tus $?\r", `status 130(.|\n)*\$ `},
		{"echo re''ady; cat\r", `ready`},
		{"x\r", `x\r\nx`}, // it runs
		{"\x1a", `Stopped(.|\n)*\$ `},
		{"kept=there; jo''bs; echo mar''ker\r", `cat(.|\n)*marker(.|\n)*\$ `},
	} {
		a.types(step[0])
		a.until(step[1])
	}
	if err := pty.Setsize(a.File, &pty.Winsize{Rows: 20, Cols: 70}); err != nil {
		t.Fatal(err)
	}
	a.types("trap 'echo new $(stty size)' WINCH; stty size\r")
	a.until(`20 70(.|\n)*\$ `)
	a.types("\x1dd")
	told := a.until(`paddock shell --session (\S+) comes back`)
	a.ends(0)
	id := regexp.MustCompile(`--session (\S+) `).FindStringSubmatch(told)[1]

	back := startAtTerminal(t, state, "shell", "--session", id)
	back.until(`20 70(.|\n)*\$ `) // what was there is shown again
	back.types("echo still $kept; jo''bs\r")
	back.until(`still there(.|\n)*cat(.|\n)*\$ `)
	back.types("kill %1; wait; exit 3\r")
	back.ends(3)
}

func TestAREPLAtATerminal(t *testing.T) {
	for language, steps := range map[string][][2]string{
		"python": {
			{"x = 6 * 7\r", `6 \* 7\s+>>> `},
			{"x\r", `\n42\r\n`},
			{"for n in range(2):\r", `range\(2\):`},
			{"    print('n', n)\r\r", `n 0\r\nn 1\r\n`},
			{"print(\r", `print\(`},
			{"'joi' 'ned')\r", `\njoined\r\n`},
			{"import string\r", `string\s+>>> `},
			{"len(string.ascii_low\t", `ascii_lowercase`},
			{")\r", `\n26\r\n`},
			{"1/0\r", `ZeroDivisionError`},
			{"x = 1\r", `x = 1\s+>>> `},
			{"undo\r", `undone: .*x`},
			{"x + 1000\r", `\n1042\r\n`},
			{"import time; print('spin' + 'ning'); time.sleep(600)\r", `\nspinning`},
			{"\x03", `was stopped: cancelled`},
			{"x + 2000\r", `\n2042\r\n`},
		},
		"javascript": {
			{"const x = 6 * 7\r", `6 \* 7\s+> `},
			{"x\r", `\n42\r\n`},
			{"function twice(n) {\r", `twice\(n\) \{`},
			{"return 2 * n }\r", `n \}`},
			{"twice(x)\r", `\n84\r\n`},
			{"Math.hypo\t", `Math\.hypot`},
			{"(3, 4)\r", `\n5\r\n`},
		},
	} {
		t.Run(language, func(t *testing.T) {
			a := startAtTerminal(t, t.TempDir(), "repl", language)
			a.until(`Ctrl-D leaves`)
			for _, step := range steps {
				a.types(step[0])
				a.until(step[1])
			}
			a.until(`> $`) // a Ctrl-D that comes before the prompt is lost
			a.types("\x04")
			a.ends(0)
		})
	}
}

func TestRunAtATerminalWithoutAProgramIsAREPL(t *testing.T) {
	a := startAtTerminal(t, t.TempDir(), "run")
	a.until(`Ctrl-D leaves`)
	a.types("exit\r")
	if text := a.ends(0); strings.Contains(text, "error") {
		t.Errorf("it says %q", text)
	}
}

func TestTopAtATerminalIsDrawnAgainUntilASignal(t *testing.T) {
	state := t.TempDir()
	busy := startAtTerminal(t, state, "run", "--name", "busy", "-c", "print('loo' + 'ping', flush=True)\nwhile True: pass")
	busy.until(`looping`)
	top := startAtTerminal(t, state, "top")
	for range 2 {
		top.until(`ID +STATE +CPU(.|\n)*running(.|\n)*busy`)
	}
	if err := top.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	top.ends(0)
	busy.types("\x03")
	busy.until(`was stopped: cancelled`)
}

func TestWhoStartedAProgramIsAskedAtTheTerminal(t *testing.T) {
	for typed, want := range map[string]approval.State{"what\ny\n": approval.Granted, "n\n": approval.Denied} {
		store := approval.Open(t.TempDir(), approval.Options{})
		a, err := store.Request(t.Context(), approval.Request{
			Key:  approval.Key{Owner: "local", Session: "s-1", Execution: "x-1", Number: 1},
			Call: approval.Call{Server: "mail", Definition: "d", Tool: "send", Arguments: json.RawMessage(`{"to":"ann\u001b[2J"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		master, tty, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		h := &personHere{cl: &cli{stderr: &told}, ctx: t.Context(), store: store}
		if _, err := io.WriteString(master, typed); err != nil {
			t.Fatal(err)
		}
		h.question(tty, a, "mail.send")
		master.Close()
		if got, err := store.Find(a.ID); err != nil || got.State != want {
			t.Errorf("after %q it is %v, %v", typed, got.State, err)
		}
		if text := told.String(); !strings.Contains(text, "mail.send") || !strings.Contains(text, `"to"`) || strings.Contains(text, "\x1b") {
			t.Errorf("it says %q", text)
		}
	}
}

func TestServeShowsALinkToTheConsoleAtATerminal(t *testing.T) {
	a := startAtTerminal(t, sandboxtest.Memory(t), "serve", "--port", "0")
	a.until(`the console opens once, for 10m0s, at http://127\.0\.0\.1:[0-9]+/#ticket=[0-9]+\.[0-9a-f]{16}\.[A-Z2-7]{26}`)
	a.types("\x03")
	a.ends(0)
}
