package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
)

func TestWhatARunInherits(t *testing.T) {
	b := open(t, Config{Instance: "me"})
	for name, c := range map[string]struct {
		meta string
		want string // of the Inherited; a kind of fault begins with !
	}{
		"nothing":                 {`{}`, `{[] 0 false}`},
		"other entries":           {`{"progressToken":1}`, `{[] 0 false}`},
		"a chain":                 {`{"paddock/chain":["a","b"],"paddock/callsLeft":7}`, `{[a b] 7 true}`},
		"no calls":                {`{"paddock/callsLeft":0}`, `{[] 0 true}`},
		"itself":                  {`{"paddock/chain":["a","me"]}`, `!denied`},
		"a chain of three":        {`{"paddock/chain":["a","b","c"]}`, `{[a b c] 0 false}`},
		"one that is too long":    {`{"paddock/chain":["a","b","c","d"]}`, `!denied`},
		"a chain that is none":    {`{"paddock/chain":"me"}`, `!invalid`},
		"a name that is none":     {`{"paddock/chain":[""]}`, `!invalid`},
		"one that is too large":   {`{"paddock/chain":["` + strings.Repeat("a", 200) + `"]}`, `!invalid`},
		"a number that is none":   {`{"paddock/callsLeft":"many"}`, `!invalid`},
		"one that is below zero":  {`{"paddock/callsLeft":-1}`, `!invalid`},
		"one that is not a whole": {`{"paddock/callsLeft":1.5}`, `!invalid`},
	} {
		var meta map[string]any
		if err := json.Unmarshal([]byte(c.meta), &meta); err != nil {
			t.Fatal(err)
		}
		in, err := b.Inherit(meta)
		got := fmt.Sprint(in)
		if err != nil {
			got = "!" + string(fault.KindOf(err))
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if in, err := b.Inherit(nil); err != nil {
		t.Errorf("without any: got error %v, want none", err)
	} else if in.Limited {
		t.Errorf("without any: in.Limited = true, want false: %+v", in)
	}
}

// TestAServerThatCallsBackCannotRecurse holds attack 82.
func TestAServerThatCallsBackCannotRecurse(t *testing.T) {
	c := empty(t)
	var first, second *Broker
	// The server runs a program in the second paddock, whose program calls the server
	// again, which runs one in the first paddock.
	depth := 0
	c.mcp.AddTool(&mcp.Tool{Name: "run", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		at := []*Broker{second, first}[min(depth, 1)]
		depth++
		in, err := at.Inherit(r.Params.Meta)
		if err != nil {
			result := text(err.Error())
			result.IsError = true
			return result, nil
		}
		nested := Run{Session: Session{"agent", "nested"}, Execution: "nested", Inherited: in}
		answer := ask(t, at, nested, 1, "party", "run", `{}`)
		if exhausted := ask(t, at, nested, in.CallsLeft+1, "party", "run", `{}`); !strings.Contains(exhausted, "exhausted") {
			t.Errorf("beyond its budget of %d it gives %s", in.CallsLeft, exhausted)
		}
		return text(fmt.Sprintf("with %d calls left: %s", in.CallsLeft, answer)), nil
	})
	d := c.definition("party")
	first = open(t, Config{Servers: []Definition{d}, CallsPerRun: 10})
	second = open(t, Config{Servers: []Definition{d}, CallsPerRun: 100})
	got := ask(t, first, run(), 4, "party", "run", `{}`)
	switch {
	case !strings.Contains(got, "with 6 calls left"):
		t.Errorf(`got %q, want "with 6 calls left" in it`, got)
	case !strings.Contains(got, "calls it back"):
		t.Errorf(`got %q, want "calls it back" in it`, got)
	case depth != 2:
		t.Errorf("depth = %d, want 2", depth)
	}
}
