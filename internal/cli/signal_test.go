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
			if !errors.As(err, &ended) || ended.ExitCode() != exitCancelled {
				t.Errorf("it ended with %v, want the exit code %d", err, exitCancelled)
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
	if line := c.receive(); !strings.Contains(line, `"id":2`) || !strings.Contains(line, "cancelled") {
		t.Errorf("the call's answer is %s", line)
	}
	c.ends()
}

// TestMCPEndsCleanlyWhenItsClientIsGone: what runs is stopped, and the session
// is let go of, also when the output has no reader any more.
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
