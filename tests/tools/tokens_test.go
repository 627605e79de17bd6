package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/tests/mcp/suite"
)

// tokens is about how many tokens a text has: four characters for each, as with the
// definitions (o200k_base has 4.07 for each in those).
func tokens(text string) int { return len(text) / 4 }

// shown is what a client gives its model of a tool's definition.
func shown(all []*sdk.Tool) int {
	n := 0
	for _, tool := range all {
		text, err := json.Marshal(map[string]any{"name": tool.Name, "description": tool.Description, "input_schema": tool.InputSchema})
		if err != nil {
			panic(err)
		}
		n += tokens(string(text))
	}
	return n
}

// listings gives the tools of four real servers, as they list them.
func listings(t *testing.T, packages suite.Packages) (all []*sdk.Tool) {
	t.Helper()
	for _, program := range [][]string{{"mcp-server-filesystem", t.TempDir()}, {"mcp-server-memory"}, {"mcp-server-everything", "stdio"}, {"mcp-server-sequential-thinking"}} {
		cmd := packages.Program(t.Context(), program[0], program[1:]...)
		conn, err := sdk.NewClient(&sdk.Implementation{Name: "listing", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
		if err != nil {
			t.Fatal(err)
		}
		listed, err := conn.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, listed.Tools...)
		conn.Close()
	}
	return all
}

// products are what the catalogue's servers are about: each has tools of the shapes that
// real servers list.
var products = strings.Fields("files github jira slack drive mail calendar crm billing wiki deploy alerts search media store tickets forms survey maps travel")

// catalogue gives so many tools, by the servers that have them.
func catalogue(shapes []*sdk.Tool, count int) map[string][]*sdk.Tool {
	all := map[string][]*sdk.Tool{}
	for k := range count {
		product, shape := products[k/len(shapes)%len(products)], shapes[k%len(shapes)]
		tool := *shape
		if k >= len(shapes) {
			tool.Name = product + "_" + strings.ReplaceAll(shape.Name, "-", "_")
			tool.Description = strings.ToUpper(product[:1]) + product[1:] + ": " + shape.Description
		}
		all[product] = append(all[product], &tool)
	}
	return all
}

// TestTokensOfACatalogue compares what a model reads for one task: all tools' definitions,
// or paddock's, what search_tools finds, and the files of three tools. The table is in
// docs/tools.md.
func TestTokensOfACatalogue(t *testing.T) {
	shapes := listings(t, suite.Install(t))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "tools\tlisted directly\tpaddock's definitions\tone search\tthree files\ttogether\tof direct\t")
	ours := 0
	for _, count := range []int{10, 100, 500} {
		direct, defined, searched, read := measure(t, catalogue(shapes, count))
		together := defined + searched + read
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d %%\t\n", count, direct, defined, searched, read, together, together*100/direct)
		if ours == 0 {
			ours = defined
		}
		if defined != ours {
			t.Errorf("with %d tools paddock's definitions have %d tokens, with fewer %d", count, defined, ours)
		}
		if count == 500 && together*5 > direct {
			t.Errorf("with %d tools a task takes %d tokens, and %d if they are listed", count, together, direct)
		}
		if searched+read > 3000 {
			t.Errorf("with %d tools finding them takes %d tokens", count, searched+read)
		}
	}
	w.Flush()
	t.Logf("\n%s", table.String())
}

// measure gives the tokens of a task with these tools.
func measure(t *testing.T, all map[string][]*sdk.Tool) (direct, defined, searched, read int) {
	t.Helper()
	m := open(t, options{setting: everywhere[0], env: []string{"PADDOCK_TOOLS_ENABLED=core,files,code-mode"}})
	for name, tools := range all {
		p := newTestServer(t)
		for _, tool := range tools {
			p.AddTool(tool, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return answer("done") })
		}
		m.bind(t, name, p.url)
		direct += shown(tools)
	}
	listed, err := m.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Tools []struct{ Server, Tool string }
	}
	res := m.call(t, "search_tools", map[string]any{"query": "read the text of a file"}, &found)
	for _, c := range res.Content {
		searched += tokens(c.(*sdk.TextContent).Text)
	}
	if len(found.Tools) < 3 || !strings.Contains(found.Tools[0].Tool, "read") {
		t.Errorf("it found %v", found)
	}
	var files []string
	for _, hit := range found.Tools[:3] {
		files = append(files, fmt.Sprintf("/servers/%s/%s.py", hit.Server, strings.ReplaceAll(hit.Tool, "-", "_")))
	}
	e := m.run(t, "python", fmt.Sprintf("for name in %q.split():\n    print(open(name).read())", strings.Join(files, " ")))
	if !e.Success {
		t.Errorf("reading their files: %+v", e.Error)
	}
	return direct, shown(listed.Tools), searched, tokens(e.Stdout)
}
