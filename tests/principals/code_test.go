package principals

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// TestEveryToolHasAProbe compares the table of tools with those that the server lists, all
// sets on: a tool, or an argument that may name what is another's, without a row fails.
func TestEveryToolHasAProbe(t *testing.T) {
	w := &server{t: t, state: sandboxtest.Memory(t)}
	w.Server = paddocktest.Serve(t, w.state, paddocktest.Environment(t, w.state), "--tools", "core,files,code-mode,skills,history,sandbox", "--isolation", "linux")
	listed := w.toolsOf(w.Token)
	for tool, properties := range listed {
		rows, known := tools[tool]
		if !known {
			t.Errorf("nothing of A's is tried with the tool %s", tool)
		}
		for argument := range properties {
			if naming.MatchString(argument) && !strings.Contains(rows, `"`+argument+`"`) {
				t.Errorf("nothing of A's is tried with the argument %s of the tool %s", argument, tool)
			}
		}
	}
	for tool := range tools {
		if listed[tool] == nil && tool != "list_runtimes" {
			t.Errorf("there is no tool %s", tool)
		}
	}
	if len(listed) < 30 {
		t.Errorf("there are only %d tools", len(listed))
	}
}

// naming are arguments that may name what is another's.
var naming = regexp.MustCompile(`_id$|^(name|path|checkpoint|sandbox|namespace)$`)

// TestEveryRouteHasAProbe compares the table of routes with those in the code: the server's
// table, and what the packages behind it list in their comments.
func TestEveryRouteHasAProbe(t *testing.T) {
	found := 0
	for _, route := range append(serverRoutes(t), listedRoutes(t)...) {
		found++
		if routes[route] == "" {
			t.Errorf("nothing of A's is tried at the route %s", route)
		}
	}
	if found != len(routes) {
		t.Errorf("the code has %d routes, and %d are tried", found, len(routes))
	}
}

// serverRoutes are the keys of web.Server's table, as its source writes them.
func serverRoutes(t *testing.T) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(web, "serve.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "table" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if _, ok := n.Type.(*ast.MapType); ok {
					for _, e := range n.Elts {
						all = append(all, strings.Trim(types.ExprString(e.(*ast.KeyValueExpr).Key), `"`))
					}
				}
			case *ast.AssignStmt:
				if to, ok := n.Lhs[0].(*ast.IndexExpr); ok {
					all = append(all, strings.ReplaceAll(types.ExprString(to.Index), " ", ""))
				}
			}
			return true
		})
	}
	if len(all) < 10 {
		t.Fatalf("the routes of the server are not found: %v", all)
	}
	return all
}

const web = "../../internal/web"

// listedRoutes are those of lines such as "GET HEAD /v1/…" in comments.
func listedRoutes(t *testing.T) (all []string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^//\t((?:(?:GET|HEAD|PUT|POST|DELETE) +)+)(/\S+)`)
	known := map[string]bool{}
	for _, file := range []string{"files/files.go", "approvals/approvals.go", "preview/api.go", "preview/preview.go"} {
		text, err := os.ReadFile(filepath.Join(web, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			for method := range strings.FieldsSeq(m[1]) {
				if route := method + " " + m[2]; !known[route] {
					known[route] = true
					all = append(all, route)
				}
			}
		}
	}
	return all
}

// TestEveryMethodHasAProbe looks in the code and in the SDK for methods of the protocol.
func TestEveryMethodHasAProbe(t *testing.T) {
	method := regexp.MustCompile(`"((?:tools|resources|prompts|tasks|skills|completion|logging|subscriptions|server|elicitation)/[a-zA-Z/]+)"`)
	var files []string
	for _, folder := range []string{"", "transport/", "execution/"} {
		some, err := filepath.Glob("../../internal/mcpserver/" + folder + "*.go")
		if err != nil || len(some) == 0 {
			t.Fatalf("internal/mcpserver/%s has the files %v, %v", folder, some, err)
		}
		files = append(files, some...)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range method.FindAllStringSubmatch(string(text), -1) {
			if _, known := methods[m[1]]; !known {
				t.Errorf("nothing of A's is tried with the method %s of %s", m[1], file)
			}
			found++
		}
	}
	if found < 5 {
		t.Errorf("only %d methods are found", found)
	}
}
