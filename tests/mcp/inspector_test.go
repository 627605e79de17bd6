package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/mcp/suite"
)

// The inspector is what people look at a server with. --strict has it report
// schemas that some clients cannot use.
func TestTheInspector(t *testing.T) {
	packages := suite.Install(t)
	s := serve(t)
	for name, target := range map[string][]string{
		"stdio": {sandboxtest.Binary(t), "mcp"},
		"HTTP":  {s.url, "--transport", "http", "--header", "Authorization: Bearer " + s.token},
	} {
		for _, era := range []string{"legacy", "modern"} {
			t.Run(name+" "+era, func(t *testing.T) {
				inspect := func(args ...string) string {
					cmd := packages.Program(t.Context(), "mcp-inspector", append(append([]string{"--cli"}, target...), append(args, "--protocol-era", era, "--format", "json", "--quiet")...)...)
					cmd.Env = append(append(environment(t), "HOME="+t.TempDir()), cmd.Env[len(cmd.Env)-1])
					var stderr strings.Builder
					cmd.Stderr = &stderr
					out, err := cmd.Output()
					if err != nil {
						t.Errorf("%s: %v\n%s", args, err, &stderr)
					}
					return string(out)
				}
				var listed struct {
					Result struct{ Tools []struct{ Name string } }
				}
				if out := inspect("--method", "tools/list", "--strict"); json.Unmarshal([]byte(out), &listed) != nil || len(listed.Result.Tools) < 10 {
					t.Errorf("tools/list: %s", out)
				}
				if out := inspect("--method", "tools/call", "--tool-name", "execute_code", "--tool-args-json", `{"language":"python","code":"print(6*7)"}`); !strings.Contains(out, `"stdout":"42\n"`) {
					t.Errorf("tools/call: %s", out)
				}
				if out := inspect("--method", "resources/list"); !strings.Contains(out, `"resources":[`) {
					t.Errorf("resources/list: %s", out)
				}
			})
		}
	}
}
