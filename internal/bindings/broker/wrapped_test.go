package broker

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// wrapping is a server whose results are as libraries make them.
func wrapping(t *testing.T) *counterparty {
	c := empty(t)
	gives := func(name, output, structured, said string) {
		tool := &mcp.Tool{Name: name}
		if output != "" {
			tool.OutputSchema = json.RawMessage(output)
		}
		c.add(tool, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) {
			r := text(said)
			if structured != "" {
				r.StructuredContent = json.RawMessage(structured)
			}
			return r, nil
		})
	}
	python := `{"properties":{"result":{"title":"Result","type":"integer"}},"required":["result"],"title":"addOutput","type":"object"}`
	gives("add", python, `{"result":5}`, "5")
	gives("none", `{"type":"object","properties":{"result":{"type":"null"}},"required":["result"]}`, `{"result":null}`, "")
	gives("points", `{"type":"object","properties":{"result":{"type":"array","items":{"$ref":"#/$defs/Point"}}},"required":["result"],"$defs":{"Point":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}},"x-fastmcp-wrap-result":true}`, `{"result":[{"x":1.50}]}`, "[]")
	gives("two", `{"type":"object","properties":{"result":{"type":"integer"},"more":{"type":"integer"}},"required":["result"]}`, `{"result":5}`, "5")
	gives("open", `{"type":"object"}`, `{"result":5}`, "5")
	gives("json", "", "", ` {"n": 12345678901234567890}`)
	gives("list", "", "", `[1]`)
	gives("number", "", "", `5`)
	gives("prose", "", "", `[1] is a footnote`)
	return c
}

func TestWhatLibrariesWrapIsTakenOut(t *testing.T) {
	c := wrapping(t)
	raw := c.definition("raw")
	raw.Raw = true
	b := open(t, Config{Servers: []Definition{c.definition("party"), raw}, Dir: t.TempDir()})
	number := 0
	for tool, want := range map[string][2]string{
		"add":    {`{"value":5}`, `{"value":{"result":5}}`},
		"none":   {`{"value":null}`, `{"value":{"result":null}}`},
		"points": {`{"value":[{"x":1.50}]}`, `{"value":{"result":[{"x":1.50}]}}`},
		"two":    {`{"value":{"result":5}}`, `{"value":{"result":5}}`},
		"open":   {`{"value":{"result":5}}`, `{"value":{"result":5}}`},
		"json":   {`{"value":" {\"n\": 12345678901234567890}","parse":true}`, `{"value":" {\"n\": 12345678901234567890}"}`},
		"list":   {`{"value":"[1]","parse":true}`, `{"value":"[1]"}`},
		"number": {`{"value":"5"}`, `{"value":"5"}`},
		"prose":  {`{"value":"[1] is a footnote"}`, `{"value":"[1] is a footnote"}`},
	} {
		for i, server := range []string{"party", "raw"} {
			number++
			if got := ask(t, b, run(), number, server, tool, "{}"); got != want[i] {
				t.Errorf("%s of %s gives %s, want %s", tool, server, got, want[i])
			}
		}
	}
	b.settle()
	folder := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, folder)
	files := contents(t, folder)
	for file, want := range map[string]string{
		"party/add.py": "def add(**arguments: Any) -> int:", "party/none.py": "-> None:", "party/points.py": "-> list[PointsPoint]:", "party/two.py": "-> TwoResult:",
		"party/json.py": "n: int", "party/number.py": "-> str:", "party/add.ts": "AddResult = number;", "raw/add.py": "-> AddResult:", "raw/json.py": "-> str:",
	} {
		if !strings.Contains(files[file], want) {
			t.Errorf("%s has no %q:\n%s", file, want, files[file])
		}
	}
}

func TestALargeTextThatIsJSONIsAFileOfIt(t *testing.T) {
	c := empty(t)
	said := `{"a":"` + strings.Repeat("x", maxInline) + `"}`
	c.add(&mcp.Tool{Name: "large"}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) { return text(said), nil })
	b := open(t, Config{Servers: []Definition{c.definition("party")}})
	r := run()
	r.Put = func(name string, data []byte) (string, error) {
		if string(data) != said {
			t.Errorf("the file has %d bytes, and not the text", len(data))
		}
		return "/workspace/" + name, nil
	}
	if got := ask(t, b, r, 1, "party", "large", "{}"); !strings.Contains(got, `"path":"/workspace/party-large-1.json"`) {
		t.Errorf("got %q, want %q in it", got, `"path":"/workspace/party-large-1.json"`)
	} else if !strings.Contains(got, `"mime":"application/json"`) {
		t.Errorf("got %q, want %q in it", got, `"mime":"application/json"`)
	}
}

// TestNoneForAnOptionalArgumentIsNoneGiven calls a server that would refuse it.
func TestNoneForAnOptionalArgumentIsNoneGiven(t *testing.T) {
	c := empty(t)
	c.add(&mcp.Tool{Name: "find"}, `{"type":"object","required":["query"],"properties":{"query":{"type":"string"},"limit":{"type":"integer"}}}`, func(arguments json.RawMessage) (*mcp.CallToolResult, error) {
		return text("got " + string(arguments)), nil
	})
	b := open(t, Config{Servers: []Definition{c.definition("party")}})
	if got, want := ask(t, b, run(), 1, "party", "find", `{"query":"a","limit":null}`), `{"value":"got {\"query\":\"a\"}"}`; got != want {
		t.Errorf("it gives %s, want %s", got, want)
	}
	if got := ask(t, b, run(), 2, "party", "find", `{"query":null}`); !strings.Contains(got, `"kind":"invalid"`) {
		t.Errorf("what is required: %s", got)
	}
}
