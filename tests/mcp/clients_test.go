package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
)

// step is a call that an agent's model makes, and after how many milliseconds the agent's
// run is aborted; 0: it is not.
type step struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
	GiveUp    int            `json:"giveUp,omitempty"`
}

func python(code string) step {
	return step{Name: "execute_code", Arguments: map[string]any{"code": code}}
}

// shown is what a library showed its model of a call.
type shown struct {
	Outputs json.RawMessage `json:"outputs"`
	Error   string          `json:"error"`
}

func (s shown) has(text string) bool { return strings.Contains(string(s.Outputs), text) }

// onePixel is a PNG in base64, as a library shows a picture to a model.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// agent runs clients/agent.mjs: one library connects once and makes all steps. It gives the
// version of the package, and what each step's model saw.
func agent(t *testing.T, packages suite.Packages, library string, target []string, environ []string, steps ...step) (version string, seen []shown) {
	t.Helper()
	cmd := packages.Node(t.Context(), filepath.Join("clients", "agent.mjs"), append([]string{library, packages.Dir}, target...)...)
	input, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stderr = append(cmd.Env, environ...), bytes.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "{") {
			continue // what a library logs
		}
		if version == "" {
			var of struct{ Package, Version string }
			if err := json.Unmarshal(lines.Bytes(), &of); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			version = of.Package + " " + of.Version
			continue
		}
		var s shown
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Outputs != nil {
			seen = append(seen, s)
		}
	}
	if len(seen) != len(steps) {
		t.Fatalf("%d of %d calls came back: %s\n%s", len(seen), len(steps), out, stderr.Bytes())
	}
	return version, seen
}

// TestWhatLibrariesForAgentsShow measures what the table "Measured" of docs/clients.md says
// of each library: its model sees what was printed and drawn, finds its variables again,
// and gets on after a run that was aborted.
func TestWhatLibrariesForAgentsShow(t *testing.T) {
	packages := suite.Clients(t)
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "clients.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	drawing := fmt.Sprintf("import base64\nclass Picture:\n    def _repr_png_(self): return base64.b64decode(%q)\ndisplay(Picture())", onePixel)
	endless := python("import time\nwhile True: time.sleep(0.1)")
	endless.GiveUp = 6000 // later than a call is refused behind it
	stopping := python("print('af' + 'ter')")
	stopping.Arguments["interrupt"] = true
	steps := []step{python("x = 41\nprint('sa' + 'id')"), python("print('x is', x + 1)"), python(drawing), endless, python("print('be' + 'hind')"), stopping}
	for _, library := range []string{"AI SDK", "OpenAI Agents SDK", "Mastra", "TypeScript SDK v2, 2025-11-25", "TypeScript SDK v2, 2026-07-28"} {
		for transport, target := range map[string][]string{
			"stdio":               {"stdio", sandboxtest.Binary(t)},
			"HTTP, `/mcp`":        {"http", s.url, s.token},
			"HTTP, `/mcp/s/NAME`": {"http", s.url + "/s/" + strings.NewReplacer(" ", "-", ",", "").Replace(library), s.token},
		} {
			t.Run(library+" "+transport, func(t *testing.T) {
				t.Parallel()
				version, seen := agent(t, packages, library, target, environment(t, sandboxtest.Memory(t)), steps...)
				if !seen[0].has("said") {
					t.Errorf("the model did not see what was printed: %s %s", seen[0].Outputs, seen[0].Error)
				}
				variables := "stay"
				if !seen[1].has("x is 42") {
					variables = "are gone, and nothing says so"
					if seen[0].has("(pass session_id to go on)") {
						variables = "stay where the model passes the `session_id` that the text names"
					}
				}
				pictures := "lost"
				if seen[2].has(onePixel) {
					pictures = "shown"
				}
				if len(seen[3].Outputs) > 2 { // no result: []
					t.Errorf("the aborted call gave %s", seen[3].Outputs)
				}
				aborted := "stops it"
				if !seen[4].has("behind") {
					aborted = "hangs the session"
					if seen[4].has("conflict") && seen[4].has("interrupt: true") {
						aborted = "does not stop it: the next call is refused and says so, with `interrupt: true` it stops it"
					}
				}
				if !seen[5].has("after") {
					t.Errorf("nothing goes on: %s %s", seen[5].Outputs, seen[5].Error)
				}
				row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", library, version, transport, variables, pictures, aborted)
				if !strings.Contains(string(document), row) {
					t.Errorf("docs/clients.md has no such row:\n%s", row)
				}
			})
		}
	}
}

// TestOpenAIsStrictModeTakesEveryTool has OpenAI's SDK convert the schemas of all tools to
// its strict mode, in which a model can give no arguments that are none.
func TestOpenAIsStrictModeTakesEveryTool(t *testing.T) {
	packages := suite.Clients(t)
	for _, sets := range []string{"core,files,history,code-mode,skills", "sandbox"} {
		cmd := packages.Node(t.Context(), filepath.Join("clients", "strict.mjs"), packages.Dir, sandboxtest.Binary(t))
		var stderr bytes.Buffer
		cmd.Env, cmd.Stderr = append(append(cmd.Env, environment(t, sandboxtest.Memory(t))...), "PADDOCK_TOOLS_ENABLED="+sets), &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.Bytes())
		}
		var strict map[string]bool
		if err := json.Unmarshal(out, &strict); err != nil || len(strict) < 5 {
			t.Fatalf("%v: %s", err, out)
		}
		for name, is := range strict {
			if !is {
				t.Errorf("%s cannot be converted", name)
			}
		}
	}
}
