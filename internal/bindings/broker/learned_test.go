package broker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/bindings/upstream"
)

// settle has everything learned and shown that there is.
func (b *Broker) settle() {
	told := make(chan struct{})
	b.learned.flushed <- told
	<-told
}

func TestWhatResultsLookLikeIsLearned(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	c.add(&mcp.Tool{Name: "honest", OutputSchema: json.RawMessage(`{"type":"object"}`)}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"a":1}`)}, nil
	})
	config := Config{Servers: []Definition{c.definition("party")}, Dir: dir}
	b := open(t, config)
	folder := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, alice, folder)
	before := contents(t, folder)
	for number, call := range []string{"weather {}", `echo {"text":"my secret"}`, "broken {}", "honest {}", "picture {}"} {
		tool, arguments, _ := strings.Cut(call, " ")
		ask(t, b, run(), number+1, "party", tool, arguments)
	}
	b.settle()
	mustProvide(t, b, alice, folder)
	after := contents(t, folder)
	if !strings.Contains(after["party/weather.py"], "learned from earlier results") {
		t.Errorf(`the tool's file: after["party/weather.py"] = %q, want "learned from earlier results" in it`,
			after["party/weather.py"])
	} else if !strings.Contains(after["party/weather.py"], "degrees") {
		t.Errorf(`the tool's file: after["party/weather.py"] = %q, want "degrees" in it`, after["party/weather.py"])
	}
	if !strings.Contains(after["party/echo.py"], "-> str") {
		t.Errorf(`the other one's file: after["party/echo.py"] = %q, want "-> str" in it`, after["party/echo.py"])
	} else if strings.Contains(fmt.Sprint(after), "my secret") {
		t.Errorf(`the other one's file: fmt.Sprint(after) = %q, want no "my secret" in it`, fmt.Sprint(after))
	}
	for _, same := range []string{"party/broken.py", "party/honest.py", "party/picture.py", "party/index.md"} {
		if before[same] != after[same] {
			t.Errorf("%s has become %s", same, after[same])
		}
	}
	// The files are those that the tools as they are now would have.
	v := b.view(b.common["party"], "alice", b.listings.entry(b.common["party"].key).listing)
	for _, f := range stub.Generate("party", v.tools).Files {
		if after["party/"+f.Path] != string(f.Data) {
			t.Errorf("%s is not what it should be", f.Path)
		}
	}
	hits, err := b.Search(t.Context(), alice, catalog.Query{Text: "temperature", Level: catalog.Full}, "")
	switch {
	case err != nil:
		t.Errorf("got error %v, want none", err)
	case len(hits) == 0:
		t.Error("hits is empty, want some")
	case !schema.Learned(hits[0].Found.Output):
		t.Error("schema.Learned(hits[0].Found.Output) = false, want true")
	case !strings.Contains(hits[0].Signature, "WeatherResult"):
		t.Errorf(`hits[0].Signature = %q, want "WeatherResult" in it`, hits[0].Signature)
	}
	// Another owner is not told.
	bobs := filepath.Join(t.TempDir(), "servers")
	mustProvide(t, b, Session{"bob", "s-1"}, bobs)
	if got := contents(t, bobs); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Error("another owner's files tell of it")
	}
	// Another process knows it.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, config)
	mustProvide(t, next, alice, folder)
	if got := contents(t, folder); fmt.Sprint(got) != fmt.Sprint(after) {
		t.Error("another process has other files")
	}
}

func TestAHostileServersResultsTeachOnlySoMuch(t *testing.T) {
	l := newLearned(t.TempDir(), nil)
	of := lesson{"alice", "key"}
	for i := range 10 * maxLessons {
		l.learn(sample{of, "tool", json.RawMessage(fmt.Sprintf(`{"field-%d":%d}`, i, i))})
	}
	if got := l.all[of].tools["tool"].Changes; got > maxLessons {
		t.Errorf("a tool's schema changed %d times", got)
	}
	wide := "{"
	for i := range 60 {
		wide += fmt.Sprintf(`"%s-%d":{"a":[1],"b":{"c":"d"}},`, strings.Repeat("n", 90), i)
	}
	wide += `"z":1}`
	for i := range 300 {
		l.learn(sample{of, fmt.Sprint("wide-", i), json.RawMessage(wide)})
	}
	size := 0
	for name, o := range l.all[of].tools {
		size += len(name) + len(o.Schema)
	}
	if size > maxTaught {
		t.Errorf("size = %d, want at most %d", size, maxTaught)
	} else if len(l.all[of].tools) < 10 {
		t.Errorf("len(l.all[of].tools) = %d, want at least 10", len(l.all[of].tools))
	}
	l.flush()
	if again := newLearned(l.dir, nil).of("alice", "key"); again == nil {
		t.Error("another process knows something else: again is nil, want one")
	} else if len(again.outputs) != len(l.all[of].tools) {
		t.Errorf("another process knows something else: len(again.outputs) = %d, want %d",
			len(again.outputs), len(l.all[of].tools))
	}
	for i := range 2 * maxLearned {
		l.of("alice", fmt.Sprint(i))
	}
	if len(l.all) > maxLearned+1 {
		t.Errorf("%d servers are known", len(l.all))
	}
	for _, wrong := range []string{"{", `{"version":1,"of":"x","tools":{}}`, fmt.Sprintf(`{"version":1,"of":%q,"tools":{"a":null,"b":{"schema":{"type":"object"}}}}`, nameOf("alice", "key"))} {
		if err := os.WriteFile(l.path(of), []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := newLearned(l.dir, nil).of("alice", "key"); got != nil {
			t.Errorf("%s teaches %v", wrong, got.outputs)
		}
	}
}

func TestTooManyResultsAtOnceAreNotWaitedFor(t *testing.T) {
	l := newLearned("", nil) // its loop does not run
	for range 10 * maxSamples {
		l.offer("alice", "key", "tool", upstream.Result{Structured: json.RawMessage(`{}`)}, false)
	}
	l.offer("alice", "key", "tool", upstream.Result{Structured: make(json.RawMessage, maxSample+1)}, false)
	if len(l.samples) != maxSamples {
		t.Errorf("%d wait", len(l.samples))
	}
}
