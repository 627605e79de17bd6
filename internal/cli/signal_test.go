//go:build unix

package cli

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// TestSignalsEndAProgramGently: what a program does when it is interrupted
// still comes out, also when a terminal tells the whole process group.
func TestSignalsEndAProgramGently(t *testing.T) {
	python := "try:\n    print('started', flush=True)\n    while True: pass\nexcept KeyboardInterrupt:\n    print('cleaned up')\n"
	there, reason := guests(t)
	for _, test := range []struct {
		name   string
		fake   bool
		code   string
		signal syscall.Signal
		group  bool
		want   string
	}{
		{"an interrupt, in the fake", true, "print(\"started\")\nloop", syscall.SIGINT, false, ""},
		{"a hangup, in the fake", true, "print(\"started\")\nloop", syscall.SIGHUP, false, ""},
		{"an interrupt", false, python, syscall.SIGINT, false, "cleaned up\n"},
		{"an interrupt of the group", false, python, syscall.SIGINT, true, "cleaned up\n"},
		{"a termination of the group", false, python, syscall.SIGTERM, true, "cleaned up\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.fake {
				sandboxtest.Require(t, "wasm", slices.Contains(there, "python"), reason)
			}
			cmd := paddock(t, test.fake, "run", "-c", test.code)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(stdout)
			if line, err := out.ReadString('\n'); line != "started\n" {
				t.Fatalf("it printed %q: %v", line, err)
			}
			to := cmd.Process.Pid
			if test.group {
				to = -to
			}
			if err := syscall.Kill(to, test.signal); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			err = cmd.Wait()
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				t.Fatalf("got %v, want an error of another type", err)
			}
			if ended.ExitCode() != exitCancelled {
				t.Errorf("ended.ExitCode(): got %v, want %v", ended.ExitCode(), exitCancelled)
			}
			if string(rest) != test.want {
				t.Errorf("it printed %q then, want %q", rest, test.want)
			}
			if want := "paddock: error: the program was stopped: cancelled\n"; stderr.String() != want {
				t.Errorf("stderr is %q, want %q", stderr.String(), want)
			}
		})
	}
}

// TestTwoInterruptsLeaveNothing: who presses Ctrl-C twice has neither a session nor an
// execution that never ended in the audit log.
func TestTwoInterruptsLeaveNothing(t *testing.T) {
	there, reason := guests(t)
	sandboxtest.Require(t, "wasm", slices.Contains(there, "python"), reason)
	// It prints inside of the try: an interrupt that came before that would end it.
	stubborn := "import time\nsay = True\nwhile True:\n    try:\n        if say:\n            say = False\n            print('started', flush=True)\n        time.sleep(1)\n    except KeyboardInterrupt:\n        print('no', flush=True)\n"
	cmd := paddock(t, false, "run", "-c", stubborn)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	for _, want := range []string{"started\n", "no\n"} {
		if line, err := out.ReadString('\n'); line != want {
			t.Fatalf("it printed %q, want %q: %v", line, want, err)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Fatal(err)
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) {
		t.Errorf("got %v, want an error of another type", err)
	} else if ended.ExitCode() != exitCancelled {
		t.Errorf("ended.ExitCode(): got %v, want %v", ended.ExitCode(), exitCancelled)
	}
	if !strings.Contains(stderr.String(), "a third Ctrl-C") {
		t.Errorf("stderr is %q", stderr.String())
	}
	ask := func(args ...string) string {
		asked := paddock(t, false, args...)
		asked.Env = cmd.Env
		said, err := asked.Output()
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		return string(said)
	}
	if all := ask("session", "ls", "--json"); strings.Contains(all, `"s-`) {
		t.Errorf("sessions are left: %s", all)
	}
	if log := ask("audit", "ls", "--json"); strings.Count(log, `"action": "execute"`) != 2 {
		t.Errorf("the audit log: strings.Count(log, `\"action\": \"execute\"`): got %v, want 2",
			strings.Count(log, `"action": "execute"`))
	} else if strings.Count(log, `"action": "destroy_session"`) != 1 {
		t.Errorf("the audit log: strings.Count(log, `\"action\": \"destroy_session\"`): got %v, want 1",
			strings.Count(log, `"action": "destroy_session"`))
	}
}

// TestMCPEndsWhenItIsTold: a SIGTERM while a program runs ends the server
// cleanly, and the call is still answered.
func TestMCPEndsWhenItIsTold(t *testing.T) {
	c := startMCP(t)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(1)\nloop","language":"python"},"_meta":{"progressToken":"p"}}}`)
	if line := c.receive(); !strings.Contains(line, "notifications/progress") {
		t.Fatalf("instead of progress came %s", line)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line := c.receive(); !strings.Contains(line, `"id":2`) {
		t.Errorf("the call's answer: got %q, want %q in it", line, `"id":2`)
	} else if !strings.Contains(line, "cancelled") {
		t.Errorf("the call's answer: got %q, want %q in it", line, "cancelled")
	}
	c.ends()
}

// TestMCPEndsCleanlyWhenItsClientIsGone: what runs is stopped, and the session
// is released, also when the output has no reader any more.
func TestMCPEndsCleanlyWhenItsClientIsGone(t *testing.T) {
	for name, gone := range map[string]func(c *client){
		"both ends":        func(c *client) { c.out.Close(); c.stdin.Close() },
		"first the output": func(c *client) { c.out.Close(); c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			c := startMCP(t)
			c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"execute_code","arguments":{"code":"print(1)\nloop","language":"python","timeout":600},"_meta":{"progressToken":"p"}}}`)
			if line := c.receive(); !strings.Contains(line, "notifications/progress") {
				t.Fatalf("instead of progress came %s", line)
			}
			gone(c)
			if err := c.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
