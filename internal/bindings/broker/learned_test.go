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
	if !strings.Contains(after["party/weather.py"], "learned from earlier results") || !strings.Contains(after["party/weather.py"], "degrees") {
		t.Errorf("the tool's file is %s", after["party/weather.py"])
	}
	if !strings.Contains(after["party/echo.py"], "-> str") || strings.Contains(fmt.Sprint(after), "my secret") {
		t.Errorf("the other one's file is %s", after["party/echo.py"])
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
	if err != nil || len(hits) == 0 || !schema.Learned(hits[0].Found.Output) || !strings.Contains(hits[0].Signature, "WeatherResult") {
		t.Errorf("it is found as %+v, %v", hits, err)
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
	if size > maxTaught || len(l.all[of].tools) < 10 {
		t.Errorf("%d tools are known, in %d bytes", len(l.all[of].tools), size)
	}
	l.flush()
	if again := newLearned(l.dir, nil).of("alice", "key"); again == nil || len(again.outputs) != len(l.all[of].tools) {
		t.Error("another process knows something else")
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
	l := newLearned("", nil) // nobody runs it
	for range 10 * maxSamples {
		l.offer("alice", "key", "tool", upstream.Result{Structured: json.RawMessage(`{}`)}, false)
	}
	l.offer("alice", "key", "tool", upstream.Result{Structured: make(json.RawMessage, maxSample+1)}, false)
	if len(l.samples) != maxSamples {
		t.Errorf("%d wait", len(l.samples))
	}
}
