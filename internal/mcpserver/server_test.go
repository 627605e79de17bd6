package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
	"paddock/internal/bindings/broker"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/skill"
)

// newServer makes a Server over sessions whose programs are the fake's.
func newServer(t *testing.T, config Config, sessions session.Config) *Server {
	t.Helper()
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})
	sessions.Dir, sessions.Backends = t.TempDir(), []sandbox.Backend{backend}
	m, err := session.New(sessions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); backend.Close() })
	config.Sessions, config.MemoryBytes = m, sessions.MemoryBytes
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wire is the client's end of a ServeStdio.
type wire struct {
	in    *io.PipeWriter
	ended chan error

	mu  sync.Mutex
	out bytes.Buffer
}

// serve begins to serve over pipes. The end is waited for when the test ends.
func serve(t *testing.T, ctx context.Context, s *Server) *wire {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	w := &wire{in: toServer, ended: make(chan error, 1)}
	read := make(chan struct{})
	go func() {
		err := s.ServeStdio(ctx, in, out)
		<-read // so that all its answers are in w.out
		w.ended <- err
	}()
	go func() {
		defer close(read)
		piece := make([]byte, 64<<10)
		for {
			n, err := fromServer.Read(piece)
			w.mu.Lock()
			w.out.Write(piece[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { toServer.Close(); <-read })
	return w
}

// send writes bytes as they are.
func (w *wire) send(t *testing.T, data string) {
	t.Helper()
	if _, err := io.WriteString(w.in, data); err != nil {
		t.Fatal(err)
	}
}

// received takes the lines that have come so far.
func (w *wire) received() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSuffix(w.out.String(), "\n")
	w.out.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// connect makes a client of the SDK, which speaks to the server over stdio.
func connect(t *testing.T, s *Server, name string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(t.Context(), in, out) }()
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, options)
	cs, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cs.Close()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return cs
}

// use calls a tool and checks its result against the tool's output schema.
func use(t *testing.T, cs *mcp.ClientSession, name string, arguments any) *mcp.CallToolResult {
	t.Helper()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if res.StructuredContent != nil {
		checkSchema(t, outputSchemas(t)[name], res.StructuredContent, name)
	}
	return res
}

// field takes one field out of structured content.
func field[T any](t *testing.T, res *mcp.CallToolResult, name string) T {
	t.Helper()
	m, _ := res.StructuredContent.(map[string]any)
	v, ok := m[name].(T)
	if !ok {
		t.Fatalf("the field %s is %v (%T) in %v", name, m[name], m[name], m)
	}
	return v
}

// outputSchemas resolves what tools/list says, once it has been through JSON, and behind
// it all that a result may have.
var outputSchemas = func() func(*testing.T) map[string][]*jsonschema.Resolved {
	var once sync.Once
	all := map[string][]*jsonschema.Resolved{}
	return func(t *testing.T) map[string][]*jsonschema.Resolved {
		t.Helper()
		once.Do(func() {
			for _, tool := range allTools() {
				for _, schema := range []any{tool.definition.OutputSchema, tool.results} {
					var s jsonschema.Schema
					if err := json.Unmarshal(transport.Encoded(schema), &s); err != nil {
						t.Fatal(err)
					}
					r, err := s.Resolve(nil)
					if err != nil {
						t.Fatalf("%s: %v", tool.definition.Name, err)
					}
					all[tool.definition.Name] = append(all[tool.definition.Name], r)
				}
			}
		})
		return all
	}
}()

// allTools are the tools of every set as this host would offer them.
func allTools() []tool { return toolsOf(slices.Sorted(maps.Keys(sets))...) }

// toolsOf are those of some sets.
func toolsOf(names ...string) []tool { return toolsWith(nil, names...) }

// toolsWith are those where calls may wait for a person, unless that is nil.
func toolsWith(approvals *approval.Store, names ...string) []tool {
	s := &Server{log: slog.New(slog.DiscardHandler), config: Config{Approvals: approvals, Servers: new(broker.Broker), Skills: skill.NewStore(skill.Config{}), DefaultTimeout: 30 * time.Second, MaxTimeout: time.Hour, MemoryBytes: 256 << 20}}
	runtimes := []session.Runtime{
		{Isolation: "wasm", Runtime: sandbox.Runtime{Name: "python", Languages: []string{"python"}}},
		{Isolation: "wasm", Runtime: sandbox.Runtime{Name: "javascript", Languages: []string{"javascript", "typescript"}}},
		{Isolation: "linux", Runtime: sandbox.Runtime{Name: "bash", Languages: []string{"bash"}}},
	}
	var all []tool
	for _, name := range names {
		all = append(all, sets[name](s, runtimes)...)
	}
	return all
}

func checkSchema(t *testing.T, schemas []*jsonschema.Resolved, value any, name string) {
	t.Helper()
	if len(schemas) == 0 {
		t.Fatalf("%s has no output schema", name)
	}
	for _, schema := range schemas {
		if err := schema.Validate(value); err != nil {
			t.Errorf("the result of %s does not fit its schema: %v\n%v", name, err, value)
		}
	}
}
