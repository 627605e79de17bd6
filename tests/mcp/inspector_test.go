package mcp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
)

// The inspector is what people look at a server with. --strict has it report
// schemas that some clients cannot use.
func TestTheInspector(t *testing.T) {
	packages := suite.Install(t)
	s := serve(t, "--tools", "core,files,sandbox")
	for name, target := range map[string][]string{
		"stdio": {sandboxtest.Binary(t), "mcp"},
		"HTTP":  {s.url, "--transport", "http", "--header", "Authorization: Bearer " + s.token},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+" "+era, func(t *testing.T) {
				inspect := func(args ...string) (result, said string) {
					args = slices.Concat([]string{"--cli"}, target, args, []string{"--protocol-era", era, "--format", "json"})
					cmd := packages.Program(t.Context(), "mcp-inspector", args...)
					cmd.Env = append(append(cmd.Env, environment(t, sandboxtest.Memory(t))...), "HOME="+t.TempDir())
					var stderr strings.Builder
					cmd.Stderr = &stderr
					out, err := cmd.Output()
					if err != nil {
						t.Errorf("%s: %v\n%s", args, err, &stderr)
					}
					return string(out), stderr.String()
				}
				var listed struct {
					Result struct{ Tools []struct{ Name string } }
				}
				out, said := inspect("--method", "tools/list", "--strict")
				switch err := json.Unmarshal([]byte(out), &listed); {
				case err != nil:
					t.Errorf("tools/list: %v: %s, %s", err, said, out)
				case len(listed.Result.Tools) < 10:
					t.Errorf("tools/list: len(listed.Result.Tools) = %d, want at least 10: %+v",
						len(listed.Result.Tools), listed.Result.Tools)
				case said != "":
					t.Errorf(`tools/list: said = %q, want ""`, said)
				}
				if out, _ := inspect("--method", "tools/call", "--tool-name", "execute_code", "--tool-args-json", `{"language":"python","code":"print(6*7)"}`); !strings.Contains(out, `"stdout":"42\n"`) {
					t.Errorf("tools/call: %s", out)
				}
				if name == "HTTP" { // its schemas and results fit together, whether there are machines or not
					out, _ := inspect("--method", "tools/call", "--tool-name", "sandbox_get_metrics", "--tool-args-json", `{"namespace":"*"}`)
					if !strings.Contains(out, `"sandboxes":[]`) {
						t.Errorf("sandbox_get_metrics: %s", out)
					}
				}
				if out, _ := inspect("--method", "resources/list"); !strings.Contains(out, `"resources":[`) {
					t.Errorf("resources/list: %s", out)
				}
			})
		}
	}
}
