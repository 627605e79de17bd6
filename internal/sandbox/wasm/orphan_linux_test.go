package wasm_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// A worker that is stopped does not notice that its connection is closed.
func TestAStoppedWorkerDoesNotOutliveAServerThatWasKilled(t *testing.T) {
	owners := t.TempDir()
	if err := os.Chmod(owners, 0o755); err != nil {
		t.Fatal(err)
	}
	newBackend(t, t.TempDir()) // is there a guest at all?
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	server := exec.CommandContext(ctx, "/proc/self/exe")
	server.Args = []string{serverRole, sandboxtest.PreparedCache(t), owners, *engine}
	server.Stderr = os.Stderr
	in, err1 := server.StdinPipe()
	out, err2 := server.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	defer in.Close()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	workers := childrenOf(t, server.Process.Pid)
	if line != "ready\n" || len(workers) != 1 {
		t.Fatalf("the server says %q (%v) and has the processes %v", line, err, workers)
	}
	for pid := range workers {
		defer syscall.Kill(pid, syscall.SIGKILL)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := server.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = server.Wait() // it says that it was killed
		for !ended(pid) {
			if ctx.Err() != nil {
				t.Fatalf("the worker %d is still there", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// ended tells whether a process is gone; nobody may have waited for it yet.
func ended(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
