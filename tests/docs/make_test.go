package docs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// TestMakeSaysHowFarItIs runs steps of make's, with an interval that is short.
func TestMakeSaysHowFarItIs(t *testing.T) {
	bash, err := exec.LookPath("bash")
	sandboxtest.Require(t, "bash", err == nil, "it is not in the path")
	for about, c := range map[string]struct {
		steps, beat, command string
		code                 int
		says                 []string
	}{
		"a step that takes long":      {"one two", "1", "sleep 2", 0, []string{"paddock: step 2 of 2, two: begins ", "paddock: step 2 of 2, two: works for "}},
		"a step that fails":           {"one two three", "60", "exit 7", 7, []string{"paddock: step 2 of 3, two: begins "}},
		"a goal that is not all":      {"", "60", "true", 0, []string{"paddock: two: begins "}},
		"a step with what it says":    {"two", "60", "echo said", 0, []string{"paddock: step 1 of 1, two: begins ", "said\n"}},
		"a step that leaves children": {"two", "1", "sleep 60 >/dev/null 2>&1 & echo left", 0, []string{"left\n"}},
	} {
		t.Run(about, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bash, "../../tools/step.sh", "two", bash, "-c", c.command)
			cmd.Env = append(os.Environ(), "STEPS="+c.steps, "BEAT="+c.beat)
			out, err := cmd.CombinedOutput()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != c.code {
				t.Errorf("it ends with %d, want %d", got, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("it says\n%s\nwithout %q", out, want)
				}
			}
		})
	}
}
