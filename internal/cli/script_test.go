package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"paddock/internal/app"
	"paddock/internal/approval"
	"paddock/internal/config"
	"paddock/internal/sandbox/sandboxtest"
)

// promptly keeps processes with the race detector from resting a second before
// they end.
const promptly = "atexit_sleep_ms=0"

// guests are the names of the interpreters that run here.
func guests(t *testing.T) (names []string, reason string) {
	t.Helper()
	env := &app.Env{Config: new(config.Config), StateDir: t.TempDir(), CacheDir: sandboxtest.PreparedCache(t), Log: slog.New(slog.DiscardHandler)}
	all, err := env.MakeBackends()
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	p := all.Named("wasm")[0].Probe(t.Context())
	for _, r := range p.Runtimes {
		names = append(names, r.Name)
	}
	return names, p.Reason
}

// TestScripts runs testdata/script: each is a session with the command line.
// "fake" at its top has programs run in the fake, and "fake linux" shells in a second; a script for an interpreter
// begins with [!python] skip or [!javascript] skip.
func TestScripts(t *testing.T) {
	there, _ := guests(t)
	cache := sandboxtest.PreparedCache(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PADDOCK_STATE_DIR", filepath.Join(env.WorkDir, "state"))
			env.Setenv("PADDOCK_CACHE_DIR", cache)
			env.Setenv("GORACE", promptly)
			env.Setenv("PADDOCK_PACKAGES_PUBLIC", "false")
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "userconfig"))
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "python" && name != "javascript" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return slices.Contains(there, name), nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"fake": cmdFake, "code": cmdCode, "asked": cmdAsked},
	})
}

// TestTheInterpretersAreThere is where the scripts that were skipped for want
// of one show up.
func TestTheInterpretersAreThere(t *testing.T) {
	there, reason := guests(t)
	sandboxtest.Require(t, "wasm", len(there) == 2, reason)
}

func cmdFake(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(fakeEnv, "1")
	if len(args) > 0 {
		ts.Setenv(fakeEnv, args[0])
	}
}

// cmdAsked has a program ask for a call of a tool, and puts the approval's id into a
// variable: asked A1 OWNER SERVER TOOL ARGUMENTS
func cmdAsked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 {
		ts.Fatalf("usage: asked VARIABLE OWNER SERVER TOOL ARGUMENTS")
	}
	// So that a script can have characters in it that do not print.
	arguments := strings.NewReplacer("{RLO}", "\u202e", "{DEL}", "\u007f").Replace(args[4])
	s := approval.Open(filepath.Join(ts.Getenv("PADDOCK_STATE_DIR"), "approvals"), approval.Options{})
	a, err := s.Request(context.Background(), approval.Request{
		Key:         approval.Key{Owner: args[1], Session: "s-1", Execution: "x-" + args[0], Number: 1},
		Call:        approval.Call{Server: args[2], Definition: "d", Tool: args[3], Arguments: json.RawMessage(arguments)},
		Description: "Says what it does\n\x1b[2Jand clears the screen",
	})
	ts.Check(err)
	ts.Setenv(args[0], a.ID)
}

// cmdCode runs a command that has to end with an exit code: code 124 paddock …
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		got = ended.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("the exit code is %d, want %d", got, want)
	}
}
