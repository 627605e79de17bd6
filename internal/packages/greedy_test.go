package packages_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/packages"
)

// greedyEnv makes the test binary a process that takes memory until somebody ends it.
const greedyEnv = "PADDOCK_TEST_GREEDY"

func takeMemory() {
	go packages.WatchMemory(200 << 20)
	var all [][]byte
	for range 400 {
		all = append(all, make([]byte, 1<<20))
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(len(all))
	os.Exit(0)
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
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != packages.ExitMemory || !strings.Contains(said.String(), "more than 200 MiB") {
		t.Errorf("it ends with %v: %s", err, said.String())
	}
}

// Of a short source the bundler would make 16 GiB; it ends before that, and the next
// package is made.
func TestSourcesThatGrowWithoutEndAreRefused(t *testing.T) {
	var text strings.Builder
	text.WriteString("enum E { A0 = '0123456789abcdef',\n")
	for k := range 30 {
		fmt.Fprintf(&text, "A%d = A%d + A%d,\n", k+1, k, k)
	}
	text.WriteString("}\nexport default E.A30;\n")
	r := newRegistry(t)
	r.Add(`{"name":"greedy","version":"1.0.0","main":"index.ts"}`, file{Name: "package/index.ts", Text: text.String()})
	r.Add(`{"name":"modest","version":"1.0.0"}`, index0)
	if _, _, err := install(t, r, "greedy"); err == nil || err.Kind != fault.Unsupported || !strings.Contains(err.Error(), "did not come to its end") {
		t.Errorf("it ends with %v", err)
	}
	if _, _, err := install(t, r, "modest"); err != nil {
		t.Errorf("another one: %v", err)
	}
}
