package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/tests/mcp/suite"
)

// program is one of npm's, as a definition of a server.
func program(t *testing.T, packages suite.Packages, name string, args ...string) Server {
	t.Helper()
	return Server{Name: name, Command: packages.Bin("node"), Args: append([]string{packages.Bin(name)}, args...), CallTimeout: timeout}
}

func TestTheReferenceServerIsUsedOverEachTransport(t *testing.T) {
	packages := suite.Install(t)
	for name, c := range map[string]struct {
		server func(t *testing.T) Server
		era    Era
	}{
		"stdio": {func(t *testing.T) Server { return program(t, packages, "mcp-server-everything", "stdio") }, Legacy},
		"HTTP": {func(t *testing.T) Server {
			return Server{Name: "everything", URL: packages.Everything(t, "streamableHttp") + "/mcp"}
		}, Legacy},
		"SSE": {func(t *testing.T) Server {
			return Server{Name: "everything", URL: packages.Everything(t, "sse") + "/sse"}
		}, LegacySSE},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, c.server(t), Options{Transport: transport(t), Environ: os.Environ()})
			if conn.Info().Era != c.era {
				t.Errorf("its era is %q", conn.Info().Era)
			}
			useEverything(t, conn)
		})
	}
}

func useEverything(t *testing.T, c *Conn) {
	t.Helper()
	if got := names(t, c); len(got) < 13 {
		t.Fatalf("its tools: len(got) = %d, want at least 13: %q", len(got), got)
	} else if !slices.Contains(got, "get-structured-content") {
		t.Fatalf(`its tools: got %q, want "get-structured-content" in it`, got)
	}
	if r := call(t, c, "echo", `{"message":"hi ü"}`); r.Content[0].Text != "Echo: hi ü" {
		t.Errorf("echo: %+v", r)
	}
	if r := call(t, c, "get-structured-content", `{"location":"New York"}`); !strings.Contains(string(r.Structured), `"temperature"`) {
		t.Errorf("structured: %s", r.Structured)
	}
	r := call(t, c, "get-tiny-image", `{}`)
	i := slices.IndexFunc(r.Content, func(b Block) bool { return b.Kind == Image })
	switch {
	case i < 0:
		t.Errorf("image: i = %v, want at least 0: %+v", i, r)
	case r.Content[i].MIME != "image/png":
		t.Errorf(`image: r.Content[i].MIME = %q, want "image/png"`, r.Content[i].MIME)
	case !bytes.HasPrefix(r.Content[i].Data, []byte("\x89PNG")):
		t.Errorf("image: r.Content[i].Data = %q, want prefix %q", r.Content[i].Data, "\x89PNG")
	}
	r = call(t, c, "get-resource-links", `{"count":2}`)
	if links := slices.DeleteFunc(slices.Clone(r.Content), func(b Block) bool { return b.Kind != Link || b.URI == "" }); len(links) != 2 {
		t.Errorf("links: %+v", r)
	}
	r = call(t, c, "get-resource-reference", `{"resourceType":"Text","resourceId":1}`)
	if !slices.ContainsFunc(r.Content, func(b Block) bool { return b.Kind == Resource && b.URI != "" && b.Text != "" }) {
		t.Errorf("resource: %+v", r)
	}
	if r := call(t, c, "get-sum", `{"a":"x","b":2}`); !r.IsError {
		t.Errorf("arguments of a wrong type: %+v", r)
	}
	var steps []Progress
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := c.Call(ctx, "trigger-long-running-operation", []byte(`{"duration":0.2,"steps":2}`), CallOptions{Progress: func(p Progress) { steps = append(steps, p) }})
	switch {
	case err != nil:
		t.Errorf("long: %v", err)
	case len(steps) == 0:
		t.Errorf("long: steps is empty, want some: %+v", steps)
	case steps[len(steps)-1].Total != 2:
		t.Errorf("long: steps[len(steps)-1].Total = %v, want 2: %+v", steps[len(steps)-1].Total, steps)
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if r := call(t, c, "get-sum", fmt.Sprintf(`{"a":%d,"b":1}`, i)); !strings.Contains(r.Content[0].Text, fmt.Sprint(i+1)) {
				t.Errorf("sum: %+v", r)
			}
		})
	}
	all.Wait()
}

func TestARestartedServerIsUsedOn(t *testing.T) {
	packages := suite.Install(t)
	ctx, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(address)
	run := func(ctx context.Context) (wait func()) {
		cmd := packages.Program(ctx, "mcp-server-everything", "streamableHttp")
		cmd.Env = append(cmd.Env, "PORT="+port)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server listens", func() bool {
			r, err := http.Get("http://" + address + "/mcp")
			if err == nil {
				_ = r.Body.Close()
			}
			return err == nil
		})
		return func() { _ = cmd.Wait() }
	}
	base := transport(t)
	p := NewPool(PoolConfig{Dial: func(ctx context.Context, _ Key) (*Conn, error) {
		return Dial(ctx, Server{Name: "everything", URL: "http://" + address + "/mcp"}, Options{Transport: base})
	}})
	defer p.Close()
	wait := run(ctx)
	if _, err := p.Call(t.Context(), here, "echo", []byte(`{"message":"a"}`), CallOptions{}); err != nil {
		t.Fatal(err)
	}
	stop()
	wait()
	base.(*http.Transport).CloseIdleConnections()
	again, end := context.WithCancel(t.Context())
	wait = run(again)
	defer wait()
	defer end()
	if r, err := p.Call(t.Context(), here, "echo", []byte(`{"message":"b"}`), CallOptions{}); err != nil {
		t.Errorf("after its restart: got error %v, want none (%s)", err, cause(err))
	} else if r.Content[0].Text != "Echo: b" {
		t.Errorf(`after its restart: r.Content[0].Text = %q, want "Echo: b": %+v`, r.Content[0].Text, r)
	}
}

func TestServersOfFilesAndOfMemoryAreUsed(t *testing.T) {
	packages := suite.Install(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("here"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := dial(t, program(t, packages, "mcp-server-filesystem", dir), Options{})
	if got := names(t, files); len(got) != 14 {
		t.Errorf("its tools are %q", got)
	}
	r := call(t, files, "read_text_file", fmt.Sprintf(`{"path":%q}`, filepath.Join(dir, "a.txt")))
	if string(r.Structured) != `{"content":"here"}` {
		t.Errorf("it read %s", r.Structured)
	}
	if r := call(t, files, "read_text_file", `{"path":"/etc/passwd"}`); !r.IsError {
		t.Errorf("it read %+v", r)
	}
	s := program(t, packages, "mcp-server-memory")
	s.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.json")}
	memory := dial(t, s, Options{})
	call(t, memory, "create_entities", `{"entities":[{"name":"paddock","entityType":"program","observations":["it is safe"]}]}`)
	if r := call(t, memory, "search_nodes", `{"query":"safe"}`); !strings.Contains(string(r.Structured), `"name":"paddock"`) {
		t.Errorf("it found %s", r.Structured)
	}
}

func TestAServerOfTheTypeScriptSDKIsSpokenToInTheModernEra(t *testing.T) {
	packages := suite.Install(t)
	for name, s := range map[string]Server{
		"stdio": {Name: "typescript", Command: packages.Bin("node"), Args: []string{packages.ModernScript(t), packages.Dir, "stdio"}},
		"HTTP":  {Name: "typescript", URL: packages.Modern(t)},
	} {
		t.Run(name, func(t *testing.T) {
			known := NewEras()
			known.Remember(s.Place(), Modern) // node may take longer to start than a probe waits
			c := dial(t, s, Options{Transport: transport(t), Eras: known})
			if c.Info().Era != Modern {
				t.Errorf("c.Info().Era = %q, want %q", c.Info().Era, Modern)
			} else if c.Info().Name != "typescript" {
				t.Errorf(`c.Info().Name = %q, want "typescript"`, c.Info().Name)
			}
			if got := names(t, c); !slices.Equal(got, []string{"echo", "double", "fail"}) {
				t.Errorf("its tools are %q", got)
			}
			if r := call(t, c, "double", `{"z":"ab"}`); string(r.Structured) != `{"doubled":"abab"}` {
				t.Errorf("it gave %s", r.Structured)
			}
			if r := call(t, c, "fail", `{}`); !r.IsError {
				t.Errorf("r.IsError = false, want true: %+v", r)
			} else if !strings.Contains(r.Content[0].Text, "it did not work") {
				t.Errorf(`r.Content[0].Text = %q, want "it did not work" in it`, r.Content[0].Text)
			}
			if _, err := c.Call(t.Context(), "none", nil, CallOptions{}); ReasonOf(err) != Refused {
				t.Errorf("a tool that is not there: %v", err)
			}
		})
	}
}
