package helper

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// greedyEnv makes the test binary a process that takes memory until somebody ends it.
const greedyEnv = "PADDOCK_TEST_GREEDY"

func init() {
	if os.Getenv(greedyEnv) == "" {
		return
	}
	go watchMemory(200<<20, nil)
	var all [][]byte
	for range 400 {
		all = append(all, make([]byte, 1<<20))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(len(all))
}

// A process that has too much memory ends, on every system.
func TestAProcessIsWatched(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), greedyEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var said strings.Builder
	cmd.Stderr = &said
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != exitMemory || !strings.Contains(said.String(), "more than 200 MiB") {
		t.Errorf("it ends with %v: %s", err, said.String())
	}
}
