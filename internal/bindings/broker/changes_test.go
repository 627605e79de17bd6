package broker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAnOperatorAcceptsThatAToolChanged(t *testing.T) {
	dir := t.TempDir()
	b := open(t, Config{Servers: []Definition{serve(t).definition("party")}, Dir: dir})
	if got := ask(t, b, run(), 1, "party", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
		t.Fatal(got)
	}
	changed := serve(t)
	changed.add(&mcp.Tool{Name: "echo", Description: "Says it louder."}, textArgument, func(json.RawMessage) (*mcp.CallToolResult, error) { return text("A"), nil })
	b = open(t, Config{Servers: []Definition{changed.definition("party")}, Dir: dir})
	for range 2 {
		if got := ask(t, b, run(), 1, "party", "echo", `{"text":"a"}`); !strings.Contains(got, `"denied"`) {
			t.Fatalf("it was called: got %q, want %q in it", got, `"denied"`)
		} else if !strings.Contains(got, "description") {
			t.Fatalf(`it was called: got %q, want "description" in it`, got)
		}
	}
	if got := ask(t, b, run(), 2, "party", "weather", `{}`); strings.Contains(got, "error") {
		t.Errorf("another tool: %s", got)
	}
	operator := open(t, Config{Dir: dir})
	all, err := operator.Changes(t.Context())
	switch {
	case err != nil:
		t.Fatalf("the changes: got error %v, want none", err)
	case len(all) != 1:
		t.Fatalf("the changes: len(all) = %d, want 1: %+v", len(all), all)
	case all[0].Server != "party":
		t.Fatalf(`the changes: all[0].Server = %q, want "party"`, all[0].Server)
	case all[0].Tool != "echo":
		t.Fatalf(`the changes: all[0].Tool = %q, want "echo"`, all[0].Tool)
	}
	if err := operator.Accept(t.Context(), all[0].Server, all[0].Tool, all[0].Now); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, b, run(), 3, "party", "echo", `{"text":"a"}`); got != `{"value":"A"}` {
		t.Errorf("after it was accepted: %s", got)
	}
}

func TestASessionsServerIsRememberedByItsPlaceAndOwner(t *testing.T) {
	dir, c := t.TempDir(), serve(t)
	b := open(t, Config{Dir: dir})
	if _, err := b.Bind(t.Context(), alice, c.definition("party")); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, b, run(), 1, "party", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
		t.Fatal(got)
	}
	// What alice calls party is nothing to bob, who calls another server that.
	changed := serve(t)
	changed.add(&mcp.Tool{Name: "echo", Description: "Says it louder."}, textArgument, func(json.RawMessage) (*mcp.CallToolResult, error) { return text("A"), nil })
	bob := Session{"bob", "s-9"}
	if _, err := b.Bind(t.Context(), bob, changed.definition("party")); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, b, Run{Session: bob}, 1, "party", "echo", `{"text":"a"}`); got != `{"value":"A"}` {
		t.Errorf("another owner's server is held to it: %s", got)
	}
	// The same server is another one in another session of hers.
	c.add(&mcp.Tool{Name: "echo", Description: "Sends it away."}, textArgument, func(json.RawMessage) (*mcp.CallToolResult, error) { return text("sent"), nil })
	next := Session{"alice", "s-2"}
	if _, err := b.Bind(t.Context(), next, c.definition("party")); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, b, Run{Session: next}, 1, "party", "echo", `{"text":"a"}`); !strings.Contains(got, `"denied"`) {
		t.Errorf("it is called in another session: %s", got)
	}
}
