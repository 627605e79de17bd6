//go:build unix

package cli

import (
	"bufio"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAProgramRunsAgainAfterAChange(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "main.py")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("main.py", "print(\"first\")\n")
	cmd := paddock(t, true, "run", "--watch", file)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test has failed
	out := bufio.NewReader(stdout)
	next := func(want string) {
		t.Helper()
		if line, err := out.ReadString('\n'); line != want {
			t.Fatalf("it prints %q (%v), want %q", line, err, want)
		}
	}
	next("first\n")
	write("main.py", "print(\"the second\")\n")
	next("the second\n")
	write("beside.py", "x = 1\n") // a file of its folder counts as well
	next("the second\n")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if rest, err := out.ReadString('\n'); rest != "" {
		t.Errorf("it prints %q after Ctrl-C (%v)", rest, err)
	}
	_ = cmd.Wait() // it was interrupted
}
