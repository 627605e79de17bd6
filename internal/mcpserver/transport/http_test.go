package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/session"
)

// What is written by hand is what encoding/json makes of it.
func TestTheResultsJSON(t *testing.T) {
	for name, r := range map[string]wireResult{
		"nothing":    {Content: []mcp.Content{}},
		"texts":      {Content: []mcp.Content{&mcp.TextContent{Text: "a\"b\n<é\u2028>"}, &mcp.TextContent{}}, Structured: json.RawMessage(`{"x":[1,2]}`)},
		"an error":   {Content: []mcp.Content{&mcp.TextContent{Text: "x", Meta: mcp.Meta{"a": 1}}}, Structured: map[string]any{"error": 1}, IsError: true},
		"a picture":  {Content: []mcp.Content{&mcp.ImageContent{MIMEType: "image/png", Data: []byte{1, 2}}, &mcp.TextContent{Text: "y"}}, Type: "complete", Meta: map[string]any{"k": "v"}},
		"no content": {Content: []mcp.Content{}, Structured: json.RawMessage(nil)},
	} {
		var got, want any
		if err := json.Unmarshal(r.appendTo(nil), &got); err != nil {
			t.Errorf("%s: %v in %s", name, err, r.appendTo(nil))
			continue
		}
		if data, ok := r.Structured.(json.RawMessage); ok && len(data) == 0 {
			r.Structured = nil
		}
		if err := json.Unmarshal(Encoded(r), &want); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestASessionIsItsScopes(t *testing.T) {
	h := &sessions{}
	h.add(&mcpSession{id: "a", owner: "o", scope: "*"}, 10)
	if h.use("a", "o", "files") != nil {
		t.Error("with another scope: got a session, want none")
	}
	if h.use("a", "o", "*") == nil {
		t.Error("with its scope: got no session, want it")
	}
}

func TestAnIDIsTheSameHoweverItIsWritten(t *testing.T) {
	m := &mcpSession{}
	cancelled := false
	m.begin(idOf([]byte(`"a&b"`)), func(error) { cancelled = true })
	if !m.cancel(json.RawMessage("\"a\\u0026b\"")) {
		t.Error("cancelling a call by its id: got false, want true")
	}
	if !cancelled {
		t.Error("cancelled: got false, want true")
	}
}

func TestAnAbandonedStreamIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, gone := newStream(), atomic.Bool{}
		s.abandoned(func() { gone.Store(true) })
		time.Sleep(resumeTime - time.Second)
		s.reading(1)
		time.Sleep(resumeTime)
		if synctest.Wait(); gone.Load() {
			t.Fatal("it was given up while somebody read")
		}
		s.reading(-1)
		time.Sleep(resumeTime - time.Second)
		if synctest.Wait(); gone.Load() {
			t.Fatal("it was given up early")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); !gone.Load() {
			t.Error("it was not given up")
		}
	})
}

func TestKeptStreamsAreBounded(t *testing.T) {
	var a archive
	var all []*stream
	for n := range 100 {
		s := newStream()
		s.add(make([]byte, 1<<20))
		s.end()
		a.keep(session.Owner(fmt.Sprint(n%2)), s)
		all = append(all, s)
	}
	bytes := 0
	for _, s := range all {
		bytes += s.size()
	}
	if last := all[99].size(); bytes > 2*ownerKept {
		t.Errorf("bytes: got %v, want at most %v", bytes, 2*ownerKept)
	} else if last != 1<<20 {
		t.Errorf("all[99].size(): got %v, want %v", last, 1<<20)
	}
	if a.sweep(time.Now().Add(2 * keptFor)); a.all != 0 {
		t.Errorf("afterwards: a.all: got %v, want 0", a.all)
	} else if len(a.owner) != 0 {
		t.Errorf("afterwards: a.owner: got %v, want none", a.owner)
	} else if len(a.streams) != 0 {
		t.Errorf("afterwards: a.streams: got %v, want none", a.streams)
	}
}

func TestLargeBodiesAreCounted(t *testing.T) {
	var b bodies
	var releases []func()
	for {
		release, ok := b.take("one", 10<<20, 1)
		if !ok {
			break
		}
		releases = append(releases, release)
	}
	if _, ok := b.take("two", 10<<20, 1); len(releases) != 3 {
		t.Errorf("len(releases): got %d, want 3: %v", len(releases), releases)
	} else if !ok {
		t.Error(`b.take("two", 10<<20, 1): got false, want true`)
	}
	if _, ok := b.take("one", 1000, 1); !ok {
		t.Error("a small one is refused")
	}
	for _, release := range releases {
		release()
	}
	if _, ok := b.take("one", -1, 10<<20); !ok {
		t.Error("nothing was given back")
	}
}

func TestAnAnswerIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a second one would wait here for ever
		m := &mcpSession{}
		came := m.expect(`"a"`)
		one := reaction{json.RawMessage(`"a"`), json.RawMessage(`{}`)}
		switch {
		case m.take(nil):
			t.Error("no answer: got true, want false")
		case m.take(&reaction{id: json.RawMessage(`"b"`)}):
			t.Error("another answer: got true, want false")
		case !m.take(&one):
			t.Error("the answer: got false, want true")
		case m.take(&one):
			t.Error("the answer a second time: got true, want false")
		}
		if got := <-came; string(got.result) != "{}" {
			t.Errorf("it is %s", got.result)
		}
		m.expect(`"c"`)
		if m.unexpect(`"c"`); m.take(&reaction{id: json.RawMessage(`"c"`)}) {
			t.Error("an answer that nobody waits for is taken")
		}
	})
}

// busy is a Server whose one tool runs until its call's context ends.
type busy struct{ running chan struct{} }

func (busy) SDK([]string, bool, bool) *mcp.Server {
	return mcp.NewServer(&mcp.Implementation{Name: "busy", Version: "1"}, nil)
}
func (busy) Owner(context.Context, Caller) (session.Owner, error) { return "ann", nil }
func (busy) Tool(name string) (Tool, bool)                        { return Tool{Set: "core"}, name == "run" }
func (busy) SessionEnded(session.Owner, string)                   {}
func (b busy) Call(ctx context.Context, _ Call) *mcp.CallToolResult {
	b.running <- struct{}{}
	<-ctx.Done()
	return &mcp.CallToolResult{}
}

func TestABodyOfUnknownLengthIsHeldForWhatItIs(t *testing.T) {
	b := busy{make(chan struct{})}
	h, err := NewHandler(b, Base{Log: slog.New(slog.DiscardHandler)}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ctx, cancel := context.WithCancel(t.Context())
	body := io.MultiReader(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run"}}`))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = -1
	served := make(chan struct{})
	go func() { h.ServeHTTP(httptest.NewRecorder(), r); close(served) }()
	<-b.running
	h.bodies.mu.Lock()
	if got := h.bodies.all; got != 0 {
		t.Errorf("%d bytes are in hand, want 0", got)
	}
	h.bodies.mu.Unlock()
	cancel()
	<-served
}
